// attention for few rows over pages of int8 and int4. A block has one segment, one KV head, and up to eight columns: pairs of a row and a
// query head that share the KV head. First a warp has one tile of positions. It computes the tile's scores and, after a barrier for the
// other tiles' peaks, its weights. Then a warp has 16 dimensions of V for all tiles of the segment, in their order.
// Of the 16 rows of a small product the first 8 are columns. In products with V they are the high digits of the weights, and the other 8
// rows are the low digits.
#include "twostroke/cuda/attention/partials.h"
#include "twostroke/cuda/attention/whole.h"

namespace twostroke {
namespace cuda {

constexpr int kQueryPairs = kMostDim / 8, kQueryStride = kQueryPairs + 4;  // pairs of 8 dimensions; the stride spreads columns over banks
constexpr int kSegmentThreads = kSegmentTiles * kWarp;
static_assert(kSegmentThreads == kThreads && kSegmentThreads / kWarp == kWholeColumns, "a warp a tile, and a warp a column's query");

TS_SHARED(uint64_t, query_pairs, kWholeColumns* kQueryStride);
TS_SHARED(float, query_scales, kWholeColumns);
TS_SHARED(int32_t, query_starts, kWholeColumns);  // the correction for the zero points with which K is stored
TS_SHARED(float, tile_peaks, kSegmentTiles* kWholeColumns);
TS_SHARED(float, tile_rescales, kSegmentTiles* kWholeColumns);
TS_SHARED(float, weight_scales, kSegmentTiles* kWholeColumns);
TS_SHARED(int32_t, weight_starts, kSegmentTiles* kWholeColumns);
TS_SHARED(Words4, weight_digits, kSegmentTiles * 2 * kWarp);  // operand A of two pages each
TS_SHARED(Words4, tile_totals, kSegmentTiles* kWholeColumns* kLanes / 4);

// Rounds the warp's column of queries to bytes, with four lanes of zeros after them.
template <class Pages>
TS_DEVICE_INLINE void round_query(const AttentionArgs& args, const SegmentBlock& block) {
  const int32_t column = warp_index(), lane = warp_lane(), dim = args.layer.head_dim;
  const bool there = column < block.columns;
  const int32_t known = there ? column : 0;
  const float* q = args.q + static_cast<int64_t>(block.tile.first + block.row(known)) * args.q_stride + static_cast<int64_t>(block.head(known)) * dim;
  const float scale = args.scale * kLog2E;
  float numbers[2][8];
  int32_t places[2][2];  // places of four dimensions
  TS_EVERY_LANE
  for (int i = 0; i < 4; ++i) places[i / 2][i % 2] = 4 * Pages::query_quad((lane + i / 2 * kWarp) / 4, lane % 4, i % 2);
  TS_EVERY_LANE
  for (int i = 0; i < 16; ++i) {  // the loads have no condition, so that none waits for another
    const int32_t d = places[i / 8][i / 4 % 2] + i % 4;
    numbers[i / 8][i % 8] = q[d < dim ? d : dim - 1];
  }
  uint32_t most = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 16; ++i) {
    const float number = there && places[i / 8][i / 4 % 2] + i % 4 < dim ? numbers[i / 8][i % 8] * scale : 0.0f;
    const uint32_t bits = bits_of(number) & 0x7fffffffu;
    numbers[i / 8][i % 8] = number;
    most = bits > most ? bits : most;
  }
  most = most_of_threads(most, kWarp);
  const Scaling scaling(float_of(most), kLargestByte);
  int32_t sum = 0;
  TS_EVERY_LANE
  for (int i = 0; i < 2; ++i) {
    uint32_t quads[2] = {0, 0};
    TS_EVERY_LANE
    for (int k = 0; k < 8; ++k) quads[k / 4] |= (static_cast<uint32_t>(rounded(numbers[i][k], scaling.inverse)) & 0xffu) << (k % 4 * 8);
    sum = dot4(0x01010101u, static_cast<int32_t>(quads[0]), dot4(0x01010101u, static_cast<int32_t>(quads[1]), sum));
    query_pairs[column * kQueryStride + lane + i * kWarp] = quads[0] | static_cast<uint64_t>(quads[1]) << 32;
  }
  sum = sum_of_threads(sum, kWarp);
  if (lane != 0) return;
  query_scales[column] = scaling.scale;
  query_starts[column] = -Pages::kKeyZero * sum;
}

// A tile's scores and V's scales in a thread of the tile's warp. They belong to column g and to positions 4t + j of page 2 * pair + side.
struct WholeTile {
  float scores[2][4][2];
  FourScales value_scales[2][2];
  int32_t first, last;  // the positions of the tile that the column sees

