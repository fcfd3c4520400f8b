// Intel's matrix registers (AMX: tile, int8, bf16) in plain C++, for tests. The header is included before a source of the level `amx`, so
// that a CPU without them runs it, with the same bits. It follows Intel's manual, volume 2: LDTILECFG, TILERELEASE, TILELOADD, TILESTORED,
// TILEZERO, TDPBF16PS, TDPBSSD, TDPBSUD. A fault (no configuration, shapes that do not fit) ends the process with a line. Each thread has
// its own registers, as on a CPU.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twostroke/x86/registers.h"

namespace tiles {

constexpr int kRegisters = 8, kRows = 16, kRowBytes = 64, kElements = kRowBytes / 4;

// The configuration as LDTILECFG reads it, with palette 1.
struct Config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64, "the instruction reads 64 bytes");

struct alignas(64) Register {
  uint8_t bytes[kRows][kRowBytes];
};

struct State {
  Config config;  // palette 0: not configured
  Register registers[kRegisters];
};

inline thread_local State state;

[[noreturn]] inline void fault(const char* instruction, const char* why) {
  fprintf(stderr, "emulated %s: %s\n", instruction, why);
  abort();
}

inline void release() { memset(&state, 0, sizeof(state)); }

inline void load_config(const void* from) {
  Config config;
  memcpy(&config, from, sizeof(config));
  if (config.palette == 0) return release();
  if (config.palette != 1) fault("LDTILECFG", "a palette that is neither 0 nor 1");
  if (config.start_row != 0) fault("LDTILECFG", "an instruction that was interrupted is not emulated");
  for (uint8_t each : config.reserved) {
    if (each != 0) fault("LDTILECFG", "a reserved byte that is not 0");
  }
  for (int i = 0; i < 16; ++i) {
    const int rows = config.rows[i], row_bytes = config.row_bytes[i];
    if (i >= kRegisters && (rows != 0 || row_bytes != 0)) fault("LDTILECFG", "a register beyond the eighth");
    if (rows > kRows || row_bytes > kRowBytes) fault("LDTILECFG", "more than 16 rows of 64 bytes");
    if ((rows == 0) != (row_bytes == 0)) fault("LDTILECFG", "rows without bytes, or bytes without rows");
  }
  release();
  state.config = config;
}

// The register, which must be part of the configuration.
inline Register& configured(int number, const char* instruction) {
  if (state.config.palette == 0) fault(instruction, "no configuration is loaded");
  if (number < 0 || number >= kRegisters || state.config.rows[number] == 0) fault(instruction, "a register that is not configured");
  if (state.config.row_bytes[number] % 4 != 0) fault(instruction, "a row that is no whole number of elements");
  return state.registers[number];
}

// Rows and bytes beyond the configured ones become zero.
inline void load(int number, const void* base, int64_t stride) {
  Register& to = configured(number, "TILELOADD");
  memset(&to, 0, sizeof(to));
  for (int r = 0; r < state.config.rows[number]; ++r) {
    memcpy(to.bytes[r], static_cast<const uint8_t*>(base) + r * stride, state.config.row_bytes[number]);
  }
}

inline void store(int number, void* base, int64_t stride) {
  const Register& from = configured(number, "TILESTORED");
  for (int r = 0; r < state.config.rows[number]; ++r) {
    memcpy(static_cast<uint8_t*>(base) + r * stride, from.bytes[r], state.config.row_bytes[number]);
  }
}

inline void zero(int number) { memset(&configured(number, "TILEZERO"), 0, sizeof(Register)); }

// Adds a (m, k) times b (k, n) to `to` (m, n), all of 32-bit elements. An element of a or b has 2 or 4 numbers.
struct Product {
  Register& to;
  const Register &a, &b;
  int m, n, k;

