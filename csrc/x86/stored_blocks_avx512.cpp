// Multiplies many rows by stored codes, for AVX-512 with VNNI. A group's codes are unpacked to bytes once, in the first-level cache, and
// multiplied by blocks of 4 rows by 64 columns. A block has 16 sums, each of which takes a product every 8 cycles. With 12 sums it would
// be every 6 cycles, and products whose results come after 5 cycles would often wait. Only the unpacking depends on the kind of codes.
// The blocks of all kinds differ only in minima and in the scales of the rows.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/stored_codes_avx512.h"

namespace twostroke {
namespace {

// 16 sums, four registers of codes and one of activations: 21 of 32. The compiler keeps 5 of the 16 totals in memory between steps.
constexpr int kBlockRows = 4;
constexpr int64_t kMostSteps = kStoredGroup / kSubgroup;

// One group after unpacking. codes: (columns / 4, 64, 4), each `more` too large. The scales multiply them.
struct BytesOfGroup {
  const uint8_t* codes;
  const float *multipliers, *minima;
  int64_t sub, steps;
  int32_t more;
};

// Unpacks codes that consist of one plane.
template <int32_t kKind>
TS_INLINE void unpack_planes(const uint8_t* from, int64_t columns, uint8_t* to) {
  constexpr StoredShape kShape = stored_shape(kKind);
  constexpr int kHigh = static_cast<int>(kShape.high), kQuads = 8 / kHigh;
  for (int64_t k = 0; k < columns; k += 4 * kQuads, from += kQuadBytes * kShape.bits / kHigh, to += kQuads * kQuadBytes) {
    for (int j = 0; j < kVectors; ++j) {
      TS_UNROLL
      for (int quad = 0; quad < kQuads; ++quad) {
        __m512i codes = of_plane<kHigh>(load(from + 64 * j), quad);
        if constexpr (kShape.third) codes = _mm512_or_si512(codes, thirds(from + kQuadBytes + 32 * j, quad));
        _mm512_store_si512(to + quad * kQuadBytes + 64 * j, codes);
      }
    }
  }
}

// Unpacks nibbles, and the codes' highest bits where a kind has them.
template <int32_t kKind>
TS_INLINE void unpack_nibbles(const uint8_t* from, int64_t columns, uint8_t* to) {
  constexpr StoredShape kShape = stored_shape(kKind);
  constexpr int kHigh = static_cast<int>(kShape.high), kPairs = kHigh == 0 ? 1 : 4 / kHigh;
  for (int64_t k = 0; k < columns; k += 8 * kPairs) {
    const uint8_t* bits = from;
    if constexpr (kHigh > 0) from += kQuadBytes;
    TS_UNROLL
    for (int pair = 0; pair < kPairs; ++pair, from += kQuadBytes, to += 2 * kQuadBytes) {
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        __m512i low, high;
        if constexpr (kHigh > 0) {
          split_pair<kHigh>(load(from + 64 * j), load(bits + 64 * j), pair, low, high);
        } else {
          split_nibbles<kShape.table>(load(from + 64 * j), low, high);
        }
        _mm512_store_si512(to + 64 * j, low);
        _mm512_store_si512(to + kQuadBytes + 64 * j, high);
      }
    }
  }
}

// The part of some rows in one group. whole: the value at which the sums of each step begin, which undoes the offset of the codes.
// sums: the numbers by which a step's minimum is multiplied.
template <int kRows>
struct StepsOfRows {
  alignas(64) int32_t whole[kRows][kMostSteps];
  alignas(64) float sums[kRows][kMostSteps];
};

// Adds 1, 2, 4 or 8 neighbours. The first 16 / parts of 16 numbers are then the sums.
TS_INLINE __m512i sums_of(__m512i numbers, int64_t parts) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (; parts > 1; parts /= 2) numbers = _mm512_add_epi32(_mm512_permutexvar_epi32(even, numbers), _mm512_permutexvar_epi32(odd, numbers));
  return numbers;
}

