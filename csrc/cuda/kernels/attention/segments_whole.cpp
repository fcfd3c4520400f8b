// attention for few rows over pages of int8 and int4, after segment_scores.cpp. A block has one segment, one KV head, up to eight columns and a slice of the dimensions of V. A column is a pair of a row and a query head
// that share the KV head. A warp has two pages: it makes weights of
// their scores and multiplies them by its pages' V. The sums of the warps are whole numbers. A thread adds those of one column and dimension
// up, tile after tile.
// Of the 16 rows of a small product the first 8 are the high digits of the weights of the columns, and the other 8 are the low digits.
#include "twostroke/cuda/attention/partials.h"
#include "twostroke/cuda/attention/whole.h"
#include "twostroke/cuda/machine/lanes.h"

namespace twostroke {
namespace cuda {

constexpr int kPairs = kValueThreads / kWarp;  // pairs of pages of a segment
constexpr int kMostSumQuads = kMostSummed / 4 + kWholeColumns;  // one quad after each column's, which spreads columns over banks
static_assert(kPairs * kPairTokens == kSegment && kPairs == 2 * kSegmentTiles, "a warp a pair of pages");

TS_SHARED(float, pair_peaks, kPairs* kWholeColumns);
TS_SHARED(uint32_t, pair_scales, kPairs* kWholeColumns);  // the bits of the largest magnitude among the scales of V
TS_SHARED(Words4, pair_totals, kPairs* kWholeColumns* kLanes / 4);
TS_SHARED(float, tile_rescales, kSegmentTiles* kWholeColumns);
TS_SHARED(float, weight_scales, kSegmentTiles* kWholeColumns);
TS_SHARED(float, column_factors, kWholeColumns);
// The addresses of a column's sums of V and of its partial result, 0 where there are none; its head, below 0 for a partial result.
TS_SHARED(uint64_t, column_sums, kWholeColumns);
TS_SHARED(uint64_t, column_partials, kWholeColumns);
TS_SHARED(int32_t, whole_heads, kWholeColumns);
// the first tile of the segment that a row sees, the one after the last, and the number of columns
TS_SHARED(int32_t, seen_tiles, 3);
TS_SHARED(Words4, pair_sums, kPairs* kMostSumQuads);

#define TS_EVERY_SCORE                               \
  TS_EVERY_LANE for (int side = 0; side < 2; ++side) \
      TS_EVERY_LANE for (int j = 0; j < 4; ++j)

// A pair's scores, which become weights, and V's scales in a thread of the pair's warp. They belong to column g and to positions 4t + j of
// page `side`.
struct PairWeights {
  static constexpr uint32_t kUnseen = 0xffffffffu;  // a NaN that no operation makes
  float at[2][4];  // kUnseen where the column does not see the position
  FourScales scales[2];

