// int4 weights of ts_linear for AVX2. Elements of 4 bits times activations fit sums of 16 bits. So the multiplier of 16 columns of k is
// applied once to their sum and not to each element. Without VNNI, products need not be widened to sums of 32 bits. Few rows are multiplied
// by the nibbles themselves. More rows share codes and multipliers, to which a group is unpacked once.
#if defined(TS_LEVEL_AVX2)
#include "twostroke/x86/linear_avx2.h"

namespace twostroke {
namespace {

constexpr int kLanes = 8;                         // columns of one register
constexpr int64_t kMostSubgroups = kMaxGroup / kSubgroup;
constexpr int kParts = kStep / kSubgroup;
constexpr int kCodesAcross = 4;  // registers of a strip of unpacked codes

// The registers across a strip. They leave room for sums, totals, multipliers and nibbles.
constexpr int strip_vectors(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

// The corrections for the offset of a subgroup's elements, with which its sums begin: (rows, subgroups). Without VNNI, each half of 32 bits
// has half of it.
template <int kRows>
using Beginnings = int32_t[kRows][kMostSubgroups];

// The multipliers of 8 columns and one part of a step. They are in each 16 bits, or with VNNI in the lower 16 bits of each 32.
TS_INLINE __m256i multipliers_of(const uint8_t* step, int part, int64_t column) {
  const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(step + part / 2 * kPanel + column));
  const __m256i wide = _mm256_cvtepu8_epi32(pairs);
  const __m256i one = part % 2 == 0 ? _mm256_and_si256(wide, _mm256_set1_epi32(15)) : _mm256_srli_epi32(wide, 4);
  return kAnyBytes ? one : _mm256_or_si256(one, _mm256_slli_epi32(one, 16));
}

// Multiplies one strip of one group, from `column` of the panel on: integers exactly, then sums = fma(float(integers), x_scale * w_scale,
// sums).
template <int kRows, int kAcross>
TS_INLINE void group_strip(const uint8_t* data, int64_t column, const Group& group, const TileRows& x, const Beginnings<kRows>& beginnings,
                           Fetch* ahead, float* sums) {
  __m256i totals[kRows][kAcross];
  for (auto& row : totals) {
    for (__m256i& total : row) total = _mm256_setzero_si256();
  }
  const int8_t* q = x.q + group.first;
  const int32_t* begin = beginnings[0];
  for (int64_t k = 0; k < group.columns; k += kStep, data += kInt4StepBytes, q += kStep, begin += kParts) {
    TS_UNROLL
    for (int part = 0; part < kParts; ++part) {
      ahead->step();
      __m256i multipliers[kAcross];
      TS_UNROLL
      for (int j = 0; j < kAcross; ++j) multipliers[j] = multipliers_of(data, part, column + kLanes * j);
      const uint8_t* octs = data + kMultiplierBytes + part * 2 * kQuadBytes + 4 * column;
      add_subgroup(octs, multipliers, q + part * kSubgroup, x.q_stride, begin + part, kMostSubgroups, 0, totals);
    }
  }
  fold_columns<Columns256>(totals, x.scales + group.index * x.pair_stride, group.scales + 2 * column, sums + column);
}

template <int kRows>
TS_INLINE void begin_subgroups(const Group& group, const TileRows& x, Beginnings<kRows>& beginnings) {
  const int64_t subgroups = group.columns / kSubgroup;
  for (int r = 0; r < kRows; ++r) {
    const int32_t* corrections = x.sub_corrections + r * x.subgroups + group.first / kSubgroup;
    for (int64_t n = 0; n < subgroups; ++n) {
      const uint32_t half = static_cast<uint32_t>(corrections[n] / 2);
      beginnings[r][n] = kAnyBytes ? corrections[n] : static_cast<int32_t>((half & 0xffff) | half << 16);
    }
  }
}

template <int kRows>
void int4_group(const uint8_t* data, const Group& group, const TileRows& x, FetchByTiles& after, float* sums) {
  constexpr int kAcross = strip_vectors(kRows);
  Beginnings<kRows> beginnings;
  begin_subgroups(group, x, beginnings);
  Fetch ahead = after.next(group.columns / kSubgroup * kPanel / (kAcross * kLanes));
  for (int64_t column = 0; column < kPanel; column += kAcross * kLanes) {
    group_strip<kRows, kAcross>(data, column, group, x, beginnings, &ahead, sums);
  }
}

// Multiplies one strip of four registers. With three rows, sums, the rows' quads and a code fit 16 registers. Totals stay in the
// first-level cache, and each is loaded once for 16 columns. With fewer registers across, a row's quad would serve fewer products, and a
// quad takes a port of products.
template <int kRows>
TS_INLINE void codes_strip(const uint8_t* codes, const uint8_t* multipliers, int64_t column, const Group& group, const TileRows& x,
                           const Beginnings<kRows>& beginnings, Fetch* ahead, float* sums) {
  __m256i totals[kRows][kCodesAcross];
  for (auto& row : totals) {
    for (__m256i& total : row) total = _mm256_setzero_si256();
  }
  const int8_t* q = x.q + group.first;
  codes += 4 * column;
  multipliers += 4 * column;
  for (int64_t n = 0; n < group.columns / kSubgroup; ++n, multipliers += kQuadBytes) {
    ahead->step();
    __m256i of_subgroup[kRows][kCodesAcross];
    TS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TS_UNROLL
      for (int j = 0; j < kCodesAcross; ++j) of_subgroup[r][j] = _mm256_set1_epi32(beginnings[r][n]);
    }
    TS_UNROLL
    for (int quad = 0; quad < 4; ++quad, q += 4, codes += kQuadBytes) {
      __m256i quads[kRows];
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) quads[r] = broadcast_quad(q + r * x.q_stride);
      TS_UNROLL
      for (int j = 0; j < kCodesAcross; ++j) {
        const __m256i code = load(codes + 32 * j);
        TS_UNROLL
        for (int r = 0; r < kRows; ++r) of_subgroup[r][j] = Bytes<__m256i>::add_quad(of_subgroup[r][j], code, quads[r]);
      }
    }
    TS_UNROLL
    for (int j = 0; j < kCodesAcross; ++j) {
      const __m256i multiplier = load(multipliers + 32 * j);
      TS_UNROLL
      for (int r = 0; r < kRows; ++r) totals[r][j] = Bytes<__m256i>::add_multiplied(totals[r][j], of_subgroup[r][j], multiplier);
    }
  }
  fold_columns<Columns256>(totals, x.scales + group.index * x.pair_stride, group.scales + 2 * column, sums + column);
}

