// Chains of fused products in the order of k, as at the CPU's vector levels, so that the bits are the same. A chain cannot be cut, so a
// thread's next operands must be ready. Copies fill shared memory many stages ahead, and threads read from there.
#pragma once
#include "twostroke/cuda/products/floats/shape.h"
#include "twostroke/cuda/products/products.h"

namespace twostroke {
namespace cuda {

// Registers have no indices, so on a GPU every loop over them is unrolled.
#if defined(TS_EMULATED)
#define TS_EVERY_FLOAT _Pragma("clang loop unroll(disable)")
#define TS_TWO_CHUNKS _Pragma("clang loop unroll(disable)")
#else
#define TS_EVERY_FLOAT _Pragma("clang loop unroll(full)")
#define TS_TWO_CHUNKS _Pragma("clang loop unroll_count(2)")
#endif

// The sources of a block: weights, and rows of x.
struct FloatSource {
  const uint8_t* weights;
  const float* x;
  int64_t x_stride, panel_bytes;
  int32_t words, columns, tokens, panels;  // words: the words of a row of the matrix; panels: the panels from the first on
};

TS_DEVICE_INLINE Words4 four_of_x(const float* x, int32_t count) {
  Words4 four = {0, 0, 0, 0};
  for (int32_t i = 0; i < 4; ++i)
    if (i < count) four[i] = bits_of(x[i]);
  return four;
}

// Begins to copy a stage, or nothing after the last one. Words and rows of x outside the matrix become zeros, which no sum uses. kAligned:
// rows of x are whole fours at multiples of 16 bytes.
template <class Shape, int kPerWord, bool kAligned, class Weights, class X>
TS_DEVICE_INLINE void bring_floats(const FloatSource& from, Weights& weights, X& x, int32_t stage, int32_t slot) {
  const int32_t thread = thread_index() - Shape::kFirstCopier;
  const int64_t first = static_cast<int64_t>(stage) * Shape::kStageWords;
  constexpr int32_t kOfPanel = kPanel / 4;  // the Words4 of one word of a panel
  TS_EVERY_FLOAT
  for (int32_t j = 0; j < Shape::kStageWeights / Shape::kCopiers; ++j) {
    const int32_t i = thread + j * Shape::kCopiers, word = i / Shape::kStep, part = i % Shape::kStep, panel = part / kOfPanel;
    const uint8_t* at = from.weights + (first + word) * (kPanel * 4) + part % kOfPanel * 16 + (Shape::kStep > kOfPanel ? panel * from.panel_bytes : 0);
    copy_async(weights, slot * Shape::kStageWeights + i, at, first + word < from.words && (Shape::kStep <= kOfPanel || panel < from.panels));
  }
  constexpr int32_t kQuads = Shape::kStageWords * kPerWord / 4, kAll = Shape::kTokens * kQuads;
  TS_EVERY_FLOAT
  for (int32_t j = 0; j < (kAll + Shape::kCopiers - 1) / Shape::kCopiers; ++j) {
    const int32_t i = thread + j * Shape::kCopiers, token = i / kQuads;
    if (kAll % Shape::kCopiers != 0 && i >= kAll) continue;
    const int32_t k = static_cast<int32_t>(first) * kPerWord + i % kQuads * 4, left = token < from.tokens ? from.columns - k : 0;
    const float* x_from = from.x + token * from.x_stride + k;
    if (kAligned) copy_async(x, slot * Shape::kStageX + i, x_from, left > 0);
    else x[slot * Shape::kStageX + i] = four_of_x(x_from, left);
  }
}

// The rows of the matrix that a thread has. They are 32 apart; or, if it has four, they are next to each other, so that one load has a word
// of each.
template <class Shape>
TS_DEVICE_INLINE int32_t own_row(int32_t own) {
  return Shape::kOwn == 4 ? warp_lane() * 4 + own : own * kWarp + warp_lane();
}

// A few words of k, of a thread's matrix rows and of its warp's rows of x.
template <class Shape, int kPerWord>
struct FloatChunk {
  static constexpr int kK = Shape::kChunk, kWords = kK / kPerWord, kQuads = Shape::kStageWords * kPerWord / 4;
  uint32_t words[kWords][Shape::kOwn];
  Words4 x[Shape::kRows][kK / 4];

