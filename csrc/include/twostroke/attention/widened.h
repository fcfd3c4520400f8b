// The two products of one tile whose K and V were widened to floats before, for the rows of a block that share a KV head.
#pragma once
#include "twostroke/attention/scores.h"

namespace twostroke {

using TileRun = void (*)(const AttentionJob*, const Block&, const HeadRows&, const Tile&, const Partial&);

// name: the function that computes one tile; tests look for it in the sources.
struct AttentionWay {
  const char* name;
  TileRun run;
};

// Computes both products, a register tile of rows at a time, over the positions that these rows see.
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

// Whether V of positions [first, last) is finite. For pairs this includes the other position of the first and the last pair.
template <typename Element>
bool finite_values(const TileView<Element>& values, int first, int last, int64_t width) {
  // the exponent bits; all are ones in a number that is not finite
  constexpr uint32_t kHigh = 0x7f800000u, kLow = kIsPair<Element> ? 0x7f80u : 0u;
  uint32_t found = 0;
  for (int t = first; t < last; ++t) {
    const Element* row = values.pages[t / TS_PAGE_TOKENS] + value_row<Element>(t) * values.step;
    for (int64_t d = 0; d < width; ++d) {
      uint32_t word;
      memcpy(&word, row + d, sizeof word);
      found |= static_cast<uint32_t>((word & kHigh) == kHigh) | static_cast<uint32_t>(kLow != 0 && (word & kLow) == kLow);
    }
  }
  return found == 0;
}

// Whether rows may be multiplied by V together. A position that only some of them see has a weight of 0 in the others. This works only
// where V is finite, because 0 times another number is not 0.
template <typename Element>
bool may_share(const Tile& tile, int64_t rows, const TileView<Element>& values, int64_t width) {
  bool alike = true;
  for (int64_t r = 1; r < rows; ++r) {
    alike = alike && tile.spans[r].begin == tile.spans[0].begin && tile.spans[r].end == tile.spans[0].end;
  }
  return alike || finite_values(values, tile.first, tile.last, width);
}

// Adds weights times V, kRows rows at a time, over the positions that these rows see.
template <typename Element, int kRows, int kVectors>
void add_values(const Block& block, const Tile& tile, const TileView<Element>& values, int64_t width, float* sums, int64_t stride) {
  const Workspace& work = block.work;
  const int64_t together = may_share(tile, block.rows, values, width) ? kRows : 1;
  for (int64_t r = 0; r < block.rows; r += together) {
    const int64_t count = smaller(together, block.rows - r);
    const Span seen = seen_by(tile, r, count);
    if (seen.empty()) continue;
    value_rows<Element, kRows, kVectors>(work.scores + r * kTile, work.rescale + r, count, values, seen.begin, seen.end, width,
                                         sums + r * stride, stride);
  }
}

inline void add_block(const AttentionJob* job, const Block& block, const Tile& tile, const Partial& partial) {
  const int64_t padded = job->value_padded;
  const TileView<float> values = widened(block.work.values, TS_PAGE_TOKENS * padded, padded);
  add_values<float, kWideRows, kWideVectors>(block, tile, values, padded, partial.sum, padded);
}

}  // namespace twostroke
