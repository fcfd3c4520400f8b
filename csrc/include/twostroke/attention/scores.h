// Changes of a tile's scores between the product and the softmax: a soft cap (Gemma 2), a slope by distance (alibi; Press et al. 2022), and
// numbers for the places of two positions (T5, MPNet, DeBERTa). Each score is changed by itself, so that a row's bits depend on that row
// alone. Scores are multiples of log2(e), because weights are powers of two.
#pragma once
#include "twostroke/attention/job.h"

namespace twostroke {

inline bool adjusts_scores(const AttentionJob* job) {
  return job->soft_cap > 0.0f || job->slopes != nullptr || job->places.place_of != nullptr;
}

// Adds the numbers of the places to one row of a tile, at the positions that the row sees. Later positions may have no row of a key.
inline void add_places(const AttentionJob* job, const Block& block, int64_t kv_head, const Tile& tile, int64_t row, float* scores) {
  const Places& at = job->places;
  const int64_t head = kv_head * job->group + row % job->group, token = row / job->group;
  const int64_t distance = tile.start - (block.first_position + token), reach = at.reach;
  const float* table = at.table == nullptr ? nullptr : at.table + head * at.count;
  const float* by_row = at.by_row == nullptr ? nullptr : at.by_row + (block.first_token + token) * at.row_stride + head * at.count;
  const float* by_key = at.by_key == nullptr ? nullptr : at.by_key + (job->row_starts[block.sequence] + tile.start) * at.key_stride + head * at.count;
  const float scale = job->scale * kLog2E;
  for (int64_t i = tile.spans[row].begin; i < tile.spans[row].end; ++i) {
    const int64_t away = distance + i < -reach ? -reach : smaller(distance + i, reach);
    const int64_t place = static_cast<int64_t>(at.place_of[away + reach]);
    float found = scores[i];
    if (by_row != nullptr) found += by_row[place] * scale;
    if (by_key != nullptr) found += by_key[i * at.key_stride + place] * scale;
    if (table != nullptr) found += table[place] * kLog2E;
    scores[i] = found;
  }
}

// scores (rows, kTile) belong to the rows of the block and KV head from first_row on.
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
    if (job->places.place_of != nullptr) add_places(job, block, kv_head, tile, row, at);
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
