// Products of weights that keep a file's codes with one row of activations, or with rows that each have a matrix of their own. Each step
// gives float(whole sum) * step - minimum * float(sum of the rounded activations). These are added from left to right within a group of 256
// columns. A scale of the activations multiplies each step or the group's sum: see src/twostroke/ops/stored_layout.py.
// A block rounds its row once, into shared memory, and then goes through strips of 16 rows of the matrix in rounds. In a round a warp has
// one group of each row, whose codes are loaded while the last round's sums are folded.
#include "twostroke/cuda/products/chunks.h"
#include "twostroke/cuda/products/round_rows.h"
#include "twostroke/cuda/products/stored.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kStoredWarps = kStoredThreads / kWarp, kStoredQuads = kStoredStrip / 4;
// a thread has one piece of a group, for four rows
constexpr int32_t kPieces = 8, kPieceColumns = static_cast<int32_t>(kStoredGroup) / kPieces;
constexpr int32_t kMostParts = 2 * kPieces;  // parts of a group: pieces, or halves of pieces
constexpr int32_t kStoredParts = kStoredWarps * kMostParts;
constexpr int32_t kStoredGroups = kStoredColumns / static_cast<int32_t>(kStoredGroup);

TS_SHARED(uint32_t, stored_row, kStoredColumns / 4);
// scales of the row: for fine kinds one for kFineColumns columns, else one for a group
TS_SHARED(float, stored_scales, kStoredColumns / kFineColumns);
TS_SHARED(Words4, stored_wholes, kStoredParts * kStoredQuads);  // sums of four rows
TS_SHARED(Words4, stored_steps, kStoredParts * kStoredQuads);  // factors of these sums
TS_SHARED(Words4, stored_minima, kStoredParts * kStoredQuads);
TS_SHARED(int32_t, stored_ones, kStoredParts);  // sums of the activations

struct StoredHeld {
  TS_MEMBER_INLINE void word(int32_t at, uint32_t four) { stored_row[at] = four; }
  TS_MEMBER_INLINE void group(int32_t at, float scale, int32_t) { stored_scales[at] = scale; }
  TS_MEMBER_INLINE void fine(int32_t at, float scale) { stored_scales[at] = scale; }
};

// Rounds groups of the row from `first` on, as many as fit. kBetween: the call is between two strips, where few registers are free.
template <bool kBetween>
TS_DEVICE_INLINE void hold_row(const LinearArgs& args, int64_t token, int32_t first) {
  StoredHeld held;
  if (args.stored.fine == 0) return hold_groups<kBetween>(args, token, first, kStoredGroups, kStoredGroup, kStoredWarps, held);
  const int64_t begin = first * kStoredGroup, left = args.padded - begin, columns = args.columns > begin ? args.columns - begin : 0;
  const FloatRow row(args.x + token * args.x_stride + begin, columns, left < kStoredColumns ? left : kStoredColumns, kFineColumns, 0, false);
  for (int32_t k = warp_index() * kWarpColumns; k < row.padded; k += kStoredWarps * kWarpColumns) round_fine(row, k, held);
  barrier();
}

// A block's matrix and the layout of its kind.
struct StoredMatrix {
  const StoredLayout& layout;
  const uint8_t* data;
  int64_t panel_bytes;
  int32_t padded, groups, kinds, scale_bytes;  // kinds: 1 for scales alone, 2 for scales and minima

  TS_MEMBER_INLINE StoredMatrix(const LinearArgs& args, int64_t matrix)
      : layout(args.stored), data(panel_of(args, matrix, 0)), panel_bytes(args.panel_bytes), padded(static_cast<int32_t>(args.padded)),
        groups(static_cast<int32_t>(args.groups)), kinds(args.stored.minimum != 0 ? 2 : 1),
        scale_bytes(args.stored.super != 0 ? 1 : args.stored.floats != 0 ? 4 : 2) {}

  TS_MEMBER_INLINE bool halves() const { return layout.sub == 16; }
  TS_MEMBER_INLINE int32_t columns(int32_t group) const {
    const int32_t rest = padded - group * static_cast<int32_t>(kStoredGroup);
    return rest < kStoredGroup ? rest : static_cast<int32_t>(kStoredGroup);
  }
  // The step of a piece, or the first of its two steps.
  TS_MEMBER_INLINE int32_t step_of(int32_t piece) const {
    return layout.sub == 16 ? 2 * piece : layout.sub == 32 ? piece : layout.sub == 64 ? piece / 2 : piece / 4;
  }
};

TS_DEVICE_INLINE uint64_t load_eight(const uint8_t* from) { return *reinterpret_cast<const uint64_t*>(from); }
TS_DEVICE_INLINE uint32_t load_four(const uint8_t* from) { return *reinterpret_cast<const uint32_t*>(from); }

