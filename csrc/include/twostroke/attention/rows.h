// The online softmax over a block of rows: it turns the scores of a tile into weights, and merges two partial results. Each step uses a
// row's own numbers alone; the loops over sixteen rows only share instructions.
#pragma once
#include "twostroke/attention/tile.h"

namespace twostroke {

constexpr float kLowest = -3.0e38f;  // the peak where there are no scores; it is finite, so that peak - peak is 0
constexpr float kLog2E = 1.44269504088896341f;

// Positions [begin, end) of a tile that a row sees.
struct Span {
  int begin, end;

  bool empty() const { return begin >= end; }
  bool full() const { return begin <= 0 && end >= kTile; }
};

// Partial results of rows. sum: (rows, padded dim); peak: (rows,), with room for whole vectors; total: (rows, 16), whose lanes are added at
// the end.
struct Partial {
  float *sum, *peak, *total;

  template <class Take>
  void lay_out(int64_t capacity, int64_t dim, Take&& take) {
    sum = take(capacity * dim);
    peak = take(capacity);
    total = take(capacity * kLanes);
  }

  void clear(int64_t rows, int64_t dim) const {
    memset(sum, 0, static_cast<size_t>(rows * dim) * sizeof(float));
    for (int64_t r = 0; r < rows; r += kLanes) store(peak + r, set1(kLowest));
    memset(total, 0, static_cast<size_t>(rows * kLanes) * sizeof(float));
  }
};

// Sets the unseen lanes of a row's scores to -infinity. Returns lanes whose largest number is the row's.
TS_VECTOR_INLINE Vec highest(float* row, Span span) {
  if (span.empty()) return set1(kLowest);
  Vec v[kTilePages];
  TS_EVERY
  for (int p = 0; p < kTilePages; ++p) v[p] = load(row + p * kLanes);
  if (!span.full()) {
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) {
      v[p] = keep_lanes(v[p], span.begin - p * kLanes, span.end - p * kLanes, -INFINITY);
      store(row + p * kLanes, v[p]);
    }
  }
  return max(max(v[0], v[1]), max(v[2], v[3]));
}

// Each row's maximum; `found` has room for whole vectors.
inline void find_peaks(float* scores, const Span* spans, int64_t rows, float* found) {
  for (int64_t r = 0; r < rows; r += 4) {
    Vec four[4];
    TS_EVERY
    for (int i = 0; i < 4; ++i) four[i] = r + i < rows ? highest(scores + (r + i) * kTile, spans[r + i]) : set1(kLowest);
    store_maxima(four, found + r);
  }
}

// Raises the peaks by those that were found in a tile. rescale: the factor of each row's sum so far.
inline void raise_peaks(const Partial& partial, int64_t rows, const float* found, float* rescale) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec before = load(partial.peak + r), now = max(load(found + r), before);
    store(rescale + r, exp2_negative(before - now));
    store(partial.peak + r, now);
  }
}

// Computes the weights of row r from its scores into v; unseen lanes become exactly 0. The weights are added to the row's total.
TS_VECTOR_INLINE void weights_of(const float* scores, Span span, const Partial& partial, int64_t r, float rescale, Vec (&v)[kTilePages]) {
  const Vec peak = set1(partial.peak[r]);
  TS_EVERY
  for (int p = 0; p < kTilePages; ++p) v[p] = exp2_negative(load(scores + p * kLanes) - peak);
  if (!span.full()) {
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) v[p] = keep_lanes(v[p], span.begin - p * kLanes, span.end - p * kLanes, 0.0f);
  }
  float* total = partial.total + r * kLanes;
  store(total, fma(load(total), set1(rescale), (v[0] + v[1]) + (v[2] + v[3])));
}

// Turns scores into weights, in place.
inline void weigh(float* scores, const Span* spans, int64_t rows, const Partial& partial, const float* rescale) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * kTile;
    if (spans[r].empty()) {  // its peak does not change, so its total does not either
      memset(row, 0, kTile * sizeof(float));
      continue;
    }
    Vec v[kTilePages];
    weights_of(row, spans[r], partial, r, rescale[r], v);
    TS_EVERY
    for (int p = 0; p < kTilePages; ++p) store(row + p * kLanes, v[p]);
  }
}

// Takes one tile for all rows. found has the size of peak.
inline void soften(float* scores, const Span* spans, int64_t rows, const Partial& partial, float* rescale, float* found) {
  find_peaks(scores, spans, rows, found);
  raise_peaks(partial, rows, found, rescale);
  weigh(scores, spans, rows, partial, rescale);
}

inline void rescale_rows(float* sums, const float* rescale, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r) {
    const Vec factor = set1(rescale[r]);
    for (int64_t d = 0; d < dim; d += kLanes) store(sums + r * dim + d, load(sums + r * dim + d) * factor);
  }
}

// Merges `from`, which belongs to later positions, into `into`. A part that saw no position changes nothing.
inline void merge(const Partial& into, const Partial& from, int64_t rows, int64_t dim, float* keep, float* add) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec first = load(into.peak + r), second = load(from.peak + r), now = max(second, first);
    const Vec a = exp2_negative(first - now), b = exp2_negative(second - now);
    store(keep + r, a);
    store(add + r, b);
    store(into.peak + r, now);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const Vec a = set1(keep[r]), b = set1(add[r]);
    float* total = into.total + r * kLanes;
    store(total, fma(load(from.total + r * kLanes), b, load(total) * a));
    for (int64_t d = 0; d < dim; d += kLanes) {
      float* to = into.sum + r * dim + d;
      store(to, fma(load(from.sum + r * dim + d), b, load(to) * a));
    }
  }
}

}  // namespace twostroke
