// Products with weights of floats: which kernel for how many rows.
// Knows: kernels' arguments. Must not know: ops, other kinds of weights.
#include "twostroke/cuda/product.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kManyBlocks = 96;  // fewer leave too many multiprocessors without work

}  // namespace

int32_t start_float(ts_context& device, const LinearArgs& args) {
  if (reinterpret_cast<uintptr_t>(args.data) % 16 != 0) return TS_BAD_POINTER;
  if (args.columns > INT32_MAX || args.rows > INT32_MAX || args.tokens > INT32_MAX) return TS_BAD_SHAPE;
  const int64_t halves = divide_up(args.rows, kFloatHalf), many = args.panels * divide_up(args.tokens, kFloatMany);
  if (args.matrices != nullptr) return start(device, kKernel_linear_float, halves * args.tokens, kFloatFewThreads, &args);
  if (args.tokens <= kFloatFew) return start(device, kKernel_linear_float, halves, kFloatFewThreads, &args);
  if (args.tokens > kFloatMany / 2 && many >= kManyBlocks) return start(device, kKernel_linear_float_many, many, kFloatManyThreads, &args);
  return start(device, kKernel_linear_float_some, halves * divide_up(args.tokens, kFloatSome), kFloatSomeThreads, &args);
}

}  // namespace cuda
}  // namespace twostroke
