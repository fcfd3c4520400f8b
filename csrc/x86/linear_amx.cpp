// Multiplies many rows of ts_linear on matrix registers (AMX int8): four registers hold 32 rows by 32 columns.
#if defined(TS_LEVEL_AMX)
#include "twostroke/stream.h"
#include "twostroke/x86/linear_avx512.h"

namespace twostroke {
namespace {

constexpr int64_t kTileBytes = 1024;  // the bytes of a tile: 16 rows of 64 bytes
constexpr int64_t kPairRows = 32;
// After each of a step's 4 products, kRowsEach rows of the block before are folded, or kManyRows where there are fewer than kFewSteps
// steps. So all its rows are folded when this block ends.
constexpr int64_t kFewSteps = 4;
constexpr int kRowsEach = 2, kManyRows = 8;
// Up to this many rows, the next group is also fetched while rows are folded, because there are few other moments for it.
constexpr int64_t kFewRows = 64;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The memory from which the four matrix registers of weights are loaded. For int8 it is the packed panel, unsigned; for int4 it is signed
// tiles. step: the distance from one 64 k to the next. line: the distance from one quad to the next.
struct Tiles {
  const uint8_t* data;
  int64_t step, right, line;  // right: the distance from the first 16 columns to the next 16
};

constexpr int64_t kHalfStep = 2 * kTileBytes;

// Unpacks a group of int4 to signed bytes in tiles, in the order of their use: (half of 32 columns, 64 k, 2, 16 quads of k, 16 columns, 4).
void unpack_tiles(const Group& group, Fetch& ahead, uint8_t* block) {
  const int64_t steps = group.columns / kStep;
  for (int64_t s = 0; s < steps; ++s) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      ahead.step();
      uint8_t* tile = block + (((j / 2) * steps + s) * 2 + j % 2) * kTileBytes;
      unpack_step<0>(group.data + s * kInt4StepBytes, j, [&](int quad, __m512i four) { _mm512_store_si512(tile + 64 * quad, four); });
    }
  }
}

// Folds the integer sums of a finished block into float sums, a few rows at a time, between the products of the next block. So matrix and
// vector units work at the same time. kOffset: whether the weights were unsigned, which corrections undo.
template <bool kOffset, int kEach, bool kBetween>
struct Fold {
  const int32_t* integers;
  int64_t left;  // rows that are left; a turn takes kEach of them
  const float* x_scales;
  const int32_t* corrections;
  __m512 first_scale, second_scale;
  float* sums;

  TS_INLINE void row(Fetch& ahead) {
    if (kBetween) ahead.step();
    const __m512 x_scale = _mm512_set1_ps(*x_scales);
    __m512i first = _mm512_load_si512(integers), second = _mm512_load_si512(integers + 16);
    if (kOffset) {
      const __m512i correction = _mm512_set1_epi32(*corrections);
      first = _mm512_add_epi32(first, correction);
      second = _mm512_add_epi32(second, correction);
    }
    fold_vector(first, x_scale, first_scale, sums);
    fold_vector(second, x_scale, second_scale, sums + 16);
    integers += 32, sums += kPanel, ++x_scales, ++corrections;
  }
  TS_INLINE void turn(Fetch& ahead) {
    if (left < kEach) return;
    TS_UNROLL
    for (int i = 0; i < kEach; ++i) row(ahead);
    left -= kEach;
  }
  TS_INLINE void rest(Fetch& ahead) {
    for (; left > 0; --left) row(ahead);
  }
};

// Sets integers (32 or 16, 32) to rows of q times 32 columns, while the block before is folded. These are macros and not templates, because
// tile numbers and the operation must be literals. TS_FIRST_ROWS: one step of the first 16 rows.
#define TS_FIRST_ROWS(DOT)                  \
  ahead.step();                             \
  _tile_loadd(4, q, kStep);                 \
  _tile_loadd(6, tiles, w.line);            \
  DOT(0, 4, 6);                             \
  before.turn(ahead);                       \
  _tile_loadd(7, tiles + w.right, w.line);  \
  DOT(1, 4, 7);                             \
  before.turn(ahead);
