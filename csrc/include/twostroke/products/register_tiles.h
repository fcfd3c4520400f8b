// The sizes of register tiles, for an instruction set's registers, in kernels that are written once for all levels.
#pragma once

namespace twostroke {

// Sizes in vectors of sixteen lanes. AVX-512 has 32 such vectors, AVX2 and NEON have 8. These values are those of plain C++.
struct RegisterTiles {
  // Attention: rows x pages of scores, rows x vectors of outputs. wide: for K and V that are widened before; thin: for K and V that are
  // widened on the way.
  int wide_rows = 2, wide_vectors = 1, thin_rows = 1, thin_vectors = 2;
  // Attention over integers: rows x pages of scores, rows of two digits x vectors of outputs. widest_integers: the most vectors that the
  // last register tile of a row of outputs may have; a tile of one vector would wait for its own sums.
  int score_rows = 2, value_rows = 1, integer_vectors = 2, widest_integers = 2;
  int byte_block_rows = 192;  // rows of a block of queries, where products are of bytes
  int scan_tokens = 2;  // ssd_scan: tokens that go through a row together
  int adapter_rows = 2, adapter_ranks = 8;  // low_rank: rows of a tile, and ranks of a row
  int rotated_lanes = 4;                       // rotation: lanes of one register
  int rate_sums = 12;  // limits: enough sums to hide the latency of a fused multiply-add
};

namespace tiles {

constexpr RegisterTiles plain() { return {}; }

constexpr RegisterTiles avx2() {
  RegisterTiles tiles = plain();
  tiles.wide_rows = 6;
  tiles.thin_rows = 2;
  tiles.rotated_lanes = 8;
  tiles.rate_sums = 5;  // a vector is two registers: 10 for sums and 4 for the factors fit 16 registers
  return tiles;
}

constexpr RegisterTiles avx512() {
  RegisterTiles tiles = plain();
  tiles.wide_rows = 6;
  tiles.thin_rows = tiles.score_rows = 4;
  tiles.wide_vectors = tiles.thin_vectors = tiles.integer_vectors = 4;
  tiles.value_rows = 2;
  tiles.byte_block_rows = 64;
  tiles.widest_integers = 6;  // 24 sums, six vectors of V and one factor take 31 registers
  tiles.scan_tokens = 8;  // inputs and sums take 16 registers
  tiles.adapter_rows = 4;
  tiles.adapter_ranks = 16;
  tiles.rotated_lanes = 16;
  return tiles;
}

constexpr RegisterTiles neon() {  // a vector is four registers: 16 for sums
  RegisterTiles tiles = plain();
  tiles.wide_rows = 4;
  tiles.thin_rows = 2;
  tiles.rate_sums = 6;
  return tiles;
}

}  // namespace tiles

#if defined(TS_LEVEL_AVX512)
constexpr RegisterTiles kRegisterTiles = tiles::avx512();
#elif defined(TS_LEVEL_AVX2)
constexpr RegisterTiles kRegisterTiles = tiles::avx2();
#elif defined(TS_LEVEL_NEON)
constexpr RegisterTiles kRegisterTiles = tiles::neon();
#else
constexpr RegisterTiles kRegisterTiles = tiles::plain();
#endif

}  // namespace twostroke
