// Rows of several streams that are computed from those of several other streams. A thread has four elements.
#pragma once
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

// make(row, at, x, weights, count) computes `count` elements of one new stream, from element `at` of the row on. x: the same elements of
// the first stream that is read; weights: one weight for each stream that is read.
template <class Args, class Make>
TS_DEVICE_INLINE void make_streams(const Args& args, const Make& make) {
  const FourPlace e = four_place(width_of(args.out));
  const uint32_t width = static_cast<uint32_t>(args.out.dim);
  const int32_t together = width % 4 == 0 ? e.count : 1;  // whether a thread's elements belong to one stream
  for (int32_t i = 0; i < e.count; i += together) {
    const uint32_t at = static_cast<uint32_t>(e.at + i), stream = at / width;
    const float* x = args.x.data + e.row * args.x.stride + (at - stream * width);
    const Four sum = make(e.row, at, x, args.weights.data + e.row * args.weights.stride + stream * args.x.heads, together);
    store_four(args.out.data + e.row * args.out.stride + at, sum, together);
  }
}

}  // namespace cuda
}  // namespace twostroke
