// Products of whole-number weights with few rows of activations, which quantize has rounded. Weights are read once for up to 32 rows, as
// fast as memory delivers them. A block goes through strips of 32 rows of the matrix, in rounds. In a round, each warp multiplies one or
// two chunks of the strip by all rows, as small matrices. Then some threads fold the sums of all warps while the next loads are under way.
#include "twostroke/cuda/products/chunks.h"

namespace twostroke {
namespace cuda {

constexpr int32_t kFewWarps = kFewThreads / kWarp, kFewQuads = kFewStrip / 4;  // one thread folds four rows of a matrix
constexpr int32_t kFewChunks = 2 * kFewWarps;  // the most chunks of a round for eight rows of activations

constexpr int32_t kMostFewTiles = kFewTile / 8;
constexpr int32_t kFewPlaces = kFewChunks * kFewRows;  // the chunks of a round times the rows of activations

TS_SHARED(Words4, few_sums, kFewPlaces * kFewQuads);
TS_SHARED(float, few_factors, kFewChunks * kFewStrip);  // scales of the weights
TS_SHARED(float, few_scales, kFewPlaces);  // scales of the activations, and their corrections
TS_SHARED(int32_t, few_corrections, kFewPlaces);

// A thread's part of a chunk, in the layout that mma_unsigned needs. With g = lane / 4 and t = lane % 4, it has rows 4g .. 4g + 3 of the
// quads of columns 4t .. 4t + 3 of each step. In the first product, row r of A is row 4r of the strip, and row 8 + r is row 4r + 1. In the
// second product they are rows 4r + 2 and 4r + 3.
struct FewInt8 {
  static constexpr int kMostAtOnce = 1;
  Words4 words[4 * kChunkSteps];

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const uint8_t* from = panel + ((static_cast<int64_t>(step) * 16 + warp_lane() % 4 * 4) * kPanel + column) * 4;
    const int32_t second = step + 1 < end ? 16 * kPanel * 4 : 0;
    TS_EVERY_LANE
    for (int i = 0; i < 4 * kChunkSteps; ++i) words[i] = load_once(from + (i / 4 * second + i % 4 * kPanel * 4));
  }
  // Loads quads 4t + pair * 2 and 4t + pair * 2 + 1 of a step.
  TS_MEMBER_INLINE void quads(int step, int pair, Words4& first, Words4& second) const {
    first = words[4 * step + 2 * pair];
    second = words[4 * step + 2 * pair + 1];
  }
};

struct FewInt4 {
  static constexpr int kMostAtOnce = 2;
  Words4 words[2 * kChunkSteps];
  uint32_t multipliers[kChunkSteps];  // a byte for each row, one half of which belongs to the group

