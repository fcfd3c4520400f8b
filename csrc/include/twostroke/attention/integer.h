// The two products of attention over one tile where K and V are integers. They are dot products of bytes, with whole numbers for queries
// and weights (integers.h). Each row's query has one scale, and its weights of a tile have another. A query's numbers are bytes, which adds
// less error than K's own bytes do. Weights have two digits, because with one digit all small weights next to one large weight would be
// lost.
//
// The sums are exact, so the order of addition and the other rows do not matter. A row's scale depends on its own numbers alone, in a tile
// at an absolute position.
#pragma once
#include <type_traits>

#include "twostroke/attention/rows.h"
#include "twostroke/integers.h"

namespace twostroke {

// The register tiles: rows x pages of scores, and rows of two digits x vectors of outputs.
constexpr int kScoreRows = kRegisterTiles.score_rows, kValueRows = kRegisterTiles.value_rows, kIntegerVectors = kRegisterTiles.integer_vectors;
constexpr int kWidestIntegers = kRegisterTiles.widest_integers;

// The code of zero in K and in V, as multiply_add takes it.
template <typename Element>
constexpr int32_t kKeyZero = Element::kParts == 1 ? kByteZero : 8;
template <typename Element>
constexpr int32_t kValueZero = Element::kParts == 1 ? 0 : 8;

constexpr int64_t kStored = 4 * kLanes;  // numbers that store_bytes stores at once
inline int64_t query_columns(int64_t dim) { return (dim + kStored - 1) / kStored * kStored; }

// Query rows as whole numbers. bytes: (rows, query_columns); words: the same numbers; starts: (rows,), the correction for the zero points
// with which K is stored.
struct IntegerQueries {
  int8_t* bytes;
  int16_t* words;
  float* scales;
  int32_t* starts;

  template <class Take>
  void lay_out(int64_t capacity, int64_t dim, Take&& take) {
    bytes = reinterpret_cast<int8_t*>(take(capacity * query_columns(dim) / 4));
    words = reinterpret_cast<int16_t*>(take(kWordProducts ? capacity * query_columns(dim) / 2 : 0));
    scales = take(capacity);
    starts = reinterpret_cast<int32_t*>(take(capacity));
  }
};

// A tile's weights as whole numbers. digits: (rows, 2, kTile), or words (rows, kTile) in the same memory; starts: (rows,). The scales of
// the tile's K and V are here too.
struct IntegerWeights {
  int8_t* digits;
  float *scales, *inverses, *key_scales, *value_scales;
  int32_t* starts;

  template <class Take>
  void lay_out(int64_t capacity, Take&& take) {
    digits = reinterpret_cast<int8_t*>(take(capacity * kDigits * kTile / 4));
    scales = take(capacity);
    inverses = take(capacity);
    key_scales = take(kTile);
    value_scales = take(kTile);
    starts = reinterpret_cast<int32_t*>(take(capacity));
  }

