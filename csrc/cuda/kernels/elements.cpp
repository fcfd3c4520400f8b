// Ops that make every element by itself: a thread an element.
// Knows: arithmetic.h. Must not know: models, how the CPU divides the work.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/arithmetic.h"

namespace twostroke {
namespace cuda {

struct Element {
  int64_t row, at;
};

TS_DEVICE_INLINE Element element(int64_t parts) {
  return {block_index() / parts, block_index() % parts * threads() + thread_index()};
}

TS_KERNEL(add, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at < args.width) args.out[e.row * args.out_stride + e.at] += args.x[e.row * args.x_stride + e.at];
}

TS_KERNEL(activate, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at >= args.width) return;
  float* x = args.out + e.row * args.out_stride + e.at;
  *x = activated(args.activation, *x);
}

// x: (rows, 2 * width), gates first. out may be the first half of x.
TS_KERNEL(gate, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at >= args.width) return;
  const float* x = args.x + e.row * args.x_stride + e.at;
  float gate = x[0], up = x[args.width];
  if (args.limit > 0.0f || args.shift != 0.0f) {  // NaN stays: it is the second operand
    const float most = args.limit > 0.0f ? args.limit : __builtin_inff();
    gate = smaller(most, gate);
    up = larger(0.0f - most, smaller(most, up)) + args.shift;
  }
  args.out[e.row * args.out_stride + e.at] = activated(args.activation, gate) * up;
}

TS_KERNEL(multiply, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at >= args.width) return;
  const float factor = activated(args.activation, args.gate[e.row * args.gate_stride + e.at / args.shared]);
  args.out[e.row * args.out_stride + e.at] = args.x[e.row * args.x_stride + e.at] * factor;
}

TS_KERNEL(scale, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at < args.width) args.out[e.row * args.out_stride + e.at] *= args.factor;
}

TS_KERNEL(soft_cap, ElementArgs) {
  const Element e = element(args.parts);
  if (e.at >= args.width) return;
  float* x = args.out + e.row * args.out_stride + e.at;
  *x = tanh_ratio(*x * (1.0f / args.factor)) * args.factor;
}

// rows: NULL for all of them, as they are.
TS_KERNEL(gather_rows, GatherArgs) {
  const Element e = element(args.parts);
  if (e.at < args.width) args.out[e.row * args.out_stride + e.at] = args.x[(args.rows == nullptr ? e.row : args.rows[e.row]) * args.x_stride + e.at];
}

// A thread a pair of dimensions.
TS_KERNEL(rope, RopeArgs) {
  const Element e = element(args.parts);
  if (e.at >= args.heads * args.half) return;
  const int64_t i = e.at % args.half, at = args.positions[e.row] * args.half + i;
  float* head = args.x + e.row * args.stride + e.at / args.half * args.dim;
  const float low = head[i], high = head[args.half + i], c = args.cos_table[at], s = args.sin_table[at];
  head[i] = low * c - high * s;
  head[args.half + i] = high * c + low * s;
}

}  // namespace cuda
}  // namespace twostroke