  TS_MEMBER_INLINE void load(const uint8_t* panel, int32_t step, int32_t end, int32_t column) {
    const int32_t t = warp_lane() % 4;
    const uint8_t* from = panel + static_cast<int64_t>(step) * kInt4StepBytes;
    const int32_t second = step + 1 < end ? kInt4StepBytes : 0;
    TS_EVERY_LANE
    for (int i = 0; i < kChunkSteps; ++i, from += second) {
      TS_EVERY_LANE
      for (int j = 0; j < 2; ++j) words[2 * i + j] = load_once(from + kMultiplierBytes + ((2 * t + j) * kPanel + column) * 4);
      multipliers[i] = *reinterpret_cast<const uint32_t*>(from + t / 2 * kPanel + column);
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

// The current place of a block among strips. For each tile of rows of activations, this block or another one goes through each strip.
struct FewPlace {
  StripPlace all;  // its units are strips times tiles
  int32_t tiles;

  TS_MEMBER_INLINE StripPlace strip() const { return {all.unit / tiles, all.half, all.span}; }
  TS_MEMBER_INLINE int32_t tile() const { return static_cast<int32_t>(all.unit % tiles); }
};

// A chunk of a strip and of kTiles tiles of eight rows of activations, with the factors of its group.
template <class Weights, int kTiles, bool kWhole>
struct FewChunk {
  static constexpr int32_t kTokens = 8 * kTiles;
  Weights weights;
  Words4 rows[kTiles][kChunkSteps];
  float scale;
  int32_t correction;
  uint16_t factor;
  int32_t steps;

  // Where there is no such chunk, the last one is loaded again, because a branch around loads would wait for them at its end.
  static TS_MEMBER_INLINE int32_t there(const ChunkedMatrix<kWhole>& matrix, int32_t number) { return number < matrix.chunks ? number : matrix.chunks - 1; }
  TS_MEMBER_INLINE void load_weights(const ChunkedMatrix<kWhole>& matrix, uint32_t row, int32_t number) {
    const int32_t chunk = there(matrix, number), panel = row / kPanel, lane = row % kPanel, step = matrix.first_step(chunk);
    weights.load(matrix.data + panel * matrix.panel_bytes, step, matrix.end_step(chunk, step), lane + 4 * (warp_lane() / 4));
    factor = matrix.scales[(panel * matrix.groups + matrix.group_of(chunk)) * kPanel + lane + warp_lane()];
  }
  TS_MEMBER_INLINE void load_rows(const LinearArgs& args, const ChunkedMatrix<kWhole>& matrix, int32_t first_token, int32_t number) {
    const int32_t chunk = there(matrix, number), g = warp_lane() / 4, t = warp_lane() % 4;
    const int32_t step = matrix.first_step(chunk), end = matrix.end_step(chunk, step), group = matrix.group_of(chunk);
    const int32_t last = static_cast<int32_t>(args.tokens) - 1;
    TS_EVERY_LANE
    for (int tile = 0; tile < kTiles; ++tile) {
      TS_EVERY_LANE
      for (int i = 0; i < kChunkSteps; ++i) {
        const int32_t asked = first_token + tile * 8 + g, token = asked < last ? asked : last;  // rows after the last one are not stored
        const int32_t at = step + i < end ? step + i : step;
        rows[tile][i] = load16(args.q + int64_t{token} * args.padded + at * kStep + 16 * t);
      }
    }
    steps = end - step;
    const int32_t own = first_token + warp_lane() % kTokens;
    const int64_t pair = (own < last ? own : last) * args.groups + group;
    scale = args.x_scales[pair];
    correction = args.corrections[pair];
  }
  // at: the chunk's place in its round.
  TS_MEMBER_INLINE void multiply(int32_t at) const {
    constexpr int kTogether = kTiles < 2 ? 1 : 2;  // tiles whose sums are in registers at the same time
    const int32_t g = warp_lane() / 4, t = warp_lane() % 4;
    TS_EVERY_LANE
    for (int from = 0; from < kTiles; from += kTogether) {
      int32_t sums[kTogether][2][4] = {};
      TS_EVERY_LANE
      for (int i = 0; i < 2 * kChunkSteps; ++i) {
        if (!kWhole && i / 2 >= steps) continue;
        Words4 first, second;
        weights.quads(i / 2, i % 2, first, second);
        const uint32_t lower[4] = {first[0], first[1], second[0], second[1]}, upper[4] = {first[2], first[3], second[2], second[3]};
        TS_EVERY_LANE
        for (int tile = 0; tile < kTogether; ++tile) {
          const uint32_t x[2] = {rows[from + tile][i / 2][i % 2 * 2], rows[from + tile][i / 2][i % 2 * 2 + 1]};
          mma_unsigned(sums[tile][0], lower, x);
          mma_unsigned(sums[tile][1], upper, x);
        }
      }
      TS_EVERY_LANE
      for (int i = 0; i < 2 * kTogether; ++i) {
        const int32_t(&low)[4] = sums[i / 2][0], (&high)[4] = sums[i / 2][1];
        Words4 four;
        TS_EVERY_LANE
        for (int r = 0; r < 4; ++r) four[r] = static_cast<uint32_t>(r < 2 ? low[2 * r + i % 2] : high[2 * (r - 2) + i % 2]);
        few_sums[(at * kTokens + (from + i / 2) * 8 + 2 * t + i % 2) * kFewQuads + g] = four;
      }
    }
    few_factors[at * kFewStrip + warp_lane()] = widen(factor);
    if (warp_lane() >= kTokens) return;
    few_scales[at * kTokens + warp_lane()] = scale;
    few_corrections[at * kTokens + warp_lane()] = correction;
  }
};

template <class Weights, int kTiles, bool kWhole>
struct FewRound {
  static constexpr int32_t kAtOnce = kTiles == 1 ? Weights::kMostAtOnce : 1, kChunks = kFewWarps * kAtOnce, kTokens = 8 * kTiles;
  static_assert(kChunks * kTokens <= kFewPlaces, "a round fits shared memory");
  FewChunk<Weights, kTiles, kWhole> chunks[kAtOnce];

  static TS_MEMBER_INLINE int32_t number(const FewPlace& place, int i) { return place.all.span + warp_index() + kFewWarps * i; }
  TS_MEMBER_INLINE void load_weights(const LinearArgs& args, const ChunkedMatrix<kWhole>& matrix, const FewPlace& place) {
    const uint32_t row = static_cast<uint32_t>(place.strip().row(args, kFewStrip));
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) chunks[i].load_weights(matrix, row, number(place, i));
  }
  TS_MEMBER_INLINE void load_rows(const LinearArgs& args, const ChunkedMatrix<kWhole>& matrix, const FewPlace& place) {
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i) chunks[i].load_rows(args, matrix, place.tile() * kTokens, number(place, i));
  }
  // left: the number of chunks from the first of the round on.
  TS_MEMBER_INLINE void multiply(int32_t left) const {
    TS_EVERY_LANE
    for (int i = 0; i < kAtOnce; ++i)
      if (warp_index() + kFewWarps * i < left) chunks[i].multiply(warp_index() + kFewWarps * i);
  }
};

// The state of a thread that folds: four rows of a strip for one row of activations.
struct FewFold {
  float sums[4], gates[4];
  int32_t whole[4];