template <int kRows>
void int4_codes_group(const uint8_t* block, const Group& group, const TileRows& x, FetchByTiles& after, float* sums) {
  constexpr int64_t kColumns = kCodesAcross * kLanes;
  Beginnings<kRows> beginnings;
  begin_subgroups(group, x, beginnings);
  Fetch ahead = after.next(group.columns / kSubgroup * (kPanel / kColumns));
  for (int64_t column = 0; column < kPanel; column += kColumns) {
    codes_strip<kRows>(block, block + group.columns * kPanel, column, group, x, beginnings, &ahead, sums);
  }
}

}  // namespace

void unpack_int4_codes(const uint8_t* packed, int64_t columns, uint8_t* block) {
  uint8_t* multipliers = block + columns * kPanel;
  for (int64_t k = 0; k < columns; k += kStep, packed += kInt4StepBytes) {
    for (int part = 0; part < kParts; ++part, multipliers += kQuadBytes) {
      const uint8_t* octs = packed + kMultiplierBytes + part * 2 * kQuadBytes;
      for (int64_t column = 0; column < kPanel; column += kLanes) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(multipliers + 4 * column), multipliers_of(packed, part, column));
      }
      for (int oct = 0; oct < 2; ++oct, octs += kQuadBytes, block += 2 * kQuadBytes) {
        for (int64_t at = 0; at < kQuadBytes; at += 4 * kLanes) {
          __m256i low, high;
          split_nibbles<kNoTable>(load(octs + at), low, high);
          _mm256_store_si256(reinterpret_cast<__m256i*>(block + at), low);
          _mm256_store_si256(reinterpret_cast<__m256i*>(block + kQuadBytes + at), high);
        }
      }
    }
  }
}

GroupKernel int4_codes_kernel(int64_t rows) {
  constexpr GroupKernel kernels[] = {int4_codes_group<1>, int4_codes_group<2>, int4_codes_group<3>};
  return kernels[rows - 1];
}

GroupKernel int4_kernel(int64_t rows) {
  constexpr GroupKernel kernels[kTileRows] = {int4_group<1>, int4_group<2>, int4_group<3>, int4_group<4>};
  return kernels[rows - 1];
}

}  // namespace twostroke
#endif
