// add_losses: adds what best_losses found to the logits.
#include "twostroke/checks.h"
#include "twostroke/context.h"

namespace twostroke {

int32_t run(ts_context*, const ts_add_losses_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const int64_t width = width_of(a.out), all = width_of(a.losses);
  for (int64_t row = 0; row < a.out.rows; ++row) {
    const float* numbers = a.losses.data + row * a.losses.stride + a.count;
    for (int64_t i = 0; i < a.count; ++i)
      if (!(numbers[i] >= 0 && numbers[i] < static_cast<float>(width))) return TS_BAD_INDEX;
  }
  for (int64_t row = 0; row < a.out.rows; ++row) {
    const float *losses = a.losses.data + row * a.losses.stride, *numbers = losses + a.count;
    float* logits = a.out.data + row * a.out.stride;
    for (int64_t part = 0; part < all; part += 2 * a.count)
      for (int64_t i = 0; i < a.count; ++i)
        if (losses[part + i] != 0) logits[static_cast<int64_t>(numbers[i])] += losses[part + i];
  }
  return TS_OK;
}

}  // namespace twostroke