// The stored scales of a piece for four rows, of both steps where it has two.
struct StoredHead {
  // more: for floats the other half of each number; for super kinds the group's scale and its minimum
  uint64_t steps[2], minima[2], more[2];

  TS_MEMBER_INLINE void load(const StoredMatrix& matrix, const uint8_t* group, int32_t columns, int32_t piece, int32_t column) {
    const StoredLayout& layout = matrix.layout;
    const int32_t bytes = static_cast<int32_t>(kPanel) * matrix.scale_bytes;
    const int32_t all = columns / layout.sub * bytes;  // bytes of one kind
    const uint8_t* from = group + (layout.super != 0 ? matrix.kinds * 2 * static_cast<int32_t>(kPanel) : 0) + matrix.step_of(piece) * bytes +
                          column * matrix.scale_bytes;
    const bool two = matrix.halves(), minimum = layout.minimum != 0;
    const uint8_t *second = from + (two ? bytes : 0), *taken = from + (minimum ? all : 0), *taken_second = second + (minimum ? all : 0);
    // A number that a kind does not have is loaded from a valid address and not used, so that the loads need no branches.
    if (layout.super != 0) {
      more[0] = load_eight(group + column * 2);
      more[1] = load_eight(group + (minimum ? kPanel + column : column) * 2);
      steps[0] = load_four(from);
      steps[1] = load_four(second);
      minima[0] = load_four(taken);
      minima[1] = load_four(taken_second);
    } else if (layout.floats == 0) {
      steps[0] = load_eight(from);
      steps[1] = load_eight(second);
      minima[0] = load_eight(taken);
      minima[1] = load_eight(taken_second);
      more[0] = more[1] = 0;
    } else {  // pieces of kinds with minima have one step
      const uint8_t* other = minimum ? taken : second;
      steps[0] = load_eight(from);
      more[0] = load_eight(from + 8);
      steps[1] = minima[0] = load_eight(other);
      more[1] = load_eight(other + 8);
      minima[1] = 0;
    }
  }
  static TS_MEMBER_INLINE uint32_t half_bits(uint64_t four, int row) { return bits_of(widen_half(static_cast<uint16_t>(four >> (16 * row)))); }
  static TS_MEMBER_INLINE uint32_t float_bits(uint64_t low, uint64_t high, int row) {
    return static_cast<uint32_t>((row < 2 ? low : high) >> (32 * (row % 2)));
  }
  // Four rows' factors of step `which` of the piece, as floats.
  TS_MEMBER_INLINE Words4 scales(const StoredLayout& layout, int which) const {
    Words4 found;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      if (layout.super != 0) {
        const float whole = static_cast<float>(static_cast<int8_t>(steps[which] >> (8 * r)));
        found[r] = bits_of(whole * float_of(half_bits(more[0], r)));
      } else {
        found[r] = layout.floats != 0 ? float_bits(steps[which], more[which], r) : half_bits(steps[which], r);
      }
    }
    return found;
  }
  TS_MEMBER_INLINE Words4 minimums(const StoredLayout& layout, int which) const {
    Words4 found;
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      if (layout.super != 0) {
        found[r] = bits_of(static_cast<float>(minima[which] >> (8 * r) & 255) * float_of(half_bits(more[1], r)));
      } else {
        found[r] = layout.floats != 0 ? float_bits(minima[0], more[1], r) : half_bits(minima[which], r);
      }
    }
    return found;
  }
};

// The codes of one piece: 32 columns of four rows, in kWords words for each row. 2 means planes of two bits without nibbles; 3 means three
// bits.
template <int kWords>
struct StoredPiece {
  static constexpr int kHigh = kWords - 4;  // words with the bits above a nibble; with 4, codes are bytes
  Words4 words[kWords];
  StoredHead head;

