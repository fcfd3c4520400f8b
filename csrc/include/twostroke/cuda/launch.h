// How each op becomes kernels: one function for each op that has them. Shapes and indices are checked as the CPU's ops do it.
// Knows: ops.h, device.h. Must not know: programs.
#pragma once
#include "twostroke/cuda/device.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace cuda {

#define TS_LAUNCH(name) int32_t launch(ts_context& device, const ts_##name##_args& args);
TS_LAUNCH(activate)
TS_LAUNCH(add)
TS_LAUNCH(attention)
TS_LAUNCH(embed)
TS_LAUNCH(feed_forward)
TS_LAUNCH(gate)
TS_LAUNCH(gather_rows)
TS_LAUNCH(head_norm)
TS_LAUNCH(kv_write)
TS_LAUNCH(layer_norm)
TS_LAUNCH(linear)
TS_LAUNCH(linear_add)
TS_LAUNCH(linear_silu)
TS_LAUNCH(multiply)
TS_LAUNCH(rms_norm)
TS_LAUNCH(rope)
TS_LAUNCH(scale)
TS_LAUNCH(soft_cap)
#undef TS_LAUNCH

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of a row of the kernels that go element by element.
inline int64_t parts_of(int64_t width) { return divide_up(width, kThreads); }

// TS_OK, or what is wrong with a weight for these kernels: kinds as files have them are not among theirs.
int32_t check_weight(const ts_weight* weight);

constexpr int64_t kActivationKinds = 8;

}  // namespace cuda
}  // namespace twostroke
