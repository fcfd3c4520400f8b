// attention for many rows of a sequence over pages of int8 and int4. A warp has 16 columns: pairs of a row and a query head that share a KV
// head. They are the 16 rows of small matrix products, and the warp goes over all tiles that they see. The layout of its scores is the
// layout of the operand for weights, so threads exchange only the peaks.
// The warps of a block have neighbouring rows and read tiles from shared memory, while the next tile is copied. The sums of finished
// segments stay in the output until the last one.
#include "twostroke/cuda/attention/prompt_tiles.h"

namespace twostroke {
namespace cuda {

constexpr int kPromptUnits = kPromptDims / 16;
constexpr int kRowState = 1 + 4;  // the peak and four totals

TS_SHARED(float, prompt_wholes, 2 * kRowState * kPromptThreads);  // the state of finished segments; each thread has its own

#define TS_BOTH_ROWS TS_EVERY_LANE for (int r = 0; r < 2; ++r)
#define TS_EVERY_PLACE                               \
  TS_EVERY_LANE for (int pair = 0; pair < 2; ++pair) \
      TS_EVERY_LANE for (int j = 0; j < 4; ++j) TS_EVERY_LANE for (int side = 0; side < 2; ++side)

// A column of a thread, which has columns g and g + 8 of its warp.
struct PromptColumn {
  bool there;
  int32_t head, row, zeros;  // zeros: the correction for the zero points with which K is stored
  Seen seen;
  float scale;
};

// The rows of one warp, which are some of the block's rows.
struct PromptRows {
  int32_t first, count, kv_head, first_dim;
  PromptColumn columns[2];

  TS_MEMBER_INLINE PromptRows(const AttentionArgs& args, const RowTile& block, int32_t index) : first(0), count(0), kv_head(0), first_dim(0), columns() {
    const int32_t group = static_cast<int32_t>(args.heads) / args.layer.kv_heads, g = warp_lane() / 4, most = args.together / kPromptWarps;
    const int32_t first_head = index % args.chunks * kPromptColumns;
    index /= args.chunks;
    kv_head = index % args.layer.kv_heads;
    first_dim = index / args.layer.kv_heads * kPromptDims;
    first = warp_index() * most;
    count = block.rows - first < most ? block.rows - first : most;
    TS_BOTH_ROWS {
      const int32_t column = g + 8 * r, row = args.chunks > 1 ? 0 : column / group, place = args.chunks > 1 ? first_head + column : column % group;
      const bool there = row < count && place < group;
      const int32_t of_tile = there ? first + row : 0;
      columns[r] = {there, kv_head * group + (there ? place : 0), block.first + of_tile, 0, block.seen(args, of_tile), 0.0f};
    }
  }
};

// Rounds the queries of the thread's columns to bytes and stores them at the thread's own place in shared memory.
template <class Pages>
TS_DEVICE_INLINE void round_queries(const AttentionArgs& args, PromptRows& rows) {
  const int32_t dim = args.layer.head_dim, t = warp_lane() % 4, steps = (dim + 31) / 32;
  const float scale = args.scale * kLog2E;
  float inverses[2];
  int32_t sums[2] = {0, 0};
  // Loads eight numbers of each row. The loads have no condition, so that none waits for another.
  const auto load = [&](int32_t step, float (&numbers)[2][8]) {
    TS_EVERY_LANE
    for (int i = 0; i < 16; ++i) {
      const PromptColumn& column = rows.columns[i / 8];
      const int32_t d = Pages::query_quad(step, t, i / 4 % 2) * 4 + i % 4;
      numbers[i / 8][i % 8] = (args.q + static_cast<int64_t>(column.row) * args.q_stride + static_cast<int64_t>(column.head) * dim)[d < dim ? d : dim - 1];
    }
    TS_EVERY_LANE
    for (int i = 0; i < 16; ++i) {
      const bool there = rows.columns[i / 8].there && Pages::query_quad(step, t, i / 4 % 2) * 4 + i % 4 < dim;
      numbers[i / 8][i % 8] = there ? numbers[i / 8][i % 8] * scale : 0.0f;
    }
  };
  uint32_t most[2] = {0, 0};
  float numbers[2][8];
  for (int32_t step = 0; step < steps; ++step) {
    load(step, numbers);
    TS_EVERY_LANE
    for (int i = 0; i < 16; ++i) {
      const uint32_t bits = bits_of(numbers[i / 8][i % 8]) & 0x7fffffffu;
      most[i / 8] = bits > most[i / 8] ? bits : most[i / 8];
    }
  }
  TS_BOTH_ROWS {
    const Scaling scaling(float_of(most_of_four(most[r])), kLargestByte);
    rows.columns[r].scale = scaling.scale;
    inverses[r] = scaling.inverse;
  }
  for (int32_t step = 0; step < steps; ++step) {
    load(step, numbers);
    Words4 operand = {0, 0, 0, 0};
    TS_BOTH_ROWS {
      TS_EVERY_LANE
      for (int k = 0; k < 8; ++k)
        operand[r + k / 4 * 2] |= (static_cast<uint32_t>(rounded(numbers[r][k], inverses[r])) & 0xffu) << (k % 4 * 8);
      sums[r] = dot4(0x01010101u, static_cast<int32_t>(operand[r]), dot4(0x01010101u, static_cast<int32_t>(operand[r + 2]), sums[r]));
    }
    prompt_room[(step * kPromptWarps + warp_index()) * kWarp + warp_lane()] = operand;
  }
  TS_BOTH_ROWS rows.columns[r].zeros = -Pages::kKeyZero * sum_of_four(sums[r]);
}

// A thread's scores of one tile, which then become weights. They belong to position 4t + j of page 2 * pair + side, and to columns g (0, 1)
// and g + 8 (2, 3).
struct PromptScores {
  float at[2][4][4];
  int32_t scales;  // the place in shared memory of V's scales, for the thread's positions of the first page
  int32_t first[2], last[2];  // the positions of the tile that each column sees

