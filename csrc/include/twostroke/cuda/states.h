// The rows of one sequence and its state, for kernels that go through a sequence token by token.
// Knows: arguments/states.h. Must not know: what a state means.
#pragma once
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

struct Span {
  int64_t first, count;
  float* state;
};

TS_DEVICE_INLINE Span span_of(const StateArgs& args, int64_t sequence) {
  const int64_t first = args.row_starts[sequence];
  return {first, args.row_starts[sequence + 1] - first, args.data + args.slots[sequence] * args.stride};
}

}  // namespace cuda
}  // namespace twostroke