  TS_MEMBER_INLINE bool sees(int32_t t, int pair, int j, int side) const {
    const int32_t position = (2 * pair + side) * TS_PAGE_TOKENS + 4 * t + j;
    return position >= first && position < last;
  }
};

#define TS_EVERY_SCORE                               \
  TS_EVERY_LANE for (int pair = 0; pair < 2; ++pair) \
      TS_EVERY_LANE for (int j = 0; j < 4; ++j) TS_EVERY_LANE for (int side = 0; side < 2; ++side)

constexpr int kStepsAtOnce = 2;  // steps of 32 dimensions whose K is loaded before any of it is used

// Sums of the products of column g with positions, in the layout of mma's results.
template <class Pages>
TS_DEVICE_INLINE void multiply_keys(const AttentionArgs& args, const SegmentBlock& block, int32_t tile, int32_t (&sums)[2][4][4]) {
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, dim = args.layer.head_dim, steps = (dim + 31) / 32;
  const KVLayout layout(&args.layer);
  const WholePage pages[2] = {{layout, page_in_segment(block, tile * kTilePages + g % 2), block.kv_head},
                              {layout, page_in_segment(block, tile * kTilePages + 2 + g % 2), block.kv_head}};
  for (int32_t step = 0; step < steps; step += kStepsAtOnce) {
    typename Pages::Keys keys[kStepsAtOnce][2];
    TS_EVERY_LANE
    for (int s = 0; s < kStepsAtOnce; ++s) {
      TS_EVERY_LANE
      for (int pair = 0; pair < 2; ++pair) keys[s][pair] = load_keys<Pages>(pages[pair], dim, step + s, t, g / 2);
    }
    TS_EVERY_LANE
    for (int s = 0; s < kStepsAtOnce; ++s) {
      const uint64_t query = query_pairs[g * kQueryStride + (step + s) * 4 + t];
      const uint32_t a[4] = {static_cast<uint32_t>(query), 0, static_cast<uint32_t>(query >> 32), 0};
      TS_EVERY_LANE
      for (int pair = 0; pair < 2; ++pair) {
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) {
          uint32_t b[2];
          Pages::key_operand(keys[s][pair], j, b);
          mma_by_unsigned(sums[pair][j], a, b);
        }
      }
    }
  }
}

template <class Pages>
TS_DEVICE_INLINE WholeTile score_tile(const AttentionArgs& args, const SegmentBlock& block, int32_t tile) {
  const int32_t g = warp_lane() / 4, t = warp_lane() % 4;
  const KVLayout layout(&args.layer);
  FourScales key_scales[2][2];
  WholeTile found;
  TS_EVERY_LANE
  for (int page = 0; page < kTilePages; ++page) {
    const WholePage at(layout, page_in_segment(block, tile * kTilePages + page), block.kv_head);
    key_scales[page / 2][page % 2] = at.key_scales(layout, t);
    found.value_scales[page / 2][page % 2] = at.value_scales(layout, t);
  }
  int32_t sums[2][4][4] = {};
  multiply_keys<Pages>(args, block, tile, sums);
  const bool there = g < block.columns;
  const int32_t start = block.segment * kSegment + tile * kTile, head = block.head(there ? g : 0);
  const int32_t row = there ? block.row(g) : 0;
  const Seen seen = block.tile.seen(args, row);
  found.first = there ? clipped(seen.begin - start) : kTile;
  found.last = there ? clipped(seen.end - start) : 0;
  const int32_t zeros = query_starts[g];
  const float scale = query_scales[g];
  const bool adjusts = args.soft_cap > 0.0f || args.slopes != nullptr, has_places = args.places.place_of != nullptr;
  TS_EVERY_SCORE {
    const int32_t away = start + (2 * pair + side) * TS_PAGE_TOKENS + 4 * t + j - seen.position;
    const bool sees = found.sees(t, pair, j, side);
    float score = static_cast<float>(sums[pair][j][side] + zeros) * scale * key_scales[pair][side][j];
    if (adjusts) score = adjusted(args, head, away, score);
    if (has_places && sees) score = placed(args, head, block.tile.first + row, away, score);
    found.scores[pair][j][side] = sees ? score : kLowest;
  }
  return found;
}

TS_DEVICE_INLINE float peak_of(const WholeTile& tile) {
  float most = kLowest;
  TS_EVERY_SCORE most = larger(tile.scores[pair][j][side], most);
  return most_of_four(most);
}