  template <bool kAll>
  TS_MEMBER_INLINE bool sees(int r, int pair, int j, int side) const {
    const int32_t position = (2 * pair + side) * TS_PAGE_TOKENS + 4 * (warp_lane() % 4) + j;
    return kAll || (position >= first[r] && position < last[r]);
  }
  TS_MEMBER_INLINE FourScales value_scales(const AttentionArgs& args, int32_t page) const { return {pair_of(prompt_room, scales + 2 * page * args.stage.page)}; }
  // Where a score is NaN, its weight is NaN, and so is the row.
  template <bool kAll>
  TS_MEMBER_INLINE float peak(int r) const {
    float most = kLowest;
    TS_EVERY_PLACE most = larger_number(sees<kAll>(r, pair, j, side) ? at[pair][j][2 * r + side] : kLowest, most);
    most = larger_number(most, shuffle_across(most, 1));
    return larger_number(most, shuffle_across(most, 2));
  }
  // The largest magnitude among the scales of V that the column sees; NaN where one is NaN.
  template <bool kAll>
  TS_MEMBER_INLINE float largest_scale(const AttentionArgs& args, int r) const {
    uint32_t most = 0;
    TS_EVERY_LANE
    for (int page = 0; page < kTilePages; ++page) {
      const FourScales four = value_scales(args, page);
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const uint32_t bits = sees<kAll>(r, page / 2, j, page % 2) ? bits_of(four[j]) & 0x7fffffffu : 0;
        most = bits > most ? bits : most;
      }
    }
    return float_of(most_of_four(most));
  }
};

// stage: the place of the tile in shared memory; start: its first position.
template <class Pages>
TS_DEVICE_INLINE PromptScores score_prompt_tile(const AttentionArgs& args, const PromptRows& rows, int32_t stage, int32_t start) {
  const StageShape& shape = args.stage;
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4;
  int32_t sums[2][4][4];
  TS_EVERY_LANE
  for (int i = 0; i < 32; ++i) sums[i / 16][i / 4 % 4][i % 4] = rows.columns[i / 2 % 2].zeros + static_cast<int32_t>(bits_of(kRounder));
  for (int32_t step = 0; step < shape.steps; ++step) {
    const Words4 query = prompt_room[(step * kPromptWarps + warp_index()) * kWarp + lane];
    const uint32_t a[4] = {query.x, query.y, query.z, query.w};
    TS_EVERY_LANE
    for (int pair = 0; pair < 2; ++pair) {
      typename Pages::Keys keys;
      TS_EVERY_LANE
      for (int part = 0; part < Pages::kKeyLoads; ++part) {
        const int32_t row = Pages::key_row(step, t, part);
        keys.words[part] = prompt_room[stage + (2 * pair + g % 2) * shape.page + swapped_key(row < shape.key_rows ? row : 0, g / 2)];
      }
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        uint32_t b[2];
        Pages::key_operand(keys, j, b);
        mma_by_unsigned(sums[pair][j], a, b);
      }
    }
  }
  PromptScores found;
  found.scales = 2 * (stage + shape.scales) + t + 4;
  TS_BOTH_ROWS {
    const PromptColumn& column = rows.columns[r];
    found.first[r] = column.there ? clipped(column.seen.begin - start) : kTile;
    found.last[r] = column.there ? clipped(column.seen.end - start) : 0;
    TS_EVERY_LANE
    for (int page = 0; page < kTilePages; ++page) {
      const FourScales key_scales = {pair_of(prompt_room, found.scales - 4 + 2 * page * shape.page)};
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const float sum = float_of(static_cast<uint32_t>(sums[page / 2][j][2 * r + page % 2])) - kRounder;  // exact below 2^22
        found.at[page / 2][j][2 * r + page % 2] = sum * column.scale * key_scales[j];
      }
    }
  }
  if (args.soft_cap > 0.0f || args.slopes != nullptr) {
    TS_BOTH_ROWS {
      const PromptColumn& column = rows.columns[r];
      TS_EVERY_PLACE {
        const int32_t away = start + (2 * pair + side) * TS_PAGE_TOKENS + 4 * t + j - column.seen.position;
        found.at[pair][j][2 * r + side] = adjusted(args, column.head, away, found.at[pair][j][2 * r + side]);
      }
    }
  }
  return found;
}

