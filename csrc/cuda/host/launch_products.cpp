// Products with packed weights: activations rounded to int8 first where weights are whole numbers, kRowsAtOnce rows at a time, so that
// scratch memory stays small. A row's bits do not depend on who shares these.
// Knows: ops' operands, kernels' arguments. Must not know: other ops.
#include "twostroke/cuda/launch.h"
#include "twostroke/cuda/packed.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kRowsAtOnce = 128;  // a multiple of kProductRows
constexpr int64_t kMostGroup = 1024;

int64_t round_up(int64_t bytes) { return divide_up(bytes, 256) * 256; }

// Rows of activations in int8, in scratch memory.
struct Rounded {
  int64_t padded, groups, q_bytes, pair_bytes;

  explicit Rounded(const ts_weight& w)
      : padded(padded_columns(w.kind, w.columns)), groups(w.group == 0 ? 0 : divide_up(padded, w.group)), q_bytes(0), pair_bytes(0) {
    if (!is_whole(w.kind)) return;
    q_bytes = round_up(kRowsAtOnce * padded);
    pair_bytes = round_up(kRowsAtOnce * groups * 4);
  }
  int64_t bytes() const { return q_bytes + 2 * pair_bytes; }
};

int32_t start_product(ts_context& device, const ts_weight& w, const Rounded& rounded, uint64_t scratch, const float* x, int64_t x_stride,
                      int64_t tokens, float* out, int64_t out_stride, bool add) {
  LinearArgs args = {};
  args.out = out;
  args.x = x;
  args.data = static_cast<const uint8_t*>(w.data);
  args.scales = w.scales;
  args.bias = w.bias;
  args.out_stride = out_stride;
  args.x_stride = x_stride;
  args.tokens = tokens;
  args.rows = w.rows;
  args.columns = w.columns;
  args.padded = rounded.padded;
  args.group = w.group;
  args.groups = rounded.groups;
  args.panels = divide_up(w.rows, kPanel);
  args.kind = w.kind;
  args.add = add;
  if (!is_whole(w.kind))
    return start(device, kKernel_linear_float, tokens * divide_up(args.panels, kProductThreads / kPanel), kProductThreads, &args);
  const QuantizeArgs quantize = {x,
                                 reinterpret_cast<int8_t*>(scratch),
                                 reinterpret_cast<float*>(scratch + static_cast<uint64_t>(rounded.q_bytes)),
                                 reinterpret_cast<int32_t*>(scratch + static_cast<uint64_t>(rounded.q_bytes + rounded.pair_bytes)),
                                 x_stride,
                                 w.columns,
                                 rounded.padded,
                                 w.group,
                                 rounded.groups};
  const int32_t status = start(device, kKernel_quantize, tokens * rounded.groups, kGroupThreads, &quantize);
  if (status != TS_OK) return status;
  args.q = quantize.q;
  args.x_scales = quantize.scales;
  args.corrections = quantize.corrections;
  return start(device, kKernel_linear_whole, args.panels * divide_up(tokens, kProductRows), kProductThreads, &args);
}

int32_t product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight, bool add) {
  int32_t status = check_weight(weight);
  if (status != TS_OK) return status;
  if (out.rows != x.rows || width_of(x) != weight->columns || width_of(out) != weight->rows) return TS_BAD_SHAPE;
  const Rounded rounded(*weight);
  const uint64_t scratch = scratch_of(device, rounded.bytes(), &status);
  for (int64_t first = 0; first < x.rows && status == TS_OK; first += kRowsAtOnce) {
    const int64_t tokens = x.rows - first < kRowsAtOnce ? x.rows - first : kRowsAtOnce;
    status = start_product(device, *weight, rounded, scratch, x.data + first * x.stride, x.stride, tokens, out.data + first * out.stride,
                           out.stride, add);
  }
  return status;
}

// Both halves of the product go to scratch memory, then silu of the first times the second.
int32_t gated_product(ts_context& device, const ts_value& out, const ts_value& x, const ts_weight* weight) {
  int32_t status = check_weight(weight);
  if (status != TS_OK) return status;
  if (out.rows != x.rows || width_of(x) != weight->columns || 2 * width_of(out) != weight->rows) return TS_BAD_SHAPE;
  const Rounded rounded(*weight);
  const uint64_t scratch = scratch_of(device, rounded.bytes() + kRowsAtOnce * weight->rows * 4, &status);
  float* both = reinterpret_cast<float*>(scratch + static_cast<uint64_t>(rounded.bytes()));
  for (int64_t first = 0; first < x.rows && status == TS_OK; first += kRowsAtOnce) {
    const int64_t tokens = x.rows - first < kRowsAtOnce ? x.rows - first : kRowsAtOnce;
    status = start_product(device, *weight, rounded, scratch, x.data + first * x.stride, x.stride, tokens, both, weight->rows, false);
    if (status != TS_OK) return status;
    const ts_value some = {out.data + first * out.stride, out.stride, tokens, out.heads, out.dim};
    const ts_gate_args gate = {some, {both, weight->rows, tokens, 1, weight->rows}, 0, 0.0, 0.0};
    status = launch(device, gate);
  }
  return status;
}

}  // namespace

int32_t check_weight(const ts_weight* w) {
  if (w == nullptr || w->data == nullptr) return TS_BAD_POINTER;
  if (w->kind < TS_W_F32 || w->kind > TS_W_INT4 || w->experts != 0) return TS_BAD_FORMAT;
  if (w->rows <= 0 || w->columns <= 0) return TS_BAD_SHAPE;
  if (!is_whole(w->kind)) return w->group == 0 ? TS_OK : TS_BAD_FORMAT;
  if (w->group <= 0 || w->group % kStep != 0 || w->group > kMostGroup) return TS_BAD_FORMAT;
  return w->scales == nullptr ? TS_BAD_POINTER : TS_OK;
}

int32_t launch(ts_context& device, const ts_linear_args& a) { return product(device, a.out, a.x, a.weight, false); }

int32_t launch(ts_context& device, const ts_linear_add_args& a) { return product(device, a.out, a.x, a.weight, true); }

int32_t launch(ts_context& device, const ts_linear_silu_args& a) { return gated_product(device, a.out, a.x, a.weight); }

int32_t launch(ts_context& device, const ts_feed_forward_args& a) {
  if (a.gate_up == nullptr || a.down == nullptr || a.middle.rows != a.x.rows || width_of(a.middle) != a.down->columns) return TS_BAD_SHAPE;
  const int32_t status = gated_product(device, a.middle, a.x, a.gate_up);
  return status == TS_OK ? product(device, a.out, a.middle, a.down, true) : status;
}

}  // namespace cuda
}  // namespace twostroke
