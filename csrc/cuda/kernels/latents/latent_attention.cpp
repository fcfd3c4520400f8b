// latent_attention and chosen_latent_attention: attention over pages of latents, whose single head all query heads share. Numbers of int8
// and int4 pages are widened first. So in every format both products are of floats, in the order of dimensions and of positions.
#include "twostroke/cuda/attention/attend.h"
#include "twostroke/cuda/attention/latents.h"

namespace twostroke {
namespace cuda {

TS_SHARED(float, latent_query, kMostLatent);

// Returns 0 for a position that the row chose, else -infinity. The chosen positions rise, and -1 ends them.
TS_DEVICE_INLINE float unless_chosen(const AttentionArgs& args, int64_t token, int64_t position) {
  const float* chosen = args.chosen + token * args.chosen_stride;
  const float wanted = static_cast<float>(position);
  int64_t low = 0, high = args.choices;  // fewer than `low` positions lie before the wanted one
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const bool before = chosen[middle] >= 0.0f && chosen[middle] < wanted;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low < args.choices && chosen[low] == wanted ? 0.0f : -__builtin_inff();
}

TS_KERNEL(latent_attention, AttentionArgs) {
  const QueryRow row = query_row(args);
  const int64_t dim = args.layer.head_dim, latent = args.layer.value_dim, num_turned = dim - latent;
  const int32_t thread = thread_index();
  const float scale = args.scale * kLog2E;
  const float* q = args.q + row.token * args.q_stride + row.head * latent;
  const float* turned = args.q_turned + row.token * args.turned_stride + row.head * num_turned;
  for (int64_t d = thread; d < dim; d += kGroupThreads) latent_query[d] = (d < latent ? q[d] : turned[d - latent]) * scale;
  barrier();
  const auto score = [&](int64_t position) {
    const LatentPosition key(args.layer, row.pages, position);
    float sum = 0.0f;
    _Pragma("clang loop unroll_count(8)")
    for (int64_t d = 0; d < dim; ++d) sum = fma(latent_query[d], key[d], sum);
    const float added = args.chosen == nullptr ? 0.0f : unless_chosen(args, row.token, position);
    return added < 0.0f ? added : sum;  // this also holds where the sum is NaN
  };
  each_float_tile(args, row, score, [&](int64_t position, int64_t d) {
    // Positions that were not chosen have the least possible weight. They are not read, because 0 times a number that is not finite is not
    // 0.
    const bool least = args.chosen != nullptr && !(tile_weights[position % kTile] > 0x1p-125f);
    return least && unless_chosen(args, row.token, position) < 0.0f ? 0.0f : LatentPosition(args.layer, row.pages, position)[d];
  });
}

}  // namespace cuda
}  // namespace twostroke
