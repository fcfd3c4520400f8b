// The kernels around the products of experts. They order the pairs of a row and an expert by the experts' numbers, gather the pairs' rows,
// and add the results in that order. So a row's bits depend on that row alone.
#include "twostroke/cuda/machine/fours.h"

namespace twostroke {
namespace cuda {

// A thread has one row. A row with a number that is no expert, or with one expert twice, gets NaN as weights, because the host cannot see
// this.
TS_KERNEL(order_choices, ChoiceArgs) {
  const int64_t row = block_index() * threads() + thread_index();
  if (row >= args.rows) return;
  const float *weights = args.routes + row * args.routes_stride, *numbers = weights + args.chosen;
  float last = -1.0f;
  int32_t matrix = 0;
  for (int64_t i = 0; i < args.chosen; ++i) {
    float next = static_cast<float>(args.experts + args.idle), weight = __builtin_nanf("");
    for (int64_t j = 0; j < args.chosen; ++j) {
      const float number = numbers[j];
      if (!(number > last && number < next) || static_cast<float>(static_cast<int64_t>(number)) != number) continue;
      next = number;
      weight = weights[j];
    }
    const bool found = next < static_cast<float>(args.experts), none = next < static_cast<float>(args.experts + args.idle);
    if (found) matrix = static_cast<int32_t>(next);
    args.matrices[row * args.chosen + i] = matrix;
    args.weights[row * args.chosen + i] = none && !found ? 0.0f : weight;
    last = next;
  }
}

// A thread has one choice. The host cannot see a number that is no matrix.
TS_KERNEL(choice_numbers, NumberArgs) {
  const int64_t pair = block_index() * threads() + thread_index();
  if (pair >= args.rows * args.chosen) return;
  const float number = args.routes[pair / args.chosen * args.routes_stride + args.chosen + pair % args.chosen];
  args.matrices[pair] = number >= 0.0f && number < static_cast<float>(args.experts) ? static_cast<int32_t>(number) : 0;
}

// A thread has one row.
TS_KERNEL(idle_share, ts_idle_share_args) {
  const int64_t row = block_index() * threads() + thread_index(), chosen = width_of(args.routes) / 2;
  if (row >= args.out.rows) return;
  const float *weights = args.routes.data + row * args.routes.stride, *numbers = weights + chosen;
  float sum = 0.0f;
  for (int64_t i = 0; i < chosen; ++i)
    if (numbers[i] >= static_cast<float>(args.experts)) sum += weights[i];
  args.out.data[row * args.out.stride] = sum;
}

// A thread has four elements of a pair.
TS_KERNEL(gather_pairs, PairArgs) {
  const FourPlace e = four_place(args.width);
  if (e.count == 0) return;
  Four x = load_four(args.x + static_cast<uint32_t>(e.row) / static_cast<uint32_t>(args.chosen) * args.x_stride + e.at, e.count);
  if (args.weights != nullptr) {
    const float weight = args.weights[e.row];
    TS_EACH_OF_FOUR x.v[i] = x.v[i] * weight;
  }
  store_four(args.out + e.row * args.out_stride + e.at, x, e.count);
}

// A thread has four elements of a row.
TS_KERNEL(add_pairs, PairArgs) {
  const FourPlace e = four_place(args.width);
  if (e.count == 0) return;
  Four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
  for (int64_t pair = e.row * args.chosen; pair < (e.row + 1) * args.chosen; ++pair) {
    const float weight = args.weights == nullptr ? 1.0f : args.weights[pair];
    const int64_t place = args.places == nullptr ? pair : args.places[pair];
    const Four x = load_four(args.x + place * args.x_stride + e.at, e.count);
    TS_EACH_OF_FOUR sum.v[i] += weight * x.v[i];
  }
  store_four(args.out + e.row * args.out_stride + e.at, sum, e.count);
}

}  // namespace cuda
}  // namespace twostroke
