// Products of whole-number weights with one row of activations, or with rows that each have a matrix of their own. Weights are read as a
// stream, as fast as memory delivers them. A block rounds its row once, into shared memory, and then goes through strips of 16 rows of the
// matrix. Each warp has chunks of 128 columns of a strip, and the next loads are under way while it multiplies the last ones. Sums of whole
// numbers may be added in any order. For each row, one thread folds them in the order of the groups.
#include "twostroke/cuda/products/chunks.h"
#include "twostroke/cuda/products/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kOneWarps = kOneThreads / kWarp;
constexpr int32_t kOneSpan = 128;  // chunks between two folds; a row with at most half as many uses two halves of the room in turn
constexpr int32_t kOneGroups = kOneColumns / static_cast<int32_t>(kStep);

TS_SHARED(uint32_t, one_row, kOneColumns / 4);
TS_SHARED(float, one_scales, kOneGroups);
TS_SHARED(int32_t, one_corrections, kOneGroups);
TS_SHARED(int32_t, one_sums, kOneSpan * kOneStrip);  // sums of chunks
TS_SHARED(float, one_factors, kOneSpan * kOneStrip);  // factors of groups, at the place of their last chunk

struct SharedRow {
  TS_MEMBER_INLINE void word(int32_t at, uint32_t four) { one_row[at] = four; }
  TS_MEMBER_INLINE void group(int32_t at, float scale, int32_t correction) {
    one_scales[at] = scale;
    one_corrections[at] = correction;
  }
};

// A thread's part of a chunk. Four threads have the 16 rows of one word's columns, four rows each. kCorrected: the bytes are 128 too large,
// and the correction of the group subtracts this.
struct Int8Chunk {
  static constexpr int kAtOnce = 2;
  static constexpr bool kCorrected = true;
  Words4 words[2 * kChunkSteps];

  // column: the column of this thread's first row in the panel. Where the chunk has only one step, this step is loaded twice, so that no
  // branch lies between the loads.
  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t column, int32_t step, int32_t end) {
    const int32_t second = step + 1 < end ? 16 * kPanel * 4 : 0;
    const uint8_t* from = panel + static_cast<int64_t>((step * 16 + warp_lane() / 4) * kPanel + column) * 4;
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kChunkSteps; ++i) words[i] = load_once(from + (i / 2 * second + i % 2 * 8 * kPanel * 4));
  }
  // x: the word of the kept row at which the chunk begins.
  TS_MEMBER_INLINE void multiply(int32_t x, int32_t steps, int32_t (&sums)[4]) const {
    const int32_t quad = warp_lane() / 4;
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kChunkSteps; ++i) {
      if (i / 2 >= steps) continue;
      const int32_t q = static_cast<int32_t>(static_cast<uint32_t>(one_row[x + i * 8 + quad]));
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) sums[j] = dot4(words[i][j], q, sums[j]);
    }
  }
};

struct Int4Chunk {
  static constexpr int kAtOnce = 2;
  static constexpr bool kCorrected = false;
  Words4 words[kChunkSteps];
  uint32_t multipliers[kChunkSteps];  // a byte for each row, one half of which belongs to the group

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t column, int32_t step, int32_t end) {
    const int32_t oct = warp_lane() / 4, second = step + 1 < end ? kInt4StepBytes : 0;
    const uint8_t* from = panel + static_cast<int64_t>(step) * kInt4StepBytes;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i, from += second) {
      words[i] = load_once(from + (kMultiplierBytes + (oct * kPanel + column) * 4));
      multipliers[i] = *reinterpret_cast<const uint32_t*>(from + (oct / 4 * kPanel + column));
    }
  }
  // A thread's columns of a step have one multiplier. It multiplies the sum of element * x, where an element is 8 too large.
  TS_MEMBER_INLINE void multiply(int32_t x, int32_t steps, int32_t (&sums)[4]) const {
    const int32_t oct = warp_lane() / 4;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i) {
      if (i >= steps) continue;
      const int32_t at = x + i * 16 + 2 * oct, low = static_cast<int32_t>(static_cast<uint32_t>(one_row[at]));
      const int32_t high = static_cast<int32_t>(static_cast<uint32_t>(one_row[at + 1]));
      const int32_t more = -8 * dot4(0x01010101u, high, dot4(0x01010101u, low, 0));
      const uint32_t four = multipliers[i] >> (oct / 2 % 2 * 4) & 0x0f0f0f0fu;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const int32_t multiplier = static_cast<int32_t>(four >> (8 * j) & 255);
        const uint32_t word = words[i][j];
        sums[j] += multiplier * dot4(word >> 4 & 0x0f0f0f0fu, high, dot4(word & 0x0f0f0f0fu, low, more));
      }
    }
  }
};

