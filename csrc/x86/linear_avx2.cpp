// The register tile of ts_linear for AVX2 and FMA, with or without VNNI. A tile has up to 4 rows and crosses a panel in strips that fit 8
// accumulators.
#if defined(TS_LEVEL_AVX2)
#include <type_traits>

#include "twostroke/x86/linear_avx2.h"

namespace twostroke {
namespace {

// Weights in their stored form, with an excess of 128. The sums begin with corrections that undo it.
struct OffsetStep {
  [[maybe_unused]] static constexpr int32_t kCorrected = 1;
  __m256i weight;
  TS_INLINE explicit OffsetStep(const uint8_t* data) : weight(load(data)) {}
  TS_INLINE __m256i dot(__m256i total, const int8_t* q) const { return add_products(total, weight, broadcast_quad(q)); }
};

// Weights become signed again, so the sums need no correction. |w| * |x| <= 128 * 127, so the sum of two products does not saturate 16
// bits.
struct SignedStep {
  [[maybe_unused]] static constexpr int32_t kCorrected = 0;
  __m256i magnitude, weight;
  TS_INLINE explicit SignedStep(const uint8_t* data) {
    weight = _mm256_xor_si256(load(data), _mm256_set1_epi8(static_cast<char>(0x80)));
    magnitude = _mm256_abs_epi8(weight);
  }
  TS_INLINE __m256i dot(__m256i total, const int8_t* q) const {
    return add_products(total, magnitude, _mm256_sign_epi8(broadcast_quad(q), weight));
  }
};

using Int8Step = std::conditional_t<kAnyBytes, OffsetStep, SignedStep>;

// The quads of k between two moments for fetching. One row reads memory from front to back and fetches the lines after those that it reads.
// Several rows cross a group in strips, and each strip reads a part of every line. So they fetch the next group in equal parts.
constexpr int quads_each(int rows) { return rows == 1 ? 1 : 4; }

// Multiplies one strip of one group: integers exactly, then sums = fma(float(integers), x_scale * w_scale, sums).
template <int kRows, int kVectors>
TS_INLINE void group_strip(const uint8_t* data, const uint8_t* scales, const Group& group, const TileRows& x, [[maybe_unused]] Fetch& ahead,
                           float* sums) {
  __m256i integers[kRows][kVectors];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      integers[r][j] = _mm256_set1_epi32(Int8Step::kCorrected * x.corrections[group.index * x.pair_stride + r]);
    }
  }
  const int8_t* q = x.q + group.first;
  constexpr int kQuads = quads_each(kRows);
  for (int64_t k = 0; k < group.columns; k += 4 * kQuads) {
    if constexpr (kRows > 1) ahead.step();
    TS_UNROLL
    for (int quad = 0; quad < kQuads; ++quad, q += 4, data += kQuadBytes) {
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        if (kRows == 1 && j % 2 == 0) prefetch_line(data + 32 * j);
        const Int8Step step(data + 32 * j);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) integers[r][j] = step.dot(integers[r][j], q + r * x.q_stride);
      }
    }
  }
  fold_columns<Columns256>(integers, x.scales + group.index * x.pair_stride, scales, sums);
}

template <int kRows>
void int8_group(const uint8_t* data, const Group& group, const TileRows& x, [[maybe_unused]] FetchByTiles& after, float* sums) {
  constexpr int kVectors = Columns256::strip_vectors(kRows);
  constexpr int64_t kStrips = kPanel / (kVectors * Columns256::kCount);
  Fetch ahead = {};
  if constexpr (kRows > 1) ahead = after.next(kStrips * group.columns / (4 * quads_each(kRows)));
  for (int64_t c = 0; c < kPanel; c += kVectors * Columns256::kCount) {
    group_strip<kRows, kVectors>(data + 4 * c, group.scales + 2 * c, group, x, ahead, sums + c);
  }
}

constexpr GroupKernel kInt8[kTileRows] = {int8_group<1>, int8_group<2>, int8_group<3>, int8_group<4>};

}  // namespace

TileKernel float_kernel(int32_t kind, int64_t rows) { return float_tile_of<Columns256>(kind, rows); }

GroupKernel int8_kernel(int64_t rows) { return kInt8[rows - 1]; }

}  // namespace twostroke
#endif
