// attention over pages of f32 and bf16. A block has one segment, one KV head, and columns: pairs of a row and a query head that share the
// KV head. It has four columns where a sequence has one row, else sixteen. A score is one chain of fused products over dimensions; a sum of
// V is one chain over positions. A thread computes several chains at once, so that each number it reads is used several times.
#include "twostroke/cuda/attention/floats.h"
#include "twostroke/cuda/attention/partials.h"

namespace twostroke {
namespace cuda {

constexpr int kMostQuads = kFloatColumns / 4;  // quads of columns

// Queries (dimension, columns); later scores, and then weights (position, columns).
TS_SHARED(Words4, float_room, kSegment* kMostQuads);
TS_SHARED(float, float_peaks, kSegmentTiles* kFloatColumns);
TS_SHARED(float, float_rescales, kSegmentTiles* kFloatColumns);
TS_SHARED(float, float_totals, kSegmentTiles* kFloatColumns* kLanes);
TS_SHARED(float, float_inverses, kFloatColumns);
TS_SHARED(int32_t, column_heads, kFloatColumns);
TS_SHARED(int32_t, column_rows, kFloatColumns);  // the row of each column, in the step
TS_SHARED(int32_t, column_aways, kFloatColumns);  // the segment's first position minus the row's position
TS_SHARED(int32_t, column_firsts, kFloatColumns);  // the part of the segment that the row sees
TS_SHARED(int32_t, column_lasts, kFloatColumns);
static_assert(kMostDim <= kSegment, "queries have room");

// Sizes of a block's work. kQuads: quads of columns; kBlock: threads; kDims: the dimensions of V that a thread has, for kValueColumns
// columns.
template <class Pages_, int kQuads_, int kBlock_, int kDims_, int kValueColumns_>
struct FloatWork {
  typedef Pages_ Pages;
  static constexpr int kQuads = kQuads_, kColumns = 4 * kQuads, kBlock = kBlock_, kDims = kDims_, kValueColumns = kValueColumns_;
  // positions of a thread; words of a position's K that it reads at once
  static constexpr int kPositions = kSegment / kBlock, kWords = 16 / kPositions;
};

// Places of the segment. Some column sees [first, last); all columns see [inner_first, inner_last).
struct SeenPart {
  int32_t first, last, inner_first, inner_last;

  TS_MEMBER_INLINE explicit SeenPart(const SegmentBlock& block) : first(0), last(0), inner_first(0), inner_last(0) {
    const Seen begin = block.first, end = block.last;
    const int32_t start = block.segment * kSegment;
    first = place(begin.begin - start);
    last = place(end.end - start);
    inner_first = place(end.begin - start);
    inner_last = place(begin.end - start);
  }
  TS_MEMBER_INLINE static int32_t place(int32_t at) { return at < 0 ? 0 : at > kSegment ? kSegment : at; }
  TS_MEMBER_INLINE int32_t first_tile() const { return first / kTile; }
  TS_MEMBER_INLINE int32_t last_tile() const { return (last + kTile - 1) / kTile; }
};

TS_DEVICE_INLINE bool column_sees(int32_t column, int32_t place) { return place >= column_firsts[column] && place < column_lasts[column]; }

template <class Work>
TS_DEVICE_INLINE void load_queries(const AttentionArgs& args, const SegmentBlock& block) {
  const int32_t dim = args.layer.head_dim, thread = thread_index();
  const float scale = args.scale * kLog2E;
  for (int32_t i = thread; i < dim * Work::kQuads; i += Work::kBlock) {
    const int32_t d = i % dim, quad = i / dim;
    float numbers[4];
    TS_EVERY_LANE
    for (int c = 0; c < 4; ++c) {  // the loads have no condition, so that none waits for another
      const int32_t column = quad * 4 + c < block.columns ? quad * 4 + c : 0;
      const float* q = args.q + static_cast<int64_t>(block.tile.first + block.row(column)) * args.q_stride;
      numbers[c] = q[static_cast<int64_t>(block.head(column)) * dim + d];
    }
    Words4 own;
    TS_EVERY_LANE
    for (int c = 0; c < 4; ++c) own[c] = quad * 4 + c < block.columns ? bits_of(numbers[c] * scale) : 0;
    float_room[d * Work::kQuads + quad] = own;
  }
  if (thread >= Work::kColumns) return;
  const bool there = thread < block.columns;
  const int32_t row = there ? block.row(thread) : 0;
  const Seen seen = block.seen(args, row);
  const int32_t start = block.segment * kSegment;
  column_heads[thread] = block.head(there ? thread : 0);
  column_rows[thread] = block.tile.first + row;
  column_aways[thread] = start - seen.position;
  column_firsts[thread] = there ? SeenPart::place(seen.begin - start) : kSegment;
  column_lasts[thread] = there ? SeenPart::place(seen.end - start) : 0;
}

struct Always {
  constexpr bool operator()() const { return true; }
};
struct Perhaps {
  constexpr bool operator()() const { return false; }
};

// The scores of a thread's positions, which are kBlock apart.
template <class Work>
struct FloatScores {
  float at[Work::kPositions][Work::kColumns];

