// Products of whole-number weights with up to 16 rows of activations, which quantize has rounded: weights are read once for all of them, at
// the rate at which memory gives them. A block goes through strips of 32 rows of the matrix, in rounds: each warp multiplies one chunk or two
// of the strip by all rows as small matrices, then some threads fold what the warps have while the next loads are on their way.
// Knows: packed panels. Must not know: what asked.
#include "twostroke/cuda/chunks.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kFewWarps = kFewThreads / kWarp, kFewQuads = kFewStrip / 4;  // four rows of a matrix are folded by one thread
constexpr int32_t kFewChunks = 2 * kFewWarps;                                  // the most of a round of eight rows of activations

TS_SHARED(Words4, few_sums, kFewChunks * kFewRows * kFewQuads);
TS_SHARED(float, few_factors, kFewChunks * kFewStrip);  // scales of the weights
TS_SHARED(float, few_scales, kFewChunks * kFewRows);    // of the activations, and their corrections
TS_SHARED(int32_t, few_corrections, kFewChunks * kFewRows);

// What a thread has of a chunk, as mma_unsigned wants it: with g = lane / 4 and t = lane % 4, rows 4g .. 4g + 3 of the quads of columns
// 4t .. 4t + 3 of each step. In a product, row r of A is row 4r of the strip, row 8 + r is row 4r + 1; then 4r + 2 and 4r + 3.
struct FewInt8 {
  static constexpr int kMostAtOnce = 1;
  Words4 words[4 * kChunkSteps];

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const uint8_t* from = panel + ((static_cast<int64_t>(step) * 16 + warp_lane() % 4 * 4) * kPanel + column) * 4;
    TS_EVERY_LANE
    for (int i = 0; i < 4 * kChunkSteps; ++i)
      words[i] = step + i / 4 < end ? load_once(from + (i / 4 * 16 + i % 4) * kPanel * 4) : Words4{0, 0, 0, 0};
  }
  // Quads 4t + pair * 2 and the next one of a step.
  TS_MEMBER_INLINE void quads(int step, int pair, Words4& first, Words4& second) const {
    first = words[4 * step + 2 * pair];
    second = words[4 * step + 2 * pair + 1];
  }
};

struct FewInt4 {
  static constexpr int kMostAtOnce = 2;
  Words4 words[2 * kChunkSteps];
  uint32_t multipliers[kChunkSteps];  // a byte each row, of which one half is meant

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const int32_t t = warp_lane() % 4;
    const uint8_t* from = panel + static_cast<int64_t>(step) * kInt4StepBytes;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i, from += kInt4StepBytes) {
      const bool there = step + i < end;
      TS_EVERY_LANE
      for (int j = 0; j < 2; ++j)
        words[2 * i + j] = there ? load_once(from + kMultiplierBytes + ((2 * t + j) * kPanel + column) * 4) : Words4{0, 0, 0, 0};
      multipliers[i] = there ? *reinterpret_cast<const uint32_t*>(from + t / 2 * kPanel + column) : 0;
    }
  }
  TS_MEMBER_INLINE void quads(int step, int pair, Words4& first, Words4& second) const {
    const uint32_t four = multipliers[step] >> (warp_lane() % 2 * 4) & 0x0f0f0f0fu;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      const uint32_t multiplier = four >> (8 * j) & 255, word = words[2 * step + pair][j];
      first[j] = unpacked(word & 0x0f0f0f0fu, multiplier);
      second[j] = unpacked(word >> 4 & 0x0f0f0f0fu, multiplier);
    }
  }
};

// A chunk of a strip and of rows of activations, kTiles tiles of eight rows, with what its group is multiplied by.
template <class Weights, int kTiles>
struct FewChunk {
  Weights weights;
  Words4 rows[kTiles][kChunkSteps];
  float scale;
  int32_t correction;
  uint16_t factor;