  TS_MEMBER_INLINE bool sees(int side, int j) const { return bits_of(at[side][j]) != kUnseen; }
  // first, last: the positions that the column sees, counted from the thread's first one.
  TS_MEMBER_INLINE void load(const float* scores, int32_t first, int32_t last) {
    TS_EVERY_LANE
    for (int side = 0; side < 2; ++side) {
      const Words4 four = load16(scores + side * TS_PAGE_TOKENS);
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const int32_t place = side * TS_PAGE_TOKENS + j;
        at[side][j] = float_of(place >= first && place < last ? four[j] : kUnseen);
      }
    }
  }
  TS_MEMBER_INLINE float peak() const {
    float most = kLowest;
    TS_EVERY_SCORE most = larger(at[side][j], most);  // which is `most` where the score is NaN
    return most_of_four(most);
  }
  // The bits of the largest magnitude among the scales that the column sees. They are those of NaN where one is NaN.
  TS_MEMBER_INLINE uint32_t largest_scale() const {
    uint32_t most = 0;
    TS_EVERY_SCORE most = larger_bits(most, sees(side, j) ? bits_of(scales[side][j]) & 0x7fffffffu : 0);
    return most_of_four(most);
  }
};

// The column's peak over the pairs of the tiles before `tile`. All four threads of the column call it.
TS_DEVICE_INLINE float peak_before(int32_t column, int32_t tile) {
  float peak = kLowest;
  TS_EVERY_LANE
  for (int i = 0; i < kPairs / 4; ++i) {
    const int32_t pair = 4 * i + warp_lane() % 4;
    const float other = pair_peaks[pair * kWholeColumns + column];
    if (pair < 2 * tile) peak = larger(other, peak);
  }
  return most_of_four(peak);
}

// Turns scores into digits of weights, operand A, and stores totals and the tile's scales in shared memory. Returns the correction for the
// zero points with which V is stored.
template <class Pages>
TS_DEVICE_INLINE int32_t weigh_pair(PairWeights& own, int32_t pair, uint32_t (&a)[4]) {
  const int32_t g = warp_lane() / 4, t = warp_lane() % 4, tile = pair / 2, even = 2 * tile * kWholeColumns + g, odd = even + kWholeColumns;
  const float before = peak_before(g, tile), of_tile = larger(static_cast<float>(pair_peaks[even]), static_cast<float>(pair_peaks[odd])), peak = larger(of_tile, before);
  const Scaling scaling(exp2_negative(of_tile - peak) * float_of(larger_bits(pair_scales[even], pair_scales[odd])), kLargestWhole);
  uint32_t bits[2][4];
  int32_t sum = 0;
  TS_EVERY_SCORE {
    const bool sees = own.sees(side, j);
    const float weight = sees ? exp2_negative(own.at[side][j] - peak) : 0.0f;
    bits[side][j] = sees ? rounded_bits(weight * own.scales[side][j], scaling.inverse) : 0;
    own.at[side][j] = weight;
    if (!Pages::kValuesSigned) sum += static_cast<int16_t>(bits[side][j] & 0xffffu);
  }
  const FourDigits first(bits[0]), second(bits[1]);
  a[0] = first.high;
  a[1] = first.low;
  a[2] = second.high;
  a[3] = second.low;
  Words4 totals;
  TS_EVERY_LANE
  for (int j = 0; j < 4; ++j) totals[j] = bits_of(own.at[0][j] + own.at[1][j]);
  pair_totals[(pair * kWholeColumns + g) * 4 + t] = totals;
  if (t == 0 && pair % 2 == 0) {
    tile_rescales[tile * kWholeColumns + g] = exp2_negative(before - peak);
    weight_scales[tile * kWholeColumns + g] = scaling.scale;
  }
  return Pages::kValuesSigned ? 0 : -8 * sum_of_four(sum);
}

// Multiplies the weights by 32 dimensions of V, and stores the sums in shared memory.
template <class Pages, int kUnits>
TS_DEVICE_INLINE void multiply_values(const uint32_t (&a)[4], int32_t start, const typename Pages::Values (&values)[2], int32_t unit, int32_t row, bool there) {
  int32_t sums[4][4] = {};
  TS_EVERY_LANE
  for (int which = 0; which < 4; ++which) {
    const uint32_t b[2] = {Pages::wide_operand(values[0], which), Pages::wide_operand(values[1], which)};
    if (Pages::kValuesSigned) mma_signed(sums[which], a, b);
    else mma_by_unsigned(sums[which], a, b);
  }
  if (!there) return;
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    Words4 quad;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      const int32_t(&of)[4] = sums[Pages::wide_which(i, j)];
      const int column = Pages::wide_column(i, j);
      quad[j] = static_cast<uint32_t>(128 * of[column] + of[2 + column] + start);
    }
    pair_sums[row * (8 * kUnits + 1) + unit * 8 + Pages::wide_quad(warp_lane() % 4, i)] = quad;
  }
}

// Finds where the columns' results go, a thread for each column. Shared memory keeps what is needed late, because registers are few.
TS_DEVICE_INLINE void find_results(const AttentionArgs& args, const SegmentBlock& block, int32_t column) {
  if (column >= kWholeColumns) return;
  if (column == 0) {
    const int32_t begin = block.first.begin - block.segment * kSegment, end = block.last.end - block.segment * kSegment;
    seen_tiles[0] = begin <= 0 ? 0 : begin / kTile;
    seen_tiles[2] = block.columns;
    seen_tiles[1] = end >= kSegment ? kSegmentTiles : (end + kTile - 1) / kTile;
  }
  const Result result(args, block, column);
  column_sums[column] = result.any ? reinterpret_cast<uint64_t>(result.sums) : 0;
  column_partials[column] = reinterpret_cast<uint64_t>(result.partial);
  whole_heads[column] = result.whole ? block.head(column) : -1;
}

// The first warps find the factors of the columns' sums of V; a thread has one of 16 totals. The block of the first slice writes totals and
// peaks into partial results.
TS_DEVICE_INLINE void find_factors(const AttentionArgs& args, int32_t slice, int32_t first, int32_t last) {
  const int32_t column = thread_index() / kLanes, lane = thread_index() % kLanes;
  if (column >= kWholeColumns) return;
  float total = 0.0f, peak = kLowest;
  TS_ONE_BY_ONE
  for (int32_t tile = first; tile < last; ++tile) {
    const int32_t at = 2 * tile * kWholeColumns + column;
    const float even = float_of(word_of(pair_totals, at * kLanes + lane)), odd = float_of(word_of(pair_totals, (at + kWholeColumns) * kLanes + lane));
    total = fma(total, tile_rescales[tile * kWholeColumns + column], even + odd);
    peak = larger(larger(static_cast<float>(pair_peaks[at]), static_cast<float>(pair_peaks[at + kWholeColumns])), peak);
  }
  const float whole = sum_of_half_warp(total);
  float* partial = reinterpret_cast<float*>(static_cast<uint64_t>(column_partials[column]));
  if (partial != nullptr && slice == 0) {
    partial[lane] = total;
    if (lane == 0) partial[kLanes + args.layer.value_dim] = peak;
  }
  const int32_t head = whole_heads[column];
  if (lane == 0) column_factors[column] = head >= 0 ? inverse_of(args, head, peak, whole) : 1.0f;
}

