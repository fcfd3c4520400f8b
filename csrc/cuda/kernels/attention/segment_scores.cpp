// The scores of attention for few rows over pages of int8 and int4. A warp has two pages of a segment, one KV head, and up to eight columns:
// pairs of a row and a query head that share the KV head. The warp's threads round the columns' queries themselves, so no barrier is
// needed. Of the 16 rows of a small product the first 8 are columns. segments_whole.cpp then makes weights of the scores.
#include "twostroke/cuda/attention/rows.h"
#include "twostroke/cuda/attention/whole.h"

namespace twostroke {
namespace cuda {

constexpr int kScoreSteps = 4;  // steps of 32 dimensions whose K is loaded before any of it is used
static_assert(kScoreParts * (kScoreThreads / kWarp) * kPairTokens == kSegment, "a warp a pair of pages");

// Column g of the queries. Thread t of its four threads has the quads of dimensions that it multiplies.
struct QueryColumn {
  const float* q;
  float scale;
  int32_t dim;
  bool there, fours;  // fours: whether quads of dimensions lie at multiples of 16 bytes

  TS_MEMBER_INLINE QueryColumn(const AttentionArgs& args, const SegmentBlock& block, int32_t g)
      : q(nullptr), scale(args.scale * kLog2E), dim(args.layer.head_dim), there(g < block.columns), fours(false) {
    const int32_t known = there ? g : 0;
    q = args.q + static_cast<int64_t>(block.tile.first + block.row(known)) * args.q_stride + static_cast<int64_t>(block.head(known)) * dim;
    fours = reinterpret_cast<uint64_t>(args.q) % 16 == 0 && args.q_stride % 4 == 0 && dim % 4 == 0;
  }
  // The thread's quads of some steps, times the scale. They are zeros after the last dimension.
  template <class Pages, int kQuads>
  TS_MEMBER_INLINE void load(int32_t step, int32_t t, Words4 (&quads)[kQuads]) const {
    if (fours) {
      TS_EVERY_LANE
      for (int i = 0; i < kQuads; ++i) {
        const int32_t d = 4 * Pages::query_quad(step + i / 2, t, i % 2);
        quads[i] = load16(q + (d < dim ? d : 0));
      }
    } else {
      TS_EVERY_LANE
      for (int i = 0; i < kQuads; ++i) {
        const int32_t d = 4 * Pages::query_quad(step + i / 2, t, i % 2);
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) quads[i][j] = d + j < dim ? bits_of(q[d + j]) : 0;
      }
    }
    TS_EVERY_LANE
    for (int i = 0; i < kQuads; ++i) {
      const bool inside = there && 4 * Pages::query_quad(step + i / 2, t, i % 2) < dim;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) quads[i][j] = inside ? bits_of(float_of(quads[i][j]) * scale) : 0;
    }
  }
};

template <int kQuads>
TS_DEVICE_INLINE uint32_t most_of_quads(const Words4 (&quads)[kQuads], uint32_t most) {
  TS_EVERY_LANE
  for (int i = 0; i < 4 * kQuads; ++i) most = larger_bits(most, quads[i / 4][i % 4] & 0x7fffffffu);
  return most;
}

// Four numbers, rounded to bytes.
TS_DEVICE_INLINE uint32_t rounded_quad(Words4 numbers, float inverse) {
  uint32_t bits[4];
  TS_EVERY_LANE
  for (int j = 0; j < 4; ++j) bits[j] = rounded_bits(float_of(numbers[j]), inverse);
  return chosen_bytes<0x5410>(chosen_bytes<0x0040>(bits[0], bits[1]), chosen_bytes<0x0040>(bits[2], bits[3]));
}

// Sums of the products of column g with positions, in the layout of mma's results: page `side` of the pair, position 4t + j.
struct PairSums {
  int32_t at[4][4], zeros;  // zeros: the correction for the zero points with which K is stored
  float scale;

