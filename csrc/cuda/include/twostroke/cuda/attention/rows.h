// The rows and query heads of a block of attention, and the positions that they see. Positions are divided into tiles of 64 and
// segments of 512 at absolute positions. These tiles and the order of every sum are the CPU's (generic/attention/attention.cpp), so the
// bits are the same.
#pragma once
#include "twostroke/attention/kv_page.h"
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/attention/sequences.h"
#include "twostroke/cuda/machine/arithmetic.h"

namespace twostroke {
namespace cuda {

constexpr int kTile = 64;
constexpr int kTilePages = kTile / TS_PAGE_TOKENS;
constexpr int kSegmentTiles = kSegment / kTile;
constexpr int kSegmentPages = kSegment / TS_PAGE_TOKENS;
constexpr float kLowest = -3.0e38f;  // the peak where there are no scores
static_assert(kSegmentPages == kWarp, "each thread of a warp keeps one page of a segment");

// Positions [begin, end) that a row at `position` sees.
struct Seen {
  int32_t position, begin, end;

  TS_MEMBER_INLINE int32_t first_segment() const { return begin / kSegment; }
  TS_MEMBER_INLINE int32_t segments() const { return (end - 1) / kSegment + 1 - begin / kSegment; }
};

// The positions that a row sees. row: the index of the row in the step.
TS_DEVICE_INLINE Seen seen_from(const AttentionArgs& args, int32_t row, int32_t position, int32_t context) {
  int64_t end = static_cast<int64_t>(position) + 1 + args.ahead;
  if (args.ends != nullptr && args.ends[row] > end) end = args.ends[row];
  int32_t begin = 0;  // first_seen, in 32 bits
  if (args.window < 0) begin = position - position % -args.window;
  else if (args.window > 0 && position >= args.window) begin = position - args.window + 1;
  return {position, begin, end < context ? static_cast<int32_t>(end) : context};
}

// Applies a soft cap and a slope, as attention/scores.h does. away: the key's position minus the row's.
TS_DEVICE_INLINE float adjusted(const AttentionArgs& args, int32_t head, int32_t away, float score) {
  if (args.soft_cap > 0.0f) {
    const float cap = args.soft_cap * kLog2E;
    score = tanh_ratio(score * (1.0f / cap)) * cap;
  }
  if (args.slopes == nullptr) return score;
  // The distance is the distance of the tile's page plus the place in that page. Both are whole numbers, exact as floats.
  return fma(args.slopes[head] * kLog2E, static_cast<float>(away), score);
}

// Adds the score of the key's place, as attention/scores.h does. row: the index of the row in the step; away: the key's position minus the
// row's, which is also the distance of their rows. The result is NaN where the place does not exist.
TS_DEVICE_INLINE float placed(const AttentionArgs& args, int32_t head, int32_t row, int32_t away, float score) {
  const Places& at = args.places;
  const int64_t reach = at.reach, within = away < -reach ? -reach : away < reach ? away : reach;
  const float found = at.place_of[within + reach], scale = args.scale * kLog2E;
  if (!(found >= 0.0f && found < static_cast<float>(at.count))) return score + float_of(0x7fc00000u);
  const int64_t place = head * at.count + static_cast<int64_t>(found);
  if (at.by_row != nullptr) score = score + at.by_row[row * at.row_stride + place] * scale;
  if (at.by_key != nullptr) score = score + at.by_key[(row + away) * at.key_stride + place] * scale;
  return at.table != nullptr ? score + at.table[place] * kLog2E : score;
}

// 1 over the sum of the weights. The sink is a score without a value (gpt-oss). total: the row's sum, relative to its peak.
TS_DEVICE_INLINE float inverse_of(const AttentionArgs& args, int32_t head, float peak, float total) {
  if (args.sinks == nullptr) return 1.0f / total;
  const float other = args.sinks[head] * kLog2E, most = larger(other, peak);
  const float kept = exp2_negative(peak - most), more = exp2_negative(other - most);
  return kept / (total * kept + more);
}

// Rows of one sequence that blocks compute together, at most args.together. rows is 0 where the sequence belongs to other blocks.
struct RowTile {
  int32_t rows, first, position, context;  // position: the position of the first row
  const int32_t* pages;

