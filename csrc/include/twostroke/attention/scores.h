// What becomes of a tile's scores between the product and the softmax: a soft cap (Gemma 2), a slope by distance (alibi; Press et al. 2022).
// Each score by itself, so that a row's bits depend on that row alone. Scores are multiples of log2(e), because weights are powers of two.
// Knows: attention/job.h, simd.h. Must not know: pages, threads.
#pragma once
#include "twostroke/attention/job.h"

namespace twostroke {


inline bool adjusts_scores(const AttentionJob* job) { return job->soft_cap > 0.0f || job->slopes != nullptr; }

// scores: (rows, kTile), of rows first_row .. of the block and KV head.
inline void adjust_scores(const AttentionJob* job, const Block& block, int64_t kv_head, const Tile& tile, int64_t first_row, int64_t rows,
                          float* scores) {
  alignas(64) static const float kPlaces[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const float cap = job->soft_cap * kLog2E;
  const Vec high = set1(cap), inverse = set1(cap > 0.0f ? 1.0f / cap : 0.0f), places = load(kPlaces);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = first_row + r;
    if (tile.spans[row].empty()) continue;
    float* at = scores + r * kTile;
    if (job->soft_cap > 0.0f)
      for (int p = 0; p < kTilePages; ++p) store(at + p * kLanes, tanh_ratio(load(at + p * kLanes) * inverse) * high);
    if (job->slopes == nullptr) continue;
    const Vec slope = set1(job->slopes[kv_head * job->group + row % job->group] * kLog2E);
    const int64_t distance = tile.start - (block.first_position + row / job->group);
    for (int p = 0; p < kTilePages; ++p) {
      const Vec away = set1(static_cast<float>(distance + p * kLanes)) + places;
      store(at + p * kLanes, fma(slope, away, load(at + p * kLanes)));
    }
  }
}

}  // namespace twostroke
