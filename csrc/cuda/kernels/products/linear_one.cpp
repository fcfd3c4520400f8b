// Products of whole-number weights with one row of activations, or with rows that each have a matrix of their own: a stream of weights at the
// rate at which memory gives them. A block rounds its row once, into shared memory, then goes through strips of 16 rows of the matrix. Each
// warp has chunks of 128 columns of a strip, and the next loads are on their way while it works on the last; sums of whole numbers may be
// added in any order, and one thread for each row folds them in the order of the groups.
// Knows: packed panels. Must not know: what asked.
#include "twostroke/cuda/chunks.h"
#include "twostroke/cuda/round_rows.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kOneWarps = kOneThreads / kWarp;
constexpr int32_t kOneSpan = 128;  // chunks between two folds
constexpr int32_t kOneGroups = kOneColumns / static_cast<int32_t>(kStep);

TS_SHARED(uint32_t, one_row, kOneColumns / 4);
TS_SHARED(float, one_scales, kOneGroups);
TS_SHARED(int32_t, one_corrections, kOneGroups);
TS_SHARED(int32_t, one_sums, kOneSpan * kOneStrip);   // of chunks
TS_SHARED(float, one_factors, kOneSpan * kOneStrip);  // of groups, where their last chunk is

struct SharedRow {
  TS_MEMBER_INLINE void word(int32_t at, uint32_t four) { one_row[at] = four; }
  TS_MEMBER_INLINE void group(int32_t at, float scale, int32_t correction) {
    one_scales[at] = scale;
    one_corrections[at] = correction;
  }
};

// What a thread has of a chunk. Four threads have the 16 rows of one word's columns, four rows each: `column` is the first, in the panel.
struct Int8Chunk {
  static constexpr int kAtOnce = 1;
  Words4 words[2 * kChunkSteps];

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const int32_t quad = warp_lane() / 4;
    const uint8_t* from = panel + ((static_cast<int64_t>(step) * 16 + quad) * kPanel + column) * 4;
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kChunkSteps; ++i)
      words[i] = step + i / 2 < end ? load_once(from + i * 8 * kPanel * 4) : Words4{0, 0, 0, 0};
  }
  // x: the word of the held row where the chunk begins.
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
  Words4 words[kChunkSteps];
  uint32_t multipliers[kChunkSteps];  // a byte each row, of which one half is meant

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const int32_t oct = warp_lane() / 4;
    const uint8_t* from = panel + static_cast<int64_t>(step) * kInt4StepBytes;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i, from += kInt4StepBytes) {
      const bool there = step + i < end;
      words[i] = there ? load_once(from + kMultiplierBytes + (oct * kPanel + column) * 4) : Words4{0, 0, 0, 0};
      multipliers[i] = there ? *reinterpret_cast<const uint32_t*>(from + oct / 4 * kPanel + column) : 0;
    }
  }
  TS_MEMBER_INLINE void multiply(int32_t x, int32_t steps, int32_t (&sums)[4]) const {
    const int32_t oct = warp_lane() / 4;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i) {
      if (i >= steps) continue;
      const int32_t at = x + i * 16 + 2 * oct, low = static_cast<int32_t>(static_cast<uint32_t>(one_row[at]));
      const int32_t high = static_cast<int32_t>(static_cast<uint32_t>(one_row[at + 1]));
      const uint32_t four = multipliers[i] >> (oct / 2 % 2 * 4) & 0x0f0f0f0fu;
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        const uint32_t multiplier = four >> (8 * j) & 255, word = words[i][j];
        sums[j] = dot4(unpacked(word & 0x0f0f0f0fu, multiplier), low, sums[j]);
        sums[j] = dot4(unpacked(word >> 4 & 0x0f0f0f0fu, multiplier), high, sums[j]);
      }
    }
  }
};

// The row of a strip whose sum a thread has behind strip_sum.
TS_DEVICE_INLINE int32_t strip_row() { return warp_lane() % 4 * 4 + warp_lane() / 16 * 2 + warp_lane() / 8 % 2; }

// Of four sums of each thread, one row's over the threads that have it, which are eight.
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

// The chunks of [first, end) that a warp works on at once.
template <class Chunk>
struct OneBatch {
  static constexpr int32_t kRound = kOneWarps * Chunk::kAtOnce;  // chunks of all warps
  Chunk chunks[Chunk::kAtOnce];
  uint16_t scales[Chunk::kAtOnce];

