// Products of many rows with stored codes, for AVX-512 with VNNI. A group's codes become bytes once, in the first-level cache, and are
// multiplied by blocks of rows. A block has 16 columns: one register of codes is multiplied by all its rows, and every sum stays in a
// register. Only the step that makes bytes depends on the form of the codes. The blocks differ only in whether there are minima and in the
// scales of the rows.
#if defined(TS_LEVEL_AVX512)
#include "twostroke/x86/stored_codes_avx512.h"

namespace twostroke {
namespace {

constexpr int kBlockRows = 12;  // 12 sums, 12 totals, codes, multipliers and minima take 27 of 32 registers
constexpr int kFewestRows = 8;  // the fewest rows of a block where there are kTallRows or more
constexpr int64_t kMostSteps = kStoredGroup / kSubgroup;

static_assert(kTallRows >= 2 * kFewestRows && 2 * kBlockRows + 1 >= 3 * kFewestRows, "blocks of nearly equal height are no lower");

// One group: codes (columns / 4, 64, 4), with an excess of `more`, and their factors.
struct BytesOfGroup {
  const uint8_t* codes;
  const float *multipliers, *minima;
  int64_t sub;
  int32_t more;
};

template <int32_t kKind>
TS_INLINE void unpack(const uint8_t* from, int64_t columns, uint8_t* to) {
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

// The activations of some rows in one group. q: the rounded activations, copied next to each other. Rows of a whole product may lie a
// power of two apart, and few of those fit the first-level cache. whole: the value at which the sums of each step begin; it undoes the
// offset of the codes. sums: the sum of the rounded activations of each step. scales: the scales of the activations, by which the sums
// are multiplied in formats that have one for each step.
template <int kRows, bool kFine>
struct RowsOfGroup {
  alignas(64) int8_t q[kRows * kStoredGroup];
  alignas(64) int32_t whole[kRows][kMostSteps];
  alignas(64) float sums[kRows][kMostSteps];
  alignas(64) float scales[kFine ? kMostSteps : 1][kRows];
};

// Adds 1, 2, 4 or 8 neighbours. Of 16 numbers the first 16 / parts are then sums.
TS_INLINE __m512i sums_of(__m512i numbers, int64_t parts) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (; parts > 1; parts /= 2) numbers = _mm512_add_epi32(_mm512_permutexvar_epi32(even, numbers), _mm512_permutexvar_epi32(odd, numbers));
  return numbers;
}

template <int kRows, bool kFine>
TS_INLINE void gather(RowsOfGroup<kRows, kFine>& rows, const BytesOfGroup& bytes, const Group& group, const TileRows& x) {
  static_assert(kStoredGroup == 16 * kSubgroup, "a group has one register of corrections");
  const __mmask16 there = static_cast<__mmask16>((1u << (group.columns / kSubgroup)) - 1);
  TS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int8_t* q = x.q + r * x.q_stride + group.first;
    if (group.columns == kStoredGroup) {  // this avoids a call
      memcpy(rows.q + r * kStoredGroup, q, kStoredGroup);
    } else {
      memcpy(rows.q + r * kStoredGroup, q, static_cast<size_t>(group.columns));
    }
    const int32_t* corrections = x.sub_corrections + r * x.subgroups + group.first / kSubgroup;
    const __m512i eights = sums_of(_mm512_maskz_loadu_epi32(there, corrections), bytes.sub / kSubgroup);
    const __m512i less = _mm512_srai_epi32(eights, 3);  // minus the sum, because eights are minus 8 times it
    _mm512_store_si512(rows.whole[r], _mm512_mullo_epi32(less, _mm512_set1_epi32(bytes.more)));
    _mm512_store_ps(rows.sums[r], _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), less)));
  }
  if constexpr (kFine) {
    for (int64_t s = 0; s < group.columns / bytes.sub; ++s) {
      const float* scales = fine_scales(x, group, s * bytes.sub);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        rows.scales[s][r] = scales[r];
        rows.sums[r][s] *= scales[r];
      }
    }
  }
}

