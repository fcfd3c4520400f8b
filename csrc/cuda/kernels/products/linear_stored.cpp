// Products of weights that keep a file's codes with one row of activations, or with rows that each have a matrix of their own. Each step
// gives float(whole sum) * step - minimum * float(sum of the rounded activations). These are added from left to right within a group of 256
// columns. A scale of the activations multiplies each step or the group's sum: see src/twostroke/ops/stored_layout.py.
// A block rounds its row once, into shared memory, and then goes through strips of 32 rows of the matrix. A thread has four rows of a whole group, whose steps it adds without other threads. It loads codes some steps before they are needed, also
// across the end of a strip. Then
// one warp adds the groups in their order, while the others have begun the next strip.
// Each common kind has a kernel, whose layout the compiler knows; one more kernel is for all other kinds.
#include "twostroke/cuda/products/chunks.h"
#include "twostroke/cuda/products/round_rows.h"
#include "twostroke/cuda/products/stored_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kStoredQuads = kStoredStrip / 4;
constexpr int32_t kStoredRound = kStoredThreads / kStoredQuads;  // the most groups that a block has at once
constexpr int32_t kStoredColumns = kStoredRound * static_cast<int32_t>(kStoredGroup);

TS_SHARED(uint32_t, stored_row, kStoredColumns / 4);
// scales of the row: for fine kinds one for kFineColumns columns, else one for a group
TS_SHARED(float, stored_scales, kStoredColumns / kFineColumns);
TS_SHARED(int32_t, stored_ones, kStoredColumns / 16);  // sums of the rounded row, of each 16 columns where steps have 16, else of each 32
TS_SHARED(Words4, stored_totals, 2 * kStoredRound * kStoredQuads);  // sums of groups, of this round and the one before: four rows each

// Rounds a row of activations for the kind with this layout. A thread has four columns of each 128.
struct StoredRounding {
  const StoredLayout& layout;
  const FloatRow row;

  // Keeps columns k .. k + 3, and the sum of the 16 or 32 columns that have it.
  TS_MEMBER_INLINE void keep(int32_t k, uint32_t word) const {
    const int32_t wide = layout.sub == 16 ? 16 : 32, sum = sum_of_threads(dot4(0x01010101u, static_cast<int32_t>(word), 0), wide / 4);
    stored_row[k / 4] = word;
    if (k % wide == 0) stored_ones[k / wide] = sum;
  }
  // Rounds a group. Columns after the row's end are zeros, so that they add nothing.
  TS_MEMBER_INLINE void group(int32_t number) const {
    const int32_t own = number * static_cast<int32_t>(kStoredGroup) + 4 * warp_lane();
    Words4 four[2];
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) {
      four[i] = row.turn(row.four(own + i * kWarpColumns));
    }
    const GroupRounding rounding(most_of_threads(most_of(four[1], most_of(four[0], 0)), kWarp));
    TS_EVERY_LANE
    for (int i = 0; i < 2; ++i) keep(own + i * kWarpColumns, rounding.rounded(four[i]));
    if (warp_lane() == 0) stored_scales[number] = rounding.scale;
  }
  // Rounds 128 columns, of which each kFineColumns have a scale.
  TS_MEMBER_INLINE void fine(int32_t first) const {
    const int32_t k = first + 4 * warp_lane();
    const Words4 four = row.four(k);
    const GroupRounding rounding(most_of_threads(most_of(four, 0), kFineThreads));
    keep(k, rounding.rounded(four));
    if (k % kFineColumns == 0) stored_scales[k / static_cast<int32_t>(kFineColumns)] = rounding.scale;
  }
};

// The codes and numbers of 32 columns of four rows.
struct StoredStep {
  StoredColumns parts[4];
  StoredNumbers numbers;

