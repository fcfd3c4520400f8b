// The two products of one tile whose K and V were widened to floats beforehand, for the rows of a block that share a KV head.
// Knows: attention_job.h and the products. Must not know: how K and V were widened, which tiles, which tasks.
#pragma once
#include "twostroke/attention_scores.h"

namespace twostroke {

using TileRun = void (*)(const AttentionJob*, const Block&, const HeadRows&, const Tile&, const Partial&);

// name: of the function that works on one tile; tests look for it in the sources.
struct AttentionWay {
  const char* name;
  TileRun run;
};

// Both products, a register tile of rows at a time, over what these rows see.
inline void score_block(const AttentionJob* job, const Block& block, const HeadRows& head, const Tile& tile) {
  const int64_t dim = job->layer->head_dim, padded = job->key_padded, parts = divide_up(block.rows, kWideRows);
  const int64_t head_bytes = KVLayout(job->layer).head_bytes;
  const TileView<float> keys = widened(block.work.keys, kLanes, kTile);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t r = part * kWideRows, count = smaller(kWideRows, block.rows - r);
    const int pages = static_cast<int>(divide_up(seen_by(tile, r, count).end, TS_PAGE_TOKENS));
    prefetch_part(tile, head_bytes, part, parts);
    score_rows<float, kWideRows, kWideVectors>(head.q + r * padded, padded, count, keys, pages, dim, block.work.scores + r * kTile);
  }
}

inline void add_block(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const int64_t padded = job->value_padded;
  const Workspace& work = block.work;
  const TileView<float> values = widened(work.values, TS_PAGE_TOKENS * padded, padded);
  for (int64_t r = 0; r < block.rows; r += kWideRows) {
    const int64_t count = smaller(kWideRows, block.rows - r);
    const Span seen = seen_by(tile, r, count);
    if (seen.empty()) continue;
    value_rows<float, kWideRows, kWideVectors>(work.scores + r * kTile, work.rescale + r, count, values, seen.begin, seen.end, padded,
                                               partial.sum + r * padded, padded);
  }
}

}  // namespace twostroke
