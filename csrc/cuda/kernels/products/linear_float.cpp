// Products with weights of floats (f32, bf16): one chain of fused products for each output, in the order of k, as at the CPU's vector
// levels: the same bits. A chain cannot be cut, so what a thread multiplies next must be at hand: blocks copy weights and rows of x to
// shared memory many steps ahead, and threads read from there one chunk ahead.
// Knows: packed panels. Must not know: gates, what asked.
#include "twostroke/cuda/products.h"

namespace twostroke {
namespace cuda {

// What a block has. A word: 32 bits of a panel, which are two k of bf16 or one of f32. A stage: words of k that are copied together, into
// one of kSlots places. Where a warp has one chain, other warps copy, because each instruction that it issues delays the chain.
template <int kOwnRows, int kRowsOfX, int kTokensOfBlock, int kWordsOfStage, int kSlotsOfRing, int kOfChunk>
struct FloatShape {
  static constexpr int kOwn = kOwnRows;           // rows of the matrix of a thread, 32 apart
  static constexpr int kRows = kRowsOfX;          // rows of x of a warp
  static constexpr int kTokens = kTokensOfBlock;  // rows of x of the block
  static constexpr int kStageWords = kWordsOfStage, kSlots = kSlotsOfRing;
  static constexpr int kChunk = kOfChunk;                    // k that a thread reads together
  static constexpr int kStep = kOwn * kWarp / 4;             // Words4 of one word of all rows of the block
  static constexpr int kStageWeights = kStageWords * kStep;  // Words4
  static constexpr int kStageX = kTokens * kStageWords / 2;  // Words4 where a word is two k, the most
  static constexpr int kAdders = kTokens / kRows * kWarp;           // threads with chains; a warp has kRows rows of x
  static constexpr bool kApart = kOwn * kRows == 1;                 // the threads that copy are others
  static constexpr int kCopiers = kAdders, kFirstCopier = kApart ? kAdders : 0;
  static_assert(kStageWeights % kCopiers == 0 && kStageWords % kChunk == 0 && kChunk % 4 == 0, "whole parts");
};
typedef FloatShape<1, 1, kFloatFew, 48, 7, 16> FewRows;
typedef FloatShape<1, 4, kFloatSome, 16, 11, 8> SomeRows;
typedef FloatShape<2, 8, kFloatMany, 16, 4, 4> ManyRows;
static_assert(FewRows::kFirstCopier + FewRows::kCopiers == kFloatFewThreads && SomeRows::kAdders == kFloatSomeThreads, "threads of blocks");
static_assert(ManyRows::kAdders == kFloatManyThreads, "threads of blocks");

TS_SHARED(Words4, few_weights, FewRows::kSlots* FewRows::kStageWeights);
TS_SHARED(Words4, few_x, FewRows::kSlots* FewRows::kStageX);
TS_SHARED(Words4, some_weights, SomeRows::kSlots* SomeRows::kStageWeights);
TS_SHARED(Words4, some_x, SomeRows::kSlots* SomeRows::kStageX);
TS_SHARED(Words4, many_weights, ManyRows::kSlots* ManyRows::kStageWeights);
TS_SHARED(Words4, many_x, ManyRows::kSlots* ManyRows::kStageX);

// Registers have no indices: on a GPU every loop over them is unrolled.
#if defined(TS_EMULATED)
#define TS_EVERY_FLOAT _Pragma("clang loop unroll(disable)")
#else
#define TS_EVERY_FLOAT _Pragma("clang loop unroll(full)")
#endif

// Where a block's weights and rows of x come from.
struct FloatSource {
  const uint8_t* weights;
  const float* x;
  int64_t x_stride;
  int32_t words, columns, tokens;  // words of a row of the matrix
};

TS_DEVICE_INLINE Words4 four_of_x(const float* x, int32_t count) {
  Words4 four = {0, 0, 0, 0};
  for (int32_t i = 0; i < 4; ++i)
    if (i < count) four[i] = bits_of(x[i]);
  return four;
}

// Begins to bring a stage, or one behind the last. Words and rows of x that there are not become zeros, which no sum takes. kAligned: rows of
// x are whole fours at multiples of 16 bytes.
template <class Shape, int kPerWord, bool kAligned, class Weights, class X>
TS_DEVICE_INLINE void bring_floats(const FloatSource& from, Weights& weights, X& x, int32_t stage, int32_t slot) {
  const int32_t thread = thread_index() - Shape::kFirstCopier;
  const int64_t first = static_cast<int64_t>(stage) * Shape::kStageWords;
  TS_EVERY_FLOAT
  for (int32_t j = 0; j < Shape::kStageWeights / Shape::kCopiers; ++j) {
    const int32_t i = thread + j * Shape::kCopiers, word = i / Shape::kStep;
    copy_async(weights, slot * Shape::kStageWeights + i, from.weights + (first + word) * (kPanel * 4) + i % Shape::kStep * 16, first + word < from.words);
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

// A few words of k of a thread's rows, and of its warp's rows of x.
template <class Shape, int kPerWord>
struct FloatChunk {
  static constexpr int kK = Shape::kChunk, kWords = kK / kPerWord, kQuads = Shape::kStageWords * kPerWord / 4;
  uint32_t words[kWords][Shape::kOwn];
  Words4 x[Shape::kRows][kK / 4];

  template <class Weights, class X>
  TS_MEMBER_INLINE void read(Weights& weights, X& x_ring, int32_t slot, int32_t chunk) {
    const int32_t lane = warp_lane(), at = (slot * Shape::kStageWeights + chunk * kWords * Shape::kStep) * 4;
    TS_EVERY_FLOAT
    for (int32_t j = 0; j < kWords; ++j) {
      TS_EVERY_FLOAT
      for (int32_t o = 0; o < Shape::kOwn; ++o) words[j][o] = word_of(weights, at + j * Shape::kStep * 4 + o * kWarp + lane);
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
  // `left`: k of the chunk that there are.
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

// The part of a thread in a block's chains: one that adds up, one that copies, or both. All do it together.
template <class Shape, int kPerWord, bool kAligned, bool kAdds, bool kCopies, class Weights, class X>
TS_DEVICE_INLINE void add_floats(const FloatSource& from, Weights& weights, X& x, float (&sums)[Shape::kRows][Shape::kOwn]) {
  typedef FloatChunk<Shape, kPerWord> Chunk;
  constexpr int32_t kStageK = Shape::kStageWords * kPerWord, kChunks = kStageK / Shape::kChunk;
  const int32_t whole = from.columns / kStageK;
  TS_EVERY_FLOAT
  for (int32_t s = 0; s < Shape::kSlots - 1; ++s) {
    if (kCopies) bring_floats<Shape, kPerWord, kAligned>(from, weights, x, s, s);
    commit_copies();
  }
  wait_copies<Shape::kSlots - 2>();
  barrier();
  Chunk now, next;
  if (kAdds) now.read(weights, x, 0, 0);
  int32_t slot = 0, before = Shape::kSlots - 1;
  for (int32_t stage = 0; stage < whole; ++stage) {
    const int32_t following = slot + 1 == Shape::kSlots ? 0 : slot + 1;
    TS_EVERY_FLOAT
    for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
      const bool last = chunk + 1 == kChunks;
      if (kAdds) next.read(weights, x, last ? following : slot, last ? 0 : chunk + 1);
      if (chunk == 0) {  // the next stage is there for all threads, and all are done with the place of the one before
        wait_copies<Shape::kSlots - 3>();
        barrier();
        if (kCopies) bring_floats<Shape, kPerWord, kAligned>(from, weights, x, stage + Shape::kSlots - 1, before);
        commit_copies();
      }
      if (kAdds) {
        next.stay();
        now.add(sums, Chunk::kK);
        now = next;
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

// Which part this thread has.
template <class Shape, int kPerWord, bool kAligned, class Weights, class X>
TS_DEVICE_INLINE void add_by_part(const FloatSource& from, Weights& weights, X& x, float (&sums)[Shape::kRows][Shape::kOwn]) {
  const bool adds = warp_index() * Shape::kRows < from.tokens && thread_index() < Shape::kAdders;
  if (adds) add_floats<Shape, kPerWord, kAligned, true, !Shape::kApart>(from, weights, x, sums);
  else if (!Shape::kApart || thread_index() >= Shape::kFirstCopier) add_floats<Shape, kPerWord, kAligned, false, true>(from, weights, x, sums);
  else add_floats<Shape, kPerWord, kAligned, false, false>(from, weights, x, sums);
}

// One block: kTokens rows of x from first_token on by rows of the matrix from `row` on.
template <class Shape, int kPerWord, class Weights, class X>
TS_DEVICE_INLINE void float_block(const LinearArgs& args, Weights& weights, X& x, int64_t matrix, int32_t first_token, int32_t tokens, int32_t row) {
  FloatSource from;
  from.weights = panel_of(args, matrix, row) + row % kPanel * 4;
  from.x = args.x + first_token * args.x_stride;
  from.x_stride = args.x_stride;
  from.words = static_cast<int32_t>(args.padded) / kPerWord;
  from.columns = static_cast<int32_t>(args.columns);
  from.tokens = tokens;
  const bool aligned = (reinterpret_cast<uint64_t>(args.x) & 15) == 0 && args.x_stride % 4 == 0 && args.columns % 4 == 0;
  float sums[Shape::kRows][Shape::kOwn];
  TS_EVERY_FLOAT
  for (int32_t r = 0; r < Shape::kRows; ++r) {
    TS_EVERY_FLOAT
    for (int32_t o = 0; o < Shape::kOwn; ++o) sums[r][o] = 0.0f;
  }
  if (aligned) add_by_part<Shape, kPerWord, true>(from, weights, x, sums);
  else add_by_part<Shape, kPerWord, false>(from, weights, x, sums);
  const int32_t own = warp_index() * Shape::kRows;
  TS_EVERY_FLOAT
  for (int32_t r = 0; r < Shape::kRows; ++r) {
    TS_EVERY_FLOAT
    for (int32_t o = 0; o < Shape::kOwn; ++o) {
      const int32_t out = row + o * kWarp + warp_lane();
      if (own + r < tokens && out < args.rows) finish(args, matrix, first_token + own + r, out, sums[r][o]);
    }
  }
}

// Blocks that share weights follow each other.
template <class Shape, class Weights, class X>
TS_DEVICE_INLINE void float_rows(const LinearArgs& args, Weights& weights, X& x) {
  const bool bank = args.matrices != nullptr;
  const uint32_t all = static_cast<uint32_t>(args.tokens), together = bank ? 1 : Shape::kTokens, parts = (all + together - 1) / together;
  const uint32_t block = static_cast<uint32_t>(block_index());
  const int32_t first = static_cast<int32_t>(block % parts * together), row = static_cast<int32_t>(block / parts) * Shape::kOwn * kWarp;
  const int32_t left = static_cast<int32_t>(all) - first, tokens = left < static_cast<int32_t>(together) ? left : static_cast<int32_t>(together);
  const int64_t matrix = matrix_of(args, first);
  if (args.kind == TS_W_F32) float_block<Shape, 1>(args, weights, x, matrix, first, tokens, row);
  else float_block<Shape, 2>(args, weights, x, matrix, first, tokens, row);
}

TS_KERNEL(linear_float, LinearArgs) { float_rows<FewRows>(args, few_weights, few_x); }
TS_KERNEL(linear_float_some, LinearArgs) { float_rows<SomeRows>(args, some_weights, some_x); }
TS_KERNEL(linear_float_many, LinearArgs) { float_rows<ManyRows>(args, many_weights, many_x); }

}  // namespace cuda
}  // namespace twostroke