// The largest magnitude among the scales of V that the column sees; NaN where one is NaN.
TS_DEVICE_INLINE float largest_scale(const WholeTile& tile) {
  const int32_t t = warp_lane() % 4;
  uint32_t most = 0;
  TS_EVERY_SCORE {
    const uint32_t bits = tile.sees(t, pair, j, side) ? bits_of(tile.value_scales[pair][side][j]) & 0x7fffffffu : 0;
    most = bits > most ? bits : most;
  }
  return float_of(most_of_four(most));
}

// The column's peak over the segment's tiles from `first` up to, but without, `tile`.
TS_DEVICE_INLINE float peak_before(int32_t column, int32_t first, int32_t tile) {
  float peak = kLowest;
  TS_EVERY_LANE
  for (int before = 0; before < kSegmentTiles; ++before)
    if (before >= first && before < tile) peak = larger(tile_peaks[before * kWholeColumns + column], peak);
  return peak;
}

// Turns scores into digits of weights and totals, and stores them with their scales in shared memory. found: the tile's own peak; first:
// the segment's first tile.
template <class Pages>
TS_DEVICE_INLINE void weigh_tile(WholeTile& own, int32_t first, int32_t tile, float found) {
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, at = tile * kWholeColumns + g;
  const float before = peak_before(g, first, tile), peak = larger(found, before);
  const Scaling scaling(exp2_negative(found - peak) * largest_scale(own), kLargestWhole);
  int32_t sum = 0;
  TS_EVERY_LANE
  for (int pair = 0; pair < 2; ++pair) {
    uint32_t bits[2][4];
    TS_EVERY_LANE
    for (int i = 0; i < 8; ++i) {
      const int side = i / 4, j = i % 4;
      const bool sees = own.sees(t, pair, j, side);
      const float weight = sees ? exp2_negative(own.scores[pair][j][side] - peak) : 0.0f;
      bits[side][j] = sees ? rounded_bits(weight * own.value_scales[pair][side][j], scaling.inverse) : 0;
      own.scores[pair][j][side] = weight;
      if (!Pages::kValuesSigned) sum += static_cast<int16_t>(bits[side][j] & 0xffffu);
    }
    const FourDigits first(bits[0]), second(bits[1]);
    weight_digits[(tile * 2 + pair) * kWarp + lane] = Words4{first.high, first.low, second.high, second.low};
  }
  uint32_t totals[4];
  TS_EVERY_LANE
  for (int j = 0; j < 4; ++j) totals[j] = bits_of((own.scores[0][j][0] + own.scores[0][j][1]) + (own.scores[1][j][0] + own.scores[1][j][1]));
  tile_totals[at * 4 + t] = Words4{totals[0], totals[1], totals[2], totals[3]};
  if (!Pages::kValuesSigned) sum = sum_of_four(sum);
  if (t != 0) return;
  tile_rescales[at] = exp2_negative(before - peak);
  weight_scales[at] = scaling.scale;
  weight_starts[at] = -8 * sum;
}

// The first warp writes the sums of weights of column g into the partial result. Returns the factor of the sums of V.
TS_DEVICE_INLINE float add_totals(const AttentionArgs& args, const SegmentBlock& block, const Result& result, int32_t first, int32_t last) {
  const int32_t g = warp_lane() / 4, t = warp_lane() % 4;
  float totals[4] = {};
  for (int32_t tile = first; tile < last; ++tile) {
    const int32_t at = tile * kWholeColumns + g;
    const Words4 four = tile_totals[at * 4 + t];
    const float rescale = tile_rescales[at];
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) totals[j] = fma(totals[j], rescale, float_of(four[j]));
  }
  const float whole = sum_of_lanes(totals), peak = peak_before(g, first, last);
  if (result.partial != nullptr && warp_index() == 0) {
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) result.partial[4 * t + j] = totals[j];
    if (t == 0) result.partial[kLanes + args.layer.value_dim] = peak;
  }
  return result.whole ? inverse_of(args, block.head(g), peak, whole) : 1.0f;
}

// A thread's part of a unit of dimensions of V: it belongs to column g, operand `half`, and column i of the product.
struct UnitSums {
  float sums[2][2];
};

constexpr int kTilesAtOnce = 4;  // tiles whose V is loaded before any of it is used

