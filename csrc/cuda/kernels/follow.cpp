// Fills in token ids that the host does not know yet, because a step begins with the tokens that the step before it sampled.
#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

TS_KERNEL(follow, FollowArgs) {
  const int64_t i = block_index() * kThreads + thread_index();
  if (i < args.count) args.tokens[args.pairs[2 * i]] = args.told[args.pairs[2 * i + 1]].token;
}

}  // namespace cuda
}  // namespace twostroke
