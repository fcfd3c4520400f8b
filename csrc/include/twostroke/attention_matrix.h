// Attention's two products on matrix registers (AMX bf16), for K and V whose numbers bf16 holds exactly: bf16, int8, int4.
//
// A query is the sum of three bf16 numbers and a weight the sum of two, so that nothing of a float32 query and 2^-17 of a weight
// is lost; products of bf16 are exact and sums are float32. Rows of a tile do not meet, and the order of every sum is that of the
// instruction, whichever rows share the tile: a row's bits do not depend on its neighbours, and one row takes the same way as many.
// Knows: tiles, pages. Must not know: the softmax, batches, threads.
#pragma once
#include "twostroke/attention_tile.h"

namespace twostroke {

#if defined(TS_LEVEL_AMX)
constexpr bool kMatrixAttention = true;
#else
constexpr bool kMatrixAttention = false;
#endif

constexpr int kQueryParts = 3, kWeightParts = 2;
constexpr int64_t kPairDims = 32;         // dimensions, or positions, that one tile multiplies: 16 pairs
constexpr int64_t kTileElements = 16 * kPairDims;

inline int64_t dim_chunks(int64_t dim) { return (dim + kPairDims - 1) / kPairDims; }
inline int64_t query_part_floats(int64_t capacity, int64_t dim) { return capacity * dim_chunks(dim) * kPairDims * kQueryParts / 2; }
inline int64_t packed_key_floats(int64_t dim) { return dim_chunks(dim) * kTilePages * kTileElements / 2; }
inline int64_t packed_floats(int64_t padded) { return packed_key_floats(padded) + padded / 16 * kTileElements; }
inline int64_t weight_part_floats(int64_t capacity) { return capacity * kTile * kWeightParts / 2; }

#if defined(TS_LEVEL_AMX)
struct alignas(64) AttentionTileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};

  // Registers 0 to 3: results, 4 to 6: rows of the block, 7: K or V. Fewer rows take less time.
  explicit AttentionTileConfig(int64_t block_rows) {
    for (int i = 0; i < 7; ++i) rows[i] = static_cast<uint8_t>(block_rows < 16 ? block_rows : 16);
    rows[7] = 16;
  }
};

inline void matrix_attention_begin(int64_t rows) {
  const AttentionTileConfig config(rows);
  _tile_loadconfig(&config);
}

inline void matrix_attention_end() { _tile_release(); }

TS_VECTOR_INLINE __m512 widen_part(__m256bh part) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(part)), 16));
}

// 16 numbers as kParts bf16 numbers each, `step` elements from one part to the next.
template <int kParts>
TS_VECTOR_INLINE void split(__m512 x, uint16_t* to, int64_t step) {
  TS_EVERY
  for (int part = 0; part < kParts; ++part, to += step) {
    const __m256bh rounded = _mm512_cvtneps_pbh(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(rounded));
    x = _mm512_sub_ps(x, widen_part(rounded));
  }
}

// (rows, columns) float32, `stride` apart, to (blocks of 16 rows, chunks of 32 columns, kParts, 16, 32) bf16; columns: a multiple of 16.
template <int kParts>
void split_rows(const float* from, int64_t stride, int64_t rows, int64_t columns, uint16_t* to) {
  const int64_t chunks = dim_chunks(columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < chunks * kPairDims; c += kLanes) {
      uint16_t* at = to + ((r / 16 * chunks + c / kPairDims) * kParts * 16 + r % 16) * kPairDims + c % kPairDims;
      split<kParts>(c < columns ? _mm512_loadu_ps(from + r * stride + c) : _mm512_setzero_ps(), at, kTileElements);
    }
  }
}

// Two vectors of numbers that bf16 holds, side by side.
TS_VECTOR_INLINE void store_pair(uint16_t* to, Vec even, Vec odd) {
  const __m512i high = _mm512_and_si512(_mm512_castps_si512(odd.v), _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u)));
  _mm512_storeu_si512(to, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even.v), 16), high));
}