  int16_t* words() const { return reinterpret_cast<int16_t*>(digits); }
};

// One quad of a row's 64 stored bytes. part: which quad, where a byte holds two.
TS_VECTOR_INLINE auto key_quads(const WholeByte*, Quads stored, int) { return offset_bytes(stored); }
TS_VECTOR_INLINE auto value_quads(const WholeByte*, Quads stored, int) { return signed_bytes(stored); }
TS_VECTOR_INLINE auto key_quads(const Nibbles*, Quads stored, int part) { return part == 0 ? low_nibbles(stored) : high_nibbles(stored); }
TS_VECTOR_INLINE auto value_quads(const Nibbles* row, Quads stored, int part) { return key_quads(row, stored, part); }

TS_VECTOR_INLINE float float_of(int32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// Rounds one row (dim,) of float32 to bytes and returns its scale. dim is a multiple of 16.
inline float bytes_of_query(const float* row, int64_t dim, int8_t* bytes) {
  Ints largest = magnitude_bits(load(row));
  for (int64_t d = kLanes; d < dim; d += kLanes) largest = max(largest, magnitude_bits(load(row + d)));
  const Scaling scaling(set1(float_of(reduce_max(largest))), kLargestByte);
  for (int64_t from = 0; from < dim; from += kStored) {
    Vec v[4];
    for (int i = 0; i < 4; ++i) v[i] = rounded(from + i * kLanes < dim ? load(row + from + i * kLanes) : zero(), scaling.inverse);
    store_bytes(v, bytes + from);
  }
  float scales[kLanes];
  store(scales, scaling.scale);
  return scales[0];
}

// Rounds queries (rows, dim) of float32 to bytes.
template <typename Element>
void bytes_of_queries(const float* queries, int64_t rows, int64_t dim, const IntegerQueries& to) {
  const int64_t columns = query_columns(dim);
  for (int64_t r = 0; r < rows; ++r) {
    int8_t* bytes = to.bytes + r * columns;
    to.scales[r] = bytes_of_query(queries + r * dim, dim, bytes);
    int32_t sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += bytes[d];
    for (int64_t d = 0; kWordProducts && d < columns; ++d) to.words[r * columns + d] = bytes[d];
    to.starts[r] = -kKeyZero<Element> * sum;
  }
}

// The sums of kRows rows of factors, which are `stride` bytes apart.
template <int kRows, int kColumns, typename Bytes>
TS_VECTOR_INLINE void multiply_add(Ints (&sum)[kRows][kColumns], const int8_t* factors, int64_t stride, const Bytes (&by)[kColumns]) {
  TS_EVERY
  for (int r = 0; r < kRows; ++r) {
    TS_EVERY
    for (int c = 0; c < kColumns; ++c) sum[r][c] = multiply_add(sum[r][c], by[c], factors + r * stride);
  }
}

// Computes scores of rows r .. r + kRows against pages [first_page, first_page + kPages). kAhead: whether it fetches what the next tile
// reads.
template <typename Element, int kRows, int kPages, bool kAhead>
TS_VECTOR_INLINE void integer_score_tile(const IntegerQueries& queries, int64_t r, const TileView<Element>& keys, int first_page, int64_t dim,
                                         int64_t columns, const float* key_scales, float* scores) {
  Ints sum[kRows][kPages];
  TS_EVERY
  for (int i = 0; i < kRows; ++i) {
    const Ints start = set1(queries.starts[r + i]);
    TS_EVERY
    for (int p = 0; p < kPages; ++p) sum[i][p] = start;
  }
  const int8_t* bytes = queries.bytes + r * columns;
  for (int64_t d = 0, at = 0; d < dim; d += kQuad * Element::kParts, at += keys.step) {
    Quads stored[kPages];
    decltype(key_quads(keys.pages[0], stored[0], 0)) key[kPages];
    TS_EVERY
    for (int p = 0; p < kPages; ++p) {
      const Element* row = keys.pages[first_page + p] + at;
      if (kAhead) prefetch_ahead(row, keys.ahead[first_page + p]);
      stored[p] = load_quads(&row->bits);
    }
    TS_EVERY
    for (int part = 0; part < Element::kParts; ++part) {
      TS_EVERY
      for (int p = 0; p < kPages; ++p) key[p] = key_quads(keys.pages[0], stored[p], part);
      multiply_add(sum, bytes + d + part * kQuad, columns, key);
    }
  }
  TS_EVERY
  for (int i = 0; i < kRows; ++i) {
    const Vec scale = set1(queries.scales[r + i]);
    TS_EVERY
    for (int p = 0; p < kPages; ++p) {
      const int64_t at = (first_page + p) * TS_PAGE_TOKENS;
      store(scores + (r + i) * kTile + at, to_float(sum[i][p]) * scale * load(key_scales + at));
    }
  }
}

template <typename Element, int kRows, bool kAhead>
void integer_score_rows(const IntegerQueries& queries, int64_t r, const TileView<Element>& keys, int pages, int64_t dim, int64_t columns,
                        const float* key_scales, float* scores) {
  int p = 0;
  for (; p + kIntegerVectors <= pages; p += kIntegerVectors)
    integer_score_tile<Element, kRows, kIntegerVectors, kAhead>(queries, r, keys, p, dim, columns, key_scales, scores);
  for (; p < pages; ++p) integer_score_tile<Element, kRows, 1, kAhead>(queries, r, keys, p, dim, columns, key_scales, scores);
}

// The largest magnitude among the scales of V in a span; NaN where one is NaN.
inline float largest_scale(const float* scales, Span span) {
  Ints largest = set1(0);
  TS_EVERY
  for (int p = 0; p < kTilePages; ++p)
    largest = max(largest, magnitude_bits(keep_lanes(load(scales + p * kLanes), span.begin - p * kLanes, span.end - p * kLanes, 0.0f)));
  return float_of(reduce_max(largest));
}

// Computes the scale of each row's weights times V's scales. It comes from a bound: the row's largest weight times the largest scale that
// the row sees. found: each row's peak in this tile, which is replaced by that bound.
inline void scale_weights(const Span* spans, int64_t rows, const Partial& partial, const IntegerWeights& weights, float* found) {
  const float whole = largest_scale(weights.value_scales, {0, kTile});
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec largest = exp2_negative(load(found + r) - load(partial.peak + r));
    for (int64_t i = r; i < r + kLanes; ++i)
      found[i] = i >= rows ? 0.0f : spans[i].full() ? whole : largest_scale(weights.value_scales, spans[i]);
    const Scaling scaling(largest * load(found + r), kLargestWhole);
    store(weights.scales + r, scaling.scale);
    store(weights.inverses + r, scaling.inverse);
  }
}

// Rounds row r's weights times V's scales to whole numbers. Returns false where the row sees no position; its scale is then 0.
TS_VECTOR_INLINE bool whole_weights(const float* scores, const Span* spans, int64_t r, const Partial& partial, const float* rescale,
                                    const IntegerWeights& weights, Vec (&v)[kTilePages]) {
  const Span span = spans[r];
  if (span.empty()) {  // its peak does not change, so its total does not either
    weights.scales[r] = 0.0f;
    return false;
  }
  weights_of(scores + r * kTile, span, partial, r, rescale[r], v);
  TS_EVERY
  for (int p = 0; p < kTilePages; ++p) v[p] = v[p] * load(weights.value_scales + p * kLanes);
  if (!span.full()) {  // the scale of an empty position may be NaN
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) v[p] = keep_lanes(v[p], span.begin - p * kLanes, span.end - p * kLanes, 0.0f);
  }
  TS_EVERY
  for (int p = 0; p < kTilePages; ++p) v[p] = rounded(v[p], set1(weights.inverses[r]));
  return true;
}