template <bool kMinimum, bool kFine, int kRows>
TS_INLINE void read_steps(StepsOfRows<kRows>& rows, const BytesOfGroup& bytes, const Group& group, const TileRows& x) {
  static_assert(kStoredGroup == 16 * kSubgroup, "a group has one register of corrections");
  const __mmask16 there = static_cast<__mmask16>((1u << (group.columns / kSubgroup)) - 1);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int32_t* corrections = x.sub_corrections + r * x.subgroups + group.first / kSubgroup;
    const __m512i eights = sums_of(_mm512_maskz_loadu_epi32(there, corrections), bytes.sub / kSubgroup);
    const __m512i less = _mm512_srai_epi32(eights, 3);  // this is minus the sum, because eights are -8 times the sum
    _mm512_store_si512(rows.whole[r], _mm512_mullo_epi32(less, _mm512_set1_epi32(bytes.more)));
    if constexpr (kMinimum) _mm512_store_ps(rows.sums[r], _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), less)));
  }
  if constexpr (kMinimum && kFine) {
    for (int64_t s = 0; s < bytes.steps; ++s) {
      const float* scales = fine_scales(x, group, s * bytes.sub);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) rows.sums[r][s] *= scales[r];
    }
  }
}

// Adds the products of one step to totals, and subtracts its minima. scales: those of the rows, for kinds with one for each step.
template <bool kMinimum, bool kFine, int kRows>
TS_INLINE void fold_step(const BytesOfGroup& bytes, const StepsOfRows<kRows>& rows, const float* scales, int64_t step,
                         const __m512i (&integers)[kRows][kVectors], __m512 (&totals)[kRows][kVectors]) {
  TS_UNROLL
  for (int n = 0; n < kVectors; ++n) {
    const int64_t at = step * kPanel + 16 * n;
    const __m512 multiplier = _mm512_load_ps(bytes.multipliers + at);
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 factor = kFine ? _mm512_mul_ps(multiplier, _mm512_set1_ps(scales[r])) : multiplier;
      totals[r][n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r][n]), factor, totals[r][n]);
      if constexpr (kMinimum) {
        totals[r][n] = _mm512_fnmadd_ps(_mm512_load_ps(bytes.minima + at), _mm512_set1_ps(rows.sums[r][step]), totals[r][n]);
      }
    }
  }
}

// Fetches the rows of the next block, which are in the second-level cache, and the lines to which this block's results are written.
struct RowsAfter {
  const int8_t *q, *sums, *corrections;  // bytes
  int64_t q_stride, corrections_stride;
  Place out;

  // Each 64 columns fetch as many columns of the next block, and as many bytes of its sums.
  template <int kRows>
  TS_INLINE void fetch(int64_t column) const {
    if (column % 64 != 0) return;
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(q + column + r * q_stride, 0, 3);
      __builtin_prefetch(sums + column + r * 4 * kPanel, 0, 3);
      if (column == 0) __builtin_prefetch(corrections + r * corrections_stride, 0, 3);
    }
    if (out.at != nullptr) fetch_results<0, kRows>(out, column / 64);
  }
};

// Adds one group to the sums of kRows rows. The order of each row's arithmetic is that of few rows (stored_few_avx512.cpp).
template <bool kMinimum, bool kFine, int kRows>
__attribute__((noinline)) void add_block_of_rows(const BytesOfGroup& bytes, const Group& group, const TileRows& x, const RowsAfter& after,
                                                 const GroupAfter& ahead, float* sums) {
  const int64_t sub = bytes.sub;
  StepsOfRows<kRows> own;
  read_steps<kMinimum, kFine>(own, bytes, group, x);
  const uint8_t* from = bytes.codes;
  const int8_t* q = x.q + group.first;
  __m512 totals[kRows][kVectors];
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TS_UNROLL
    for (int n = 0; n < kVectors; ++n) totals[r][n] = _mm512_setzero_ps();
  }
  for (int64_t s = 0; s < bytes.steps; ++s) {
    ahead.moment();
    after.template fetch<kRows>(s * sub);
    __m512i integers[kRows][kVectors];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TS_UNROLL
      for (int n = 0; n < kVectors; ++n) integers[r][n] = _mm512_set1_epi32(own.whole[r][s]);
    }
    for (int64_t k = 0; k < sub; k += 16, from += 4 * kQuadBytes, q += 16) {
      TS_UNROLL
      for (int quad = 0; quad < 4; ++quad) {
        __m512i codes[kVectors];
        TS_UNROLL
        for (int n = 0; n < kVectors; ++n) codes[n] = load(from + quad * kQuadBytes + 64 * n);
        multiply(codes, q + 4 * quad, x.q_stride, integers);
      }
    }
    fold_step<kMinimum, kFine>(bytes, own, kFine ? fine_scales(x, group, s * sub) : nullptr, s, integers, totals);
  }
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512 scale = kFine ? _mm512_setzero_ps() : _mm512_set1_ps(group_scales(x, group)[r]);
    TS_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      float* sum = sums + r * kPanel + 16 * n;
      const __m512 before = _mm512_loadu_ps(sum);
      _mm512_storeu_ps(sum, kFine ? _mm512_add_ps(totals[r][n], before) : _mm512_fmadd_ps(totals[r][n], scale, before));
    }
  }
}

