// attention of many rows of a sequence over pages of int8 and int4: a warp has 16 pairs of a row and a query head that share a KV head,
// which are the 16 rows of small products, and goes over all tiles that they see. Its scores come as the operand that the weights are, so
// threads exchange no more than peaks. Warps of a block have neighbouring rows, so what one loads the others find in the cache.
// The sums of finished segments lie in the output until the last one.
// Knows: attention/whole.h. Must not know: batches.
#include "twostroke/cuda/attention/whole.h"

namespace twostroke {
namespace cuda {

constexpr int kPromptWarps = kPromptThreads / kWarp;
constexpr int kQuerySteps = kMostDim / 32;
constexpr int kPromptUnits = kPromptDims / 16;
constexpr int kRowState = 1 + 4;  // the peak and four totals

TS_SHARED(Words4, prompt_queries, kPromptWarps* kQuerySteps* kWarp);             // operand A of 32 dimensions; each thread has its own
TS_SHARED(float, prompt_wholes, 2 * kRowState * kPromptThreads);                 // of finished segments; each thread has its own

#define TS_BOTH_ROWS TS_EVERY_LANE for (int r = 0; r < 2; ++r)
#define TS_EVERY_PLACE                               \
  TS_EVERY_LANE for (int pair = 0; pair < 2; ++pair) \
      TS_EVERY_LANE for (int j = 0; j < 4; ++j) TS_EVERY_LANE for (int side = 0; side < 2; ++side)

// A thread has columns g and g + 8 of its warp.
struct PromptColumn {
  bool there;
  int32_t head, row, zeros;  // zeros: what undoes those that K is stored with
  Seen seen;
  float scale;
};

struct PromptTile {
  RowTile rows;
  int32_t kv_head, first_dim;
  PromptColumn columns[2];

  TS_MEMBER_INLINE PromptTile(const AttentionArgs& args, int32_t number, int32_t index) : rows(row_tile(args, number)), kv_head(0), first_dim(0), columns() {
    const int32_t group = static_cast<int32_t>(args.heads) / args.layer.kv_heads, g = warp_lane() / 4;
    const int32_t first_head = index % args.chunks * kPromptColumns;
    index /= args.chunks;
    kv_head = index % args.layer.kv_heads;
    first_dim = index / args.layer.kv_heads * kPromptDims;
    TS_BOTH_ROWS {
      const int32_t column = g + 8 * r, row = args.chunks > 1 ? 0 : column / group, place = args.chunks > 1 ? first_head + column : column % group;
      const bool there = row < rows.rows && place < group;
      columns[r] = {there, kv_head * group + (there ? place : 0), rows.first + (there ? row : 0), 0, rows.seen(args, there ? row : 0), 0.0f};
    }
  }
};

// The queries of the thread's columns as bytes, to its own place in shared memory.
TS_DEVICE_INLINE void round_queries(const AttentionArgs& args, PromptTile& tile, int32_t key_zero) {
  const int32_t dim = args.layer.head_dim, t = warp_lane() % 4, steps = (dim + 31) / 32;
  const float scale = args.scale * kLog2E;
  float inverses[2];
  int32_t sums[2] = {0, 0};
  const auto query = [&](int r, int32_t d) {
    const PromptColumn& column = tile.columns[r];
    return column.there && d < dim ? args.q[static_cast<int64_t>(column.row) * args.q_stride + static_cast<int64_t>(column.head) * dim + d] * scale : 0.0f;
  };
  TS_BOTH_ROWS {
    uint32_t most = 0;
    for (int32_t step = 0; step < steps; ++step) {
      TS_EVERY_LANE
      for (int k = 0; k < 8; ++k) {
        const uint32_t bits = bits_of(query(r, step * 32 + t * 8 + k)) & 0x7fffffffu;
        most = bits > most ? bits : most;
      }
    }
    most = most_of_four(most);
    const Scaling scaling(float_of(most), kLargestByte);
    tile.columns[r].scale = scaling.scale;
    inverses[r] = scaling.inverse;
  }
  for (int32_t step = 0; step < steps; ++step) {
    Words4 operand = {0, 0, 0, 0};
    TS_BOTH_ROWS {
      TS_EVERY_LANE
      for (int k = 0; k < 8; ++k)
        operand[r + k / 4 * 2] |= (static_cast<uint32_t>(rounded(query(r, step * 32 + t * 8 + k), inverses[r])) & 0xffu) << (k % 4 * 8);
      sums[r] = dot4(0x01010101u, static_cast<int32_t>(operand[r]), dot4(0x01010101u, static_cast<int32_t>(operand[r + 2]), sums[r]));
    }
    prompt_queries[(warp_index() * kQuerySteps + step) * kWarp + warp_lane()] = operand;
  }
  TS_BOTH_ROWS tile.columns[r].zeros = -key_zero * sum_of_four(sums[r]);
}

// Four pages of K and V; a thread of a warp has its own of each two for K.
struct TilePages {
  int32_t own;  // the page of this thread's place among four