// Turns scores into digits of weights times V's scales.
template <typename Element>
void digits_of_weights(const float* scores, const Span* spans, int64_t rows, const Partial& partial, const float* rescale,
                       const IntegerWeights& weights) {
  for (int64_t r = 0; r < rows; ++r) {
    int8_t* digits = weights.digits + r * kDigits * kTile;
    Vec v[kTilePages];
    if (!whole_weights(scores, spans, r, partial, rescale, weights, v)) {
      memset(digits, 0, kDigits * kTile);
      weights.starts[r] = 0;
      continue;
    }
    const Ints sum = store_digits(v, digits, digits + kTile);
    weights.starts[r] = kValueZero<Element> == 0 ? 0 : -kValueZero<Element> * reduce_add(sum);
  }
}

// Computes kVectors vectors of out for rows r .. r + kRows. from: the byte in a row of quads at which these vectors begin.
template <typename Element, int kRows, int kVectors, bool kAhead>
TS_VECTOR_INLINE void integer_value_tile(const IntegerWeights& weights, int64_t r, const float* rescale, const TileView<Element>& values,
                                         int64_t from, int first, int last, float* out, int64_t out_stride) {
  constexpr int kSums = kRows * kDigits, kLoads = kVectors / Element::kParts;
  Ints sum[kSums][kVectors];
  TS_EVERY
  for (int i = 0; i < kSums; ++i) {
    const Ints start = set1(i % kDigits == 0 ? 0 : weights.starts[r + i / kDigits]);
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) sum[i][v] = start;
  }
  const int8_t* digits = weights.digits + r * kDigits * kTile;
  for (int t = first / kQuad * kQuad; t < last; t += kQuad) {
    const int page = t / TS_PAGE_TOKENS;
    const Element* row = values.pages[page] + t % TS_PAGE_TOKENS / kQuad * values.step + from;
    decltype(value_quads(row, Quads(), 0)) value[kVectors];
    TS_EVERY
    for (int l = 0; l < kLoads; ++l) {
      if (kAhead) prefetch_ahead(row + 64 * l, values.ahead[page]);
      const Quads stored = load_quads(&row[64 * l].bits);
      TS_EVERY
      for (int part = 0; part < Element::kParts; ++part) value[l * Element::kParts + part] = value_quads(row, stored, part);
    }
    multiply_add(sum, digits + t, kTile, value);
  }
  TS_EVERY
  for (int i = 0; i < kRows; ++i) {
    const Vec scale = set1(weights.scales[r + i]), keep = set1(rescale[r + i]);
    TS_EVERY
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + (r + i) * out_stride + v * kLanes;
      store(to, fma(to_float(times_128(sum[kDigits * i][v]) + sum[kDigits * i + 1][v]), scale, load(to) * keep));
    }
  }
}