// Adds one group to sums, for kRows rows. The order of each row's arithmetic is that of few rows (stored_avx512.cpp).
template <bool kMinimum, bool kFine, int kRows>
__attribute__((noinline)) void add_block_of_rows(const BytesOfGroup& bytes, const Group& group, const TileRows& x, const GroupAfter& ahead,
                                                 float* sums) {
  const int64_t sub = bytes.sub, steps = group.columns / sub;
  RowsOfGroup<kRows, kFine> own;
  gather(own, bytes, group, x);
  for (int j = 0; j < kVectors; ++j) {
    const uint8_t* from = bytes.codes + 64 * j;
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
      const __m512 step = _mm512_load_ps(bytes.multipliers + s * kPanel + 16 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = kFine ? _mm512_mul_ps(step, _mm512_set1_ps(own.scales[kFine ? s : 0][r])) : step;
        totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[r]), factor, totals[r]);
        if constexpr (kMinimum) {
          totals[r] = _mm512_fnmadd_ps(_mm512_load_ps(bytes.minima + s * kPanel + 16 * j), _mm512_set1_ps(own.sums[r][s]), totals[r]);
        }
      }
    }
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums + r * kPanel + 16 * j;
      const __m512 before = _mm512_loadu_ps(sum);
      _mm512_storeu_ps(sum, kFine ? _mm512_add_ps(totals[r], before)
                                  : _mm512_fmadd_ps(totals[r], _mm512_set1_ps(group_scales(x, group)[r]), before));
    }
  }
}

using BlockKernel = void (*)(const BytesOfGroup&, const Group&, const TileRows&, const GroupAfter&, float* sums);

template <bool kMinimum, bool kFine>
BlockKernel block_kernel(int64_t rows) {
  return kernel_of<BlockKernel, kBlockRows - kFewestRows + 1>(rows - kFewestRows + 1, [](auto number) {
    return add_block_of_rows<kMinimum, kFine, decltype(number)::value + kFewestRows - 1>;
  });
}

// Divides rows into blocks of nearly equal height.
template <bool kMinimum, bool kFine>
void add_blocks(const BytesOfGroup& bytes, const StoredShape& shape, const Group& group, TileRows x, int64_t rows, float* sums) {
  int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  Fetch ahead = fetch_after(shape, group, blocks * kVectors * (group.columns / bytes.sub));
  for (; blocks > 0; --blocks) {
    const int64_t count = (rows + blocks - 1) / blocks;
    block_kernel<kMinimum, kFine>(count)(bytes, group, x, GroupAfter{&ahead}, sums);
    x = rows_after(x, count);
    rows -= count;
    sums += count * kPanel;
  }
}

template <int32_t kKind>
void multiply_of(const Group& group, const TileRows& x, int64_t rows, float* sums) {
  constexpr StoredShape kShape = stored_shape(kKind);
  Head<kKind> head;
  const uint8_t* codes = head.read(group.data, group.columns / kShape.sub, Nothing());
  alignas(64) uint8_t unpacked[kShape.nibbles ? kStoredGroup * kPanel : 1];
  if constexpr (kShape.nibbles) {
    unpack<kKind>(codes, group.columns, unpacked);
    codes = unpacked;
  }
  const BytesOfGroup bytes = {codes, head.multipliers, head.minima, kShape.sub, Head<kKind>::kMore};
  add_blocks<kShape.minimum, kShape.fine>(bytes, kShape, group, x, rows, sums);
}

using Multiply = void (*)(const Group&, const TileRows&, int64_t rows, float* sums);

template <int32_t kKind>
constexpr Multiply multiply_of_kind() {
  if constexpr (stored_shape(kKind).alone) {
    return nullptr;  // planes are computed in stored_avx512.cpp
  } else {
    return multiply_of<kKind>;
  }
}

template <int32_t... kBefore>
Multiply multiply_among(std::integer_sequence<int32_t, kBefore...>, int32_t kind) {
  constexpr Multiply all[] = {multiply_of_kind<TS_W_FLAT8 + kBefore>()...};
  return all[kind - TS_W_FLAT8];
}

}  // namespace

void multiply_stored_tall(int32_t kind, const Group& group, const TileRows& x, int64_t rows, float* sums) {
  multiply_among(std::make_integer_sequence<int32_t, TS_W_LAST - TS_W_FLAT8 + 1>(), kind)(group, x, rows, sums);
}

}  // namespace twostroke
#endif
