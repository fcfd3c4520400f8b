// Multiplies few rows by stored codes without unpacking them first, for AVX-512 with VNNI. A panel is read once, because a stream waits for
// memory.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/stored_codes_avx512.h"

namespace twostroke {
namespace {

// Multiplies 4 columns of codes of 8 bits at `at`.
template <int kRows, int kAcross, class Lines>
TS_INLINE void add_bytes(const uint8_t* at, const int8_t* q, int64_t stride, const Lines& ahead, __m512i (&integers)[kRows][kAcross]) {
  __m512i quads[kAcross];
  TS_UNROLL
  for (int j = 0; j < kAcross; ++j) {
    quads[j] = load(at + 64 * j);
    ahead.line(at + 64 * j);
  }
  multiply(quads, q, stride, integers);
}

// Multiplies 8 columns of nibbles at `at`. The low nibbles are the first 4 columns.
template <CodeTable kTable, int kRows, int kAcross, class Lines>
TS_INLINE void add_nibbles(const uint8_t* at, const int8_t* q, int64_t stride, const Lines& ahead, __m512i (&integers)[kRows][kAcross]) {
  __m512i low[kAcross], high[kAcross];
  TS_UNROLL
  for (int j = 0; j < kAcross; ++j) {
    ahead.line(at + 64 * j);
    split_nibbles<kTable>(load(at + 64 * j), low[j], high[j]);
  }
  multiply(low, q, stride, integers);
  multiply(high, q + 4, stride, integers);
}

// Multiplies one block of a plane of the codes' highest bits and of nibbles: 32 / kHigh columns.
template <int kHigh, int kRows, int kAcross, class Lines>
TS_INLINE void add_block(const uint8_t* at, const int8_t* q, int64_t stride, const Lines& ahead, __m512i (&integers)[kRows][kAcross]) {
  const uint8_t* nibbles = at + kQuadBytes;
  TS_UNROLL
  for (int j = 0; j < kAcross; ++j) ahead.line(at + 64 * j);
  TS_UNROLL
  for (int pair = 0; pair < 4 / kHigh; ++pair, nibbles += kQuadBytes, q += 8) {
    __m512i low[kAcross], high[kAcross];
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      ahead.line(nibbles + 64 * j);
      split_pair<kHigh>(load(nibbles + 64 * j), load(at + 64 * j), pair, low[j], high[j]);
    }
    multiply(low, q, stride, integers);
    multiply(high, q + 4, stride, integers);
  }
}

// Multiplies codes that are stored as one plane: 32 / kHigh columns. third: where the third bits of these codes begin,
// if they have third bits.
template <int kHigh, bool kThird, int kRows, int kAcross, class Lines>
TS_INLINE void add_plane(const uint8_t* at, const uint8_t* third, const int8_t* q, int64_t stride, const Lines& ahead, __m512i (&integers)[kRows][kAcross]) {
  TS_UNROLL
  for (int j = 0; j < kAcross; ++j) ahead.line(at + 64 * j);
  TS_UNROLL
  for (int quad = 0; quad < 8 / kHigh; ++quad, q += 4) {
    __m512i codes[kAcross];
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      codes[j] = of_plane<kHigh>(load(at + 64 * j), quad);
      if constexpr (kThird) codes[j] = _mm512_or_si512(codes[j], thirds(third + 32 * j, quad));
    }
    multiply(codes, q, stride, integers);
  }
}

// How many vectors of columns are multiplied together. Where it is the whole panel, memory is read front to back. The sums of more rows do
// not fit into the registers, so the two halves of a group's columns are multiplied in turn.
constexpr int across(bool nibbles, int rows) { return rows <= (nibbles ? 5 : 6) ? kVectors : kVectors / 2; }