template <class Pages>
TS_DEVICE_INLINE UnitSums add_values(const AttentionArgs& args, const SegmentBlock& block, int32_t unit, int32_t first, int32_t last) {
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, dim = args.layer.value_dim;
  const KVLayout layout(&args.layer);
  UnitSums own = {};
  for (int32_t tiles = first; tiles < last; tiles += kTilesAtOnce) {
    uint64_t values[kTilesAtOnce][kTilePages];
    TS_EVERY_LANE
    for (int i = 0; i < kTilesAtOnce; ++i) {
      const int32_t page = (tiles + i < last ? tiles + i : last - 1) * kTilePages;
      const WholePage pages[kTilePages] = {{layout, page_in_segment(block, page), block.kv_head},
                                           {layout, page_in_segment(block, page + 1), block.kv_head},
                                           {layout, page_in_segment(block, page + 2), block.kv_head},
                                           {layout, page_in_segment(block, page + 3), block.kv_head}};
      Pages::values(layout, pages, dim, unit, g, t, values[i]);
    }
    TS_EVERY_LANE
    for (int i = 0; i < kTilesAtOnce; ++i) {
      const int32_t tile = tiles + i, at = tile * kWholeColumns + g;
      if (tile >= last) break;
      int32_t sums[2][4] = {};
      TS_EVERY_LANE
      for (int pair = 0; pair < 2; ++pair) {
        const Words4 digits = weight_digits[(tile * 2 + pair) * kWarp + lane];
        const uint32_t a[4] = {digits.x, digits.y, digits.z, digits.w};
        TS_EVERY_LANE
        for (int half = 0; half < 2; ++half) {
          const uint32_t b[2] = {Pages::value_operand(values[i][2 * pair], half), Pages::value_operand(values[i][2 * pair + 1], half)};
          if (Pages::kValuesSigned) mma_signed(sums[half], a, b);
          else mma_by_unsigned(sums[half], a, b);
        }
      }
      const float rescale = tile_rescales[at], scale = weight_scales[at];
      const int32_t start = Pages::kValuesSigned ? 0 : static_cast<int32_t>(weight_starts[at]);
      TS_EVERY_LANE
      for (int half = 0; half < 2; ++half) {
        TS_EVERY_LANE
        for (int side = 0; side < 2; ++side) {
          const int32_t sum = 128 * sums[half][side] + sums[half][2 + side] + start;
          own.sums[half][side] = fma(static_cast<float>(sum), scale, own.sums[half][side] * rescale);
        }
      }
    }
  }
  return own;
}

template <class Pages>
TS_DEVICE_INLINE void attend_segment(const AttentionArgs& args) {
  const SegmentBlock block(args, kWholeColumns);
  if (block.columns == 0) return;
  const int32_t begin = block.tile.begin(args) - block.segment * kSegment, end = block.tile.end(args) - block.segment * kSegment;
  const int32_t first = begin <= 0 ? 0 : begin / kTile, last = end >= kSegment ? kSegmentTiles : (end + kTile - 1) / kTile;
  round_query<Pages>(args, block);
  barrier();
  const int32_t tile = warp_index(), g = warp_lane() / 4, t = warp_lane() % 4;
  const bool seen = tile >= first && tile < last;
  WholeTile own = {};
  float found = kLowest;
  if (seen) {
    own = score_tile<Pages>(args, block, tile);
    found = peak_of(own);
    if (t == 0) tile_peaks[tile * kWholeColumns + g] = found;
  }
  barrier();
  if (seen) weigh_tile<Pages>(own, first, tile, found);
  barrier();
  const Result result(args, block, g);
  const float factor = add_totals(args, block, result, first, last);
  for (int32_t unit = warp_index(); unit < Pages::value_units(args.layer.value_dim); unit += kSegmentThreads / kWarp) {
    const UnitSums sums = add_values<Pages>(args, block, unit, first, last);
    TS_EVERY_LANE
    for (int half = 0; half < 2; ++half) {
      TS_EVERY_LANE
      for (int i = 0; i < 2; ++i) {
        const int32_t d = Pages::value_dim(unit, t, half, i);
        if (result.any && d < args.layer.value_dim) result.sums[d] = sums.sums[half][i] * factor;
      }
    }
  }
}

TS_KERNEL(attention_int8, AttentionArgs) {
  at_most_threads<2 * kSegmentThreads>();  // this many registers let two blocks fit on a multiprocessor
  attend_segment<BytePages>(args);
}
TS_KERNEL(attention_int4, AttentionArgs) {
  at_most_threads<2 * kSegmentThreads>();
  attend_segment<NibblePages>(args);
}

}  // namespace cuda
}  // namespace twostroke
