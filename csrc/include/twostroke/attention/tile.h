// The two products of attention over one tile of positions, for a block of query rows that share a KV head.
//
// A tile is 64 positions, or 4 pages, and begins at an absolute position that is a multiple of 64. Every score is one chain of products
// over the head's dimensions in order. Every output element is one chain over the positions in order. The number of rows and pages in a
// register tile changes what is loaded, and so does widening K and V earlier or later. Neither changes the order or the numbers, so a row's
// bits do not depend on its neighbours.
#pragma once
#include <type_traits>

#include "twostroke/attention/kv_page.h"
#include "twostroke/level.h"
#include "twostroke/products/register_tiles.h"
#include "twostroke/simd.h"

// An array of vector registers stays in registers only where every loop over it is unrolled and every use is inlined.
#define TS_EVERY _Pragma("clang loop unroll(full)")

namespace twostroke {

constexpr int kTilePages = 4;
constexpr int kTile = kTilePages * TS_PAGE_TOKENS;

// The register tiles: rows x pages of scores, rows x vectors of outputs. kWide: for K and V that were widened before; kThin: for K and V
// that are widened on the way.
constexpr int kWideRows = kRegisterTiles.wide_rows, kWideVectors = kRegisterTiles.wide_vectors;
constexpr int kThinRows = kRegisterTiles.thin_rows, kThinVectors = kRegisterTiles.thin_vectors;

// K or V of a tile as a kernel sees it. K: row d of page p is at [p] + d * step (bf16: a row is two dimensions). V: position t is at [t /
// 16] + (t % 16) * step (bf16: a row is two positions). Integers: rows of quads. ahead: the bytes from a page to the one that the next tile
// reads in its place.
template <typename Element>
struct TileView {
  const Element* pages[kTilePages];
  int64_t step;
  int64_t ahead[kTilePages];
};

TS_VECTOR_INLINE Vec load_element(const float* p) { return load(p); }

template <typename Element>
constexpr bool kIsPair = std::is_same<Element, Bf16Pair>::value;

template <typename Element>
TS_VECTOR_INLINE void prefetch_ahead(const Element* at, int64_t ahead) {
  constexpr int kLocality = kLevel.ahead_locality;  // without optimization GCC reads only a variable as a constant
  __builtin_prefetch(reinterpret_cast<const uint8_t*>(at) + ahead, 0, kLocality);
}

template <int kRows, int kColumns>
TS_VECTOR_INLINE void multiply_add(Vec (&sum)[kRows][kColumns], const float* factors, int64_t stride, const Vec (&by)[kColumns]) {
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    if (r > 0) load_after(&factors, &sum[r - 1][0]);
    const Vec factor = set1(factors[r * stride]);
    TS_EVERY
    for (int c = 0; c < kColumns; ++c) sum[r][c] = fma(factor, by[c], sum[r][c]);
  }
}

// Computes scores[r][16 p ..] as the sum over d of q[r][d] * K[d][16 p ..]. q has a zero after an odd dim.
template <typename Element, int kRows, int kPages>
TS_VECTOR_INLINE void score_tile(const float* q, int64_t q_stride, const TileView<Element>& keys, int first_page, int64_t dim,
                                 float* scores) {
  constexpr bool kAhead = !std::is_same<Element, float>::value || kRows <= kThinRows;
  constexpr int64_t kLine = 64 / (TS_PAGE_TOKENS * static_cast<int64_t>(sizeof(Element)));  // rows of K in a cache line
  Vec sum[kRows][kPages], key[kPages];
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    TS_EVERY
    for (int p = 0; p < kPages; ++p) sum[r][p] = zero();
  }
  const Element* const* pages = keys.pages + first_page;
  const int64_t rows = kIsPair<Element> ? (dim + 1) / 2 : dim;
  for (int64_t row = 0; row < rows; ++row) {
    if (kAhead && row % kLine == 0) {
      TS_EVERY
      for (int p = 0; p < kPages; ++p) prefetch_ahead(pages[p] + row * keys.step, keys.ahead[first_page + p]);
    }
    if constexpr (kIsPair<Element>) {
      Words raw[kPages];
      TS_EVERY
      for (int p = 0; p < kPages; ++p) raw[p] = load_words(pages[p] + row * keys.step);
      TS_EVERY
      for (int p = 0; p < kPages; ++p) key[p] = low_halves(raw[p]);
      multiply_add<kRows, kPages>(sum, q + 2 * row, q_stride, key);
      TS_EVERY
      for (int p = 0; p < kPages; ++p) key[p] = high_halves(raw[p]);
      multiply_add<kRows, kPages>(sum, q + 2 * row + 1, q_stride, key);
    } else {
      TS_EVERY
      for (int p = 0; p < kPages; ++p) key[p] = load_element(pages[p] + row * keys.step);
      multiply_add<kRows, kPages>(sum, q + row, q_stride, key);
    }
  }
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    TS_EVERY
    for (int p = 0; p < kPages; ++p) store(scores + r * kTile + (first_page + p) * TS_PAGE_TOKENS, sum[r][p]);
  }
}

