// Measures how many products of bytes matrix registers compute: see rate.h.
#pragma once
#include "twostroke/x86/rate_wide.h"

namespace twostroke {

constexpr int64_t kInt8Ops = 4 * 2 * 16 * 16 * 64;
inline void int8_task(void* arg, int64_t, int32_t) {
  static_cast<RateJob*>(arg)->start.together();
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
  for (int64_t r = 0; r < static_cast<RateJob*>(arg)->rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

}  // namespace twostroke