// Adds the codes of one group, in steps of `sub` columns, to totals, for kAcross vectors of columns from number `vector` on. Returns the
// place at which the codes of the panel's whole width end.
template <int32_t kKind, int kRows, int kAcross, class Lines>
TS_INLINE const uint8_t* add_codes(const Head<kKind>& head, const uint8_t* codes, int64_t sub, const Group& group, int vector,
                                   const TileRows& x, const Lines& ahead, __m512 (&totals)[kRows][kVectors]) {
  constexpr StoredShape kShape = stored_shape(kKind);
  const int64_t parts = sub / kSubgroup, steps = group.columns / sub;
  const int8_t* q = x.q + group.first;
  const int32_t* corrections = x.sub_corrections + group.first / kSubgroup;
  codes += 64 * vector;
  __m512 waiting[kRows][kAcross];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) waiting[r][j] = _mm512_setzero_ps();
  }
  for (int64_t s = 0; s < steps; ++s, corrections += parts) {
    ahead.moment();
    __m512i integers[kRows][kAcross];
    int32_t eights[kRows];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      eights[r] = eights_of(corrections + r * x.subgroups, parts);
      TS_UNROLL
      for (int j = 0; j < kAcross; ++j) integers[r][j] = _mm512_set1_epi32(eights[r] / 8 * Head<kKind>::kMore);
    }
    if constexpr (kShape.alone) {
      constexpr int kHigh = static_cast<int>(kShape.high), kBlock = 32 / kHigh;
      constexpr int64_t kBytes = kQuadBytes * kShape.bits / kShape.high;
      for (int64_t k = 0; k < sub; k += kBlock, q += kBlock, codes += kBytes) {
        add_plane<kHigh, kShape.third>(codes, codes - 32 * vector + kQuadBytes, q, x.q_stride, ahead, integers);
      }
    } else if constexpr (kShape.high > 0) {
      constexpr int kHigh = static_cast<int>(kShape.high), kBlock = 32 / kHigh;
      for (int64_t k = 0; k < sub; k += kBlock, q += kBlock, codes += (1 + 4 / kHigh) * kQuadBytes) {
        add_block<kHigh>(codes, q, x.q_stride, ahead, integers);
      }
    } else if constexpr (kShape.nibbles) {
      // this runs twice, because a step has 16 columns or a multiple
      for (int64_t k = 0; k < sub; k += 16, q += 16, codes += 2 * kQuadBytes) {
        add_nibbles<kShape.table>(codes, q, x.q_stride, ahead, integers);
        add_nibbles<kShape.table>(codes + kQuadBytes, q + 8, x.q_stride, ahead, integers);
      }
    } else {
      for (int64_t k = 0; k < sub; k += 4, q += 4, codes += kQuadBytes) add_bytes(codes, q, x.q_stride, ahead, integers);
    }
    const float* scales = kShape.fine ? fine_scales(x, group, s * sub) : nullptr;
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      const int64_t at = s * kPanel + 16 * (vector + j);
      const __m512 step = _mm512_load_ps(head.multipliers + at);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = kShape.fine ? _mm512_mul_ps(step, _mm512_set1_ps(scales[r])) : step;
        waiting[r][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r][j]), factor, waiting[r][j]);
        if constexpr (kShape.minimum) {
          const float sum = static_cast<float>(eights[r] / -8);
          waiting[r][j] = _mm512_fnmadd_ps(_mm512_load_ps(head.minima + at), _mm512_set1_ps(kShape.fine ? sum * scales[r] : sum), waiting[r][j]);
        }
      }
    }
  }
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512 scale = kShape.fine ? _mm512_setzero_ps() : _mm512_set1_ps(group_scales(x, group)[r]);
    TS_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      __m512& total = totals[r][vector + j];
      total = kShape.fine ? _mm512_add_ps(waiting[r][j], total) : _mm512_fmadd_ps(waiting[r][j], scale, total);
    }
  }
  return codes - 64 * vector;
}

// Multiplies a whole panel, which is read from front to back. kKind stands for all kinds that differ from it only in `sub`.
template <int32_t kKind, int kRows, bool kAlone>
__attribute__((noinline)) void whole_panel(const Panel& panel, int64_t sub, const TileRows& x, float* sums) {
  __m512 totals[kRows][kVectors];
  for (auto& row : totals) {
    for (__m512& total : row) total = _mm512_setzero_ps();
  }
  constexpr bool kNibbles = stored_shape(kKind).nibbles;
  constexpr int kAcross = across(kNibbles, kRows);
  const LinesBehind<kNibbles, kRows, kAlone> ahead;
  const uint8_t* data = panel.data;
  Head<kKind> head;
  for (int64_t first = 0, index = 0; first < panel.columns; first += kStoredGroup, ++index) {
    const int64_t left = panel.columns - first, columns = left < kStoredGroup ? left : kStoredGroup;
    const Group group = {data, nullptr, nullptr, index, first, columns};
    const uint8_t* codes = head.read(data, columns / sub, ahead);
    TS_UNROLL
    for (int vector = 0; vector < kVectors; vector += kAcross) {
      data = add_codes<kKind, kRows, kAcross>(head, codes, sub, group, vector, x, ahead, totals);
    }
  }
  store_rows(totals, sums);
}

