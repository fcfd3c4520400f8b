// entry_attention: softmax attention over entries. The online softmax goes over tiles of the entries that a row sees, in their order. A
// block has one row and one head. The tiles and the order of every sum are those of csrc/generic/attention/entry_attention.cpp.
#include "twostroke/cuda/attention/attend.h"
#include "twostroke/cuda/attention/entries.h"

namespace twostroke {
namespace cuda {

constexpr int kSeenTile = 32;                     // entries whose scores share a peak
constexpr int kEntrySums = kMostEntry / kThreads;  // numbers of an entry that a thread adds
static_assert(kSeenTile <= kEntryTile, "products with a tile have room");

TS_SHARED(float, seen_scores, kSeenTile);
TS_SHARED(float, seen_weights, kSeenTile);
TS_SHARED(uint64_t, seen_bytes, kSeenTile);  // the addresses of a tile's entries
TS_SHARED(float, seen_scales, kSeenTile);

// The entries of a row: `count` entries from `first` on, or, where `chosen` is given, those that it lists there.
struct SeenEntries {
  const float* chosen;
  int64_t first, count;

  TS_MEMBER_INLINE int64_t at(int64_t i) const { return chosen == nullptr ? first + i : static_cast<int64_t>(chosen[i]); }
};

// The number of choices below `entry`. Choices rise, and -1 ends them.
TS_DEVICE_INLINE int64_t choices_below(const float* chosen, int64_t choices, int64_t entry) {
  int64_t low = 0, high = choices;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const bool below = chosen[middle] >= 0.0f && chosen[middle] < static_cast<float>(entry);
    low = below ? middle + 1 : low;
    high = below ? high : middle;
  }
  return low;
}

TS_DEVICE_INLINE SeenEntries seen_by(const EntryArgs& args, int64_t row, int64_t positions) {
  const int64_t end = positions / args.rate, first = args.window > 0 && end > args.window ? end - args.window : 0;
  if (args.chosen.data == nullptr) return {nullptr, first, end - first};
  const float* chosen = args.chosen.data + row * args.chosen.stride;
  const int64_t begin = choices_below(chosen, width_of(args.chosen), first);
  return {chosen + begin, first, choices_below(chosen, width_of(args.chosen), end) - begin};
}

// A block's part of a row's result, relative to the largest score. Each thread has the sums of its own numbers.
struct EntrySums {
  float sums[kEntrySums], peak, total;

  TS_MEMBER_INLINE void begin(const EntryArgs& args, const float* before) {
    peak = before == nullptr ? kLowest : before[args.q.dim];
    total = before == nullptr ? 0.0f : before[args.q.dim + 1];
    TS_EVERY_SUM
    for (int j = 0; j < kEntrySums; ++j) {
      const int64_t d = thread_index() + j * kThreads;
      sums[j] = before == nullptr || d >= args.q.dim ? 0.0f : before[d];
    }
  }
  // Adds the entries whose scores are in seen_scores. entry_at(e) is entry e.
  template <class EntryAt>
  TS_MEMBER_INLINE void add(int64_t dim, int64_t count, const EntryAt& entry_at) {
    const int32_t thread = thread_index();
    float highest = peak;
    for (int64_t e = 0; e < count; ++e) highest = larger(seen_scores[e], highest);
    if (thread < count) seen_weights[thread] = exp2_negative(seen_scores[thread] - highest);
    const float kept = exp2_negative(peak - highest);
    barrier();
    peak = highest;
    total *= kept;
    for (int64_t e = 0; e < count; ++e) total += seen_weights[e];
    TS_EVERY_SUM
    for (int j = 0; j < kEntrySums; ++j) sums[j] *= kept;
    _Pragma("clang loop unroll_count(4)")
    for (int64_t e = 0; e < count; ++e) {
      const EntryNumbers entry = entry_at(e);
      const float weight = seen_weights[e];
      TS_EVERY_SUM
      for (int j = 0; j < kEntrySums; ++j) {
        const int64_t d = thread + j * kThreads;
        if (d < dim) sums[j] = fma(weight, entry[d], sums[j]);
      }
    }
  }
  // Stores the result so far, for a call that continues.
  TS_MEMBER_INLINE void keep(float* out, int64_t dim) const {
    store(out, dim, [&](float sum) { return sum; });
    if (thread_index() != 0) return;
    out[dim] = peak;
    out[dim + 1] = total;
  }
  // sink: a score without an entry, whose part of the result is dropped; NULL for none.
  TS_MEMBER_INLINE void finish(float* out, int64_t dim, const float* sink) const {
    float kept = 1.0f, whole = total;
    if (sink != nullptr) {
      const float other = *sink * kLog2E, highest = larger(other, peak);
      kept = exp2_negative(peak - highest);
      whole = total * kept + exp2_negative(other - highest);
    }
    store(out, dim, [&](float sum) { return sum * kept / whole; });
  }
  template <class Made>
  TS_MEMBER_INLINE void store(float* out, int64_t dim, const Made& made) const {
    TS_EVERY_SUM
    for (int j = 0; j < kEntrySums; ++j) {
      const int64_t d = thread_index() + j * kThreads;
      if (d < dim) out[d] = made(sums[j]);
    }
  }
};

TS_KERNEL(entry_attention, EntryArgs) {
  const int64_t row = block_index() / args.q.heads, head = block_index() % args.q.heads, dim = args.q.dim;
  const int32_t thread = thread_index();
  const RowPlace of = place_of_row(args.batch.row_starts, args.batch.context_tokens, args.batch.count, row);
  const SeenEntries seen = seen_by(args, row, of.positions);
  const EntryLayout layout(&args.layer, dim, args.rate);
  const int32_t* pages = args.batch.page_table + of.sequence * args.batch.max_pages;
  const float* q = args.q.data + row * args.q.stride + head * dim;
  const float scale = static_cast<float>(args.scale) * kLog2E;
  EntrySums own;
  own.begin(args, args.before.data == nullptr ? nullptr : args.before.data + row * args.before.stride + head * (dim + kBesideEntry));
  for (int64_t first = 0; first < seen.count; first += kSeenTile) {
    const int64_t count = seen.count - first < kSeenTile ? seen.count - first : kSeenTile;
    barrier();  // after this, all threads have finished the last tile
    if (thread < count) {
      const EntryNumbers entry(layout, pages, seen.at(first + thread));
      seen_bytes[thread] = reinterpret_cast<uint64_t>(entry.bytes);
      seen_scales[thread] = entry.scale;
    }
    barrier();
    const auto entry_at = [&](int64_t e) {
      const uint64_t bytes = seen_bytes[e];
      return EntryNumbers(reinterpret_cast<const uint8_t*>(bytes), args.layer.kind, seen_scales[e]);
    };
    sum_entries<1>(q, 1, dim, count, entry_at);
    barrier();
    if (thread < count) seen_scores[thread] = product_with(thread, 0) * scale;
    barrier();
    own.add(dim, count, entry_at);
  }
  float* out = args.out.data + row * args.out.stride + head * args.out.dim;
  if (args.out.dim > dim) return own.keep(out, dim);
  own.finish(out, dim, args.sinks.data == nullptr ? nullptr : args.sinks.data + head);
}

}  // namespace cuda
}  // namespace twostroke
