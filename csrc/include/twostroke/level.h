// What each instruction-set level has, in numbers. Code that is written once asks kLevel for it, and not the preprocessor.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kNever = INT64_MAX;

// A level says where it differs from the one that it builds upon; these values are those of plain C++.
struct Level {
  const char* name = "generic";
  bool byte_products = false;     // x86: one instruction multiplies four bytes by four without saturating
  bool dot_products = false;      // Arm: one instruction for the same
  bool matrix_products = false;   // Arm: one for two columns by two rows of eight bytes
  bool matrix_registers = false;  // x86: AMX

  // Products of packed weights, by the number of rows of activations.
  int64_t tile_rows = 4;                  // of a register tile
  int64_t float_rows = tile_rows;         // up to so many meet a few columns of floats before the next, more than one tile of them
  int64_t int4_rows = 0;                  // up to so many multiply int4 from its nibbles; more share one unpacking to bytes
  bool int4_codes = false;                // more than int4_rows share codes and multipliers apart, not their products
  int64_t blocked_rows = kNever;          // from so many on, rows of a block are multiplied together
  int64_t read_rows = 1;                  // a block is read in whole multiples: what no row fills must be zeros
  int64_t stream_rows = 0;                // up to so many read whole panels as they lie packed
  int64_t int8_read_on = 0;               // so do as many of a block, where memory is read front to back
  int64_t int4_read_on = 0;
  int64_t stored_few_rows = 0;            // up to so many meet a panel of stored codes in one go; 0: codes are unpacked first

  bool vector_steps = false;  // activations are rounded by code of the level's own; else the compiler finds the vectors

  int ahead_locality = 3;  // attention: the cache that the next tile is fetched into

  constexpr bool has_blocks() const { return blocked_rows != kNever; }
  constexpr bool reads_several_on() const { return int8_read_on > stream_rows; }
  constexpr bool stored_as_they_lie() const { return stored_few_rows > 0; }
};

namespace levels {

constexpr Level generic() { return {}; }

constexpr Level avx2() {
  Level level = generic();
  level.name = "avx2";
  level.int4_rows = 7;  // unpacking takes as long as three rows
  level.int4_codes = true;  // sums of codes times activations fit 16 bits, those of bytes do not
  level.stored_few_rows = 4;  // one tile
  return level;
}

constexpr Level avxvnni() {
  Level level = avx2();
  level.name = "avxvnni";
  level.byte_products = true;
  level.int4_rows = 4 * level.tile_rows;
  level.int4_codes = false;
  return level;
}

constexpr Level avx512() {
  Level level = generic();
  level.name = "avx512";
  level.byte_products = true;
  level.tile_rows = 6;  // 6 x 4 accumulators, 4 weights, 1 activation: 29 of 32 registers
  level.float_rows = 4 * level.tile_rows;
  level.blocked_rows = 4;
  level.stream_rows = 3;
  level.int8_read_on = 12;
  level.int4_read_on = 8;
  level.stored_few_rows = 8;  // the two halves of a panel
  level.vector_steps = true;
  // A tile of bf16, 16 KiB, takes half of a first level of 32 KiB from the tile at hand. Measured on a Zen 4, 32 streams of 512 tokens:
  // first level 69% of the read loop, second 81%.
  level.ahead_locality = 2;
  return level;
}

constexpr Level amx() {
  Level level = avx512();
  level.name = "amx";
  level.matrix_registers = true;
  level.blocked_rows = 5;
  level.read_rows = 32;
  level.stream_rows = 4;
  level.int8_read_on = level.int4_read_on = level.stream_rows;
  level.ahead_locality = 3;  // CPUs with matrix registers have a first level of 48 KiB
  return level;
}

constexpr Level neon() {
  Level level = generic();
  level.name = "neon";
  level.vector_steps = true;
  return level;
}

constexpr Level dotprod() {
  Level level = neon();
  level.name = "dotprod";
  level.dot_products = true;
  level.int4_rows = level.tile_rows;
  return level;
}

constexpr Level i8mm() {
  Level level = dotprod();
  level.name = "i8mm";
  level.matrix_products = true;
  return level;
}

}  // namespace levels

// The level that is compiled. A level's macro comes with those of the levels that it builds upon (build.py).
#if defined(TS_LEVEL_AMX)
constexpr Level kLevel = levels::amx();
#elif defined(TS_LEVEL_AVX512)
constexpr Level kLevel = levels::avx512();
#elif defined(TS_LEVEL_AVXVNNI)
constexpr Level kLevel = levels::avxvnni();
#elif defined(TS_LEVEL_AVX2)
constexpr Level kLevel = levels::avx2();
#elif defined(TS_LEVEL_I8MM)
constexpr Level kLevel = levels::i8mm();
#elif defined(TS_LEVEL_DOTPROD)
constexpr Level kLevel = levels::dotprod();
#elif defined(TS_LEVEL_NEON)
constexpr Level kLevel = levels::neon();
#else
constexpr Level kLevel = levels::generic();
#endif

}  // namespace twostroke