// kUnits: the block's units of 32 dimensions, all of which V has if there are several; kWhole: see wide_values.
template <class Pages, int kUnits, bool kWhole>
TS_DEVICE_INLINE void attend_slice(const AttentionArgs& args) {
  const int32_t index = static_cast<int32_t>(block_index()), at = index / args.slices, slice = index - at * args.slices;
  const SegmentBlock block(args, kWholeColumns, at);
  const int32_t pair = warp_index(), g = warp_lane() / 4, t = warp_lane() % 4, dim = args.layer.value_dim;
  const int32_t pages[2] = {page_in_segment(block, 2 * pair), page_in_segment(block, 2 * pair + 1)};
  if (pair == kPairs - 1) find_results(args, block, warp_lane());
  wait_for_earlier();
  if (block.columns == 0) return;
  const PageLayout& layout = args.pages;
  typename Pages::Values values[kUnits][2];
  PairWeights own;
  TS_EVERY_LANE
  for (int side = 0; side < 2; ++side) {
    const WholePage page(layout, pages[side], block.kv_head);
    own.scales[side] = page.value_scales(layout, t);
    TS_EVERY_LANE
    for (int unit = 0; unit < kUnits; ++unit) {
      values[unit][side] = Pages::template wide_values<(kUnits > 1), kWhole>(page.values(layout), dim, slice * kUnits + unit, g, t);
    }
  }
  const bool there = g < block.columns;
  const int32_t from = block.segment * kSegment, own_place = pair * kPairTokens + 4 * t;
  const Seen seen = block.seen(args, block.row(there ? g : 0));
  own.load(args.scores + (static_cast<int64_t>(at) * args.score_columns + (there ? g : 0)) * kSegment + own_place, seen.begin - from - own_place,
           there ? seen.end - from - own_place : -kSegment);
  const float found = own.peak();
  const uint32_t largest = own.largest_scale();
  if (t == 0) {
    pair_peaks[pair * kWholeColumns + g] = found;
    pair_scales[pair * kWholeColumns + g] = largest;
  }
  barrier();
  if (pair / 2 >= seen_tiles[0] && pair / 2 < seen_tiles[1]) {
    uint32_t a[4];
    const int32_t start = weigh_pair<Pages>(own, pair, a), columns = seen_tiles[2];
    TS_EVERY_LANE
    for (int unit = 0; unit < kUnits; ++unit) multiply_values<Pages, kUnits>(a, start, values[unit], unit, pair * columns + g, g < columns);
  }
  barrier();
  const int32_t first = seen_tiles[0], last = seen_tiles[1], columns = seen_tiles[2];
  find_factors(args, slice, first, last);
  const int32_t column = thread_index() / (32 * kUnits), d = thread_index() % (32 * kUnits), row = 4 * (8 * kUnits + 1);
  const bool sums_up = column < columns;
  float sum = 0.0f;
  TS_ONE_BY_ONE
  for (int32_t tile = first; sums_up && tile < last; ++tile) {
    const int32_t pair_at = (2 * tile * columns + column) * row + d, scale_at = tile * kWholeColumns + column;
    const int32_t whole = static_cast<int32_t>(word_of(pair_sums, pair_at) + word_of(pair_sums, pair_at + columns * row));
    sum = fma(static_cast<float>(whole), weight_scales[scale_at], sum * tile_rescales[scale_at]);
  }
  barrier();
  if (!sums_up || slice * 32 * kUnits + d >= dim) return;
  float* out = reinterpret_cast<float*>(static_cast<uint64_t>(column_sums[column]));
  if (out != nullptr) out[slice * 32 * kUnits + d] = sum * column_factors[column];
}

template <class Pages>
TS_DEVICE_INLINE void attend_segment(const AttentionArgs& args) {
  if (args.units == 4) attend_slice<Pages, 4, true>(args);
  else if (args.units == 2) attend_slice<Pages, 2, true>(args);
  else if (args.layer.value_dim % 4 == 0) attend_slice<Pages, 1, true>(args);
  else attend_slice<Pages, 1, false>(args);
}

TS_KERNEL_AHEAD(attention_int8, AttentionArgs) {
  at_most_threads<2 * kValueThreads>();  // this many registers let two blocks fit on a multiprocessor
  attend_segment<BytePages>(args);
}
TS_KERNEL_AHEAD(attention_int4, AttentionArgs) {
  at_most_threads<2 * kValueThreads>();
  attend_segment<NibblePages>(args);
}

}  // namespace cuda
}  // namespace twostroke
