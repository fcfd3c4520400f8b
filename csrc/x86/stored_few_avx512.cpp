// Few rows by a group of stored codes, read once as it lies, for AVX-512 with VNNI: what a stream waits for is memory.
// Knows: the layouts, quantized rows, 512-bit registers. Must not know: threads, what becomes of the sums.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/stored.h"
#include "twostroke/stream.h"
#include "twostroke/vnni.h"

namespace twostroke {
namespace {

// kKind stands for all kinds that differ from it in `sub` alone.
template <int32_t kKind>
struct Reader {
  static constexpr StoredShape kShape = stored_shape(kKind);
  static constexpr int64_t kScaleBytes = kShape.floats ? 4 : 2;
  // Codes are multiplied as unsigned bytes: these many more than meant.
  static constexpr int32_t kMore = kShape.table ? 12 : static_cast<int32_t>(kShape.offset);

  const uint8_t *scales, *minimum_scales, *multipliers, *minima, *codes;

  Reader(const uint8_t* packed, int64_t steps) {
    constexpr int64_t kinds = kShape.minimum ? 2 : 1;
    const int64_t scale_bytes = (kShape.super ? 1 : steps) * kPanel * kScaleBytes;
    scales = packed;
    minimum_scales = packed + scale_bytes;
    multipliers = packed + kinds * scale_bytes;
    minima = multipliers + steps * kPanel;
    codes = multipliers + (kShape.super ? kinds * steps * kPanel : 0);
  }

  static TS_INLINE __m512 scale(const uint8_t* from, int64_t index) {
    if constexpr (kShape.floats) return _mm512_loadu_ps(from + 4 * index);
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * index)));
  }

  // Of 16 rows of the panel from `row` on, in step s.
  TS_INLINE __m512 step(int64_t s, int64_t row) const {
    if constexpr (!kShape.super) return scale(scales, s * kPanel + row);
    const __m128i whole = _mm_loadu_si128(reinterpret_cast<const __m128i*>(multipliers + s * kPanel + row));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(whole)), scale(scales, row));
  }

  TS_INLINE __m512 minimum(int64_t s, int64_t row) const {
    if constexpr (!kShape.super) return scale(minimum_scales, s * kPanel + row);
    const __m128i whole = _mm_loadu_si128(reinterpret_cast<const __m128i*>(minima + s * kPanel + row));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(whole)), scale(minimum_scales, row));
  }
};

// integers += 4 columns of 64 rows of the panel by the quads of kRows rows.
template <int kRows>
TS_INLINE void add_quads(const __m512i (&quads)[kVectors], const int8_t* q, int64_t stride, __m512i (&integers)[kRows][kVectors]) {
  multiply<kRows, kVectors>(quads, q, stride, integers);
}

// 8 columns of nibbles at `at`: the low ones are the first 4.
template <bool kTable, int kRows>
TS_INLINE void add_nibbles(const uint8_t* at, const int8_t* q, int64_t stride, __m512i (&integers)[kRows][kVectors]) {
  const __m512i mask = _mm512_set1_epi8(15);
  // Twice the values of E2M1, 12 more.
  const __m512i doubled = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m512i low[kVectors], high[kVectors];
  TS_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const __m512i both = load(at + 64 * j);
    prefetch_line(at + 64 * j);
    low[j] = _mm512_and_si512(both, mask);
    high[j] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    if constexpr (kTable) {
      low[j] = _mm512_shuffle_epi8(doubled, low[j]);
      high[j] = _mm512_shuffle_epi8(doubled, high[j]);
    }
  }
  add_quads<kRows>(low, q, stride, integers);
  add_quads<kRows>(high, q + 4, stride, integers);
}

template <int32_t kKind, int kRows>
void few_rows(const Group& group, int64_t sub, const TileRows& x, float* sums) {
  constexpr StoredShape kShape = stored_shape(kKind);
  const int64_t steps = group.columns / sub, parts = sub / kSubgroup;
  const Reader<kKind> weights(group.data, steps);
  const uint8_t* codes = weights.codes;
  const int8_t* q = x.q + group.first;
  const int32_t* corrections = x.sub_corrections + group.first / kSubgroup;
  alignas(64) float waiting[kRows][kPanel] = {};
  for (int64_t s = 0; s < steps; ++s, corrections += parts) {
    __m512i integers[kRows][kVectors];
    int32_t eights[kRows];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      eights[r] = eights_of(corrections + r * x.subgroups, parts);
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) integers[r][j] = _mm512_set1_epi32(eights[r] / 8 * Reader<kKind>::kMore);
    }
    if constexpr (kShape.nibbles) {
      for (int64_t k = 0; k < sub; k += 8, q += 8, codes += kQuadBytes) add_nibbles<kShape.table, kRows>(codes, q, x.q_stride, integers);
    } else {
      for (int64_t k = 0; k < sub; k += 4, q += 4, codes += kQuadBytes) {
        __m512i quads[kVectors];
        TS_UNROLL
        for (int j = 0; j < kVectors; ++j) {
          quads[j] = load(codes + 64 * j);
          prefetch_line(codes + 64 * j);
        }
        add_quads<kRows>(quads, q, x.q_stride, integers);
      }
    }
    TS_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const __m512 step = weights.step(s, 16 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        __m512 total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r][j]), step, _mm512_load_ps(waiting[r] + 16 * j));
        if constexpr (kShape.minimum) {
          total = _mm512_fnmadd_ps(weights.minimum(s, 16 * j), _mm512_set1_ps(static_cast<float>(eights[r] / -8)), total);
        }
        _mm512_store_ps(waiting[r] + 16 * j, total);
      }
    }
  }
  add_scaled(waiting, x.scales + group.index * x.pair_stride, sums);
}

typedef void (*FewRows)(const Group&, int64_t sub, const TileRows&, float* sums);

template <int32_t kKind>
constexpr FewRows few_rows_of(int64_t rows) {
  return kernel_of<FewRows, kStoredFewRows>(rows, [](auto number) { return few_rows<kKind, decltype(number)::value>; });
}

FewRows kernel_for(int32_t kind, int64_t rows) {
  switch (kind) {
    case TS_W_FLAT8: return few_rows_of<TS_W_FLAT8>(rows);
    case TS_W_FLAT4: return few_rows_of<TS_W_FLAT4>(rows);
    case TS_W_FLAT8_MIN: return few_rows_of<TS_W_FLAT8_MIN>(rows);
    case TS_W_SUPER8: return few_rows_of<TS_W_SUPER8>(rows);
    case TS_W_SUPER8_MIN: return few_rows_of<TS_W_SUPER8_MIN>(rows);
    case TS_W_AFFINE4_128:
    case TS_W_AFFINE4_64:
    case TS_W_AFFINE4_32: return few_rows_of<TS_W_AFFINE4_32>(rows);
    case TS_W_AFFINE8_128:
    case TS_W_AFFINE8_64:
    case TS_W_AFFINE8_32: return few_rows_of<TS_W_AFFINE8_32>(rows);
    case TS_W_E2M1_32:
    case TS_W_E2M1_16: return few_rows_of<TS_W_E2M1_32>(rows);
    default: return few_rows_of<TS_W_SUPER4_MIN>(rows);
  }
}

}  // namespace

void multiply_stored_few(int32_t kind, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  kernel_for(kind, rows)(group, stored_shape(kind).sub, x, sums);
}

}  // namespace twostroke
#endif