  // Adds the products with words [first, first + kWords) of each position's K. all: whether K has that many words left.
  template <class All>
  TS_MEMBER_INLINE void add(const uint32_t* const (&keys)[Work::kPositions], int32_t dim, int32_t first, const All& all) {
    typedef typename Work::Pages Pages;
    uint32_t loaded[Work::kPositions][Work::kWords];
    TS_EVERY_LANE
    for (int w = 0; w < Work::kWords; ++w) {
      const int32_t last = Pages::key_words(dim) - 1, word = all() || first + w < last ? first + w : last;
      TS_EVERY_LANE
      for (int i = 0; i < Work::kPositions; ++i) loaded[i][w] = keys[i][word * TS_PAGE_TOKENS];
    }
    TS_EVERY_LANE
    for (int n = 0; n < Work::kWords * Pages::kParts; ++n) {
      const int32_t d = first * Pages::kParts + n;
      if (!all() && d >= dim) break;
      TS_EVERY_LANE
      for (int quad = 0; quad < Work::kQuads; ++quad) {
        const Words4 query = float_room[d * Work::kQuads + quad];
        TS_EVERY_LANE
        for (int i = 0; i < Work::kPositions; ++i) {
          const float key = Pages::part(loaded[i][n / Pages::kParts], n % Pages::kParts);
          TS_EVERY_LANE
          for (int c = 0; c < 4; ++c) at[i][quad * 4 + c] = fma(float_of(query[c]), key, at[i][quad * 4 + c]);
        }
      }
    }
  }
  TS_MEMBER_INLINE void find(const AttentionArgs& args, const SegmentBlock& block) {
    typedef typename Work::Pages Pages;
    const int32_t dim = args.layer.head_dim;
    const PageLayout& layout = args.pages;
    const uint32_t* keys[Work::kPositions];
    TS_EVERY_LANE
    for (int i = 0; i < Work::kPositions; ++i) {
      const int32_t place = thread_index() + i * Work::kBlock, page = page_in_segment(block, place / TS_PAGE_TOKENS);
      keys[i] = reinterpret_cast<const uint32_t*>(layout.keys(page, block.kv_head)) + place % TS_PAGE_TOKENS;
      TS_EVERY_LANE
      for (int c = 0; c < Work::kColumns; ++c) at[i][c] = 0.0f;
    }
    int32_t first = 0;
    for (; (first + Work::kWords) * Pages::kParts <= dim; first += Work::kWords) add(keys, dim, first, Always{});
    for (; first < Pages::key_words(dim); first += Work::kWords) add(keys, dim, first, Perhaps{});
  }
  TS_MEMBER_INLINE void store(const AttentionArgs& args) const {
    const bool adjusts = args.soft_cap > 0.0f || args.slopes != nullptr, has_places = args.places.place_of != nullptr;
    TS_EVERY_LANE
    for (int i = 0; i < Work::kPositions; ++i) {
      const int32_t place = thread_index() + i * Work::kBlock;
      TS_EVERY_LANE
      for (int quad = 0; quad < Work::kQuads; ++quad) {
        Words4 own;
        TS_EVERY_LANE
        for (int c = 0; c < 4; ++c) own[c] = bits_of(at[i][quad * 4 + c]);
        float_room[place * Work::kQuads + quad] = own;
      }
    }
    if (!adjusts && !has_places) return;
    for (int32_t i = 0; i < Work::kPositions * Work::kQuads; ++i) {
      const int32_t place = thread_index() + i / Work::kQuads * Work::kBlock, quad = i % Work::kQuads;
      Words4 own = float_room[place * Work::kQuads + quad];
      TS_EVERY_LANE
      for (int c = 0; c < 4; ++c) {
        const int32_t column = quad * 4 + c, away = column_aways[column] + place;
        float score = float_of(own[c]);
        if (adjusts) score = adjusted(args, column_heads[column], away, score);
        if (has_places && column_sees(column, place)) score = placed(args, column_heads[column], column_rows[column], away, score);
        own[c] = bits_of(score);
      }
      float_room[place * Work::kQuads + quad] = own;
    }
  }
};

TS_DEVICE_INLINE float float_peak_before(int32_t column, int32_t first, int32_t tile) {
  float peak = kLowest;
  for (int32_t before = first; before < tile; ++before) peak = larger(float_peaks[before * kFloatColumns + column], peak);
  return peak;
}

// The peaks of a warp's tiles and quads of columns.
template <class Work>
TS_DEVICE_INLINE void find_peaks() {
  const int32_t lane = warp_lane();
  for (int32_t unit = warp_index(); unit < kSegmentTiles * Work::kQuads; unit += Work::kBlock / kWarp) {
    const int32_t tile = unit / Work::kQuads, quad = unit % Work::kQuads, place = tile * kTile + lane;
    const Words4 first = float_room[place * Work::kQuads + quad], second = float_room[(place + kWarp) * Work::kQuads + quad];
    TS_EVERY_LANE
    for (int c = 0; c < 4; ++c) {
      const int32_t column = quad * 4 + c;
      float peak = column_sees(column, place) ? float_of(first[c]) : kLowest;
      peak = larger(column_sees(column, place + kWarp) ? float_of(second[c]) : kLowest, peak);
      TS_EVERY_LANE
      for (int mask = kWarp / 2; mask > 0; mask /= 2) peak = larger(peak, shuffle_across(peak, mask));
      if (lane == 0) float_peaks[tile * kFloatColumns + column] = peak;
    }
  }
}

// Turns scores into weights, in the same order.
template <class Work>
TS_DEVICE_INLINE void weigh_tiles(int32_t first_tile) {
  const int32_t lane = warp_lane();
  for (int32_t unit = warp_index(); unit < kSegmentTiles * Work::kQuads; unit += Work::kBlock / kWarp) {
    const int32_t tile = unit / Work::kQuads, quad = unit % Work::kQuads, place = tile * kTile + lane;
    Words4 own[2] = {float_room[place * Work::kQuads + quad], float_room[(place + kWarp) * Work::kQuads + quad]};
    TS_EVERY_LANE
    for (int c = 0; c < 4; ++c) {
      const int32_t column = quad * 4 + c, at = tile * kFloatColumns + column;
      const float before = float_peak_before(column, first_tile, tile), peak = larger(float_peaks[at], before);
      float weights[2];
      TS_EVERY_LANE
      for (int i = 0; i < 2; ++i) {
        weights[i] = column_sees(column, place + i * kWarp) ? exp2_negative(float_of(own[i][c]) - peak) : 0.0f;
        own[i][c] = bits_of(weights[i]);
      }
      const float first = weights[0] + shuffle_across(weights[0], kLanes), second = weights[1] + shuffle_across(weights[1], kLanes);
      if (lane < kLanes) float_totals[at * kLanes + lane] = first + second;
      if (lane == 0) float_rescales[at] = exp2_negative(before - peak);
    }
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) float_room[(place + i * kWarp) * Work::kQuads + quad] = own[i];
  }
}

// Does the same as add_totals of segments_whole.cpp.
template <class Work>
TS_DEVICE_INLINE void add_float_totals(const AttentionArgs& args, const SegmentBlock& block, const SeenPart& part) {
  const int32_t lane = thread_index() % kLanes;
  for (int32_t column = thread_index() / kLanes; column < (Work::kColumns + 1) / 2 * 2; column += Work::kBlock / kLanes) {
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
}

// A thread's part of one page's V: some dimensions of all positions.
template <class Work>
struct PageWords {
  typedef typename Work::Pages Pages;
  static constexpr int kWords = TS_PAGE_TOKENS / Pages::kParts;
  uint32_t words[Work::kDims][kWords];

  TS_MEMBER_INLINE void load(const uint8_t* keys, const PageLayout& layout, int32_t dim, const int32_t (&dims)[Work::kDims]) {
    const uint32_t* values = reinterpret_cast<const uint32_t*>(keys + layout.key_bytes);
    TS_EVERY_LANE
    for (int w = 0; w < kWords; ++w) {
      TS_EVERY_LANE
      for (int i = 0; i < Work::kDims; ++i) words[i][w] = values[Pages::value_word(w, dims[i], dim)];
    }
  }
  TS_MEMBER_INLINE float number(int i, int position) const { return Pages::part(words[i][position / Pages::kParts], position % Pages::kParts); }
};

// A thread's sums of V. They belong to dimensions that are `step` apart, and to some columns.
template <class Work>
struct FloatSums {
  float at[Work::kDims][Work::kValueColumns];

  TS_MEMBER_INLINE void rescale(int32_t tile, int32_t column) {
    TS_EVERY_LANE
    for (int c = 0; c < Work::kValueColumns; ++c) {
      const float by = float_rescales[tile * kFloatColumns + column + c];
      TS_EVERY_LANE
      for (int i = 0; i < Work::kDims; ++i) at[i][c] = at[i][c] * by;
    }
  }
  // place: the place of the page's first position in the segment; all: whether each column sees the whole page.
  TS_MEMBER_INLINE void add(const PageWords<Work>& values, int32_t place, int32_t column, bool all) {
    constexpr int kSome = Work::kValueColumns < 4 ? Work::kValueColumns : 4;
    TS_EVERY_LANE
    for (int p = 0; p < TS_PAGE_TOKENS; ++p) {
      TS_EVERY_LANE
      for (int from = 0; from < Work::kValueColumns; from += kSome) {
        const Words4 weights = float_room[(place + p) * Work::kQuads + (column + from) / 4];
        TS_EVERY_LANE
        for (int c = 0; c < kSome; ++c) {
          // skipped, because 0 times a number that is not finite is not 0
          if (!all && !column_sees(column + from + c, place + p)) continue;
          const float weight = float_of(kSome == 2 && column % 4 != 0 ? weights[2 + c] : weights[c]);
          TS_EVERY_LANE
          for (int i = 0; i < Work::kDims; ++i) at[i][from + c] = fma(weight, values.number(i, p), at[i][from + c]);
        }
      }
    }
  }
};

template <class Work>
TS_DEVICE_INLINE void add_float_values(const AttentionArgs& args, const SegmentBlock& block, const SeenPart& part) {
  const int32_t dim = args.layer.value_dim, step = (dim + Work::kDims * kWarp - 1) / (Work::kDims * kWarp) * kWarp;
  const PageLayout& layout = args.pages;
  for (int32_t item = thread_index(); item < Work::kColumns / Work::kValueColumns * step; item += Work::kBlock) {
    const int32_t column = item / step * Work::kValueColumns;
    if (column >= block.columns) break;
    int32_t dims[Work::kDims];
    TS_EVERY_LANE
    for (int i = 0; i < Work::kDims; ++i) dims[i] = item % step + i * step < dim ? item % step + i * step : dim - 1;
    FloatSums<Work> sums = {};
    const int32_t first_page = part.first / TS_PAGE_TOKENS, last_page = (part.last - 1) / TS_PAGE_TOKENS;
    PageWords<Work> current, next;
    current.load(layout.keys(page_in_segment(block, first_page), block.kv_head), layout, dim, dims);
    for (int32_t page = first_page; page <= last_page; ++page) {
      next.load(layout.keys(page_in_segment(block, page < last_page ? page + 1 : page), block.kv_head), layout, dim, dims);
      const int32_t place = page * TS_PAGE_TOKENS;
      const bool all = place >= part.inner_first && place + TS_PAGE_TOKENS <= part.inner_last && column + Work::kValueColumns <= block.columns;
      if (page % kTilePages == 0 || page == first_page) sums.rescale(page / kTilePages, column);
      if (all) sums.add(current, place, column, true);
      else sums.add(current, place, column, false);
      current = next;
    }
    TS_EVERY_LANE
    for (int c = 0; c < Work::kValueColumns; ++c) {
      const Result result(args, block, column + c);
      if (!result.any) continue;
      TS_EVERY_LANE
      for (int i = 0; i < Work::kDims; ++i) {
        const int32_t d = item % step + i * step;
        if (d < dim) result.sums[d] = result.whole ? sums.at[i][c] * float_inverses[column + c] : sums.at[i][c];
      }
    }
  }
}

template <class Work>
TS_DEVICE_INLINE void attend_floats(const AttentionArgs& args) {
  const SegmentBlock block(args, Work::kColumns, static_cast<int32_t>(block_index()));
  if (block.columns == 0) return;
  const SeenPart part(block);
  load_queries<Work>(args, block);
  barrier();
  FloatScores<Work> scores;
  scores.find(args, block);
  barrier();
  scores.store(args);
  barrier();
  find_peaks<Work>();
  barrier();
  weigh_tiles<Work>(part.first_tile());
  barrier();
  add_float_totals<Work>(args, block, part);
  barrier();
  add_float_values<Work>(args, block, part);
}

template <class Pages>
using OneQueryRow = FloatWork<Pages, kOneRowColumns / 4, kThreads, 1, 2>;
template <class Pages>
using ManyQueryRows = FloatWork<Pages, kFloatColumns / 4, kPromptThreads, 2, 8>;

TS_KERNEL(attention_f32, AttentionArgs) { attend_floats<OneQueryRow<FloatPages>>(args); }
TS_KERNEL(attention_bf16, AttentionArgs) { attend_floats<OneQueryRow<PairPages>>(args); }
TS_KERNEL(attention_prompt_f32, AttentionArgs) { attend_floats<ManyQueryRows<FloatPages>>(args); }
TS_KERNEL(attention_prompt_bf16, AttentionArgs) { attend_floats<ManyQueryRows<PairPages>>(args); }

}  // namespace cuda
}  // namespace twostroke