  TS_MEMBER_INLINE void load(const LinearArgs& args, const ChunkedMatrix& matrix, int64_t row, int32_t chunk) {
    const int32_t lane = static_cast<int32_t>(row % kPanel), g = warp_lane() / 4, t = warp_lane() % 4;
    const int64_t panel = row / kPanel;
    const bool there = chunk < matrix.chunks;
    const int32_t step = matrix.first_step(chunk), end = there ? matrix.end_step(chunk, step) : step, group = matrix.group_of(chunk);
    weights.load(matrix.data + panel * matrix.panel_bytes, step, end, lane + 4 * g);
    TS_EVERY_LANE
    for (int tile = 0; tile < kTiles; ++tile) {
      TS_EVERY_LANE
      for (int i = 0; i < kChunkSteps; ++i) {
        const int64_t token = tile * 8 + g;
        const int8_t* from = args.q + token * args.padded + (step + i) * kStep + 16 * t;
        rows[tile][i] = step + i < end && token < args.tokens ? load16(from) : Words4{0, 0, 0, 0};
      }
    }
    factor = there ? matrix.scales[(panel * matrix.groups + group) * kPanel + lane + warp_lane()] : 0;
    const bool pair = there && warp_lane() < args.tokens;
    scale = pair ? args.x_scales[warp_lane() * args.groups + group] : 0.0f;
    correction = pair ? args.corrections[warp_lane() * args.groups + group] : 0;
  }
  // at: the chunk's place in its round.
  TS_MEMBER_INLINE void multiply(int32_t at) const {
    int32_t sums[kTiles][2][4] = {};
    TS_EVERY_LANE
    for (int i = 0; i < 2 * kChunkSteps; ++i) {
      Words4 first, second;
      weights.quads(i / 2, i % 2, first, second);
      const uint32_t lower[4] = {first[0], first[1], second[0], second[1]}, upper[4] = {first[2], first[3], second[2], second[3]};
      TS_EVERY_LANE
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint32_t x[2] = {rows[tile][i / 2][i % 2 * 2], rows[tile][i / 2][i % 2 * 2 + 1]};
        mma_unsigned(sums[tile][0], lower, x);
        mma_unsigned(sums[tile][1], upper, x);
      }
    }
    const int32_t g = warp_lane() / 4, t = warp_lane() % 4;
    TS_EVERY_LANE
    for (int tile = 0; tile < kTiles; ++tile) {
      TS_EVERY_LANE
      for (int j = 0; j < 2; ++j) {
        const int32_t(&low)[4] = sums[tile][0], (&high)[4] = sums[tile][1];
        few_sums[(at * kFewRows + tile * 8 + 2 * t + j) * kFewQuads + g] =
            Words4{static_cast<uint32_t>(low[j]), static_cast<uint32_t>(low[2 + j]), static_cast<uint32_t>(high[j]), static_cast<uint32_t>(high[2 + j])};
      }
    }
    few_factors[at * kFewStrip + warp_lane()] = widen(factor);
    if (warp_lane() >= kFewRows) return;
    few_scales[at * kFewRows + warp_lane()] = scale;
    few_corrections[at * kFewRows + warp_lane()] = correction;
  }
};

template <class Weights, int kTiles>
struct FewRound {
  static constexpr int32_t kAtOnce = kTiles == 1 ? Weights::kMostAtOnce : 1, kChunks = kFewWarps * kAtOnce;
  FewChunk<Weights, kTiles> chunks[kAtOnce];

  TS_MEMBER_INLINE void load(const LinearArgs& args, const ChunkedMatrix& matrix, const StripPlace& place) {
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i)
      chunks[i].load(args, matrix, place.row(args, kFewStrip), place.span + warp_index() + kFewWarps * i);
  }
  TS_MEMBER_INLINE void multiply() const {
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) chunks[i].multiply(warp_index() + kFewWarps * i);
  }
};

// What a thread that folds has: four rows of a strip for one row of activations.
struct FewFold {
  float sums[4], gates[4];
  int32_t whole[4];

  TS_MEMBER_INLINE void add(const ChunkedMatrix& matrix, int32_t span, int32_t end) {
    const int32_t quad = thread_index() % kFewQuads, token = thread_index() / kFewQuads;
    _Pragma("clang loop unroll_count(4)")
    for (int32_t chunk = span; chunk < end; ++chunk) {
      const int32_t at = chunk - span;
      const Words4 sum = few_sums[(at * kFewRows + token) * kFewQuads + quad];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) whole[j] += static_cast<int32_t>(sum[j]);
      if (!matrix.ends_group(chunk)) continue;
      const float scale = few_scales[at * kFewRows + token];
      const int32_t correction = few_corrections[at * kFewRows + token];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        sums[j] = fma(static_cast<float>(whole[j] + correction), scale * few_factors[at * kFewStrip + 4 * quad + j], sums[j]);
        whole[j] = 0;
      }
    }
  }
  TS_MEMBER_INLINE void end(const LinearArgs& args, const StripPlace& place) {
    const int64_t first = place.unit * kFewStrip + thread_index() % kFewQuads * 4;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      finish_half(args, 0, thread_index() / kFewQuads, first + j, place.half, sums[j], gates[j]);
      sums[j] = 0.0f;
    }
  }
};

template <class Weights, int kTiles>
TS_DEVICE_INLINE void linear_few_of(const LinearArgs& args) {
  const ChunkedMatrix matrix(args, 0);
  const int64_t strips = strips_of(args, kFewStrip);
  StripPlace place = {block_index(), 0, 0};
  if (place.unit >= strips) return;
  FewRound<Weights, kTiles> coming;
  coming.load(args, matrix, place);
  FewFold fold = {};
  while (place.unit < strips) {
    const int32_t behind = place.span + coming.kChunks, end = behind < matrix.chunks ? behind : matrix.chunks;
    StripPlace next = place;
    next.next(args, matrix.chunks, coming.kChunks);
    coming.multiply();
    if (next.unit < strips) coming.load(args, matrix, next);  // on their way while sums are folded
    barrier();
    if (thread_index() < args.tokens * kFewQuads) {
      fold.add(matrix, place.span, end);
      if (end == matrix.chunks) fold.end(args, place);
    }
    barrier();
    place = next;
  }
}

// A block every parts-th strip by all rows.
TS_KERNEL(linear_few, LinearArgs) {
  at_most_threads<2 * kFewThreads>();  // so that two blocks fit a multiprocessor
  if (args.kind == TS_W_INT8) {
    if (args.tokens <= 8) linear_few_of<FewInt8, 1>(args);
    else linear_few_of<FewInt8, 2>(args);
  } else {
    if (args.tokens <= 8) linear_few_of<FewInt4, 1>(args);
    else linear_few_of<FewInt4, 2>(args);
  }
}

}  // namespace cuda
}  // namespace twostroke