// Loads vectors v .. v + kVectors of one position's V. second: whether it is the second position of a row of pairs.
template <typename Element, int kVectors>
TS_VECTOR_INLINE void load_values(const Element* row, bool second, Vec (&value)[kVectors]) {
  if constexpr (kIsPair<Element>) {
    Words raw[kVectors];
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) raw[v] = load_words(row + v * kLanes);
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) value[v] = second ? high_halves(raw[v]) : low_halves(raw[v]);
  } else {
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) value[v] = load_element(row + v * kLanes);
  }
}

// The row of its page that holds position t.
template <typename Element>
TS_VECTOR_INLINE int64_t value_row(int t) {
  return t % TS_PAGE_TOKENS / (kIsPair<Element> ? 2 : 1);
}

// Computes out[r][..] = out * rescale[r] + the sum over t in [first, last) of weights[r][t] * V[t][..]. `from`: the first element in a row
// of V.
template <typename Element, int kRows, int kVectors>
TS_VECTOR_INLINE void value_tile(const float* weights, const float* rescale, const TileView<Element>& values, int64_t from,
                                 int first, int last, float* out, int64_t out_stride) {
  constexpr bool kAhead = !std::is_same<Element, float>::value || kRows <= kThinRows;
  constexpr int64_t kBytes = kVectors * 16 * static_cast<int64_t>(sizeof(Element));
  Vec sum[kRows][kVectors];
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    const Vec factor = set1(rescale[r]);
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load(out + r * out_stride + v * kLanes) * factor;
  }
  for (int t = first; t < last;) {
    const int page = t / TS_PAGE_TOKENS, end = last < (page + 1) * TS_PAGE_TOKENS ? last : (page + 1) * TS_PAGE_TOKENS;
    const Element* row = values.pages[page] + value_row<Element>(t) * values.step + from;
    for (; t < end; row += values.step) {
      if (kAhead) {
        TS_EVERY
        for (int64_t b = 0; b < kBytes; b += 64) prefetch_ahead(reinterpret_cast<const uint8_t*>(row) + b, values.ahead[page]);
      }
      Vec value[kVectors];
      if (!kIsPair<Element> || t % 2 == 0) {
        load_values<Element, kVectors>(row, false, value);
        multiply_add<kRows, kVectors>(sum, weights + t++, kTile, value);
      }
      if (kIsPair<Element> && t < end) {
        load_values<Element, kVectors>(row, true, value);
        multiply_add<kRows, kVectors>(sum, weights + t++, kTile, value);
      }
    }
  }
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + v * kLanes, sum[r][v]);
  }
}

template <typename Element, int kRows, int kPages>
void score_rows_at(const float* q, int64_t q_stride, const TileView<Element>& keys, int pages, int64_t dim, float* scores) {
  int p = 0;
  for (; p + kPages <= pages; p += kPages) score_tile<Element, kRows, kPages>(q, q_stride, keys, p, dim, scores);
  for (; p < pages; ++p) score_tile<Element, kRows, 1>(q, q_stride, keys, p, dim, scores);
}

