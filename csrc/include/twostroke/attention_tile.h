// The two products of attention over one tile of positions, for a block of query rows that share a KV head.
//
// A tile is 64 positions, 4 pages, at absolute positions that are multiples of 64. Every score is one chain of products over
// the head's dimensions in order; every output element is one chain over the positions in order. How many rows and pages share
// a register tile changes what is loaded, never the order, so a row's bits do not depend on its neighbours.
// Knows: simd.h, the page layout. Must not know: batches, threads.
#pragma once
#include "twostroke/kv_page.h"
#include "twostroke/simd.h"

namespace twostroke {

constexpr int kTilePages = 4;
constexpr int kTile = kTilePages * TS_PAGE_TOKENS;

// Accumulators that stay in registers: AVX-512 has 32 of 16 lanes, AVX2 16 of 8.
#if defined(TS_LEVEL_AVX512)
constexpr int kScoreRows = 8, kScorePages = 2, kFewRowsPages = 4, kValueRows = 4, kValueVectors = 4;
#elif defined(TS_LEVEL_AVX2)
constexpr int kScoreRows = 4, kScorePages = 1, kFewRowsPages = 2, kValueRows = 2, kValueVectors = 2;
#else
constexpr int kScoreRows = 2, kScorePages = 1, kFewRowsPages = 1, kValueRows = 1, kValueVectors = 2;
#endif

TS_VECTOR_INLINE Vec load_element(const float* p) { return load(p); }
TS_VECTOR_INLINE Vec load_element(const uint16_t* p) { return load_bf16(p); }
TS_VECTOR_INLINE float to_float(float x) { return x; }
TS_VECTOR_INLINE float to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// scores[r][16 p ..] = sum over d of q[r][d] * keys[p][d][0..16], for kRows rows and kPages pages.
template <typename Element, int kRows, int kPages>
TS_VECTOR_INLINE void score_tile(const float* q, int64_t q_stride, const Element* const* keys, int64_t dim, float* scores) {
  Vec sum[kRows][kPages];
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPages; ++p) sum[r][p] = zero();
  for (int64_t d = 0; d < dim; ++d) {
    Vec key[kPages];
    for (int p = 0; p < kPages; ++p) key[p] = load_element(keys[p] + d * TS_PAGE_TOKENS);
    for (int r = 0; r < kRows; ++r) {
      const Vec query = set1(q[r * q_stride + d]);
      for (int p = 0; p < kPages; ++p) sum[r][p] = fma(query, key[p], sum[r][p]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPages; ++p) store(scores + r * kTile + p * TS_PAGE_TOKENS, sum[r][p]);
}

template <typename Element, int kRows, int kPages>
void score_pages(const float* q, int64_t q_stride, const Element* const* keys, int pages, int64_t dim, float* scores) {
  int p = 0;
  for (; p + kPages <= pages; p += kPages)
    score_tile<Element, kRows, kPages>(q, q_stride, keys + p, dim, scores + p * TS_PAGE_TOKENS);
  for (; p < pages; ++p) score_tile<Element, kRows, 1>(q, q_stride, keys + p, dim, scores + p * TS_PAGE_TOKENS);
}

// q: (rows, q_stride), scores: (rows, kTile).
template <typename Element>
void score_rows(const float* q, int64_t q_stride, int64_t rows, const Element* const* keys, int pages, int64_t dim, float* scores) {
  int64_t r = 0;
  for (; r + kScoreRows <= rows; r += kScoreRows)
    score_pages<Element, kScoreRows, kScorePages>(q + r * q_stride, q_stride, keys, pages, dim, scores + r * kTile);
  for (; r + 4 <= rows; r += 4)
    score_pages<Element, 4, kFewRowsPages>(q + r * q_stride, q_stride, keys, pages, dim, scores + r * kTile);
  for (; r < rows; ++r)
    score_pages<Element, 1, kFewRowsPages>(q + r * q_stride, q_stride, keys, pages, dim, scores + r * kTile);
}

// out[r][16 v ..] = out * rescale[r] + sum over t in [first, last) of weights[r][t] * values[t][16 v ..].
template <typename Element, int kRows, int kVectors>
TS_VECTOR_INLINE void value_tile(const float* weights, const float* rescale, const Element* const* values, int first, int last,
                                 int64_t dim, float* out, int64_t out_stride) {
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load(out + r * out_stride + v * kLanes) * set1(rescale[r]);
  for (int t = first; t < last; ++t) {
    const Element* row = values[t / TS_PAGE_TOKENS] + (t % TS_PAGE_TOKENS) * dim;
    Vec value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = load_element(row + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = set1(weights[r * kTile + t]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(weight, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + v * kLanes, sum[r][v]);
}

// The last dimensions where head_dim is no multiple of 16: one row at a time, lanes beyond the end are zeros.
template <typename Element>
void value_tail(const float* weights, float rescale, const Element* const* values, int first, int last, int64_t dim, int64_t from,
                float* out) {
  Vec sum = load(out + from) * set1(rescale);
  for (int t = first; t < last; ++t) {
    const Element* row = values[t / TS_PAGE_TOKENS] + (t % TS_PAGE_TOKENS) * dim + from;
    float lanes[kLanes] = {0};
    for (int64_t i = 0; i < dim - from; ++i) lanes[i] = to_float(row[i]);
    sum = fma(set1(weights[t]), load(lanes), sum);
  }
  store(out + from, sum);
}

template <typename Element, int kRows>
void value_vectors(const float* weights, const float* rescale, const Element* const* values, int first, int last, int64_t dim,
                   float* out, int64_t out_stride) {
  int64_t d = 0;
  const Element* shifted[kTilePages];
  for (; d + kLanes <= dim;) {
    const bool wide = d + kValueVectors * kLanes <= dim;
    for (int p = 0; p < kTilePages; ++p) shifted[p] = values[p] == nullptr ? nullptr : values[p] + d;
    if (wide) {
      value_tile<Element, kRows, kValueVectors>(weights, rescale, shifted, first, last, dim, out + d, out_stride);
    } else {
      value_tile<Element, kRows, 1>(weights, rescale, shifted, first, last, dim, out + d, out_stride);
    }
    d += (wide ? kValueVectors : 1) * kLanes;
  }
  if (d < dim)
    for (int r = 0; r < kRows; ++r)
      value_tail<Element>(weights + r * kTile, rescale[r], values, first, last, dim, d, out + r * out_stride);
}

}  // namespace twostroke
