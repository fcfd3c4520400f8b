// Products with float weights: this file chooses the kernel by the number of rows.
#include "twostroke/cuda/host/product.h"

namespace twostroke {
namespace cuda {
namespace {

bool at_16_bytes(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace

int32_t start_float(ts_context& device, LinearArgs args) {
  if (!at_16_bytes(args.data)) return TS_BAD_POINTER;
  if (args.columns > INT32_MAX || args.rows > INT32_MAX || args.tokens > INT32_MAX) return TS_BAD_SHAPE;
  args.aligned = at_16_bytes(args.x) && args.x_stride % 4 == 0 && args.columns % 4 == 0;
  const int64_t halves = divide_up(args.rows, TS_PANEL_ROWS / 2);
  if (args.matrices != nullptr) return start(device, kKernel_linear_float, halves * args.tokens, kFloatFewThreads, &args);
  if (args.tokens <= kFloatFew) return start(device, kKernel_linear_float, halves, kFloatFewThreads, &args);
  if (args.tokens <= kFloatSome || args.aligned == 0)
    return start(device, kKernel_linear_float_some, halves * divide_up(args.tokens, kFloatSome), kFloatThreads, &args);
  const int64_t many = args.panels * divide_up(args.tokens, kFloatMany), wide = divide_up(args.panels, 2) * divide_up(args.tokens, kFloatWide);
  // With few of these blocks, too many multiprocessors would be idle, and smaller blocks are quicker.
  if (args.tokens > kFloatMore && 2 * wide >= 3 * device.multiprocessors) return start(device, kKernel_linear_float_wide, wide, kFloatThreads, &args);
  if (args.tokens > kFloatMore && 4 * many >= 7 * device.multiprocessors) return start(device, kKernel_linear_float_many, many, kFloatThreads, &args);
  return start(device, kKernel_linear_float_more, halves * divide_up(args.tokens, kFloatMore), kFloatMoreThreads, &args);
}

}  // namespace cuda
}  // namespace twostroke