// The row of a strip whose sum a thread has after strip_sum.
TS_DEVICE_INLINE int32_t strip_row() { return warp_lane() % 4 * 4 + warp_lane() / 16 * 2 + warp_lane() / 8 % 2; }

// Each thread has four sums. The result is the sum of one row over the eight threads that have a part of it.
TS_DEVICE_INLINE int32_t strip_sum(const int32_t (&sums)[4]) {
  const bool upper = warp_lane() / 16 != 0, odd = warp_lane() / 8 % 2 != 0;
  uint32_t two[2];
  TS_EVERY_LANE
  for (int j = 0; j < 2; ++j) {
    const uint32_t kept = static_cast<uint32_t>(upper ? sums[2 + j] : sums[j]), given = static_cast<uint32_t>(upper ? sums[j] : sums[2 + j]);
    two[j] = kept + shuffle_across(given, 16);
  }
  const uint32_t one = (odd ? two[1] : two[0]) + shuffle_across(odd ? two[0] : two[1], 8);
  return static_cast<int32_t>(one + shuffle_across(one, 4));
}

// A span of chunks of a strip: its panel, the place of this thread's rows in the panel, and the scales of the row that the thread sums.
struct OneSpan {
  const uint8_t* panel;
  const uint16_t* scales;
  int32_t column, first, end;
};

// The chunks that a warp has at once. As soon as one is multiplied, the load of the next one in its place begins. Where there is none, the
// last one is loaded again, because a branch around loads would wait for them at its end.
template <class Chunk, bool kWhole>
struct OneBatch {
  static constexpr int32_t kRound = kOneWarps * Chunk::kAtOnce;  // the chunks that all warps have at once
  typedef ChunkedMatrix<kWhole> Matrix;
  Chunk chunks[Chunk::kAtOnce];
  uint16_t scales[Chunk::kAtOnce];

  static TS_MEMBER_INLINE int32_t number(int32_t first, int i) { return first + warp_index() + kOneWarps * i; }

  TS_MEMBER_INLINE void load(const Matrix& matrix, const OneSpan& span, int i) {
    const int32_t own = number(span.first, i), chunk = own < span.end ? own : span.end - 1;
    const int32_t step = matrix.first_step(chunk);
    chunks[i].load(span.panel, span.column, step, matrix.end_step(chunk, step));
    scales[i] = span.scales[matrix.group_of(chunk) * static_cast<int32_t>(kPanel)];
  }
  // room + chunk: the place of its sums; held: the group at which the kept row begins.
  TS_MEMBER_INLINE void multiply(const Matrix& matrix, const OneSpan& span, int i, int32_t room, int32_t held) const {
    const int32_t chunk = number(span.first, i);
    if (chunk >= span.end) return;
    int32_t sums[4] = {0, 0, 0, 0};
    const int32_t step = matrix.first_step(chunk), group = matrix.group_of(chunk) - held, at = (room + chunk) * kOneStrip + strip_row();
    chunks[i].multiply((step - held * matrix.group_steps) * 16, matrix.end_step(chunk, step) - step, sums);
    const int32_t sum = strip_sum(sums);
    if (warp_lane() / 4 % 2 != 0) return;
    const bool ends = matrix.ends_group(chunk);
    one_sums[at] = ends && Chunk::kCorrected ? sum + one_corrections[group] : sum;
    if (ends) one_factors[at] = one_scales[group] * widen(scales[i]);
  }
};

// The state of a thread that folds a row.
struct OneFold {
  static constexpr int kAtOnce = 8;
  float sum, gate;
  int32_t whole;

