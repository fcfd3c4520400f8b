// The online softmax over a block of rows: scores of a tile to weights, and the merging of two partial results.
// Each step treats a row by that row's numbers alone; the loops over sixteen rows only share instructions.
// Knows: simd.h. Must not know: K, V, pages, threads.
#pragma once
#include "twostroke/attention_tile.h"

namespace twostroke {

constexpr float kLowest = -3.0e38f;  // the peak of no scores; finite, so that peak - peak is 0

// Positions [begin, end) of a tile that a row sees.
struct Span {
  int begin, end;

  bool empty() const { return begin >= end; }
  bool full() const { return begin <= 0 && end >= kTile; }
};

// Partial results of rows: sum (rows, padded dim), peak and total (rows,), the latter two with room for whole vectors.
struct Partial {
  float *sum, *peak, *total;

  void clear(int64_t rows, int64_t dim) const {
    memset(sum, 0, static_cast<size_t>(rows * dim) * sizeof(float));
    for (int64_t r = 0; r < rows; r += kLanes) store(peak + r, set1(kLowest));
    for (int64_t r = 0; r < rows; r += kLanes) store(total + r, zero());
  }
};

// Scores times K's scales, unseen lanes -infinity, and each row's maximum.
template <bool kScaled>
void find_peaks(float* scores, const Span* spans, int64_t rows, const float* scales, float* found) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTile;
    if (spans[r].empty()) {
      found[r] = kLowest;
      continue;
    }
    Vec v[kTilePages];
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) {
      v[p] = load(row + p * kLanes);
      if (kScaled) v[p] = v[p] * load(scales + p * kLanes);
    }
    if (!spans[r].full()) {
      TS_EVERY
      for (int p = 0; p < kTilePages; ++p) v[p] = keep_lanes(v[p], spans[r].begin - p * kLanes, spans[r].end - p * kLanes, -INFINITY);
    }
    if (kScaled || !spans[r].full()) {
      TS_EVERY
      for (int p = 0; p < kTilePages; ++p) store(row + p * kLanes, v[p]);
    }
    found[r] = reduce_max(max(max(v[0], v[1]), max(v[2], v[3])));
  }
}

// Scores to weights in place, times V's scales; unseen lanes become exactly 0. sums: each row's weights before V's scales.
template <bool kScaled>
void weigh(float* scores, const Span* spans, int64_t rows, const float* peaks, const float* scales, float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTile;
    if (spans[r].empty()) {
      memset(row, 0, kTile * sizeof(float));
      sums[r] = 0.0f;
      continue;
    }
    const Vec peak = set1(peaks[r]);
    Vec v[kTilePages];
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) v[p] = exp2_negative(load(row + p * kLanes) - peak);
    if (!spans[r].full()) {
      TS_EVERY
      for (int p = 0; p < kTilePages; ++p) v[p] = keep_lanes(v[p], spans[r].begin - p * kLanes, spans[r].end - p * kLanes, 0.0f);
    }
    sums[r] = reduce_add((v[0] + v[1]) + (v[2] + v[3]));
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) {
      if (kScaled) v[p] = v[p] * load(scales + p * kLanes);
    }
    if (kScaled && !spans[r].full()) {  // the scale of a position that holds nothing may be NaN
      TS_EVERY
      for (int p = 0; p < kTilePages; ++p) v[p] = keep_lanes(v[p], spans[r].begin - p * kLanes, spans[r].end - p * kLanes, 0.0f);
    }
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) store(row + p * kLanes, v[p]);
  }
}

// One tile for all rows. rescale: what each row's sum so far must be multiplied with. work: two arrays as long as peak.
template <bool kScaled>
void soften(float* scores, const Span* spans, int64_t rows, const float* key_scales, const float* value_scales,
            const Partial& partial, float* rescale, float* found, float* sums) {
  find_peaks<kScaled>(scores, spans, rows, key_scales, found);
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec before = load(partial.peak + r), now = max(load(found + r), before);
    store(rescale + r, exp2_negative(before - now));
    store(partial.peak + r, now);
  }
  weigh<kScaled>(scores, spans, rows, partial.peak, value_scales, sums);
  for (int64_t r = 0; r < rows; r += kLanes)
    store(partial.total + r, fma(load(partial.total + r), load(rescale + r), load(sums + r)));
}

inline void rescale_rows(float* sums, const float* rescale, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r) {
    const Vec factor = set1(rescale[r]);
    for (int64_t d = 0; d < dim; d += kLanes) store(sums + r * dim + d, load(sums + r * dim + d) * factor);
  }
}

// into = into and `from`, which holds later positions. A part that saw nothing changes nothing.
inline void merge(const Partial& into, const Partial& from, int64_t rows, int64_t dim, float* keep, float* add) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec first = load(into.peak + r), second = load(from.peak + r), now = max(second, first);
    const Vec a = exp2_negative(first - now), b = exp2_negative(second - now);
    store(keep + r, a);
    store(add + r, b);
    store(into.peak + r, now);
    store(into.total + r, fma(load(from.total + r), b, load(into.total + r) * a));
  }
  for (int64_t r = 0; r < rows; ++r) {
    const Vec a = set1(keep[r]), b = set1(add[r]);
    for (int64_t d = 0; d < dim; d += kLanes) {
      float* to = into.sum + r * dim + d;
      store(to, fma(load(from.sum + r * dim + d), b, load(to) * a));
    }
  }
}

}  // namespace twostroke