  TS_MEMBER_INLINE Seen seen(const AttentionArgs& args, int32_t row) const { return seen_from(args, first + row, position + row, context); }
  // The first position that some row of the tile sees.
  TS_MEMBER_INLINE int32_t begin(const AttentionArgs& args) const { return seen(args, 0).begin; }
  TS_MEMBER_INLINE int32_t end(const AttentionArgs& args) const { return seen(args, rows - 1).end; }
  // An entry of the page table. Tiles are read whole, and the entry of a page that no row sees may have no meaning. For such a page this is
  // the first entry that a row sees.
  TS_MEMBER_INLINE int32_t page(int32_t index, int32_t begin, int32_t end) const {
    const bool seen = index >= begin / TS_PAGE_TOKENS && index * TS_PAGE_TOKENS < end;
    return pages[seen ? index : begin / TS_PAGE_TOKENS];
  }
};

// Tiles have numbers. Those of sequence s begin with row_starts[s] / together + s, which leaves room for a last tile that is not full. With
// single rows the number is the row's.
TS_DEVICE_INLINE RowTile row_tile(const AttentionArgs& args, int32_t number) {
  const int32_t together = args.together, gap = together > 1 ? 1 : 0;
  int32_t low = args.one_each != 0 ? number : 0, high = args.one_each != 0 ? number + 1 : static_cast<int32_t>(args.sequences);
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    const bool before = args.row_starts[middle] / together + middle * gap <= number;
    low = before ? middle : low;
    high = before ? high : middle;
  }
  const int32_t begin = args.one_each != 0 ? number : args.row_starts[low], end = args.one_each != 0 ? number + 1 : args.row_starts[low + 1];
  const int32_t first = begin + (number - begin / together - low * gap) * together, rows = end - first < together ? end - first : together;
  const int32_t context = args.context_tokens[low];
  const bool theirs = rows > 0 && end - begin > args.above && end - begin <= args.few;
  return {theirs ? rows : 0, first, context - (end - first), context, args.page_table + low * args.table_stride};
}

// The work of a block of a segment: a tile of rows, a KV head, some of its query heads, and a segment.
struct SegmentBlock {
  RowTile tile;
  // number: the tile's number in this launch; columns: the number of pairs of a row and a query head
  int32_t number, kv_head, group, first_head, columns;
  int32_t segment, own_page;  // own_page: the page of the segment that belongs to this thread's place in its warp
  Seen first, last;  // what the first and the last row of the tile see
  bool single;  // whether tiles have one row

  // most: the most columns of a block; index: the number of the block's work.
  TS_MEMBER_INLINE SegmentBlock(const AttentionArgs& args, int32_t most, int32_t index)
      : tile(), number(0), kv_head(0), group(args.group), first_head(0), columns(0), segment(0), own_page(0), first(), last(), single(args.together == 1) {
    const int32_t place = part_of(index, args.segments);
    first_head = part_of(index, args.chunks) * most;
    kv_head = part_of(index, args.layer.kv_heads);
    number = index;
    tile = row_tile(args, static_cast<int32_t>(args.first_tile) + number);
    // Without a window the segment is known, so that its pages are loaded before the context is known.
    const int32_t known = place * kSegmentPages + warp_lane();
    uint32_t guess = static_cast<uint32_t>(tile.pages[known < args.table_stride ? known : 0]), zero = static_cast<uint32_t>(tile.pages[0]);
    load_before(guess);
    load_before(zero);
    if (tile.rows == 0) return;
    first = last = tile.seen(args, 0);
    if (!single) last = tile.seen(args, tile.rows - 1);
    const int32_t begin = first.begin, end = last.end, left = group - first_head;
    segment = begin / kSegment + place;
    if (segment * kSegment >= end) return;
    columns = args.chunks > 1 ? (left < most ? left : most) : tile.rows * group;
    own_page = static_cast<int32_t>(known * TS_PAGE_TOKENS < end ? guess : zero);
    if (args.window != 0) own_page = tile.page(segment * kSegmentPages + warp_lane(), begin, end);
  }

  // A column is a row of the tile and a query head, with the positions that this row sees.
  TS_MEMBER_INLINE int32_t row(int32_t column) const { return single ? 0 : column / group; }
  TS_MEMBER_INLINE int32_t head(int32_t column) const { return kv_head * group + first_head + (single ? column : column % group); }
  TS_MEMBER_INLINE Seen seen(const AttentionArgs& args, int32_t row) const {
    if (single) return first;
    return tile.seen(args, row);
  }

 private:
  // Divides the index by `parts`, and returns the rest. Most often there is one part.
  TS_MEMBER_INLINE static int32_t part_of(int32_t& index, int32_t parts) {
    if (parts == 1) return 0;
    const int32_t whole = static_cast<int32_t>(static_cast<uint32_t>(index) / static_cast<uint32_t>(parts)), rest = index - whole * parts;
    index = whole;
    return rest;
  }
};

// Entry of page `page` of the segment. Every thread of the warp calls it.
TS_DEVICE_INLINE int32_t page_in_segment(const SegmentBlock& block, int32_t page) {
  return static_cast<int32_t>(shuffle(static_cast<uint32_t>(block.own_page), page));
}

// A place in a tile, clipped to the range from 0 to the tile's end.
TS_DEVICE_INLINE int32_t clipped(int32_t place) { return place < 0 ? 0 : place > kTile ? kTile : place; }

}  // namespace cuda
}  // namespace twostroke
