// The threads of a block round one position's K and write it into its page.
#pragma once
#include "twostroke/attention/kv_page.h"
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

// The first element of the largest magnitude; NaN where any element is NaN. All threads of a warp call it, and each gets the result.
TS_DEVICE_INLINE float extreme_of(const float* x, int64_t dim) {
  constexpr uint32_t kNaN = 0x7f800001u;  // the magnitude of every NaN: above infinity, so that all NaN are equal
  uint32_t most = 0, at = 0;  // this thread's largest magnitude, and its first place
  float found = 0.0f;
  const uint32_t count = static_cast<uint32_t>(dim), lane = static_cast<uint32_t>(warp_lane());
  for (uint32_t d = lane; d < count; d += kWarp) {
    const float number = x[d];
    const uint32_t bits = bits_of(number) & 0x7fffffffu, magnitude = bits < kNaN ? bits : kNaN;
    if (magnitude > most || d == lane) {
      most = magnitude;
      at = d;
      found = number;
    }
  }
  if (lane >= count) at = lane;  // a place after every element, with the smallest magnitude
  TS_EVERY_LANE
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) {
    const uint32_t other = shuffle_across(most, mask), other_at = shuffle_across(at, mask);
    const float other_found = shuffle_across(found, mask);
    if (other > most || (other == most && other_at < at)) {
      most = other;
      at = other_at;
      found = other_found;
    }
  }
  return found;
}

// A row's scale as bf16 bits, and the bound to which q is clipped.
struct Rounding {
  float scale, low, high;
  uint16_t bits;
  bool usable;

  Rounding(float extreme, bool nibbles) {
    const bool finite = __builtin_fabsf(extreme) <= 3.4028234664e38f;
    bits = !finite ? 0x7fc0 : to_bf16(nibbles ? extreme / -8.0f : __builtin_fabsf(extreme) / 127.0f);
    scale = widen(bits);
    usable = finite && (bits & 0x7fff) != 0;
    low = nibbles ? -8.0f : -127.0f;
    high = nibbles ? 7.0f : 127.0f;
  }
  int32_t operator()(float x) const {
    if (!usable) return 0;
    float quotient = x / scale;  // the quotient is clipped first, because a scale that underflowed may make it far too large
    quotient = quotient < low ? low : quotient > high ? high : quotient;
    return static_cast<int32_t>((quotient + kRounder) - kRounder);
  }
};

// Writes two dimensions of one position into a byte, and zeros after the last dimension. number(d) is dimension d as a whole number.
template <class Number>
TS_DEVICE_INLINE uint8_t nibbles_of(const Number& number, int64_t dim, int64_t low, int64_t high) {
  const int32_t first = (low < dim ? number(low) : 0) + 8, second = (high < dim ? number(high) : 0) + 8;
  return static_cast<uint8_t>(first | second << 4);
}

// Writes K as f32 or bf16, which `kind` chooses.
TS_DEVICE_INLINE void write_float_keys(int32_t kind, const float* k, int64_t dim, int64_t offset, uint8_t* keys) {
  if (kind == TS_KV_F32) {
    for (int64_t d = thread_index(); d < dim; d += threads()) reinterpret_cast<float*>(keys)[d * TS_PAGE_TOKENS + offset] = k[d];
    return;
  }
  for (int64_t d = thread_index(); d < (dim + 1) / 2 * 2; d += threads())
    reinterpret_cast<uint16_t*>(keys)[(d / 2 * TS_PAGE_TOKENS + offset) * 2 + d % 2] = to_bf16(d < dim ? k[d] : 0.0f);
}

template <class Number>
TS_DEVICE_INLINE void write_whole_keys(const Number& number, int64_t dim, int64_t offset, bool nibbles, uint8_t* keys) {
  if (!nibbles) {
    for (int64_t d = thread_index(); d < (dim + 3) / 4 * 4; d += threads())
      keys[d / 4 * 64 + offset * 4 + d % 4] = static_cast<uint8_t>((d < dim ? number(d) : 0) + 128);
    return;
  }
  for (int64_t i = thread_index(); i < (dim + 7) / 8 * 4; i += threads()) {
    const int64_t low = i / 4 * 8 + i % 4;
    keys[i / 4 * 64 + offset * 4 + i % 4] = nibbles_of(number, dim, low, low + 4);
  }
}

}  // namespace cuda
}  // namespace twostroke
