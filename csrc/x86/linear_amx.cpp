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

// A group as signed bytes in tiles, in the order of their use: (half of 32 columns, 64 k, 2, 16 quads of k, 16 columns, 4).
TS_INLINE uint8_t* tile_at(uint8_t* block, int64_t steps, int64_t step, int j) {
  return block + (((j / 2) * steps + step) * 2 + j % 2) * kTileBytes;
}

void prepare(int32_t kind, const Group& group, uint8_t* block) {
  const int64_t steps = group.columns / kStep;
  for (int64_t s = 0; s < steps; ++s) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      uint8_t* tile = tile_at(block, steps, s, j);
      if (kind == TS_W_INT4) {
        unpack_step<0>(group.data + s * kInt4StepBytes, j, [&](int quad, __m512i four) { _mm512_store_si512(tile + 64 * quad, four); });
        continue;
      }
      const uint8_t* quads = group.data + s * kStep * kPanel + 64 * j;
      for (int quad = 0; quad < 16; ++quad) {
        const __m512i four = _mm512_xor_si512(load(quads + quad * kQuadBytes), _mm512_set1_epi8(static_cast<char>(0x80)));
        _mm512_store_si512(tile + 64 * quad, four);
      }
    }
  }
}

// integers (32, 32) = 32 rows of q times 32 columns.
TS_INLINE void multiply_32(const int8_t* q, int64_t q_stride, const uint8_t* tiles, int64_t steps, int32_t* integers) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, q += kStep, tiles += 2 * kTileBytes) {
    _tile_loadd(4, q, q_stride);
    _tile_loadd(6, tiles, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, tiles + kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(5, q + 16 * q_stride, q_stride);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, integers, 128);
  _tile_stored(1, integers + 16, 128);
  _tile_stored(2, integers + 16 * 32, 128);
  _tile_stored(3, integers + 16 * 32 + 16, 128);
}

// The first 16 rows alone.
TS_INLINE void multiply_16(const int8_t* q, int64_t q_stride, const uint8_t* tiles, int64_t steps, int32_t* integers) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t s = 0; s < steps; ++s, q += kStep, tiles += 2 * kTileBytes) {
    _tile_loadd(4, q, q_stride);
    _tile_loadd(6, tiles, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, tiles + kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
  }
  _tile_stored(0, integers, 128);
  _tile_stored(1, integers + 16, 128);
}

TS_INLINE void fold_32(const int32_t* integers, int64_t rows, const float* x_scales, int64_t groups, __m512 left, __m512 right,
                       float* sums) {
  for (int64_t r = 0; r < rows; ++r, integers += 32, sums += kPanel) {
    const __m512 x_scale = _mm512_set1_ps(x_scales[r * groups]);
    fold_vector(_mm512_load_si512(integers), x_scale, left, sums);
    fold_vector(_mm512_load_si512(integers + 16), x_scale, right, sums + 16);
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
  prepare(kind, group, block);
  const int64_t steps = group.columns / kStep;
  for (int half = 0; half < 2; ++half) {
    const uint8_t* tiles = block + half * steps * 2 * kTileBytes;
    const __m512 left = load_bf16(group.scales + 64 * half), right = load_bf16(group.scales + 64 * half + 32);
    for (int64_t r = 0; r < rows; r += kBlockRows) {
      const int64_t count = rows - r < kBlockRows ? rows - r : kBlockRows;
      const int8_t* q = x.q + r * x.q_stride + group.first;
      count > 16 ? multiply_32(q, x.q_stride, tiles, steps, integers) : multiply_16(q, x.q_stride, tiles, steps, integers);
      fold_32(integers, count, x.scales + r * x.groups + group.index, x.groups, left, right, sums + r * kPanel + 32 * half);
    }
  }
}

}  // namespace twostroke
#endif