  TS_MEMBER_INLINE int32_t operator[](int32_t page) const { return static_cast<int32_t>(shuffle(static_cast<uint32_t>(own), page)); }
};

template <class Pages>
TS_DEVICE_INLINE void multiply_prompt_keys(const AttentionArgs& args, const PromptTile& tile, const TilePages& ids, int32_t (&sums)[2][4][4]) {
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, dim = args.layer.head_dim, steps = (dim + 31) / 32;
  const KVLayout layout(&args.layer);
  const WholePage pages[2] = {{layout, ids[g % 2], tile.kv_head}, {layout, ids[2 + g % 2], tile.kv_head}};
  for (int32_t step = 0; step < steps; ++step) {
    typename Pages::Keys keys[2];
    TS_EVERY_LANE
    for (int pair = 0; pair < 2; ++pair) keys[pair] = Pages::keys(pages[pair], dim, step * 4 + t, g / 2);
    const Words4 query = prompt_queries[(warp_index() * kQuerySteps + step) * kWarp + lane];
    const uint32_t a[4] = {query.x, query.y, query.z, query.w};
    TS_EVERY_LANE
    for (int pair = 0; pair < 2; ++pair) {
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        uint32_t b[2];
        Pages::key_operand(keys[pair], j, b);
        mma_by_unsigned(sums[pair][j], a, b);
      }
    }
  }
}

// What a thread has of one tile: scores, then weights, of position 4t + j of page 2 * pair + side, of columns g (0, 1) and g + 8 (2, 3).
struct PromptScores {
  float at[2][4][4];
  FourScales value_scales[2][2];
  int32_t first[2], last[2];  // positions of the tile that each column sees

