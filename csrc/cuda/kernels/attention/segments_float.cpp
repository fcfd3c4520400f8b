// attention of few rows over pages of f32 and bf16: a block has one segment, one KV head and up to four query heads of one row that share it:
// columns. A score is one chain of fused products over dimensions, by one thread; a sum of V one chain over positions. A warp has the
// weights of one tile.
// Knows: attention/floats.h, attention/partials.h. Must not know: batches.
#include "twostroke/cuda/attention/floats.h"
#include "twostroke/cuda/attention/partials.h"

namespace twostroke {
namespace cuda {

constexpr int kColumnsOfThread = 2;  // whose sums of V a thread has
static_assert(kThreads == kSegmentTiles * kWarp && 2 * kThreads == kSegment, "a warp a tile; a thread has two scores of each column");

TS_SHARED(Words4, float_queries, kMostDim);   // a dimension of each column
TS_SHARED(Words4, float_scores, kSegment);    // scores, then weights of each column
TS_SHARED(float, float_peaks, kSegmentTiles* kFloatColumns);
TS_SHARED(float, float_rescales, kSegmentTiles* kFloatColumns);
TS_SHARED(float, float_totals, kSegmentTiles* kFloatColumns* kLanes);
TS_SHARED(float, float_inverses, kFloatColumns);

TS_DEVICE_INLINE void load_queries(const AttentionArgs& args, const SegmentBlock& block) {
  const int32_t dim = args.layer.head_dim;
  const float scale = args.scale * kLog2E;
  const float* q = args.q + block.tile.first * args.q_stride + static_cast<int64_t>(block.head(0)) * dim;
  for (int32_t d = thread_index(); d < dim; d += kThreads) {
    Words4 own = {0, 0, 0, 0};
    TS_EVERY_LANE
    for (int c = 0; c < kFloatColumns; ++c)
      if (c < block.columns) own[c] = bits_of(q[c * dim + d] * scale);
    float_queries[d] = own;
  }
}

// The part of a segment that the row sees.
struct SeenPart {
  int32_t first, last;

  TS_MEMBER_INLINE SeenPart(const AttentionArgs& args, const SegmentBlock& block) : first(0), last(0) {
    const Seen seen = block.tile.seen(args, 0);
    const int32_t start = block.segment * kSegment;
    first = seen.begin <= start ? 0 : seen.begin - start;
    last = seen.end >= start + kSegment ? kSegment : seen.end - start;
  }
  TS_MEMBER_INLINE bool sees(int32_t place) const { return place >= first && place < last; }
  TS_MEMBER_INLINE int32_t first_tile() const { return first / kTile; }
  TS_MEMBER_INLINE int32_t last_tile() const { return (last + kTile - 1) / kTile; }
};

struct Always {
  constexpr bool operator()() const { return true; }
};
struct Perhaps {
  constexpr bool operator()() const { return false; }
};

// The scores of two positions of the segment, the thread's and that half a segment behind it.
template <class Pages>
TS_DEVICE_INLINE void score_positions(const AttentionArgs& args, const SegmentBlock& block, const SeenPart& part) {
  constexpr int kPositions = kSegment / kThreads, kWords = 8;
  const int32_t dim = args.layer.head_dim, words = Pages::key_words(dim);
  const KVLayout layout(&args.layer);
  const uint32_t* keys[kPositions];
  bool seen[kPositions];
  TS_EVERY_LANE
  for (int i = 0; i < kPositions; ++i) {
    const int32_t place = thread_index() + i * kThreads, page = place / TS_PAGE_TOKENS;
    const int32_t id = page_in_segment(block, page);
    seen[i] = part.sees(place);
    keys[i] = reinterpret_cast<const uint32_t*>(layout.keys(id, block.kv_head)) + place % TS_PAGE_TOKENS;
  }
  float scores[kPositions][kFloatColumns] = {};
  // all: whether the words are all of the position's.
  const auto add_words = [&](int32_t first, auto all) {
    uint32_t loaded[kPositions][kWords];
    TS_EVERY_LANE
    for (int w = 0; w < kWords; ++w) {
      const int32_t word = all() || first + w < words ? first + w : words - 1;
      TS_EVERY_LANE
      for (int i = 0; i < kPositions; ++i) loaded[i][w] = keys[i][word * TS_PAGE_TOKENS];
    }
    TS_EVERY_LANE
    for (int n = 0; n < kWords * Pages::kParts; ++n) {
      const int32_t d = first * Pages::kParts + n;
      if (!all() && d >= dim) break;
      const Words4 query = float_queries[d];
      TS_EVERY_LANE
      for (int i = 0; i < kPositions; ++i) {
        const float key = Pages::part(loaded[i][n / Pages::kParts], n % Pages::kParts);
        TS_EVERY_LANE
        for (int c = 0; c < kFloatColumns; ++c) scores[i][c] = fma(float_of(query[c]), key, scores[i][c]);
      }
    }
  };
  int32_t first = 0;
  for (; (first + kWords) * Pages::kParts <= dim; first += kWords) add_words(first, Always{});
  if (first < words) add_words(first, Perhaps{});
  const int32_t before = block.segment * kSegment - block.tile.position;
  TS_EVERY_LANE
  for (int i = 0; i < kPositions; ++i) {
    const int32_t place = thread_index() + i * kThreads;
    Words4 own;
    TS_EVERY_LANE
    for (int c = 0; c < kFloatColumns; ++c) {
      const bool there = seen[i] && c < block.columns;
      own[c] = bits_of(there ? adjusted(args, block.head(c), before + place, scores[i][c]) : kLowest);
    }
    float_scores[place] = own;
  }
}

TS_DEVICE_INLINE float float_peak_before(int32_t column, int32_t first, int32_t tile) {
  float peak = kLowest;
  for (int32_t before = first; before < tile; ++before) peak = larger(float_peaks[before * kFloatColumns + column], peak);
  return peak;
}

// What a thread has of its warp's tile: the scores of two positions, and the tile's peaks.
struct FloatTile {
  Words4 scores[2];
  float peaks[kFloatColumns];