  template <class Weights, class X>
  TS_MEMBER_INLINE void read(Weights& weights, X& x_ring, int32_t slot, int32_t chunk) {
    const int32_t at = slot * Shape::kStageWeights + chunk * kWords * Shape::kStep;
    TS_EVERY_FLOAT
    for (int32_t j = 0; j < kWords; ++j) {
      if (Shape::kOwn == 4) {
        const Words4 four = weights[at + j * Shape::kStep + warp_lane()];
        TS_EVERY_FLOAT
        for (int32_t o = 0; o < Shape::kOwn; ++o) words[j][o] = four[o];
        continue;
      }
      TS_EVERY_FLOAT
      for (int32_t o = 0; o < Shape::kOwn; ++o) words[j][o] = word_of(weights, (at + j * Shape::kStep) * 4 + own_row<Shape>(o));
    }
    const int32_t first = slot * Shape::kStageX + warp_index() * Shape::kRows * kQuads + chunk * kK / 4;
    TS_EVERY_FLOAT
    for (int32_t r = 0; r < Shape::kRows; ++r) {
      TS_EVERY_FLOAT
      for (int32_t q = 0; q < kK / 4; ++q) x[r][q] = x_ring[first + r * kQuads + q];
    }
  }
  TS_MEMBER_INLINE void stay() {
    TS_EVERY_FLOAT
    for (int32_t j = 0; j < kWords; ++j) {
      TS_EVERY_FLOAT
      for (int32_t o = 0; o < Shape::kOwn; ++o) load_before(words[j][o]);
    }
    TS_EVERY_FLOAT
    for (int32_t r = 0; r < Shape::kRows; ++r) {
      TS_EVERY_FLOAT
      for (int32_t q = 0; q < kK / 4; ++q) load_before(x[r][q]);
    }
  }
  TS_MEMBER_INLINE float weight(int32_t k, int32_t own) const {
    const uint32_t word = words[k / kPerWord][own];
    return float_of(kPerWord == 1 ? word : k % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  // `left`: the number of k that the chunk has.
  TS_MEMBER_INLINE void add(float (&sums)[Shape::kRows][Shape::kOwn], int32_t left) const {
    TS_EVERY_FLOAT
    for (int32_t k = 0; k < kK; ++k) {
      TS_EVERY_FLOAT
      for (int32_t r = 0; r < Shape::kRows; ++r) {
        TS_EVERY_FLOAT
        for (int32_t o = 0; o < Shape::kOwn; ++o)
          if (k < left) sums[r][o] = fma(float_of(x[r][k / 4][k % 4]), weight(k, o), sums[r][o]);
      }
    }
  }
};

// A thread's part in a block's chains: it adds, it copies, or it does both. All threads call it together.
template <class Shape, int kPerWord, bool kAligned, bool kAdds, bool kCopies, class Weights, class X>
TS_DEVICE_INLINE void add_floats(const FloatSource& from, Weights& weights, X& x, float (&sums)[Shape::kRows][Shape::kOwn]) {
  typedef FloatChunk<Shape, kPerWord> Chunk;
  constexpr int32_t kStageK = Shape::kStageWords * kPerWord, kChunks = kStageK / Shape::kChunk;
  constexpr bool kReadsAhead = kAdds && Shape::kAhead;
  const int32_t whole = from.columns / kStageK;
  TS_EVERY_FLOAT
  for (int32_t s = 0; s < Shape::kSlots - 1; ++s) {
    if (kCopies) bring_floats<Shape, kPerWord, kAligned>(from, weights, x, s, s);
    commit_copies();
  }
  wait_copies<Shape::kSlots - 2>();
  barrier();
  Chunk now, next;
  if (kReadsAhead) now.read(weights, x, 0, 0);
  int32_t slot = 0, before = Shape::kSlots - 1;
  for (int32_t stage = 0; stage < whole; ++stage) {
    const int32_t following = slot + 1 == Shape::kSlots ? 0 : slot + 1;
    if (kReadsAhead) next.read(weights, x, slot, 1);
    wait_copies<Shape::kSlots - 3>();  // the next stage is there for all threads, and all have finished with the stage before
    barrier();
    if (kCopies) bring_floats<Shape, kPerWord, kAligned>(from, weights, x, stage + Shape::kSlots - 1, before);
    commit_copies();
    if (kReadsAhead) {
      TS_EVERY_FLOAT
      for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
        const bool last = chunk + 1 == kChunks;
        if (chunk > 0) next.read(weights, x, last ? following : slot, last ? 0 : chunk + 1);
        next.stay();
        now.add(sums, Chunk::kK);
        now = next;
      }
    } else if (kAdds) {
      TS_TWO_CHUNKS
      for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
        now.read(weights, x, slot, chunk);
        now.add(sums, Chunk::kK);
      }
    }
    before = slot;
    slot = following;
  }
  wait_copies<0>();
  const int32_t rest = kAdds ? from.columns - whole * kStageK : 0;
  for (int32_t chunk = 0; chunk * Chunk::kK < rest; ++chunk) {
    now.read(weights, x, slot, chunk);
    now.add(sums, rest - chunk * Chunk::kK);
  }
}

// Does the same with the code for the part that this thread has.
template <class Shape, int kPerWord, bool kAligned, class Weights, class X>
TS_DEVICE_INLINE void add_by_part(const FloatSource& from, Weights& weights, X& x, float (&sums)[Shape::kRows][Shape::kOwn]) {
  const bool adds = warp_index() * Shape::kRows < from.tokens && thread_index() < Shape::kAdders;
  if (adds) add_floats<Shape, kPerWord, kAligned, true, !Shape::kApart>(from, weights, x, sums);
  else if (!Shape::kApart || thread_index() >= Shape::kFirstCopier) add_floats<Shape, kPerWord, kAligned, false, true>(from, weights, x, sums);
  else add_floats<Shape, kPerWord, kAligned, false, false>(from, weights, x, sums);
}

}  // namespace cuda
}  // namespace twostroke