  template <bool kAll>
  TS_MEMBER_INLINE bool sees(int r, int pair, int j, int side) const {
    const int32_t position = (2 * pair + side) * TS_PAGE_TOKENS + 4 * (warp_lane() % 4) + j;
    return kAll || (position >= first[r] && position < last[r]);
  }
  template <bool kAll>
  TS_MEMBER_INLINE float peak(int r) const {
    float most = kLowest;
    TS_EVERY_PLACE most = larger(sees<kAll>(r, pair, j, side) ? at[pair][j][2 * r + side] : kLowest, most);
    return most_of_four(most);
  }
  // The largest magnitude among V's scales that the column sees; NaN where one is NaN.
  template <bool kAll>
  TS_MEMBER_INLINE float largest_scale(int r) const {
    uint32_t most = 0;
    TS_EVERY_PLACE {
      const uint32_t bits = sees<kAll>(r, pair, j, side) ? bits_of(value_scales[pair][side][j]) & 0x7fffffffu : 0;
      most = bits > most ? bits : most;
    }
    return float_of(most_of_four(most));
  }
};

template <class Pages>
TS_DEVICE_INLINE PromptScores score_prompt_tile(const AttentionArgs& args, const PromptTile& tile, const TilePages& ids, int32_t start) {
  const int32_t t = warp_lane() % 4;
  const KVLayout layout(&args.layer);
  FourScales key_scales[2][2];
  PromptScores found;
  TS_EVERY_LANE
  for (int page = 0; page < kTilePages; ++page) {
    const WholePage at(layout, ids[page], tile.kv_head);
    key_scales[page / 2][page % 2] = at.key_scales(layout, t);
    found.value_scales[page / 2][page % 2] = at.value_scales(layout, t);
  }
  int32_t sums[2][4][4] = {};
  multiply_prompt_keys<Pages>(args, tile, ids, sums);
  TS_BOTH_ROWS {
    const PromptColumn& column = tile.columns[r];
    found.first[r] = column.there ? clipped(column.seen.begin - start) : kTile;
    found.last[r] = column.there ? clipped(column.seen.end - start) : 0;
    TS_EVERY_PLACE found.at[pair][j][2 * r + side] =
        static_cast<float>(sums[pair][j][2 * r + side] + column.zeros) * column.scale * key_scales[pair][side][j];
  }
  if (args.soft_cap > 0.0f || args.slopes != nullptr) {
    TS_BOTH_ROWS {
      const PromptColumn& column = tile.columns[r];
      TS_EVERY_PLACE {
        const int32_t away = start + (2 * pair + side) * TS_PAGE_TOKENS + 4 * t + j - column.seen.position;
        found.at[pair][j][2 * r + side] = adjusted(args, column.head, away, found.at[pair][j][2 * r + side]);
      }
    }
  }
  return found;
}

// What a thread has of a segment: peaks, 4 of the 16 totals, sums of its dimensions of V. In sums column i of operand `half` of a unit: of
// column g (i = 0, 1) and g + 8 (2, 3).
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

// A tile's weights as operands A of two pages each, and what goes with them.
struct PromptWeights {
  uint32_t high[2][4], low[2][4];
  float rescales[2], scales[2];
  int32_t starts[2];
};

// Scores to weights; raises peaks, adds totals.
template <class Pages, bool kAll>
TS_DEVICE_INLINE PromptWeights weigh_prompt_tile(PromptScores& own, PromptSums& sums) {
  PromptWeights made = {};
  TS_BOTH_ROWS {
    const float found = own.peak<kAll>(r), before = sums.peaks[r], peak = larger(found, before);
    made.rescales[r] = exp2_negative(before - peak);
    sums.peaks[r] = peak;
    const Scaling scaling(exp2_negative(found - peak) * own.largest_scale<kAll>(r), kLargestWhole);
    made.scales[r] = scaling.scale;
    int32_t sum = 0;
    TS_EVERY_PLACE {
      const bool sees = own.sees<kAll>(r, pair, j, side);
      const float weight = sees ? exp2_negative(own.at[pair][j][2 * r + side] - peak) : 0.0f;
      const int32_t whole = sees ? rounded(weight * own.value_scales[pair][side][j], scaling.inverse) : 0;
      own.at[pair][j][2 * r + side] = weight;
      made.low[pair][r + 2 * side] |= static_cast<uint32_t>(whole & 127) << (8 * j);
      made.high[pair][r + 2 * side] |= (static_cast<uint32_t>(whole >> 7) & 0xffu) << (8 * j);
      sum += whole;
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
TS_DEVICE_INLINE void add_prompt_values(const AttentionArgs& args, const PromptTile& tile, const TilePages& ids, const PromptWeights& weights, PromptSums& own) {
  const int32_t lane = warp_lane(), g = lane / 4, t = lane % 4, dim = args.layer.value_dim;
  const KVLayout layout(&args.layer);
  const WholePage pages[4] = {{layout, ids[0], tile.kv_head}, {layout, ids[1], tile.kv_head}, {layout, ids[2], tile.kv_head}, {layout, ids[3], tile.kv_head}};
  const int32_t first = tile.first_dim / 16, units = Pages::value_units(dim);
  TS_EVERY_LANE
  for (int unit = 0; unit < kPromptUnits; ++unit) {
    if (first + unit >= units) break;
    uint64_t values[kTilePages];
    Pages::values(layout, pages, dim, first + unit, g, t, values);
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
        float& sum = own.sums[unit][half][i];
        const int32_t whole = 128 * high[i] + low[i] + weights.starts[i / 2];
        sum = fma(static_cast<float>(whole), weights.scales[i / 2], sum * weights.rescales[i / 2]);
      }
    }
  }
}

// Merges a segment into those before it, which lie in the output and in the thread's shared memory. first, last: whether it is.
template <class Pages>
TS_DEVICE_INLINE void finish_segment(const AttentionArgs& args, const PromptTile& tile, PromptSums& own, bool first, bool last) {
  const int32_t t = warp_lane() % 4, dim = args.layer.value_dim, thread = thread_index();
  TS_BOTH_ROWS {
    const PromptColumn& column = tile.columns[r];
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
      const int32_t d = Pages::value_dim(tile.first_dim / 16 + i / 4, t, i / 2 % 2, i % 2);
      if (!column.there || d >= dim) continue;
      float sum = own.sums[i / 4][i / 2 % 2][2 * r + i % 2];
      if (!first) sum = fma(sum, add, out[d] * keep);
      out[d] = last ? sum * inverse : sum;
    }
  }
}

template <class Pages>
TS_DEVICE_INLINE void attend_prompt(const AttentionArgs& args) {
  const int32_t blocks = static_cast<int32_t>(args.prompt_blocks), block = static_cast<int32_t>(block_index());
  const int32_t number = (blocks - 1 - block % blocks) * kPromptWarps + warp_index();  // the last rows, which see most, come first
  PromptTile tile(args, number, block / blocks);
  if (tile.rows.rows == 0) return;
  round_queries(args, tile, Pages::kKeyZero);
  const int32_t begin = tile.rows.begin(args), begin_last = tile.rows.seen(args, tile.rows.rows - 1).begin;
  const int32_t end = tile.rows.end(args), end_first = tile.rows.seen(args, 0).end;
  const int32_t first_segment = begin / kSegment, last_segment = (end - 1) / kSegment;
  for (int32_t segment = first_segment; segment <= last_segment; ++segment) {
    PromptSums own;
    own.clear();
    const int32_t from = segment == first_segment ? begin / kTile * kTile : segment * kSegment;
    const int32_t to = segment == last_segment ? end : (segment + 1) * kSegment;
    for (int32_t start = from; start < to; start += kTile) {
      const TilePages ids = {tile.rows.page(start / TS_PAGE_TOKENS + warp_lane() % 4, begin, end)};
      PromptScores scores = score_prompt_tile<Pages>(args, tile, ids, start);
      const bool all = start >= begin_last && start + kTile <= end_first;
      const PromptWeights weights = all ? weigh_prompt_tile<Pages, true>(scores, own) : weigh_prompt_tile<Pages, false>(scores, own);
      add_prompt_values<Pages>(args, tile, ids, weights, own);
    }
    finish_segment<Pages>(args, tile, own, segment == first_segment, segment == last_segment);
  }
}

TS_KERNEL(attention_prompt_int8, AttentionArgs) { attend_prompt<BytePages>(args); }
TS_KERNEL(attention_prompt_int4, AttentionArgs) { attend_prompt<NibblePages>(args); }

}  // namespace cuda
}  // namespace twostroke
