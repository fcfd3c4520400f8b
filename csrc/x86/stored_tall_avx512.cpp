// Products of many rows with codes of 5 and 6 bits, for AVX-512 with VNNI: putting such codes together takes long, so that a group's become
// bytes once, in the first-level cache, and meet blocks of rows. A block has 16 columns: one register of codes meets all its rows, and every
// sum stays in a register.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/stored_codes_avx512.h"

namespace twostroke {
namespace {

constexpr int kBlockRows = 12;  // 12 sums, 12 totals, codes, multipliers, minima: 27 of 32 registers
constexpr int64_t kMostSteps = kStoredGroup / kSubgroup;

// One group: bytes (columns / 4, 64, 4), code + kMore, and what they are multiplied by.
template <int32_t kKind>
struct UnpackedGroup {
  Head<kKind> head;
  alignas(64) uint8_t codes[kStoredGroup * kPanel];
};

template <int32_t kKind>
TS_INLINE void unpack(const uint8_t* from, int64_t columns, uint8_t* to) {
  constexpr int kHigh = static_cast<int>(stored_shape(kKind).high), kPairs = 4 / kHigh;
  for (int64_t k = 0; k < columns; k += 8 * kPairs) {
    const uint8_t* bits = from;
    from += kQuadBytes;
    TS_UNROLL
    for (int pair = 0; pair < kPairs; ++pair, from += kQuadBytes, to += 2 * kQuadBytes) {
      TS_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        __m512i low, high;
        split_pair<kHigh>(load(from + 64 * j), load(bits + 64 * j), pair, low, high);
        _mm512_store_si512(to + 64 * j, low);
        _mm512_store_si512(to + kQuadBytes + 64 * j, high);
      }
    }
  }
}

// What some rows have of one group. q: side by side, because rows of a whole product may be apart by a power of two, and then few of
// them fit the first-level cache. whole: where the sums of a step begin, because codes are kMore too large. sums: of the rounded
// activations of a step.
template <int kRows>
struct RowsOfGroup {
  alignas(64) int8_t q[kRows * kStoredGroup];
  alignas(64) int32_t whole[kRows][kMostSteps];
  alignas(64) float sums[kRows][kMostSteps];
};

// Neighbours added, 1, 2, 4 or 8 of them: of 16 numbers the first 16 / parts are sums then.
TS_INLINE __m512i sums_of(__m512i numbers, int64_t parts) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (; parts > 1; parts /= 2) numbers = _mm512_add_epi32(_mm512_permutexvar_epi32(even, numbers), _mm512_permutexvar_epi32(odd, numbers));
  return numbers;
}

template <int32_t kKind, int kRows>
TS_INLINE void gather(RowsOfGroup<kRows>& rows, int64_t sub, const Group& group, const TileRows& x) {
  static_assert(kStoredGroup == 16 * kSubgroup, "a group has one register of corrections");
  const __mmask16 there = static_cast<__mmask16>((1u << (group.columns / kSubgroup)) - 1);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int8_t* q = x.q + r * x.q_stride + group.first;
    if (group.columns == kStoredGroup) {  // not a call
      memcpy(rows.q + r * kStoredGroup, q, kStoredGroup);
    } else {
      memcpy(rows.q + r * kStoredGroup, q, static_cast<size_t>(group.columns));
    }
    const int32_t* corrections = x.sub_corrections + r * x.subgroups + group.first / kSubgroup;
    const __m512i eights = sums_of(_mm512_maskz_loadu_epi32(there, corrections), sub / kSubgroup);
    const __m512i less = _mm512_srai_epi32(eights, 3);  // minus the sum: eights are minus 8 times it
    _mm512_store_si512(rows.whole[r], _mm512_mullo_epi32(less, _mm512_set1_epi32(Head<kKind>::kMore)));
    _mm512_store_ps(rows.sums[r], _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), less)));
  }
}

// sums += one group, by kRows rows. The order of each row's arithmetic is that of few rows (stored_avx512.cpp).
template <int32_t kKind, int kRows>
__attribute__((noinline)) void add_block_of_rows(const Head<kKind>& head, const uint8_t* codes, int64_t sub, const Group& group,
                                                 const TileRows& x, const GroupAfter& ahead, float* sums) {
  constexpr bool kMinimum = stored_shape(kKind).minimum;
  const int64_t steps = group.columns / sub;
  RowsOfGroup<kRows> own;
  gather<kKind>(own, sub, group, x);
  for (int j = 0; j < kVectors; ++j) {
    const uint8_t* from = codes + 64 * j;
    const int8_t* q = own.q;
    __m512 totals[kRows];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r] = _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; ++s) {
      ahead.moment();
      __m512i integers[kRows];
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) integers[r] = _mm512_set1_epi32(own.whole[r][s]);
      for (int64_t k = 0; k < sub; k += 16, from += 4 * kQuadBytes, q += 16) {
        TS_UNROLL
        for (int quad = 0; quad < 4; ++quad) {
          const __m512i four = load(from + quad * kQuadBytes);
          TS_UNROLL
          for (int r = 0; r < kRows; ++r) {
            integers[r] = _mm512_dpbusd_epi32(integers[r], four, broadcast_quad(q + r * kStoredGroup + 4 * quad));
          }
        }
      }
      const __m512 step = _mm512_load_ps(head.multipliers + s * kPanel + 16 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r]), step, totals[r]);
        if constexpr (kMinimum) {
          totals[r] = _mm512_fnmadd_ps(_mm512_load_ps(head.minima + s * kPanel + 16 * j), _mm512_set1_ps(own.sums[r][s]), totals[r]);
        }
      }
    }
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums + r * kPanel + 16 * j;
      const __m512 scale = _mm512_set1_ps(x.scales[group.index * x.pair_stride + r]);
      _mm512_storeu_ps(sum, _mm512_fmadd_ps(totals[r], scale, _mm512_loadu_ps(sum)));
    }
  }
}

template <int32_t kKind>
using BlockKernel = void (*)(const Head<kKind>&, const uint8_t* codes, int64_t sub, const Group&, const TileRows&, const GroupAfter&, float* sums);

template <int32_t kKind>
void multiply_of(const Group& group, int64_t sub, TileRows x, int64_t rows, float* sums) {
  UnpackedGroup<kKind> bytes;
  const uint8_t* codes = bytes.head.read(group.data, group.columns / sub, Nothing());
  unpack<kKind>(codes, group.columns, bytes.codes);
  // Blocks of nearly equal height.
  int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  Fetch ahead = fetch_after(stored_shape(kKind), group, blocks * kVectors * (group.columns / sub));
  for (; blocks > 0; --blocks) {
    const int64_t count = (rows + blocks - 1) / blocks;
    kernel_of<BlockKernel<kKind>, kBlockRows>(count, [](auto number) {
      return add_block_of_rows<kKind, decltype(number)::value>;
    })(bytes.head, bytes.codes, sub, group, x, GroupAfter{&ahead}, sums);
    x = rows_after(x, count);
    rows -= count;
    sums += count * kPanel;
  }
}

}  // namespace

void multiply_stored_tall(int32_t kind, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  const int64_t sub = stored_shape(kind).sub;
  switch (kind) {
    case TS_W_SUPER5_MIN: return multiply_of<TS_W_SUPER5_MIN>(group, sub, x, rows, sums);
    case TS_W_SUPER6: return multiply_of<TS_W_SUPER6>(group, sub, x, rows, sums);
    default: return multiply_of<TS_W_SUPER6_MIN>(group, sub, x, rows, sums);
  }
}

}  // namespace twostroke
#endif
