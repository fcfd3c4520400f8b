// Entries of pages as one thread reads them, and their products with vectors, by the threads of a block. A product is sixteen partial sums
// and then one fixed tree, as at the CPU's vector levels (attention/entries.h), so it has the same bits.
#pragma once
#include "twostroke/attention/entry_page.h"
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int kEntryHeads = 4;  // the most vectors that are multiplied by an entry at once

TS_SHARED(float, entry_lanes, kEntryHeads* kEntryTile* kLanes);

// The numbers of one entry.
struct EntryNumbers {
  const uint8_t* bytes;
  int32_t kind;
  float scale;

  TS_MEMBER_INLINE EntryNumbers(const uint8_t* at, int32_t of_kind, float own) : bytes(at), kind(of_kind), scale(own) {}
  // Entry `index` of the sequence with these pages.
  TS_MEMBER_INLINE EntryNumbers(const EntryLayout& layout, const int32_t* pages, int64_t index) : bytes(nullptr), kind(layout.layer->kind), scale(1.0f) {
    const int64_t position = index * layout.rate + layout.rate - 1, page = pages[position / TS_PAGE_TOKENS];
    const int64_t place = position % TS_PAGE_TOKENS / layout.rate;
    bytes = layout.entry(page, place);
    if (has_scales(kind)) scale = widen(*reinterpret_cast<const uint16_t*>(layout.scale(page, place)));
  }
  TS_MEMBER_INLINE float operator[](int64_t d) const {
    if (kind == TS_KV_F32) return reinterpret_cast<const float*>(bytes)[d];
    if (kind == TS_KV_BF16) return widen(reinterpret_cast<const uint16_t*>(bytes)[d]);
    if (kind == TS_KV_INT8) return static_cast<float>(static_cast<int8_t>(bytes[d])) * scale;
    return static_cast<float>((bytes[d / 2] >> d % 2 * 4 & 15) - 8) * scale;
  }
};

// Computes partial sums of the vectors q (vectors, dim) with `count` entries, at most kEntryTile. Only the first `vectors` vectors count;
// entry_at(e) is entry e. All threads call it, and a barrier must follow.
template <int kVectors, class EntryAt>
TS_DEVICE_INLINE void sum_entries(const float* q, int64_t vectors, int64_t dim, int64_t count, const EntryAt& entry_at) {
  for (int64_t i = thread_index(); i < count * kLanes; i += threads()) {
    const EntryNumbers entry = entry_at(i / kLanes);
    float sums[kVectors] = {};
    _Pragma("clang loop unroll_count(4)")
    for (int64_t first = 0; first < dim; first += kLanes) {
      const int64_t d = first + i % kLanes;  // after the last number, lanes add zeros, as on the CPU
      const float number = d < dim ? entry[d] : 0.0f;
      TS_EVERY_LANE
      for (int v = 0; v < kVectors; ++v) sums[v] = fma(d < dim && v < vectors ? q[v * dim + d] : 0.0f, number, sums[v]);
    }
    TS_EVERY_LANE
    for (int v = 0; v < kVectors; ++v) entry_lanes[v * kEntryTile * kLanes + i] = sums[v];
  }
}

// The product of a vector with entry e, after the barrier.
TS_DEVICE_INLINE float product_with(int64_t e, int64_t vector) {
  float lanes[kLanes];
  TS_EVERY_LANE
  for (int i = 0; i < kLanes; ++i) lanes[i] = entry_lanes[(vector * kEntryTile + e) * kLanes + i];
  return sum_tree(lanes);
}

}  // namespace cuda
}  // namespace twostroke