  // Where there is no such group or piece, the last one is loaded again.
  TS_MEMBER_INLINE void load(const StoredMatrix& matrix, int64_t row, int32_t asked) {
    const int32_t number = asked < matrix.groups ? asked : matrix.groups - 1;
    const int32_t own = warp_lane() / kStoredQuads, column = static_cast<int32_t>(row % kPanel) + warp_lane() % kStoredQuads * 4;
    const int32_t columns = matrix.columns(number), last = columns / kPieceColumns - 1, piece = own < last ? own : last;
    const uint8_t* group = matrix.data + row / kPanel * matrix.panel_bytes + number * matrix.layout.group_bytes;
    const int32_t steps = columns / matrix.layout.sub * static_cast<int32_t>(kPanel) * matrix.scale_bytes;
    const int32_t heads = matrix.kinds * (steps + (matrix.layout.super != 0 ? 2 * static_cast<int32_t>(kPanel) : 0));
    const uint8_t* from = group + heads + (piece * kWords * static_cast<int32_t>(kPanel) + column) * 4;
    if (kWords == 3) {
      load_thirds(group + heads + piece * kWords * static_cast<int32_t>(kPanel) * 4, column);
    } else {
      TS_EVERY_LANE
      for (int i = 0; i < kWords; ++i) words[i] = load_once(from + i * kPanel * 4);
    }
    head.load(matrix, group, columns, piece, column);
  }
  // Loads two blocks of a plane of two bits and one of third bits. begin: the first byte of the piece.
  TS_MEMBER_INLINE void load_thirds(const uint8_t* begin, int32_t column) {
    constexpr int32_t kPlane = kPanel * 4, kBlock = kPlane * 3 / 2;
    const uint64_t first = load_eight(begin + kPlane + column * 2), second = load_eight(begin + kBlock + kPlane + column * 2);
    words[0] = load_once(begin + column * 4);
    words[1] = load_once(begin + kBlock + column * 4);
    words[kWords - 1] = Words4{static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32), static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32)};
  }
  // Codes of columns 4 * quad .. 4 * quad + 3 of a row.
  TS_MEMBER_INLINE uint32_t codes(int quad, int row, int32_t table) const {
    if (kHigh == 4) return words[quad][row];
    if (kWords < 4) {
      const uint32_t two = words[quad / 4][row] >> (quad % 4 * 2) & 0x03030303u;
      if (kWords == 2) return two;
      return two | thirds_of(words[kWords - 1][quad / 4 * 2 + row / 2] >> (16 * (row % 2)), quad % 4);
    }
    const int first = kHigh == 2 ? quad / 4 * 3 : 0, at = kHigh == 2 ? quad % 4 : quad, planes = kHigh == 0 ? 0 : 1;
    const uint32_t both = words[first + planes + at / 2][row], four = (at % 2 == 0 ? both : both >> 4) & 0x0f0f0f0fu;
    if (kHigh == 0) return meant(table, four);
    return four | (words[first][row] >> (at * kHigh) & (kHigh == 1 ? 0x01010101u : 0x03030303u)) << 4;
  }
  // Writes the sums to shared memory, for this warp's group of the round. first: the place in the kept row at which the group's columns
  // begin.
  TS_MEMBER_INLINE void multiply(const StoredMatrix& matrix, int32_t first, int32_t columns) const {
    const int32_t piece = warp_lane() / kStoredQuads, quad = warp_lane() % kStoredQuads;
    if (piece * kPieceColumns >= columns) return;
    const StoredLayout& layout = matrix.layout;
    int32_t sums[2][4] = {}, ones[2] = {};
    TS_EVERY_LANE
    for (int q = 0; q < 8; ++q) {
      const int32_t x = static_cast<int32_t>(static_cast<uint32_t>(stored_row[(first + piece * kPieceColumns) / 4 + q]));
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) sums[q / 4][r] = dot4(codes(q, r, layout.table), x, sums[q / 4][r]);
      ones[q / 4] = dot4(0x01010101u, x, ones[q / 4]);
    }
    const int32_t at = warp_index() * kMostParts + (matrix.halves() ? 2 * piece : piece);
    if (!matrix.halves()) {
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) sums[0][r] += sums[1][r];
      ones[0] += ones[1];
    }
    TS_EVERY_LANE
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && !matrix.halves()) continue;
      Words4 wholes;
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) wholes[r] = static_cast<uint32_t>(sums[half][r] - layout.offset * ones[half]);
      stored_wholes[(at + half) * kStoredQuads + quad] = wholes;
      stored_steps[(at + half) * kStoredQuads + quad] = head.scales(layout, half);
      if (layout.minimum != 0) stored_minima[(at + half) * kStoredQuads + quad] = head.minimums(layout, half);
      if (quad == 0) stored_ones[at + half] = ones[half];
    }
  }
};

// The state of a warp that folds. Its thread 4c + q has group c of a round and rows 4q .. 4q + 3 of a strip.
struct StoredFold {
  float sums[4], gates[4];