  // known: whether the compiler knows the layout.
  TS_MEMBER_INLINE void load(const StoredLayout& layout, const StoredRows& rows, int32_t asked, bool known) {
    const int32_t k = rows.within(asked);
    TS_EVERY_LANE
    for (int p = 0; p < 4; ++p) {
      if (known && 8 * p % StoredColumns::plane(layout) != 0) parts[p].load_after(layout, rows, k, p, parts[p - 1]);
      else parts[p].load(layout, rows, k, p);
    }
    numbers.load(layout, rows, k);
  }
};

// The current place of a block: some groups of a strip, from `span` on. See StripPlace.
struct StoredPlace {
  int32_t unit, half, span;

  TS_MEMBER_INLINE StoredPlace after(const LinearArgs& args, int32_t round) const {
    if (span + round < args.groups) return {unit, half, span + round};
    const int32_t other = args.gated != 0 ? 1 - half : 0;
    return {other == 0 ? unit + static_cast<int32_t>(args.parts) : unit, other, 0};
  }
  TS_MEMBER_INLINE int64_t row(const LinearArgs& args) const { return unit * int64_t{kStoredStrip} + half * (args.rows / 2); }
};

// kKind: the kind of the weights, or kAnyKind. kAhead: the steps whose loads are under way.
template <int32_t kKind, int kAhead>
struct StoredStrip {
  static constexpr StoredLayout kLayout = stored_layout(kKind == kAnyKind ? TS_W_FLAT8 : kKind);
  static constexpr int32_t kPart = 32 * kAhead, kParts = static_cast<int32_t>(kStoredGroup) / kPart;

  const LinearArgs& args;
  const StoredLayout& layout;
  const uint8_t* data;
  int32_t groups, round, quad;  // round: the number of groups that the block has at once
  StoredStep coming[kAhead];
  StoredSuper super;
  int32_t wholes[2][4];  // sums of 32 columns; a step of 16 columns has its own
  int32_t ones;  // the sum of the activations of a step that has more than 32 columns
  float totals[4];
  float sum, gate;  // the sum of the row that this thread of the folding warp has

  TS_MEMBER_INLINE explicit StoredStrip(const LinearArgs& of)
      : args(of), layout(kKind == kAnyKind ? of.stored : kLayout), data(nullptr), groups(static_cast<int32_t>(of.groups)),
        round(threads() / kStoredQuads), quad(thread_index() % kStoredQuads), sum(0.0f), gate(0.0f) {}

  // This thread's group. After the last group it is the last one again.
  TS_MEMBER_INLINE int32_t group_at(const StoredPlace& place) const {
    const int32_t asked = place.span + thread_index() / kStoredQuads;
    return asked < groups ? asked : groups - 1;
  }
  TS_MEMBER_INLINE StoredRows rows_at(const StoredPlace& place) const {
    const int32_t group = group_at(place), left = static_cast<int32_t>(args.padded) - group * static_cast<int32_t>(kStoredGroup);
    const int64_t row = place.row(args);
    return {layout, data + row / kPanel * args.panel_bytes + group * layout.group_bytes,
            left < kStoredGroup ? left : static_cast<int32_t>(kStoredGroup), static_cast<int32_t>(row % kPanel) + 4 * quad};
  }

  // Rounds groups of the row from `first` on, as many as the block has at once.
  TS_MEMBER_INLINE void hold_row(int64_t token, int32_t first) {
    const int32_t warps = threads() / kWarp, wide = round * static_cast<int32_t>(kStoredGroup);
    const int64_t begin = first * kStoredGroup, left = divide_up(args.padded - begin, kStoredGroup) * kStoredGroup, columns = args.columns > begin ? args.columns - begin : 0;
    const StoredRounding rounding = {layout, {args.x + token * args.x_stride + begin, columns, left < wide ? left : wide, 1, 1, args.rotated != 0}};
    TS_ONE_BY_ONE
    for (int32_t group = warp_index(); group * static_cast<int32_t>(kStoredGroup) < rounding.row.padded; group += warps) {
      if (layout.fine == 0) {
        rounding.group(group);
        continue;
      }
      TS_EVERY_LANE
      for (int i = 0; i < 2; ++i) rounding.fine(group * static_cast<int32_t>(kStoredGroup) + i * kWarpColumns);
    }
    barrier();
  }