// A thread's part of a segment: the peaks, 4 of the 16 totals, and the sums of its dimensions of V. In sums, number i of operand `half` of
// a unit belongs to column g (i = 0, 1) or g + 8 (i = 2, 3).
struct PromptSums {
  float peaks[2], totals[2][4], sums[kPromptUnits][2][4];

  TS_MEMBER_INLINE void clear() {
    TS_BOTH_ROWS {
      peaks[r] = kLowest;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) totals[r][j] = 0.0f;
    }
    TS_EVERY_LANE
    for (int i = 0; i < kPromptUnits * 8; ++i) sums[i / 8][i / 4 % 2][i % 4] = 0.0f;
  }
};

// A tile's weights as operands A of two pages each, with their scales and sums.
struct PromptWeights {
  uint32_t high[2][4], low[2][4];
  float rescales[2], scales[2];
  int32_t starts[2];
};

// Turns scores into weights, raises peaks, and adds to the totals.
template <class Pages, bool kAll>
TS_DEVICE_INLINE PromptWeights weigh_prompt_tile(const AttentionArgs& args, PromptScores& own, PromptSums& sums) {
  PromptWeights made = {};
  TS_BOTH_ROWS {
    const float found = own.peak<kAll>(r), before = sums.peaks[r], peak = larger(found, before);
    made.rescales[r] = exp2_negative(before - peak);
    sums.peaks[r] = peak;
    const Scaling scaling(exp2_negative(found - peak) * own.largest_scale<kAll>(args, r), kLargestWhole);
    made.scales[r] = scaling.scale;
    int32_t sum = 0;
    TS_EVERY_LANE
    for (int page = 0; page < kTilePages; ++page) {
      const int pair = page / 2, side = page % 2;
      const FourScales value_scales = own.value_scales(args, page);
      uint32_t bits[4];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const bool sees = own.sees<kAll>(r, pair, j, side);
        const float weight = sees ? exp2_negative(own.at[pair][j][2 * r + side] - peak) : 0.0f;
        bits[j] = sees ? rounded_bits(weight * value_scales[j], scaling.inverse) : 0;
        own.at[pair][j][2 * r + side] = weight;
        if (!Pages::kValuesSigned) sum += static_cast<int16_t>(bits[j] & 0xffffu);
      }
      const FourDigits digits(bits);
      made.high[pair][r + 2 * side] = digits.high;
      made.low[pair][r + 2 * side] = digits.low;
    }
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      const float first = own.at[0][j][2 * r] + own.at[0][j][2 * r + 1], second = own.at[1][j][2 * r] + own.at[1][j][2 * r + 1];
      sums.totals[r][j] = fma(sums.totals[r][j], made.rescales[r], first + second);
    }
    made.starts[r] = Pages::kValuesSigned ? 0 : -8 * sum_of_four(sum);
  }
  return made;
}

template <class Pages>
TS_DEVICE_INLINE void add_prompt_values(const AttentionArgs& args, int32_t stage, const PromptWeights& weights, PromptSums& own) {
  const StageShape& shape = args.stage;
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, swap = t * shape.swap;
  const auto add_unit = [&](int32_t unit, float (&sums)[2][4]) {
    uint64_t values[kTilePages];
    TS_EVERY_LANE
    for (int page = 0; page < kTilePages; ++page)
      values[page] = Pages::shared_values(prompt_room, stage + page * shape.page + shape.values + t * shape.value_row, shape.value_row, swap, unit, g);
    TS_EVERY_LANE
    for (int half = 0; half < 2; ++half) {
      int32_t high[4] = {}, low[4] = {};
      TS_EVERY_LANE
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t b[2] = {Pages::value_operand(values[2 * pair], half), Pages::value_operand(values[2 * pair + 1], half)};
        if (Pages::kValuesSigned) {
          mma_signed(high, weights.high[pair], b);
          mma_signed(low, weights.low[pair], b);
        } else {
          mma_by_unsigned(high, weights.high[pair], b);
          mma_by_unsigned(low, weights.low[pair], b);
        }
      }
      TS_EVERY_LANE
      for (int i = 0; i < 4; ++i) {
        const int32_t whole = 128 * high[i] + low[i] + weights.starts[i / 2];
        sums[half][i] = fma(static_cast<float>(whole), weights.scales[i / 2], sums[half][i] * weights.rescales[i / 2]);
      }
    }
  };
  TS_EVERY_LANE
  for (int unit = 0; unit < kPromptUnits; ++unit)
    if (unit < shape.units) add_unit(unit, own.sums[unit]);
}