// kLike: a kind that differs from this one only in the columns of a step.
template <int32_t kKind, int32_t kLike, int kRows, bool kAlone>
void panel_of_kind(const Panel& panel, const TileRows& x, float* sums) {
  whole_panel<kLike, kRows, kAlone>(panel, stored_shape(kKind).sub, x, sums);
}

template <int32_t kKind, int32_t kLike>
TileKernel few_rows_of(int64_t rows, bool in_turn) {
  if (stored_shape(kKind).nibbles && rows == 1 && !in_turn) return panel_of_kind<kKind, kLike, 1, stored_shape(kKind).nibbles>;
  return kernel_of<TileKernel, kStoredFewRows>(rows, [](auto number) { return panel_of_kind<kKind, kLike, decltype(number)::value, false>; });
}

using FewRows = TileKernel (*)(int64_t rows, bool in_turn);

FewRows few_rows(int32_t kind) {
  switch (kind) {
    case TS_W_FLAT8: return few_rows_of<TS_W_FLAT8, TS_W_FLAT8>;
    case TS_W_FLAT4: return few_rows_of<TS_W_FLAT4, TS_W_FLAT4>;
    case TS_W_FLAT8_MIN: return few_rows_of<TS_W_FLAT8_MIN, TS_W_FLAT8_MIN>;
    case TS_W_SUPER2: return few_rows_of<TS_W_SUPER2, TS_W_SUPER2>;
    case TS_W_SUPER2_MIN: return few_rows_of<TS_W_SUPER2_MIN, TS_W_SUPER2_MIN>;
    case TS_W_SUPER3: return few_rows_of<TS_W_SUPER3, TS_W_SUPER3>;
    case TS_W_FLAT4_IQ: return few_rows_of<TS_W_FLAT4_IQ, TS_W_FLAT4_IQ>;
    case TS_W_SUPER4_IQ: return few_rows_of<TS_W_SUPER4_IQ, TS_W_SUPER4_IQ>;
    case TS_W_FLAT4_MIN: return few_rows_of<TS_W_FLAT4_MIN, TS_W_FLAT4_MIN>;
    case TS_W_FLAT5: return few_rows_of<TS_W_FLAT5, TS_W_FLAT5>;
    case TS_W_FLAT5_MIN: return few_rows_of<TS_W_FLAT5_MIN, TS_W_FLAT5_MIN>;
    case TS_W_SUPER8: return few_rows_of<TS_W_SUPER8, TS_W_SUPER8>;
    case TS_W_SUPER8_MIN: return few_rows_of<TS_W_SUPER8_MIN, TS_W_SUPER8_MIN>;
    case TS_W_SUPER4_16: return few_rows_of<TS_W_SUPER4_16, TS_W_SUPER4_16>;
    case TS_W_SUPER4_MIN_16: return few_rows_of<TS_W_SUPER4_MIN_16, TS_W_SUPER4_MIN>;
    case TS_W_SUPER5_MIN: return few_rows_of<TS_W_SUPER5_MIN, TS_W_SUPER5_MIN>;
    case TS_W_SUPER6: return few_rows_of<TS_W_SUPER6, TS_W_SUPER6>;
    case TS_W_SUPER6_MIN: return few_rows_of<TS_W_SUPER6_MIN, TS_W_SUPER6_MIN>;
    case TS_W_AFFINE4_128: return few_rows_of<TS_W_AFFINE4_128, TS_W_AFFINE4_32>;
    case TS_W_AFFINE4_64: return few_rows_of<TS_W_AFFINE4_64, TS_W_AFFINE4_32>;
    case TS_W_AFFINE4_32: return few_rows_of<TS_W_AFFINE4_32, TS_W_AFFINE4_32>;
    case TS_W_AFFINE8_128: return few_rows_of<TS_W_AFFINE8_128, TS_W_AFFINE8_32>;
    case TS_W_AFFINE8_64: return few_rows_of<TS_W_AFFINE8_64, TS_W_AFFINE8_32>;
    case TS_W_AFFINE8_32: return few_rows_of<TS_W_AFFINE8_32, TS_W_AFFINE8_32>;
    case TS_W_E2M1_32: return few_rows_of<TS_W_E2M1_32, TS_W_E2M1_32>;
    case TS_W_E2M1_16: return few_rows_of<TS_W_E2M1_16, TS_W_E2M1_32>;
    default: return few_rows_of<TS_W_SUPER4_MIN, TS_W_SUPER4_MIN>;
  }
}

}  // namespace

TileKernel stored_few_rows(int32_t kind, int64_t rows, bool in_turn) { return few_rows(kind)(rows, in_turn); }

}  // namespace twostroke
#endif