  // Adds the sums of the step, or of half of it, which ends with them.
  TS_MEMBER_INLINE void add_sums(const StoredNumbers& numbers, int half, int32_t ones_of_step, float fine) {
    float scales[4], minima[4];
    numbers.factors(layout, super, half, scales, minima);
    const float taken = layout.fine != 0 ? static_cast<float>(ones_of_step) * fine : static_cast<float>(ones_of_step);
    const int32_t excess = layout.offset * ones_of_step;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      const float scale = layout.fine != 0 ? scales[r] * fine : scales[r];
      totals[r] = fma(static_cast<float>(wholes[half][r] - excess), scale, totals[r]);
      if (layout.minimum != 0) totals[r] = fma(minima[r], taken, totals[r]);
    }
  }

  // Adds 32 columns of the group, from column `at` on. first: the column of the kept row at which the group begins.
  TS_MEMBER_INLINE void add_step(const StoredStep& step, int32_t first, int32_t at) {
    const bool begins = layout.sub <= 32 || at % layout.sub == 0, ends = layout.sub <= 32 || (at + 32) % layout.sub == 0;
    if (begins) {
      TS_EVERY_LANE
      for (int i = 0; i < 8; ++i) wholes[i / 4][i % 4] = 0;
      ones = 0;
    }
    TS_EVERY_LANE
    for (int h = 0; h < 2; ++h) {
      const int own = kKind == kAnyKind || layout.sub == 16 ? h : 0;
      const Words4 x = four_of(stored_row, (first + at) / 16 + h);
      TS_EVERY_LANE
      for (int p = 0; p < 2; ++p) {
        uint32_t low[4], high[4];
        step.parts[2 * h + p].unpack(layout, 2 * h + p, low, high);
        TS_EVERY_LANE
        for (int r = 0; r < 4; ++r) {
          wholes[own][r] = dot4(low[r], static_cast<int32_t>(x[2 * p]), wholes[own][r]);
          wholes[own][r] = dot4(high[r], static_cast<int32_t>(x[2 * p + 1]), wholes[own][r]);
        }
      }
    }
    const float fine = layout.fine != 0 ? stored_scales[(first + at) / static_cast<int32_t>(kFineColumns)] : 1.0f;
    if (layout.sub == 16) {
      add_sums(step.numbers, 0, stored_ones[(first + at) / 16], fine);
      add_sums(step.numbers, 1, stored_ones[(first + at) / 16 + 1], fine);
      return;
    }
    ones += stored_ones[(first + at) / 32];
    if (!ends) return;
    if (kKind == kAnyKind) {
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) wholes[0][r] += wholes[1][r];
    }
    add_sums(step.numbers, 0, ones, fine);
  }

  // Asks for the steps after those whose loads begin first.
  TS_MEMBER_INLINE void load_later_steps(const StoredRows& rows) const {
    if (kKind == kAnyKind) return;
    TS_ONE_BY_ONE
    for (int32_t at = kPart; at < rows.columns; at += 32) StoredColumns::load_step_soon(layout, rows, at);
  }

  // Adds this thread's group at a place to `totals`. Meanwhile it begins to load the group that comes next.
  TS_MEMBER_INLINE void add_group(StoredRows& rows, int32_t first, const StoredPlace& there) {
    const int32_t columns = rows.columns;
    StoredSuper super_following = super;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) totals[r] = 0.0f;
    TS_ONE_BY_ONE
    for (int32_t part = 0; part < kParts; ++part) {
      if (part == kParts - 1) {
        rows = rows_at(there);
        super_following.load(layout, rows);
      }
      TS_EVERY_LANE
      for (int s = 0; s < kAhead; ++s) {
        const int32_t at = part * kPart + 32 * s;
        if (at < columns) add_step(coming[s], first, at);
        coming[s].load(layout, rows, (part + 1) % kParts * kPart + 32 * s, kKind != kAnyKind);
      }
    }
    super = super_following;
  }

  // Adds the groups of a round, in their order. buffer: where its sums are; held: the group at which the kept row begins.
  TS_MEMBER_INLINE void fold(const StoredPlace& place, int32_t buffer, int32_t held) {
    constexpr int32_t kAtOnce = 8;
    const int32_t left = groups - place.span, count = left < round ? left : round;
    TS_ONE_BY_ONE
    for (int32_t first = 0; first < count; first += kAtOnce) {
      float found[kAtOnce], scales[kAtOnce];
      TS_EVERY_LANE
      for (int i = 0; i < kAtOnce; ++i) {
        const int32_t c = first + i < count ? first + i : count - 1;
        found[i] = float_of(word_of(stored_totals, (buffer * kStoredRound + c) * kStoredStrip + warp_lane()));
        scales[i] = layout.fine != 0 ? 1.0f : stored_scales[place.span + c - held];
      }
      TS_EVERY_LANE
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i < count) sum = fma(found[i], scales[i], sum);
    }
  }

  TS_MEMBER_INLINE void run() {
    const uint32_t parts = static_cast<uint32_t>(args.parts), block = static_cast<uint32_t>(block_index());
    const int64_t token = block / parts;
    const int32_t strips = static_cast<int32_t>(strips_of(args, kStoredStrip));
    if (args.matrices != nullptr) wait_for_earlier();
    const int64_t matrix = matrix_of(args, token);
    data = panel_of(args, matrix, 0);
    StoredPlace place = {static_cast<int32_t>(block % parts), 0, 0};
    StoredRows rows = rows_at(place);
    super.load(layout, rows);
    TS_EVERY_LANE
    for (int s = 0; s < kAhead; ++s) coming[s].load(layout, rows, 32 * s, kKind != kAnyKind);
    load_later_steps(rows);
    wait_for_earlier();
    const bool whole = groups <= round;  // otherwise each round's part of the row is rounded again
    const int32_t warps = threads() / kWarp;
    int32_t folds = 0, buffer = 0;  // folds: the warp that folds this strip
    bool kept = false;
    TS_ONE_BY_ONE
    while (place.unit < strips) {
      if (!kept || !whole) {
        if (kept) barrier();  // the warp that folds reads the scales
        hold_row(token, place.span);
        kept = true;
      }
      const StoredPlace following = place.after(args, round);
      add_group(rows, (group_at(place) - place.span) * static_cast<int32_t>(kStoredGroup), following.unit < strips ? following : place);
      const Words4 four = {bits_of(totals[0]), bits_of(totals[1]), bits_of(totals[2]), bits_of(totals[3])};
      stored_totals[buffer * kStoredRound * kStoredQuads + thread_index()] = four;
      barrier();
      if (warp_index() == folds) {
        fold(place, buffer, place.span);
        if (following.span == 0) {
          finish_half(args, matrix, token, int64_t{place.unit} * kStoredStrip + warp_lane(), place.half, sum, gate);
          sum = 0.0f;
        }
      }
      buffer = 1 - buffer;
      if (following.unit != place.unit) folds = folds + 1 < warps ? folds + 1 : 0;
      place = following;
    }
  }
};

// A block multiplies one row of x by every parts-th strip.
#define TS_STORED(name, kind, ahead)                                                               \
  TS_KERNEL_AHEAD(name, LinearArgs) {                                                              \
    at_most_threads<kStoredThreads>(); /* with this many registers, a multiprocessor has this many threads */ \
    StoredStrip<kind, ahead>(args).run();                                                          \
  }
TS_STORED(linear_stored, kAnyKind, 1)
TS_STORED(linear_stored_flat4, TS_W_FLAT4, 4)
TS_STORED(linear_stored_flat8, TS_W_FLAT8, 2)
TS_STORED(linear_stored_super4_min, TS_W_SUPER4_MIN, 4)
TS_STORED(linear_stored_super6, TS_W_SUPER6, 2)
#undef TS_STORED

}  // namespace cuda
}  // namespace twostroke