  template <int32_t kTokens, bool kWhole>
  TS_MEMBER_INLINE void add(const ChunkedMatrix<kWhole>& matrix, int32_t span, int32_t end) {
    const int32_t quad = thread_index() % kFewQuads, token = thread_index() / kFewQuads;
    _Pragma("clang loop unroll_count(4)")
    for (int32_t chunk = span; chunk < end; ++chunk) {
      const int32_t at = chunk - span;
      const Words4 sum = few_sums[(at * kTokens + token) * kFewQuads + quad];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) whole[j] += static_cast<int32_t>(sum[j]);
      if (!matrix.ends_group(chunk)) continue;
      const float scale = few_scales[at * kTokens + token];
      const int32_t correction = few_corrections[at * kTokens + token];
      TS_EVERY_LANE
      for (int j = 0; j < 4; ++j) {
        sums[j] = fma(static_cast<float>(whole[j] + correction), scale * few_factors[at * kFewStrip + 4 * quad + j], sums[j]);
        whole[j] = 0;
      }
    }
  }
  TS_MEMBER_INLINE void end(const LinearArgs& args, const StripPlace& place, int32_t first_token) {
    const int64_t first = place.unit * kFewStrip + thread_index() % kFewQuads * 4;
    TS_EVERY_LANE
    for (int j = 0; j < 4; ++j) {
      finish_half(args, 0, first_token + thread_index() / kFewQuads, first + j, place.half, sums[j], gates[j]);
      sums[j] = 0.0f;
    }
  }
};

template <class Weights, int kTiles, bool kWhole>
TS_DEVICE_INLINE void linear_few_of(const LinearArgs& args) {
  const ChunkedMatrix<kWhole> matrix(args, 0);
  constexpr int32_t kTokens = 8 * kTiles;
  const int32_t all = static_cast<int32_t>(args.tokens), tiles = kTiles < kMostFewTiles ? 1 : (all + kTokens - 1) / kTokens;
  const int64_t units = strips_of(args, kFewStrip) * tiles;
  FewPlace place = {{block_index(), 0, 0}, tiles};
  FewRound<Weights, kTiles, kWhole> coming;
  coming.load_weights(args, matrix, place);  // each block has a first place
  wait_for_earlier();
  coming.load_rows(args, matrix, place);
  FewFold fold = {};
  while (place.all.unit < units) {
    const int32_t span = place.all.span, following = span + coming.kChunks, end = following < matrix.chunks ? following : matrix.chunks;
    FewPlace next = place;
    next.all.next(args, matrix.chunks, coming.kChunks);
    coming.multiply(matrix.chunks - span);
    const FewPlace& loaded = next.all.unit < units ? next : place;
    coming.load_weights(args, matrix, loaded);  // these loads are under way while sums are folded
    coming.load_rows(args, matrix, loaded);
    barrier();
    const int32_t first_token = place.tile() * kTokens, left = all - first_token;
    if (thread_index() < (left < kTokens ? left : kTokens) * kFewQuads) {
      fold.add<kTokens>(matrix, span, end);
      if (end == matrix.chunks) fold.end(args, place.strip(), first_token);
    }
    barrier();
    place = next;
  }
}

template <class Weights, int kTiles>
TS_DEVICE_INLINE void linear_few_by_chunks(const LinearArgs& args) {
  if (has_whole_chunks(args)) linear_few_of<Weights, kTiles, true>(args);
  else linear_few_of<Weights, kTiles, false>(args);
}

template <class Weights>
TS_DEVICE_INLINE void linear_few_by_tokens(const LinearArgs& args) {
  if (args.tokens <= 8) linear_few_by_chunks<Weights, 1>(args);
  else if (args.tokens <= kFewRows) linear_few_by_chunks<Weights, 2>(args);
  else linear_few_by_chunks<Weights, kMostFewTiles>(args);
}

// A block multiplies every parts-th strip by all rows, or by some of them.
TS_KERNEL_AHEAD(linear_few, LinearArgs) {
  at_most_threads<2 * kFewThreads>();  // this many registers let two blocks fit on a multiprocessor
  if (args.kind == TS_W_INT8) {
    linear_few_by_tokens<FewInt8>(args);
  } else {
    linear_few_by_tokens<FewInt4>(args);
  }
}

}  // namespace cuda
}  // namespace twostroke