  Product(int to_number, int a_number, int b_number, const char* instruction)
      : to(configured(to_number, instruction)),
        a(configured(a_number, instruction)),
        b(configured(b_number, instruction)),
        m(state.config.rows[to_number]),
        n(state.config.row_bytes[to_number] / 4),
        k(state.config.rows[b_number]) {
    if (to_number == a_number || to_number == b_number || a_number == b_number) fault(instruction, "one register twice");
    if (m != state.config.rows[a_number] || k != state.config.row_bytes[a_number] / 4 || n != state.config.row_bytes[b_number] / 4) {
      fault(instruction, "shapes that do not fit");
    }
  }
};

// The part of the register that the instruction leaves after adding to it.
inline void keep(const Product& p) {
  for (int r = 0; r < kRows; ++r) memset(p.to.bytes[r] + (r < p.m ? 4 * p.n : 0), 0, kRowBytes - (r < p.m ? 4 * p.n : 0));
}

// Sums wrap around.
template <class A, class B>
void multiply_bytes(const Product& p) {
  for (int m = 0; m < p.m; ++m) {
    uint32_t sums[kElements];
    memcpy(sums, p.to.bytes[m], sizeof(sums));
    for (int k = 0; k < p.k; ++k) {
      for (int n = 0; n < p.n; ++n) {
        for (int i = 0; i < 4; ++i) {
          const int32_t x = static_cast<A>(p.a.bytes[m][4 * k + i]), y = static_cast<B>(p.b.bytes[k][4 * n + i]);
          sums[n] += static_cast<uint32_t>(x * y);
        }
      }
    }
    memcpy(p.to.bytes[m], sums, sizeof(sums));
  }
  keep(p);
}

inline float widened(const uint8_t* bf16) {
  uint16_t half;
  memcpy(&half, bf16, 2);
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}

// The first numbers of all pairs are added from 0, with rising k, and so are the second ones. Then both sums are added, and then their sum
// to the register. This is a function of its own, because no part of it may move to a place with another rounding mode.
__attribute__((noinline)) inline void multiply_pairs_in_mode(const Product& p) {
  for (int m = 0; m < p.m; ++m) {
    float first[kElements] = {}, second[kElements] = {}, sums[kElements];
    memcpy(sums, p.to.bytes[m], sizeof(sums));
    for (int k = 0; k < p.k; ++k) {
      const float x = widened(p.a.bytes[m] + 4 * k), y = widened(p.a.bytes[m] + 4 * k + 2);
      for (int n = 0; n < p.n; ++n) {
        first[n] = __builtin_fmaf(x, widened(p.b.bytes[k] + 4 * n), first[n]);
        second[n] = __builtin_fmaf(y, widened(p.b.bytes[k] + 4 * n + 2), second[n]);
      }
    }
    for (int n = 0; n < p.n; ++n) sums[n] = sums[n] + (first[n] + second[n]);
    memcpy(p.to.bytes[m], sums, sizeof(sums));
  }
  keep(p);
}

// Rounds to the nearest, ties to even. Numbers below the normal ones are zero on the way in and out, and there is no exception. The mode of
// the thread does not matter and does not change.
inline void multiply_pairs(const Product& p) {
  constexpr unsigned kMasked = 0x1f80, kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kMasked | kFlushToZero | kDenormalsAreZero);
  multiply_pairs_in_mode(p);
  _mm_setcsr(before);
}

}  // namespace tiles

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig(from) ::tiles::load_config(from)
#define _tile_release() ::tiles::release()
#define _tile_loadd(to, base, stride) ::tiles::load(to, base, stride)
#define _tile_stored(from, base, stride) ::tiles::store(from, base, stride)
#define _tile_zero(to) ::tiles::zero(to)
#define _tile_dpbf16ps(to, a, b) ::tiles::multiply_pairs(::tiles::Product(to, a, b, "TDPBF16PS"))
#define _tile_dpbssd(to, a, b) ::tiles::multiply_bytes<int8_t, int8_t>(::tiles::Product(to, a, b, "TDPBSSD"))
#define _tile_dpbsud(to, a, b) ::tiles::multiply_bytes<int8_t, uint8_t>(::tiles::Product(to, a, b, "TDPBSUD"))