// The same of bf16 numbers as they lie: 16 pairs of `even` and `odd`.
TS_VECTOR_INLINE void store_pair(uint16_t* to, __m256i even, __m256i odd) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                         18, 2, 17, 1, 16, 0);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
}

TS_VECTOR_INLINE __m256i load_bits(const uint16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// K of page p: (chunks of 32 dimensions, 4 pages, 16 pairs of dimensions, 16 positions, 2).
template <typename Element>
void pack_keys(const TileView<Element>& keys, int p, int64_t dim, uint16_t* to) {
  for (int64_t d = 0; d < dim_chunks(dim) * kPairDims; d += 2) {
    uint16_t* at = to + (d / kPairDims * kTilePages + p) * kTileElements + d % kPairDims * 16;
    if (d >= dim) {
      store_pair(at, zero(), zero());
    } else if constexpr (std::is_same<Element, Nibbles>::value) {
      const Bytes raw = load_bytes(&keys.pages[p][d / 2 * TS_PAGE_TOKENS].bits);
      store_pair(at, low_nibbles(raw), d + 1 < dim ? high_nibbles(raw) : zero());
    } else if constexpr (std::is_same<Element, uint16_t>::value) {
      const uint16_t* row = keys.pages[p] + d * TS_PAGE_TOKENS;
      store_pair(at, load_bits(row), d + 1 < dim ? load_bits(row + TS_PAGE_TOKENS) : _mm256_setzero_si256());
    } else {
      const Element* row = keys.pages[p] + d * TS_PAGE_TOKENS;
      store_pair(at, load_element(row), d + 1 < dim ? load_element(row + TS_PAGE_TOKENS) : zero());
    }
  }
}

// Vectors of one position's V, or zeros: what no row sees may hold anything, and 0 * NaN would not be 0.
template <typename Element>
TS_VECTOR_INLINE Vec value_vector(const TileView<Element>& values, int t, bool seen, int64_t d, int64_t dim) {
  if (!seen) return zero();
  const Element* row = values.pages[t / TS_PAGE_TOKENS] + (t % TS_PAGE_TOKENS) * values.step;
  if constexpr (std::is_same<Element, Nibbles>::value) {
    const Bytes raw = load_bytes(&row[d / 32 * 16].bits);
    return d % 32 == 0 ? low_nibbles(raw) : high_nibbles(raw);
  } else {
    return d + kLanes <= dim ? load_element(row + d) : load_last(row + d, dim - d);
  }
}

// As below, where all positions are seen and dimensions fill whole vectors.
inline void pack_whole_page(const TileView<uint16_t>& values, int p, int64_t dim, uint16_t* to) {
  const uint16_t* row = values.pages[p];
  for (int64_t t = p * TS_PAGE_TOKENS; t < (p + 1) * TS_PAGE_TOKENS; t += 2, row += 2 * values.step) {
    uint16_t* at = to + t / kPairDims * dim / kLanes * kTileElements + t % kPairDims * 16;
    for (int64_t d = 0; d < dim; d += kLanes, at += kTileElements) store_pair(at, load_bits(row + d), load_bits(row + values.step + d));
  }
}

// V of page p, of positions [first, last) alone: (2 halves of 32 positions, vectors of 16 dimensions, 16 pairs of positions, 16
// dimensions, 2).
template <typename Element>
void pack_values(const TileView<Element>& values, int p, int first, int last, int64_t dim, uint16_t* to) {
  const int64_t vectors = (dim + kLanes - 1) / kLanes;
  if constexpr (std::is_same<Element, uint16_t>::value) {
    if (dim % kLanes == 0 && first <= p * TS_PAGE_TOKENS && last >= (p + 1) * TS_PAGE_TOKENS) return pack_whole_page(values, p, dim, to);
  }
  for (int t = p * TS_PAGE_TOKENS; t < (p + 1) * TS_PAGE_TOKENS; t += 2) {
    const bool even = t >= first && t < last, odd = t + 1 >= first && t + 1 < last;
    for (int64_t v = 0; v < vectors; ++v) {
      uint16_t* at = to + (t / kPairDims * vectors + v) * kTileElements + t % kPairDims * 16;
      store_pair(at, value_vector(values, t, even, v * kLanes, dim), value_vector(values, t + 1, odd, v * kLanes, dim));
    }
  }
}

// scores (rows, kTile) of all pages = queries times K. Rows are computed in blocks of 16: scores has room for whole ones.
inline void matrix_scores(const uint16_t* queries, const uint16_t* keys, int64_t rows, int64_t chunks, float* scores) {
  constexpr int64_t kLine = kPairDims * 2;
  for (int64_t r = 0; r < rows; r += 16, scores += 16 * kTile) {
    const uint16_t* k = keys;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t c = 0; c < chunks; ++c, queries += kQueryParts * kTileElements, k += kTilePages * kTileElements) {
      _tile_loadd(4, queries, kLine);
      _tile_loadd(5, queries + kTileElements, kLine);
      _tile_loadd(6, queries + 2 * kTileElements, kLine);
#define TS_SCORE(PAGE)                             \
  _tile_loadd(7, k + PAGE * kTileElements, kLine); \
  _tile_dpbf16ps(PAGE, 4, 7);                      \
  _tile_dpbf16ps(PAGE, 5, 7);                      \
  _tile_dpbf16ps(PAGE, 6, 7);
      TS_SCORE(0)
      TS_SCORE(1)
      TS_SCORE(2)
      TS_SCORE(3)
#undef TS_SCORE
    }
    _tile_stored(0, scores, kTile * 4);
    _tile_stored(1, scores + 16, kTile * 4);
    _tile_stored(2, scores + 32, kTile * 4);
    _tile_stored(3, scores + 48, kTile * 4);
  }
}