  TS_MEMBER_INLINE FloatTile(int32_t tile) : scores(), peaks() {
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) scores[i] = float_scores[tile * kTile + i * kWarp + warp_lane()];
    TS_EVERY_LANE
    for (int c = 0; c < kFloatColumns; ++c) {
      peaks[c] = larger(float_of(scores[0][c]), float_of(scores[1][c]));
      TS_EVERY_LANE
      for (int mask = kWarp / 2; mask > 0; mask /= 2) peaks[c] = larger(peaks[c], shuffle_across(peaks[c], mask));
    }
  }
  // Scores to weights, and what goes with them.
  TS_MEMBER_INLINE void weigh(const SeenPart& part, int32_t tile) const {
    const int32_t lane = warp_lane();
    Words4 weights[2];
    TS_EVERY_LANE
    for (int c = 0; c < kFloatColumns; ++c) {
      const float before = float_peak_before(c, part.first_tile(), tile), peak = larger(peaks[c], before);
      float own[2];
      TS_EVERY_LANE
      for (int i = 0; i < 2; ++i) {
        own[i] = part.sees(tile * kTile + i * kWarp + lane) ? exp2_negative(float_of(scores[i][c]) - peak) : 0.0f;
        weights[i][c] = bits_of(own[i]);
      }
      const float first = own[0] + shuffle_across(own[0], kLanes), second = own[1] + shuffle_across(own[1], kLanes);
      const int32_t at = tile * kFloatColumns + c;
      if (lane < kLanes) float_totals[at * kLanes + lane] = first + second;
      if (lane == 0) float_rescales[at] = exp2_negative(before - peak);
    }
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) float_scores[tile * kTile + i * kWarp + lane] = weights[i];
  }
};

// As add_totals of segments_whole.cpp.
TS_DEVICE_INLINE void add_float_totals(const AttentionArgs& args, const SegmentBlock& block, const SeenPart& part) {
  const int32_t column = thread_index() / kLanes, lane = thread_index() % kLanes;
  if (column >= kFloatColumns) return;
  float total = 0.0f;
  for (int32_t tile = part.first_tile(); tile < part.last_tile(); ++tile) {
    const int32_t at = tile * kFloatColumns + column;
    total = fma(total, float_rescales[at], float_totals[at * kLanes + lane]);
  }
  float whole = total;
  TS_EVERY_LANE
  for (int mask = kLanes / 2; mask > 0; mask /= 2) whole = whole + shuffle_across(whole, mask);
  const Result result(args, block, column);
  const float peak = float_peak_before(column, part.first_tile(), part.last_tile());
  if (result.partial != nullptr) {
    result.partial[lane] = total;
    if (lane == 0) result.partial[kLanes + args.layer.value_dim] = peak;
  }
  if (lane == 0) float_inverses[column] = result.whole ? inverse_of(args, block.head(column), peak, whole) : 1.0f;
}

