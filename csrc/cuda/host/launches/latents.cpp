// The launchers of ops over pages of latents. Slots and page tables are checked on the host, where the step was written.
#include "twostroke/attention/kv_page.h"
#include "twostroke/cuda/host/launch.h"

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kSelectRows = 16;  // the rows whose scores are in scratch memory at once
constexpr int64_t kMostPositions = 1 << 24;  // whole numbers below it are exact in float32

int32_t check_latents(const ts_kv_layer* layer) {
  const int32_t status = check_layer(layer);
  if (status != TS_OK) return status;
  return layer->latent == 0 || layer->head_dim > kMostLatent ? TS_BAD_SHAPE : TS_OK;
}

// Fills in the operands that both attention ops have.
template <class Args>
int32_t fill(ts_context& device, const Args& a, int64_t window, AttentionArgs* args) {
  int32_t status = check_latents(a.layer);
  if (status != TS_OK) return status;
  if (!same_shape(a.out, a.q) || a.q.dim != a.layer->value_dim || a.q.dim > kMostDim) return TS_BAD_SHAPE;
  if (a.q_turned.rows != a.q.rows || a.q_turned.heads != a.q.heads) return TS_BAD_SHAPE;
  if (a.q_turned.dim != a.layer->head_dim - a.layer->value_dim) return TS_BAD_SHAPE;
  status = check_pages(a.batch, *a.layer, a.q.rows, window);
  if (status != TS_OK || a.batch.count == 0) return status;
  *args = {};
  args->window = static_cast<int32_t>(window);
  args->layer = *a.layer;
  args->out = a.out.data;
  args->q = a.q.data;
  args->q_turned = a.q_turned.data;
  args->q_stride = a.q.stride;
  args->turned_stride = a.q_turned.stride;
  args->out_stride = a.out.stride;
  args->heads = a.q.heads;
  args->scale = static_cast<float>(a.scale);
  return mirror_sequences(device, a.batch, args);
}

}  // namespace

int32_t launch(ts_context& device, const ts_latent_write_args& a) {
  const int32_t status = check_latents(a.layer);
  if (status != TS_OK) return status;
  if (width_of(a.rows) != a.layer->head_dim || a.slots.count != a.rows.rows) return TS_BAD_SHAPE;
  if (!in_range(a.slots, a.layer->num_pages * TS_PAGE_TOKENS)) return TS_BAD_INDEX;
  LatentWriteArgs args = {a, *a.layer};
  return mirror(device, args.slots) ? start(device, kKernel_latent_write, a.rows.rows, kGroupThreads, &args) : TS_BAD_POINTER;
}

int32_t launch(ts_context& device, const ts_latent_attention_args& a) {
  AttentionArgs args;
  if (a.window < 0 || a.window > INT32_MAX) return TS_BAD_SHAPE;
  const int32_t status = fill(device, a, a.window, &args);
  if (status != TS_OK || a.batch.count == 0) return status;
  return start(device, kKernel_latent_attention, a.q.rows * a.q.heads, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_chosen_latent_attention_args& a) {
  AttentionArgs args;
  const int32_t status = fill(device, a, 0, &args);
  if (status != TS_OK || a.batch.count == 0) return status;
  if (a.chosen.rows != a.q.rows) return TS_BAD_SHAPE;
  if (a.sinks.data != nullptr && a.sinks.length != a.q.heads) return TS_BAD_SHAPE;
  args.sinks = a.sinks.data;
  args.chosen = a.chosen.data;
  args.chosen_stride = a.chosen.stride;
  args.choices = width_of(a.chosen);
  return start(device, kKernel_latent_attention, a.q.rows * a.q.heads, kGroupThreads, &args);
}

int32_t launch(ts_context& device, const ts_index_select_args& a) {
  int32_t status = check_latents(a.layer);
  if (status != TS_OK) return status;
  if (a.q.dim != a.layer->head_dim || width_of(a.weights) != a.q.heads) return TS_BAD_SHAPE;
  if (a.q.rows != a.out.rows || a.weights.rows != a.out.rows) return TS_BAD_SHAPE;
  status = check_pages(a.batch, *a.layer, a.q.rows, 0);
  if (status != TS_OK || a.batch.count == 0) return status;
  return start_selection(device, a, 1, kKernel_index_scores, kGroupThreads);
}

int32_t select_largest(ts_context& device, const SelectArgs& of, KernelNumber scores, int32_t threads, int64_t rows, const ts_sequences& batch) {
  int64_t longest = 1;
  for (int64_t s = 0; s < batch.count; ++s) longest = batch.context_tokens[s] > longest ? batch.context_tokens[s] : longest;
  if (longest >= kMostPositions) return TS_BAD_SHAPE;
  SelectArgs args = of;
  int32_t status = mirror_sequences(device, batch, &args);
  if (status != TS_OK) return status;
  args.tiles = divide_up(divide_up(longest, args.rate), kGroupThreads);
  args.positions = args.tiles * kGroupThreads;
  args.scores = reinterpret_cast<float*>(scratch_of(device, 4 * kSelectRows * args.positions, &status));
  for (; args.first_row < rows && status == TS_OK; args.first_row += kSelectRows) {
    const int64_t some = rows - args.first_row < kSelectRows ? rows - args.first_row : kSelectRows;
    status = start(device, scores, some * args.tiles, threads, &args);
    if (status == TS_OK) status = start(device, kKernel_index_choose, some, kThreads, &args);
  }
  return status;
}

}  // namespace cuda
}  // namespace twostroke