#define TS_MULTIPLY(NAME, DOT, OFFSET)                                                                              \
  template <int kEach, bool kBetween>                                                                               \
  TS_INLINE void NAME(const int8_t* q, int64_t q_stride, const Tiles& w, int64_t steps, bool both, Fetch& ahead,    \
                      Fold<OFFSET, kEach, kBetween>& before, int32_t* integers) {                                   \
    const uint8_t* tiles = w.data;                                                                                  \
    _tile_zero(0);                                                                                                  \
    _tile_zero(1);                                                                                                  \
    if (both) {                                                                                                     \
      _tile_zero(2);                                                                                                \
      _tile_zero(3);                                                                                                \
      for (int64_t s = 0; s < steps; ++s, q += kTileBytes, tiles += w.step) {                                 \
        TS_FIRST_ROWS(DOT)                                                                                          \
        _tile_loadd(5, q + q_stride, kStep);                                                                        \
        DOT(2, 5, 6);                                                                                               \
        before.turn(ahead);                                                                                         \
        DOT(3, 5, 7);                                                                                               \
        before.turn(ahead);                                                                                         \
      }                                                                                                             \
      _tile_stored(2, integers + 16 * 32, 128);                                                                     \
      _tile_stored(3, integers + 16 * 32 + 16, 128);                                                                \
    } else {                                                                                                        \
      for (int64_t s = 0; s < steps; ++s, q += kTileBytes, tiles += w.step) {                                 \
        TS_FIRST_ROWS(DOT)                                                                                          \
      }                                                                                                             \
    }                                                                                                               \
    _tile_stored(0, integers, 128);                                                                                 \
    _tile_stored(1, integers + 16, 128);                                                                            \
    before.rest(ahead);                                                                                             \
  }
TS_MULTIPLY(multiply_unsigned, _tile_dpbsud, true)
TS_MULTIPLY(multiply_signed, _tile_dpbssd, false)
#undef TS_MULTIPLY
#undef TS_FIRST_ROWS

// Multiplies all rows by one group, in blocks of 32 rows by 32 columns. The two blocks of the same rows come one after the other, and the
// second finds the rows in the first-level cache.
template <bool kOffset, int kEach, bool kBetween, class Multiply>
TS_INLINE void all_blocks(const Group& group, const RowSet& set, const Tiles (&halves)[2], Fetch ahead, const Multiply& multiply) {
  alignas(64) int32_t integers[2][kPairRows * 32];
  const TileRows& x = set.x;
  const int64_t steps = group.columns / kStep, rows = set.rows;
  const int8_t* q = x.q + group.index * x.q_group_stride;
  Fold<kOffset, kEach, kBetween> before = {};
  for (int64_t r = 0; r < rows; r += kPairRows, q += 2 * x.q_stride) {
    const int64_t count = rows - r < kPairRows ? rows - r : kPairRows;
    TS_UNROLL
    for (int half = 0; half < 2; ++half) {
      multiply(q, x.q_stride, halves[half], steps, count > 16, ahead, before, integers[half]);
      before.integers = integers[half];
      before.left = count;
      before.x_scales = x.scales + group.index * x.pair_stride + r;
      before.corrections = x.corrections + group.index * x.pair_stride + r;
      before.first_scale = load_bf16(group.scales + 64 * half);
      before.second_scale = load_bf16(group.scales + 64 * half + 32);
      before.sums = set.sums + r * kPanel + 32 * half;
    }
  }
  before.rest(ahead);
}

// Multiplies both sets. The blocks of the first fetch what is read next.
template <bool kOffset, class Multiply>
TS_INLINE void both_sets(const Group& group, const RowSets& sets, const Tiles (&halves)[2], Fetch ahead, const Multiply& multiply) {
  for (const RowSet& set : sets) {
    if (set.rows <= kFewRows) {
      all_blocks<kOffset, kRowsEach, true>(group, set, halves, ahead, multiply);
    } else if (group.columns / kStep < kFewSteps) {
      all_blocks<kOffset, kManyRows, false>(group, set, halves, ahead, multiply);
    } else {
      all_blocks<kOffset, kRowsEach, false>(group, set, halves, ahead, multiply);
    }
    ahead.left = 0;
  }
}

}  // namespace

void configure_tiles() {
  const TileConfig config;
  _tile_loadconfig(&config);
}

void release_tiles() { _tile_release(); }

void block_group(int32_t kind, const Group& group, const RowSets& sets, uint8_t* block) {
  const int64_t steps = group.columns / kStep, rows = sets[0].rows, blocks = (rows + kPairRows - 1) / kPairRows;
  const int64_t lines = panel_bytes(kind, group.columns) / 64, moments = 2 * blocks * steps + (rows <= kFewRows ? 2 * rows : 0);
  if (kind == TS_W_INT4) {
    const int64_t each = (lines + moments + steps * kVectors - 1) / (moments + steps * kVectors);
    Fetch ahead = {group.after, lines, each};
    unpack_tiles(group, ahead, block);
    const Tiles halves[2] = {{block, kHalfStep, kTileBytes, 64}, {block + steps * kHalfStep, kHalfStep, kTileBytes, 64}};
    const auto multiply = [](auto&&... all) __attribute__((always_inline)) { multiply_signed(all...); };
    both_sets<false>(group, sets, halves, ahead, multiply);
  } else {
    const Fetch ahead = {group.after, lines, (lines + moments - 1) / moments};
    const Tiles halves[2] = {{group.data, kStep * kPanel, 64, kQuadBytes}, {group.data + 128, kStep * kPanel, 64, kQuadBytes}};
    const auto multiply = [](auto&&... all) __attribute__((always_inline)) { multiply_unsigned(all...); };
    both_sets<true>(group, sets, halves, ahead, multiply);
  }
}

}  // namespace twostroke
#endif