// Merges a segment into those before it, which lie in the output and in the thread's shared memory. first, last: whether it is the first or
// the last segment.
template <class Pages>
TS_DEVICE_INLINE void finish_segment(const AttentionArgs& args, const PromptRows& rows, PromptSums& own, bool first, bool last) {
  const int32_t t = warp_lane() % 4, dim = args.layer.value_dim, thread = thread_index();
  TS_BOTH_ROWS {
    const PromptColumn& column = rows.columns[r];
    float keep = 0.0f, add = 1.0f;
    if (!first) {
      const float before = prompt_wholes[r * kRowState * kPromptThreads + thread], now = larger(own.peaks[r], before);
      keep = exp2_negative(before - now);
      add = exp2_negative(own.peaks[r] - now);
      own.peaks[r] = now;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j)
        own.totals[r][j] = fma(own.totals[r][j], add, prompt_wholes[(r * kRowState + 1 + j) * kPromptThreads + thread] * keep);
    }
    prompt_wholes[r * kRowState * kPromptThreads + thread] = own.peaks[r];
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) prompt_wholes[(r * kRowState + 1 + j) * kPromptThreads + thread] = own.totals[r][j];
    const float total = sum_of_lanes(own.totals[r]);
    const float inverse = last ? inverse_of(args, column.head, own.peaks[r], total) : 1.0f;
    float* out = args.out + static_cast<int64_t>(column.row) * args.out_stride + static_cast<int64_t>(column.head) * dim;
    TS_EVERY_LANE
    for (int i = 0; i < kPromptUnits * 4; ++i) {
      const int32_t d = Pages::value_dim(rows.first_dim / 16 + i / 4, t, i / 2 % 2, i % 2);
      if (!column.there || d >= dim) continue;
      float sum = own.sums[i / 4][i / 2 % 2][2 * r + i % 2];
      if (!first) sum = fma(sum, add, out[d] * keep);
      out[d] = last ? sum * inverse : sum;
    }
  }
}

// A block has some rows of one sequence, one KV head, and some dimensions of V. Its warps have the same number of rows each.
template <class Pages>
TS_DEVICE_INLINE void attend_prompt(const AttentionArgs& args) {
  const int32_t blocks = static_cast<int32_t>(args.prompt_blocks), block = static_cast<int32_t>(block_index());
  const RowTile tile = row_tile(args, blocks - 1 - block % blocks);  // the last rows see most, so they are computed first
  if (tile.rows == 0) return;
  PromptRows rows(args, tile, block / blocks);
  TileCopies<Pages> copies(args, tile, rows.kv_head, rows.first_dim);
  round_queries<Pages>(args, rows);
  const bool any = rows.count > 0;
  const Seen first = tile.seen(args, any ? rows.first : 0), last = tile.seen(args, any ? rows.first + rows.count - 1 : 0);
  const int32_t first_segment = first.begin / kSegment, last_segment = (last.end - 1) / kSegment;
  PromptSums own;
  own.clear();
  for (int32_t start = copies.first; start < copies.end; start += kTile) {
    copies.wait(start);
    if (any && start + kTile > first.begin && start < last.end) {
      PromptScores scores = score_prompt_tile<Pages>(args, rows, copies.stage, start);
      const bool all = start >= last.begin && start + kTile <= first.end;
      const PromptWeights weights = all ? weigh_prompt_tile<Pages, true>(args, scores, own) : weigh_prompt_tile<Pages, false>(args, scores, own);
      add_prompt_values<Pages>(args, copies.stage, weights, own);
      const int32_t segment = start / kSegment;
      if ((start + kTile) % kSegment == 0 || start + kTile >= last.end) {
        finish_segment<Pages>(args, rows, own, segment == first_segment, segment == last_segment);
        own.clear();
      }
    }
    copies.leave(start);
  }
}

TS_KERNEL(attention_prompt_int8, AttentionArgs) {
  at_most_threads<2 * kPromptThreads>();  // this many registers let two blocks fit on a multiprocessor
  attend_prompt<BytePages>(args);
}
TS_KERNEL(attention_prompt_int4, AttentionArgs) {
  at_most_threads<2 * kPromptThreads>();
  attend_prompt<NibblePages>(args);
}

}  // namespace cuda
}  // namespace twostroke
