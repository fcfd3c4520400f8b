// The properties of each instruction-set level, in numbers. Code that is written once reads kLevel and does not ask the preprocessor.
#pragma once
#include <stdint.h>

namespace twostroke {

constexpr int64_t kNever = INT64_MAX;

// These values are those of plain C++. A level lists its differences from the level that it builds upon.
struct Level {
  const char* name = "generic";
  bool byte_products = false;  // x86: one instruction multiplies four bytes by four without saturation
  bool dot_products = false;  // Arm: one instruction does the same
  bool matrix_products = false;  // Arm: one instruction multiplies two columns by two rows of eight bytes
  bool matrix_registers = false;  // x86: the level has AMX

  // Products of packed weights, by the number of rows of activations.
  int64_t tile_rows = 4;  // rows of a register tile
  int64_t float_rows = tile_rows;  // up to this many rows are multiplied by a few columns of floats before the next; more than tile_rows needs kernels
  int64_t int4_rows = 0;  // up to this many rows, int4 is multiplied from its nibbles; more rows share one unpacking to bytes
  bool int4_codes = false;  // more rows than int4_rows share codes and multipliers in separate arrays, not their products
  int64_t blocked_rows = kNever;  // from this many rows on, the rows of a block are multiplied together
  int64_t read_rows = 1;  // a block is read in multiples of this; missing rows must be zeros
  int64_t stream_rows = 0;  // up to this many rows, whole panels are read as they lie packed
  int64_t int8_read_on = 0;  // the same for this many rows of a block, where memory is read from front to back
  int64_t int4_read_on = 0;
  int64_t stored_few_rows = 0;  // up to this many rows are multiplied by a panel of stored codes at once; 0: codes are unpacked first

  bool vector_steps = false;  // code of the level's own rounds activations; else the compiler finds the vector instructions

  int ahead_locality = 3;  // attention: the cache into which the next tile is fetched

  constexpr bool has_blocks() const { return blocked_rows != kNever; }
  constexpr bool reads_several_on() const { return int8_read_on > stream_rows; }
  constexpr bool stored_as_they_lie() const { return stored_few_rows > 0; }
};

namespace levels {

constexpr Level generic() { return {}; }

constexpr Level avx2() {
  Level level = generic();
  level.name = "avx2";
  level.int4_rows = 7;  // unpacking takes as long as multiplying three rows
  level.int4_codes = true;  // sums of codes times activations fit 16 bits, and sums of bytes do not
  level.stored_few_rows = 4;  // this is one tile
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
  level.tile_rows = 6;  // 6 x 4 accumulators, 4 weights and 1 activation take 29 of 32 registers
  level.float_rows = 4 * level.tile_rows;
  level.blocked_rows = 4;
  level.stream_rows = 3;
  level.int8_read_on = 12;
  level.int4_read_on = 8;
  level.stored_few_rows = 8;  // these are the two halves of a panel
  level.vector_steps = true;
  // A tile of bf16 has 16 KiB, which takes half of a first-level cache of 32 KiB from the current tile. Measured on a Zen 4 with 32 streams
  // of 512 tokens: fetching into the first level gives 69% of the read loop's rate, into the second 81%.
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
  level.ahead_locality = 3;  // CPUs with matrix registers have a first-level cache of 48 KiB
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

// The level that is compiled. A level's macro comes together with those of the levels that it builds upon (build.py).
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