  // Folds the chunks [first, end) of a span, whose sums are at room + chunk.
  template <bool kWhole>
  TS_MEMBER_INLINE void add(const ChunkedMatrix<kWhole>& matrix, int32_t room, int32_t first, int32_t end) {
    const int32_t lane = thread_index();
    int32_t chunk = first;
    // numbers are read before they are needed, so a sum waits only for the sum before it
    for (; kWhole && chunk + kAtOnce <= end; chunk += kAtOnce) {
      float wholes[kAtOnce], factors[kAtOnce];
      TS_EVERY_LANE
      for (int i = 0; i < kAtOnce; ++i) {
        const int32_t at = (room + chunk + i) * kOneStrip + lane;
        wholes[i] = static_cast<float>(static_cast<int32_t>(one_sums[at]));
        factors[i] = one_factors[at];
      }
      TS_EVERY_LANE
      for (int i = 0; i < kAtOnce; ++i) sum = fma(wholes[i], factors[i], sum);
    }
    for (; chunk < end; ++chunk) {
      const int32_t at = (room + chunk) * kOneStrip + lane;
      whole += one_sums[at];
      if (!matrix.ends_group(chunk)) continue;
      sum = fma(static_cast<float>(whole), one_factors[at], sum);
      whole = 0;
    }
  }
  TS_MEMBER_INLINE void end(const LinearArgs& args, int64_t matrix, int64_t token, const StripPlace& place) {
    finish_half(args, matrix, token, place.unit * kOneStrip + thread_index(), place.half, sum, gate);
    sum = 0.0f;
  }
};

template <class Chunk, bool kWhole>
TS_DEVICE_INLINE void linear_one_of(const LinearArgs& args) {
  typedef OneBatch<Chunk, kWhole> Batch;
  const int64_t token = block_index() / args.parts, number = matrix_of(args, token), strips = strips_of(args, kOneStrip);
  const ChunkedMatrix<kWhole> matrix(args, number);
  const int32_t span_groups = kOneSpan / matrix.group_chunks, span = span_groups * matrix.group_chunks;
  const bool whole = args.padded <= kOneColumns;  // otherwise the columns of each span are rounded again
  const bool turns = matrix.chunks <= kOneSpan / 2;
  const auto span_of = [&](const StripPlace& at) {
    const int32_t following = at.span + span, end = following < matrix.chunks ? following : matrix.chunks;
    const uint32_t row = static_cast<uint32_t>(at.row(args, kOneStrip));
    const int32_t panel = row / kPanel, column = row % kPanel;
    return OneSpan{matrix.data + panel * matrix.panel_bytes, matrix.scales + panel * matrix.groups * kPanel + column + strip_row(),
                   column + warp_lane() % 4 * 4, at.span, end};
  };
  StripPlace place = {block_index() % args.parts, 0, 0};
  if (place.unit >= strips) return;
  OneSpan now = span_of(place);
  Batch batch;
  TS_EVERY_LANE
  for (int i = 0; i < Chunk::kAtOnce; ++i) batch.load(matrix, now, i);
  SharedRow held_row;
  if (whole) hold_groups<false>(args, token, 0, args.groups, args.group, kOneWarps, held_row);
  OneFold fold = {0.0f, 0.0f, 0};
  for (int32_t turn = 0; place.unit < strips;) {
    const int32_t end = now.end, room = turn - place.span, held = whole ? 0 : place.span / matrix.group_chunks;
    StripPlace following = place;
    following.next(args, matrix.chunks, span);
    const OneSpan next = span_of(following.unit < strips ? following : place);
    if (!whole) hold_groups<true>(args, token, held, span_groups, args.group, kOneWarps, held_row);
    for (; now.first < end; now.first += Batch::kRound) {
      OneSpan coming = now;
      coming.first += Batch::kRound;
      if (coming.first >= end) coming = next;
      TS_EVERY_LANE
      for (int i = 0; i < Chunk::kAtOnce; ++i) {
        batch.multiply(matrix, now, i, room, held);
        batch.load(matrix, coming, i);
      }
    }
    barrier();
    if (thread_index() < kOneStrip) {
      fold.add(matrix, room, place.span, end);
      if (end == matrix.chunks) fold.end(args, number, token, place);
    }
    if (turns) turn = kOneSpan / 2 - turn;  // with two halves, the other threads need not wait for those that fold
    else barrier();
    place = following;
    now = next;
  }
}

template <class Chunk>
TS_DEVICE_INLINE void linear_one_by_chunks(const LinearArgs& args) {
  if (has_whole_chunks(args)) linear_one_of<Chunk, true>(args);
  else linear_one_of<Chunk, false>(args);
}

// A block multiplies one row of x by every parts-th strip.
TS_KERNEL(linear_one, LinearArgs) {
  at_most_threads<kOneThreads>();
  if (args.kind == TS_W_INT8) linear_one_by_chunks<Int8Chunk>(args);
  else linear_one_by_chunks<Int4Chunk>(args);
}

}  // namespace cuda
}  // namespace twostroke
