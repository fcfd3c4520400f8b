// best_losses finds how much the largest results of a product lose by rounding its inputs, for each row. The products of few rows of the matrix are
// computed, in floats.
#include "twostroke/checks.h"
#include "twostroke/products/linear_job.h"
#include "twostroke/products/packed_row.h"
#include "twostroke/simd.h"
#include "twostroke/tasks.h"

namespace twostroke {
namespace {

constexpr int64_t kTogether = 5;  // the largest results of a row whose products one task computes
constexpr int64_t kLooked = 64;  // results that are compared first with the least of the largest

// A larger number has a larger rank. 0 and -0 have the same one, and NaN has the largest.
inline uint32_t rank_of(float value) {
  const uint32_t bits = float_bits(value + 0.0f);
  const uint32_t rank = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return value != value ? 0xffffffffu : rank;
}

// Whether any number is above the bound, or NaN.
inline bool has_above(const float* x, int64_t count, float bound) {
  int32_t above = 0;
  for (int64_t i = 0; i < count; ++i) above |= x[i] <= bound ? 0 : 1;
  return above != 0;
}

// The largest results so far, in falling order. A key is a rank, and then the number from the end, so that of equal results the first one
// has the largest key.
struct Best {
  uint64_t keys[kMostBest];
  int64_t count, most;

  int64_t number(int64_t i) const { return UINT32_MAX - static_cast<uint32_t>(keys[i]); }
  void put(float value, int64_t number) {
    const uint64_t key = static_cast<uint64_t>(rank_of(value)) << 32 | (UINT32_MAX - static_cast<uint32_t>(number));
    if (count == most && key < keys[most - 1]) return;
    int64_t at = count < most ? count++ : most - 1;
    for (; at > 0 && keys[at - 1] < key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
  }
};

// Writes the numbers of a row's largest results.
void find_best(const ts_best_losses_args& a, int64_t row) {
  const int64_t width = width_of(a.logits);
  const float* logits = a.logits.data + row * a.logits.stride;
  Best best = {{}, 0, width_of(a.out) / 2};
  for (int64_t first = 0; first < width; first += kLooked) {
    const int64_t end = width - first < kLooked ? width : first + kLooked;
    if (best.count == best.most && !has_above(logits + first, end - first, logits[best.number(best.most - 1)])) continue;
    for (int64_t i = first; i < end; ++i) best.put(logits[i], i);
  }
  float* numbers = a.out.data + row * a.out.stride + best.most;
  for (int64_t i = 0; i < best.most; ++i) numbers[i] = static_cast<float>(best.number(i));
}

// The rows of the matrix for some of a row's largest results, of which other ranks may have some.
struct Chosen {
  const ts_weight& w;
  int64_t count, rows[kTogether];

  bool has(int64_t i) const { return rows[i] >= 0 && rows[i] < w.rows; }
  // Fetches a group of columns of the row.
  void fetch(int64_t i, int64_t first) const {
    if (has(i)) fetch_row(w, rows[i], first, w.group);
  }
};

// Writes the losses of some of a row's largest results. Those of other ranks' rows of the matrix are 0.
void lose_some(const ts_best_losses_args& a, int64_t index) {
  const ts_weight& w = *a.weight;
  const int64_t most = width_of(a.out) / 2, tasks = (most + kTogether - 1) / kTogether, begin = index % tasks * kTogether;
  const float* x = a.x.data + index / tasks * a.x.stride;
  float *losses = a.out.data + index / tasks * a.out.stride + begin, *numbers = losses + most;
  alignas(64) float lost[kMaxGroup], values[kMaxGroup];
  Chosen chosen = {w, most - begin < kTogether ? most - begin : kTogether, {}};
  Vec sums[kTogether];
  for (int64_t i = 0; i < chosen.count; ++i) {
    chosen.rows[i] = static_cast<int64_t>(numbers[i]) - a.first;
    chosen.fetch(i, 0);
    sums[i] = zero();
  }
  for (int64_t first = 0; first < w.columns; first += w.group) {
    const int64_t left = w.columns - first, width = left < w.group ? left : w.group, whole = round_up(width, kStep);
    remainder_of(x + first, width, rounding_for(w), lost);
    for (int64_t i = 0; i < chosen.count; ++i) {
      if (!chosen.has(i)) continue;
      chosen.fetch(i, first + w.group);
      packed_row(w, chosen.rows[i], first, whole, values);
      for (int64_t k = 0; k < whole; k += kLanes) sums[i] = fma(load(lost + k), load(values + k), sums[i]);
    }
  }
  for (int64_t i = 0; i < chosen.count; ++i) losses[i] = reduce_add(sums[i]);
}

void lose_none(const ts_best_losses_args& a, int64_t row) { memset(a.out.data + row * a.out.stride, 0, static_cast<size_t>(width_of(a.out)) * 4); }

}  // namespace

int32_t run(ts_context* context, const ts_best_losses_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  if (!is_integer_kind(a.weight->kind)) {
    for (int64_t row = 0; row < a.out.rows; ++row) lose_none(a, row);
    return TS_OK;
  }
  share_tasks<find_best>(context, a.out.rows, a);
  share_tasks<lose_some>(context, a.out.rows * ((width_of(a.out) / 2 + kTogether - 1) / kTogether), a);
  return TS_OK;
}

}  // namespace twostroke
