// The shape of a block in products with float weights. A word is 32 bits of a panel: two k of bf16 or one k of f32. A stage is the words of
// k that are copied together to shared memory, into one of kSlots places.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {

// The threads that copy: those that also add, or others. Others are better where a warp has few chains, because each instruction that it
// issues delays them.
enum FloatCopiers { kTheSame, kOthers };

// Own: a thread's rows of the matrix. Rows: a warp's rows of x. Tokens: the block's rows of x. Chunk: the k that a thread reads together.
template <int Own, int Rows, int Tokens, int StageWords, int Slots, int Chunk, FloatCopiers Copiers>
struct FloatShape {
  static constexpr int kOwn = Own, kRows = Rows, kTokens = Tokens, kStageWords = StageWords, kSlots = Slots, kChunk = Chunk;
  static constexpr int kMatrixRows = kOwn * kWarp;  // matrix rows of the block
  static constexpr int kStep = kMatrixRows / 4;  // the Words4 of one word of all these rows
  static constexpr int kStageWeights = kStageWords * kStep;  // the Words4 of weights in a stage
  static constexpr int kStageX = kTokens * kStageWords / 2;  // the Words4 of x in a stage where a word is two k, which is the most
  static constexpr int kAdders = kTokens / kRows * kWarp;  // the threads with chains
  static constexpr bool kApart = Copiers == kOthers;
  static constexpr int kCopiers = kAdders, kFirstCopier = kApart ? kAdders : 0, kThreads = kFirstCopier + kCopiers;
  static constexpr bool kAhead = kOwn * kRows <= 4;  // a chunk is read before the chunk before it is added
  static_assert(kStageWeights % kCopiers == 0 && kStageWords % kChunk == 0 && kChunk % 4 == 0, "whole parts");
  static_assert((kStageWeights + kStageX) * kSlots * 16 <= 48 * 1024, "what a block may have of shared memory");
};

typedef FloatShape<1, 1, kFloatFew, 48, 7, 16, kOthers> FewRows;
typedef FloatShape<1, 2, kFloatSome, 32, 8, 16, kOthers> SomeRows;
typedef FloatShape<1, 4, kFloatMore, 16, 11, 8, kTheSame> MoreRows;
typedef FloatShape<2, 4, kFloatMany, 16, 6, 8, kTheSame> ManyRows;
typedef FloatShape<4, 8, kFloatWide, 16, 3, 4, kTheSame> WideRows;
static_assert(FewRows::kThreads == kFloatFewThreads && SomeRows::kThreads == kFloatThreads && MoreRows::kThreads == kFloatMoreThreads, "as started");
static_assert(ManyRows::kThreads == kFloatThreads && WideRows::kThreads == kFloatThreads, "as started");

}  // namespace cuda
}  // namespace twostroke