// q: (rows, q_stride); scores: (rows, kTile). It takes kRows rows at a time, then the rows that are left.
template <typename Element, int kRows, int kPages>
void score_rows(const float* q, int64_t q_stride, int64_t rows, const TileView<Element>& keys, int pages, int64_t dim, float* scores) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    score_rows_at<Element, kRows, kPages>(q + r * q_stride, q_stride, keys, pages, dim, scores + r * kTile);
  if constexpr (kRows > 1)
    if (r < rows) score_rows<Element, kRows - 1, kPages>(q + r * q_stride, q_stride, rows - r, keys, pages, dim, scores + r * kTile);
}

// Computes `width` dimensions of V, a multiple of 16.
template <typename Element, int kRows, int kVectors>
void value_rows_at(const float* weights, const float* rescale, const TileView<Element>& values, int first, int last, int64_t width,
                   float* out, int64_t out_stride) {
  int64_t d = 0;
  for (; d + kVectors * kLanes <= width; d += kVectors * kLanes)
    value_tile<Element, kRows, kVectors>(weights, rescale, values, d, first, last, out + d, out_stride);
  for (; d < width; d += kLanes) value_tile<Element, kRows, 1>(weights, rescale, values, d, first, last, out + d, out_stride);
}

template <typename Element, int kRows, int kVectors>
void value_rows(const float* weights, const float* rescale, int64_t rows, const TileView<Element>& values, int first, int last,
                int64_t width, float* out, int64_t out_stride) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    value_rows_at<Element, kRows, kVectors>(weights + r * kTile, rescale + r, values, first, last, width, out + r * out_stride,
                                            out_stride);
  if constexpr (kRows > 1)
    if (r < rows)
      value_rows<Element, kRows - 1, kVectors>(weights + r * kTile, rescale + r, rows - r, values, first, last, width,
                                               out + r * out_stride, out_stride);
}

// Widens K of `pages` pages to float32 (dim, kTile).
template <typename Element>
void widen_keys(const TileView<Element>& keys, int pages, int64_t dim, float* to) {
  for (int p = 0; p < pages; ++p) {
    const Element* from = keys.pages[p];
    if constexpr (kIsPair<Element>) {
      for (int64_t d = 0; d < dim; d += 2) {
        const Words raw = load_words(from + d / 2 * TS_PAGE_TOKENS);
        store(to + d * kTile + p * kLanes, low_halves(raw));
        if (d + 1 < dim) store(to + (d + 1) * kTile + p * kLanes, high_halves(raw));
      }
    } else {
      for (int64_t d = 0; d < dim; ++d) store(to + d * kTile + p * kLanes, load_element(from + d * TS_PAGE_TOKENS));
    }
  }
}

// Loads the last dim % 16 elements of a row. Later lanes are zeros, and no later memory is read.
template <typename Element>
TS_VECTOR_INLINE Vec load_last(const Element* from, int64_t count) {
  Element part[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = from[i];
  return load_element(part);
}

// Loads one position's vector from a row of pairs. It has `count` of 16 numbers, and zeros after them.
TS_VECTOR_INLINE Vec load_half(const Bf16Pair* from, bool second, int64_t count) {
  Bf16Pair part[kLanes] = {};
  if (count < kLanes) {
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    from = part;
  }
  const Words raw = load_words(from);
  return second ? high_halves(raw) : low_halves(raw);
}

// Widens V of positions [first, last) to float32 (kTile, padded), where padded is dim rounded up to 16.
template <typename Element>
void widen_values(const TileView<Element>& values, int first, int last, int64_t dim, int64_t padded, float* to) {
  for (int t = first; t < last; ++t) {
    const Element* from = values.pages[t / TS_PAGE_TOKENS] + value_row<Element>(t) * values.step;
    float* row = to + t * padded;
    if constexpr (kIsPair<Element>) {
      for (int64_t d = 0; d < dim; d += kLanes) store(row + d, load_half(from + d, t % 2 != 0, dim - d));
    } else {
      int64_t d = 0;
      for (; d + kLanes <= dim; d += kLanes) store(row + d, load_element(from + d));
      if (d < dim) store(row + d, load_last(from + d, dim - d));
    }
  }
}

}  // namespace twostroke