  TS_MEMBER_INLINE void load(const ChunkedMatrix& matrix, int64_t row, int32_t first, int32_t end) {
    const int32_t lane = static_cast<int32_t>(row % kPanel);
    const int64_t panel = row / kPanel;
    TS_EVERY_LANE
    for (int i = 0; i < Chunk::kAtOnce; ++i) {
      const int32_t chunk = first + warp_index() + kOneWarps * i;
      const int32_t step = matrix.first_step(chunk), end_step = chunk < end ? matrix.end_step(chunk, step) : step;
      chunks[i].load(matrix.data + panel * matrix.panel_bytes, step, end_step, lane + warp_lane() % 4 * 4);
      const int64_t scale = (panel * matrix.groups + matrix.group_of(chunk)) * kPanel + lane + strip_row();
      scales[i] = chunk < end ? matrix.scales[scale] : 0;
    }
  }
  // held: the group where the held row begins.
  TS_MEMBER_INLINE void multiply(const ChunkedMatrix& matrix, const StripPlace& place, int32_t first, int32_t end, int32_t held) const {
    TS_EVERY_LANE
    for (int i = 0; i < Chunk::kAtOnce; ++i) {
      const int32_t chunk = first + warp_index() + kOneWarps * i;
      if (chunk >= end) continue;
      int32_t sums[4] = {0, 0, 0, 0};
      const int32_t step = matrix.first_step(chunk), group = matrix.group_of(chunk) - held, at = (chunk - place.span) * kOneStrip + strip_row();
      chunks[i].multiply((step - held * matrix.group_steps) * 16, matrix.end_step(chunk, step) - step, sums);
      const int32_t sum = strip_sum(sums);
      if (warp_lane() / 4 % 2 != 0) continue;
      const bool ends = matrix.ends_group(chunk);
      one_sums[at] = ends ? sum + one_corrections[group] : sum;
      if (ends) one_factors[at] = one_scales[group] * widen(scales[i]);
    }
  }
};

// What a thread that folds has of its row.
struct OneFold {
  float sum, gate;
  int32_t whole;

  TS_MEMBER_INLINE void add(const ChunkedMatrix& matrix, int32_t span, int32_t end) {
    const int32_t lane = thread_index();
    _Pragma("clang loop unroll_count(8)")
    for (int32_t chunk = span; chunk < end; ++chunk) {
      const int32_t at = (chunk - span) * kOneStrip + lane;
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

// Rounds the row's groups from `first` on, as many as there are at most, for the block to hold.
TS_DEVICE_INLINE void hold_row(const LinearArgs& args, int64_t token, int64_t first, int64_t most) {
  const int64_t begin = first * args.group, rest = args.groups - first, groups = most < rest ? most : rest;
  const int64_t columns = args.columns > begin ? args.columns - begin : 0;
  const FloatRow x(args.x + token * args.x_stride + begin, columns, args.padded - begin, args.group, groups);
  SharedRow held;
  round_row(x, warp_index(), kOneWarps, held);
  barrier();
}

template <class Chunk>
TS_DEVICE_INLINE void linear_one_of(const LinearArgs& args) {
  typedef OneBatch<Chunk> Batch;
  const int64_t token = block_index() / args.parts, number = matrix_of(args, token);
  const int64_t strips = strips_of(args, kOneStrip);
  const ChunkedMatrix matrix(args, number);
  const int32_t span_groups = kOneSpan / matrix.group_chunks, span = span_groups * matrix.group_chunks;
  const bool whole = args.padded <= kOneColumns;  // else each span's columns are rounded anew
  StripPlace place = {block_index() % args.parts, 0, 0};
  if (place.unit >= strips) return;
  Batch coming;
  coming.load(matrix, place.row(args, kOneStrip), 0, span < matrix.chunks ? span : matrix.chunks);
  if (whole) hold_row(args, token, 0, args.groups);
  OneFold fold = {0.0f, 0.0f, 0};
  while (place.unit < strips) {
    const int32_t end = place.span + span < matrix.chunks ? place.span + span : matrix.chunks;
    const int32_t held = whole ? 0 : place.span / matrix.group_chunks;
    StripPlace behind = place;
    behind.next(args, matrix.chunks, span);
    if (!whole) hold_row(args, token, held, span_groups);
    for (int32_t first = place.span; first < end; first += Batch::kRound) {
      const Batch now = coming;
      if (first + Batch::kRound < end) {
        coming.load(matrix, place.row(args, kOneStrip), first + Batch::kRound, end);
      } else if (behind.unit < strips) {
        const int32_t next = behind.span + span;
        coming.load(matrix, behind.row(args, kOneStrip), behind.span, next < matrix.chunks ? next : matrix.chunks);
      }
      now.multiply(matrix, place, first, end, held);
    }
    barrier();
    if (thread_index() < kOneStrip) {
      fold.add(matrix, place.span, end);
      if (end == matrix.chunks) fold.end(args, number, token, place);
    }
    barrier();
    place = behind;
  }
}

// A block one row of x by every parts-th strip.
TS_KERNEL(linear_one, LinearArgs) {
  at_most_threads<kOneThreads>();
  if (args.kind == TS_W_INT8) linear_one_of<Int8Chunk>(args);
  else linear_one_of<Int4Chunk>(args);
}

}  // namespace cuda
}  // namespace twostroke