  // Adds the steps to the group's sum of each row, in their order. scales: the scales of a fine kind's activations in this group.
  TS_MEMBER_INLINE void add_steps(const StoredMatrix& matrix, int32_t columns, int32_t scales, float (&totals)[4]) const {
    const int32_t wide = matrix.halves() ? kPieceColumns / 2 : kPieceColumns, quad = warp_lane() % kStoredQuads;
    int32_t wholes[4] = {0, 0, 0, 0}, ones = 0;
    for (int32_t part = 0; part * wide < columns; ++part) {
      const int32_t number = warp_lane() / kStoredQuads * kMostParts + part, at = number * kStoredQuads + quad;
      const Words4 more = stored_wholes[at];
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) wholes[r] += static_cast<int32_t>(more[r]);
      ones += stored_ones[number];
      if ((part + 1) * wide % matrix.layout.sub != 0) continue;
      const Words4 steps = stored_steps[at];
      const float fine = matrix.layout.fine != 0 ? stored_scales[scales + part * wide / static_cast<int32_t>(kFineColumns)] : 1.0f;
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) totals[r] = fma(static_cast<float>(wholes[r]), float_of(steps[r]) * fine, totals[r]);
      if (matrix.layout.minimum != 0) {
        const Words4 minima = stored_minima[at];
        TS_EVERY_LANE
        for (int r = 0; r < 4; ++r) totals[r] = fma(0.0f - float_of(minima[r]), static_cast<float>(ones) * fine, totals[r]);
      }
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) wholes[r] = 0;
      ones = 0;
    }
  }
  // Adds the groups from `first` on, in their order. held: the group at which the kept row begins.
  TS_MEMBER_INLINE void add(const StoredMatrix& matrix, int32_t first, int32_t held) {
    const int32_t own = first + warp_lane() / kStoredQuads;
    float totals[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    constexpr int32_t kScales = static_cast<int32_t>(kStoredGroup / kFineColumns);
    if (own < matrix.groups) add_steps(matrix, matrix.columns(own), (own - held) * kScales, totals);
    for (int32_t c = 0; c < kStoredWarps && first + c < matrix.groups; ++c) {
      const float scale = matrix.layout.fine != 0 ? 1.0f : stored_scales[first + c - held];
      TS_EVERY_LANE
      for (int r = 0; r < 4; ++r) {
        const uint32_t total = shuffle(bits_of(totals[r]), c * kStoredQuads + warp_lane() % kStoredQuads);
        sums[r] = fma(float_of(total), scale, sums[r]);
      }
    }
  }
  TS_MEMBER_INLINE void end(const LinearArgs& args, int64_t matrix, int64_t token, const StripPlace& place) {
    TS_EVERY_LANE
    for (int r = 0; r < 4; ++r) {
      const int64_t own = place.unit * kStoredStrip + warp_lane() * 4 + r;
      if (warp_lane() < kStoredQuads) finish_half(args, matrix, token, own, place.half, sums[r], gates[r]);
      sums[r] = 0.0f;
    }
  }
};

template <int kWords>
TS_DEVICE_INLINE void linear_stored_of(const LinearArgs& args) {
  static_assert(kStoredWarps * kStoredQuads == kWarp && kStoredGroups % kStoredWarps == 0, "one warp folds a round");
  const int64_t token = block_index() / args.parts, number = matrix_of(args, token), strips = strips_of(args, kStoredStrip);
  const StoredMatrix matrix(args, number);
  StripPlace place = {block_index() % args.parts, 0, 0};
  if (place.unit >= strips) return;
  StoredPiece<kWords> coming;
  coming.load(matrix, place.row(args, kStoredStrip), warp_index());
  const bool whole = matrix.groups <= kStoredGroups;  // otherwise parts of the row are rounded for each strip
  if (whole) hold_row<false>(args, token, 0);
  StoredFold fold = {};
  while (place.unit < strips) {
    const int32_t held = whole ? 0 : place.span / kStoredGroups * kStoredGroups, own = place.span + warp_index();
    if (!whole && place.span == held) hold_row<true>(args, token, held);
    StripPlace behind = place;
    behind.next(args, matrix.groups, kStoredWarps);
    if (own < matrix.groups) coming.multiply(matrix, (own - held) * static_cast<int32_t>(kStoredGroup), matrix.columns(own));
    const StripPlace& there = behind.unit < strips ? behind : place;
    coming.load(matrix, there.row(args, kStoredStrip), there.span + warp_index());
    barrier();
    if (warp_index() == 0) {
      fold.add(matrix, place.span, held);
      if (place.span + kStoredWarps >= matrix.groups) fold.end(args, number, token, place);
    }
    barrier();
    place = behind;
  }
}

// A block multiplies one row of x by every parts-th strip.
TS_KERNEL(linear_stored, LinearArgs) {
  at_most_threads<2 * kStoredThreads>();  // this many registers let two blocks fit on a multiprocessor
  if (args.stored.nibbles == 0) linear_stored_of<8>(args);
  else if (args.stored.third != 0) linear_stored_of<3>(args);
  else if (args.stored.alone != 0) linear_stored_of<2>(args);
  else if (args.stored.high == 0) linear_stored_of<4>(args);
  else if (args.stored.high == 1) linear_stored_of<5>(args);
  else linear_stored_of<6>(args);
}

}  // namespace cuda
}  // namespace twostroke