using BlockKernel = void (*)(const BytesOfGroup&, const Group&, const TileRows&, const RowsAfter&, const GroupAfter&, float* sums);

template <bool kMinimum, bool kFine>
BlockKernel block_kernel(int64_t rows) {
  return kernel_of<BlockKernel, kBlockRows>(rows, [](auto number) { return add_block_of_rows<kMinimum, kFine, decltype(number)::value>; });
}

int64_t blocks_of(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// The blocks have nearly equal heights. out: the place of the results of these rows, or none.
template <bool kMinimum, bool kFine>
void add_blocks(const BytesOfGroup& bytes, const Group& group, RowSet set, Place out, Fetch& ahead) {
  for (int64_t blocks = blocks_of(set.rows); blocks > 0; --blocks) {
    const int64_t count = (set.rows + blocks - 1) / blocks;
    const RowSet these = set;
    set = {rows_after(set.x, count), set.rows - count, set.sums + count * kPanel};
    const TileRows& x = set.x;
    const RowsAfter after = {x.q + group.first,
                             reinterpret_cast<const int8_t*>(set.sums),
                             reinterpret_cast<const int8_t*>(x.sub_corrections + group.first / kSubgroup),
                             x.q_stride,
                             4 * x.subgroups,
                             out};
    if (out.at != nullptr) out.at += count * out.stride;
    block_kernel<kMinimum, kFine>(count)(bytes, group, these.x, after, GroupAfter{&ahead}, these.sums);
  }
}

template <int32_t kKind>
void multiply_of(const Group& group, const RowSets& sets) {
  constexpr StoredShape kShape = stored_shape(kKind);
  Head<kKind> head;
  const int64_t steps = group.columns / kShape.sub;
  const uint8_t* codes = head.read(group.data, steps, Nothing());
  alignas(64) uint8_t unpacked[kShape.nibbles ? kStoredGroup * kPanel : 1];
  if constexpr (kShape.alone) {
    unpack_planes<kKind>(codes, group.columns, unpacked);
  } else if constexpr (kShape.nibbles) {
    unpack_nibbles<kKind>(codes, group.columns, unpacked);
  }
  if constexpr (kShape.nibbles) codes = unpacked;
  const BytesOfGroup bytes = {codes, head.multipliers, head.minima, kShape.sub, steps, Head<kKind>::kMore};
  Fetch ahead = fetch_after(kShape, group, (blocks_of(sets[0].rows) + blocks_of(sets[1].rows)) * steps);
  add_blocks<kShape.minimum, kShape.fine>(bytes, group, sets[0], group.out, ahead);
  add_blocks<kShape.minimum, kShape.fine>(bytes, group, sets[1], {nullptr, 0}, ahead);
}

using Multiply = void (*)(const Group&, const RowSets&);

template <int32_t... kBefore>
Multiply multiply_among(std::integer_sequence<int32_t, kBefore...>, int32_t kind) {
  constexpr Multiply all[] = {multiply_of<TS_W_FLAT8 + kBefore>...};
  return all[kind - TS_W_FLAT8];
}

}  // namespace

void multiply_stored_rows(int32_t kind, const Group& group, const RowSets& sets) {
  multiply_among(std::make_integer_sequence<int32_t, TS_W_LAST - TS_W_FLAT8 + 1>(), kind)(group, sets);
}

}  // namespace twostroke
#endif