// The last vectors of a row, at most kVectors of them, in one register tile. d: the first of them.
template <typename Element, int kRows, int kVectors, bool kAhead>
void integer_value_end(const IntegerWeights& weights, int64_t r, const float* rescale, const TileView<Element>& values, int first, int last,
                       int64_t d, int64_t width, float* out) {
  if (width - d == kVectors * kLanes)
    return integer_value_tile<Element, kRows, kVectors, kAhead>(weights, r, rescale, values, d * kQuad / Element::kParts, first, last, out + d, width);
  if constexpr (kVectors > Element::kParts)
    integer_value_end<Element, kRows, kVectors - Element::kParts, kAhead>(weights, r, rescale, values, first, last, d, width, out);
}

template <typename Element, int kRows, bool kAhead>
void integer_value_rows(const IntegerWeights& weights, int64_t r, const float* rescale, const TileView<Element>& values, int first, int last,
                        int64_t width, float* out) {
  int64_t d = 0;
  for (; width - d > kWidestIntegers * kLanes; d += kIntegerVectors * kLanes)
    integer_value_tile<Element, kRows, kIntegerVectors, kAhead>(weights, r, rescale, values, d * kQuad / Element::kParts, first, last, out + d, width);
  integer_value_end<Element, kRows, kWidestIntegers, kAhead>(weights, r, rescale, values, first, last, d, width, out);
}

// Calls rows_at for the rows of a block: for kRows rows at a time, then for the rows that are left. The first call fetches what the next
// tile reads. rows_at(count, ahead, r) takes `count` rows from r on; count and ahead are constants.
template <int kRows, bool kAhead, class RowsAt>
void each_rows(int64_t r, int64_t rows, const RowsAt& rows_at) {
  constexpr std::integral_constant<int, kRows> kCount = {};
  if (r + kRows <= rows) {
    rows_at(kCount, std::integral_constant<bool, kAhead>{}, r);
    for (r += kRows; r + kRows <= rows; r += kRows) rows_at(kCount, std::false_type{}, r);
    if constexpr (kRows > 1) return each_rows<kRows - 1, false>(r, rows, rows_at);
  }
  if constexpr (kRows > 1) each_rows<kRows - 1, kAhead>(r, rows, rows_at);
}

// Computes scores of `rows` rows against `pages` pages.
template <typename Element>
void integer_scores(const IntegerQueries& queries, int64_t rows, const TileView<Element>& keys, int pages, int64_t dim, int64_t columns,
                    const float* key_scales, float* scores) {
  each_rows<kScoreRows, true>(0, rows, [&](auto count, auto ahead, int64_t r) {
    integer_score_rows<Element, count(), ahead()>(queries, r, keys, pages, dim, columns, key_scales, scores);
  });
}

// Computes out (rows, width) = out * rescale + weights times V of positions [first, last). width is a multiple of 16, and for int4 of 32.
template <typename Element>
void integer_values(const IntegerWeights& weights, int64_t rows, const float* rescale, const TileView<Element>& values, int first, int last,
                    int64_t width, float* out) {
  each_rows<kValueRows, true>(0, rows, [&](auto count, auto ahead, int64_t r) {
    integer_value_rows<Element, count(), ahead()>(weights, r, rescale, values, first, last, width, out);
  });
}

}  // namespace twostroke