// One block of 16 rows times kCount vectors of V, onto sums.
template <int kCount>
TS_VECTOR_INLINE void value_block(const uint16_t* weights, const uint16_t* values, int64_t half_step, float* sums, int64_t stride) {
  constexpr int64_t kLine = kPairDims * 2;
#define TS_EACH(ACT)         \
  ACT(0)                     \
  if (kCount > 1) { ACT(1) } \
  if (kCount > 2) { ACT(2) } \
  if (kCount > 3) { ACT(3) }
#define TS_LOAD(V) _tile_loadd(V, sums + 16 * V, stride * 4);
#define TS_STORE(V) _tile_stored(V, sums + 16 * V, stride * 4);
#define TS_ADD(V)                                   \
  _tile_loadd(7, values + V * kTileElements, kLine); \
  _tile_dpbf16ps(V, 4, 7);                          \
  _tile_dpbf16ps(V, 5, 7);
  TS_EACH(TS_LOAD)
  for (int half = 0; half < 2; ++half, weights += kWeightParts * kTileElements, values += half_step) {
    _tile_loadd(4, weights, kLine);
    _tile_loadd(5, weights + kTileElements, kLine);
    TS_EACH(TS_ADD)
  }
  TS_EACH(TS_STORE)
#undef TS_ADD
#undef TS_STORE
#undef TS_LOAD
#undef TS_EACH
}

// sums (rows, padded) += weights times V; room for whole blocks of 16 rows.
inline void matrix_values(const uint16_t* weights, const uint16_t* values, int64_t rows, int64_t padded, float* sums) {
  const int64_t vectors = padded / kLanes, half_step = vectors * kTileElements;
  for (int64_t r = 0; r < rows; r += 16, weights += 2 * kWeightParts * kTileElements, sums += 16 * padded) {
    int64_t v = 0;
    for (; v + 4 <= vectors; v += 4) value_block<4>(weights, values + v * kTileElements, half_step, sums + v * kLanes, padded);
    for (; v < vectors; ++v) value_block<1>(weights, values + v * kTileElements, half_step, sums + v * kLanes, padded);
  }
}
#else
inline void matrix_attention_end() {}
#endif

}  // namespace twostroke