  template <class Pages>
  TS_MEMBER_INLINE void load_step(const WholePage& page, int32_t dim, int32_t step, typename Pages::Keys (&keys)[kScoreSteps]) const {
    TS_EVERY_LANE
    for (int s = 0; s < kScoreSteps; ++s) keys[s] = load_keys<Pages>(page, dim, step + s, warp_lane() % 4, warp_lane() / 8);
  }
  // keys: those of the first steps.
  template <class Pages>
  TS_MEMBER_INLINE void find(const QueryColumn& column, const WholePage& page, typename Pages::Keys (&keys)[kScoreSteps]) {
    const int32_t t = warp_lane() % 4, steps = (column.dim + 31) / 32;
    Words4 quads[2 * kScoreSteps];
    column.load<Pages>(0, t, quads);
    uint32_t most = most_of_quads(quads, 0);
    TS_ONE_BY_ONE
    for (int32_t step = kScoreSteps; step < steps; ++step) {
      Words4 more[2];
      column.load<Pages>(step, t, more);
      most = most_of_quads(more, most);
    }
    const Scaling scaling(float_of(most_of_four(most)), kLargestByte);
    scale = scaling.scale;
    int32_t sum = 0;
    TS_ONE_BY_ONE
    for (int32_t step = 0;;) {
      TS_EVERY_LANE
      for (int s = 0; s < kScoreSteps; ++s) {
        const uint32_t a[4] = {rounded_quad(quads[2 * s], scaling.inverse), 0, rounded_quad(quads[2 * s + 1], scaling.inverse), 0};
        sum = dot4(0x01010101u, static_cast<int32_t>(a[0]), dot4(0x01010101u, static_cast<int32_t>(a[2]), sum));
        TS_EVERY_LANE
        for (int j = 0; j < 4; ++j) {
          uint32_t b[2];
          Pages::key_operand(keys[s], j, b);
          mma_by_unsigned(at[j], a, b);
        }
      }
      step += kScoreSteps;
      if (step >= steps) break;
      load_step<Pages>(page, column.dim, step, keys);
      column.load<Pages>(step, t, quads);
    }
    zeros = -Pages::kKeyZero * sum_of_four(sum);
  }
};

// Applies to the thread's scores what few models have, one score after the other.
TS_DEVICE_INLINE void adjust_scores(const AttentionArgs& args, const SegmentBlock& block, int32_t column, int32_t start, float* scores) {
  const int32_t row = block.row(column), head = block.head(column);
  const Seen seen = block.seen(args, row);
  TS_ONE_BY_ONE
  for (int32_t i = 0; i < 8; ++i) {
    const int32_t at = i / 4 * TS_PAGE_TOKENS + i % 4, position = start + at;
    float score = adjusted(args, head, position - seen.position, scores[at]);
    if (args.places.place_of != nullptr && position >= seen.begin && position < seen.end)
      score = placed(args, head, block.tile.first + row, position - seen.position, score);
    scores[at] = score;
  }
}

// Tables of pages are inputs of the step, and no kernel writes them, so they are read before the kernels before have ended.
template <class Pages>
TS_DEVICE_INLINE void score_pair(const AttentionArgs& args) {
  const int32_t index = static_cast<int32_t>(block_index()), at = index / kScoreParts;
  const int32_t pair = index % kScoreParts * (kScoreThreads / kWarp) + warp_index(), g = warp_lane() / 4, t = warp_lane() % 4;
  const SegmentBlock block(args, kWholeColumns, at);
  const int32_t pages[2] = {page_in_segment(block, 2 * pair), page_in_segment(block, 2 * pair + 1)};
  wait_for_earlier();
  const int32_t start = block.segment * kSegment + pair * kPairTokens;
  if (block.columns == 0 || start >= block.last.end || start + kPairTokens <= block.first.begin) return;
  const PageLayout& layout = args.pages;
  const WholePage own(layout, g % 2 == 0 ? pages[0] : pages[1], block.kv_head);
  PairSums sums = {};
  typename Pages::Keys keys[kScoreSteps];
  sums.load_step<Pages>(own, args.layer.head_dim, 0, keys);
  const FourScales scales[2] = {WholePage(layout, pages[0], block.kv_head).key_scales(layout, t), WholePage(layout, pages[1], block.kv_head).key_scales(layout, t)};
  sums.find<Pages>(QueryColumn(args, block, g), own, keys);
  if (g >= block.columns) return;
  float* scores = args.scores + (static_cast<int64_t>(at) * args.score_columns + g) * kSegment + pair * kPairTokens + 4 * t;
  TS_EVERY_LANE
  for (int side = 0; side < 2; ++side) {
    Words4 four;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) four[j] = bits_of(static_cast<float>(sums.at[j][side] + sums.zeros) * sums.scale * scales[side][j]);
    *reinterpret_cast<Words4*>(scores + side * TS_PAGE_TOKENS) = four;
  }
  if (args.soft_cap > 0.0f || args.slopes != nullptr || args.places.place_of != nullptr) adjust_scores(args, block, g, start + 4 * t, scores);
}

TS_KERNEL_AHEAD(attention_scores_int8, AttentionArgs) {
  at_most_threads<4 * kScoreThreads>();  // this many registers let four blocks fit on a multiprocessor
  score_pair<BytePages>(args);
}
TS_KERNEL_AHEAD(attention_scores_int4, AttentionArgs) {
  at_most_threads<4 * kScoreThreads>();
  score_pair<NibblePages>(args);
}

}  // namespace cuda
}  // namespace twostroke