// sums (of columns from `column` on) with V of dimension d over one page, of which the row sees places [first, last).
template <class Pages>
TS_DEVICE_INLINE void add_page(const uint32_t* values, int32_t value_dim, int32_t d, int32_t place, int32_t column, int32_t first, int32_t last,
                               float (&sums)[kColumnsOfThread]) {
  constexpr int kWords = TS_PAGE_TOKENS / Pages::kParts;
  uint32_t loaded[kWords];
  TS_EVERY_LANE
  for (int w = 0; w < kWords; ++w) loaded[w] = values[Pages::value_word(w, d, value_dim)];
  const bool all = first <= 0 && last >= TS_PAGE_TOKENS;
  TS_EVERY_LANE
  for (int p = 0; p < TS_PAGE_TOKENS; ++p) {
    if (!all && (p < first || p >= last)) continue;
    const Words4 weights = float_scores[place + p];
    const float value = Pages::part(loaded[p / Pages::kParts], p % Pages::kParts);
    TS_EVERY_LANE
    for (int c = 0; c < kColumnsOfThread; ++c) sums[c] = fma(float_of(column > 0 ? weights[2 + c] : weights[c]), value, sums[c]);
  }
}

// A thread has one dimension of V and two columns at a time.
template <class Pages>
TS_DEVICE_INLINE void add_float_values(const AttentionArgs& args, const SegmentBlock& block, const SeenPart& part) {
  const int32_t dim = args.layer.value_dim, whole = (dim + kWarp - 1) / kWarp * kWarp;
  const int32_t halves = block.columns > kColumnsOfThread ? 2 : 1;
  const KVLayout layout(&args.layer);
  for (int32_t item = thread_index(); item < halves * whole; item += kThreads) {
    const int32_t column = item / whole * kColumnsOfThread, d = item % whole;
    float sums[kColumnsOfThread] = {};
    for (int32_t page = part.first / TS_PAGE_TOKENS; page * TS_PAGE_TOKENS < part.last; ++page) {
      const int32_t id = page_in_segment(block, page), place = page * TS_PAGE_TOKENS;
      if (page % kTilePages == 0 || place <= part.first) {
        TS_EVERY_LANE
        for (int c = 0; c < kColumnsOfThread; ++c) sums[c] = sums[c] * float_rescales[page / kTilePages * kFloatColumns + column + c];
      }
      const uint32_t* values = reinterpret_cast<const uint32_t*>(layout.values(layout.keys(id, block.kv_head)));
      if (d < dim) add_page<Pages>(values, dim, d, place, column, part.first - place, part.last - place, sums);
    }
    TS_EVERY_LANE
    for (int c = 0; c < kColumnsOfThread; ++c) {
      const Result result(args, block, column + c);
      if (result.any && d < dim) result.sums[d] = result.whole ? sums[c] * float_inverses[column + c] : sums[c];
    }
  }
}

template <class Pages>
TS_DEVICE_INLINE void attend_float_segment(const AttentionArgs& args) {
  const SegmentBlock block(args, kFloatColumns);
  if (block.columns == 0) return;
  const SeenPart part(args, block);
  load_queries(args, block);
  barrier();
  score_positions<Pages>(args, block, part);
  barrier();
  const int32_t tile = warp_index();
  const FloatTile own(tile);
  TS_EVERY_LANE
  for (int c = 0; c < kFloatColumns; ++c)
    if (warp_lane() == c) float_peaks[tile * kFloatColumns + c] = own.peaks[c];
  barrier();
  own.weigh(part, tile);
  barrier();
  add_float_totals(args, block, part);
  barrier();
  add_float_values<Pages>(args, block, part);
}

TS_KERNEL(attention_f32, AttentionArgs) { attend_float_segment<FloatPages>(args); }
TS_KERNEL(attention_bf16, AttentionArgs) { attend_float_segment<PairPages>(args); }

}  // namespace cuda
}  // namespace twostroke
