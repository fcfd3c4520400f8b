// Many rows of ts_linear on matrix registers (AMX int8): 32 rows by 32 columns in four of them.
// Knows: tiles, packed panels. Must not know: threads, bias.
#if defined(TS_LEVEL_AMX)
#include "twostroke/vnni.h"

namespace twostroke {
namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes
constexpr int64_t kBlockRows = 32;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// What the four matrix registers of weights are read from: for int8 the packed panel as it lies, unsigned; for int4 signed tiles.
// step: from one 64 k to the next. line: from one quad to the next.
struct Tiles {
  const uint8_t* data;
  int64_t step, right, line;  // right: from the first 16 columns to the next
};

// The group after this one is fetched a few lines at a time while this one is unpacked, multiplied and folded: hardware looks no
// further than a page ahead, and only once loads begin; all at once would fill the line buffers and wait.
struct Fetch {
  const uint8_t* line;
  int64_t lines_each;

  TS_INLINE void step() {
    for (int64_t i = 0; i < lines_each; ++i, line += 64) _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
  }
};

constexpr int64_t kHalfStep = 2 * kTileBytes;

// A group of int4 as signed bytes in tiles, in the order of their use: (half of 32 columns, 64 k, 2, 16 quads of k, 16 columns, 4).
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

// integers (32 or 16, 32) = rows of q times 32 columns. A macro, not a template: tile numbers and the operation must be literal.
#define TS_MULTIPLY(NAME, DOT)                                                                                      \
  TS_INLINE void NAME(const int8_t* q, int64_t q_stride, const Tiles& w, int64_t steps, bool both, Fetch& ahead, int32_t* integers) { \
    const uint8_t* tiles = w.data;                                                                                  \
    _tile_zero(0);                                                                                                  \
    _tile_zero(1);                                                                                                  \
    if (both) {                                                                                                     \
      _tile_zero(2);                                                                                                \
      _tile_zero(3);                                                                                                \
      for (int64_t s = 0; s < steps; ++s, q += kMatrixTileBytes, tiles += w.step) {                                 \
        ahead.step();                                                                                               \
        _tile_loadd(4, q, kStep);                                                                                   \
        _tile_loadd(6, tiles, w.line);                                                                              \
        DOT(0, 4, 6);                                                                                               \
        _tile_loadd(7, tiles + w.right, w.line);                                                                    \
        DOT(1, 4, 7);                                                                                               \
        _tile_loadd(5, q + q_stride, kStep);                                                                        \
        DOT(2, 5, 6);                                                                                               \
        DOT(3, 5, 7);                                                                                               \
      }                                                                                                             \
      _tile_stored(2, integers + 16 * 32, 128);                                                                     \
      _tile_stored(3, integers + 16 * 32 + 16, 128);                                                                \
    } else {                                                                                                        \
      for (int64_t s = 0; s < steps; ++s, q += kMatrixTileBytes, tiles += w.step) {                                 \
        ahead.step();                                                                                               \
        _tile_loadd(4, q, kStep);                                                                                   \
        _tile_loadd(6, tiles, w.line);                                                                              \
        DOT(0, 4, 6);                                                                                               \
        _tile_loadd(7, tiles + w.right, w.line);                                                                    \
        DOT(1, 4, 7);                                                                                               \
      }                                                                                                             \
    }                                                                                                               \
    _tile_stored(0, integers, 128);                                                                                 \
    _tile_stored(1, integers + 16, 128);                                                                            \
  }
TS_MULTIPLY(multiply_unsigned, _tile_dpbsud)
TS_MULTIPLY(multiply_signed, _tile_dpbssd)
#undef TS_MULTIPLY

// The 32 columns of sums beside `half`; kOffset: the weights were unsigned, corrections undo it.
template <bool kOffset>
TS_INLINE void fold_32(const int32_t* integers, int64_t rows, const TileRows& x, int64_t first_row, const Group& group, int half,
                       Fetch& ahead, float* sums) {
  const __m512 left = load_bf16(group.scales + 64 * half), right = load_bf16(group.scales + 64 * half + 32);
  const float* x_scales = x.scales + first_row * x.groups + group.index;
  const int32_t* corrections = x.corrections + first_row * x.groups + group.index;
  for (int64_t r = 0; r < rows; ++r, integers += 32, sums += kPanel, x_scales += x.groups, corrections += x.groups) {
    ahead.step();
    const __m512 x_scale = _mm512_set1_ps(*x_scales);
    __m512i first = _mm512_load_si512(integers), second = _mm512_load_si512(integers + 16);
    if (kOffset) {
      const __m512i correction = _mm512_set1_epi32(*corrections);
      first = _mm512_add_epi32(first, correction);
      second = _mm512_add_epi32(second, correction);
    }
    fold_vector(first, x_scale, left, sums);
    fold_vector(second, x_scale, right, sums + 16);
  }
}

}  // namespace

void matrix_begin() {
  const TileConfig config;
  _tile_loadconfig(&config);
}

void matrix_end() { _tile_release(); }

void matrix_group(int32_t kind, const Group& group, const TileRows& x, int64_t rows, uint8_t* block, float* sums) {
  alignas(64) int32_t integers[kBlockRows * 32];
  const int64_t steps = group.columns / kStep;
  const bool packed = kind == TS_W_INT4;
  const int64_t bytes = panel_bytes(kind, group.columns), blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t moments = 2 * rows + 2 * blocks * steps + (packed ? steps * kVectors : 0);
  Fetch ahead = {group.after, (bytes / 64 + moments - 1) / moments};
  if (packed) unpack_tiles(group, ahead, block);
  const int8_t* q = x.q + group.first / kStep * kMatrixTileBytes;
  for (int half = 0; half < 2; ++half) {
    const Tiles tiles = packed ? Tiles{block + half * steps * kHalfStep, kHalfStep, kTileBytes, 64}
                               : Tiles{group.data + half * 128, kStep * kPanel, 64, kQuadBytes};
    for (int64_t r = 0; r < rows; r += kBlockRows) {
      const int64_t count = rows - r < kBlockRows ? rows - r : kBlockRows;
      const int8_t* at = q + r / kMatrixTileRows * x.q_stride;
      float* to = sums + r * kPanel + 32 * half;
      if (packed) {
        multiply_signed(at, x.q_stride, tiles, steps, count > 16, ahead, integers);
        fold_32<false>(integers, count, x, r, group, half, ahead, to);
      } else {
        multiply_unsigned(at, x.q_stride, tiles, steps, count > 16, ahead, integers);
        fold_32<true>(integers, count, x, r, group, half, ahead, to);
      }
    }
  }
}

}  // namespace twostroke
#endif
