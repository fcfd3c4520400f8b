// How each op becomes kernels: one function for each op that has them. Shapes and indices are checked as the CPU's ops do it.
#pragma once
#include "twostroke/cuda/host/device.h"
#include "twostroke/ops.h"

namespace twostroke {
namespace cuda {

#define TS_LAUNCH(name) int32_t launch(ts_context& device, const ts_##name##_args& args);
TS_LAUNCH(activate)
TS_LAUNCH(add)
TS_LAUNCH(attention)
TS_LAUNCH(chosen_latent_attention)
TS_LAUNCH(chosen_linear)
TS_LAUNCH(clamp)
TS_LAUNCH(compress)
TS_LAUNCH(delta_rule)
TS_LAUNCH(embed)
TS_LAUNCH(entry_attention)
TS_LAUNCH(entry_select)
TS_LAUNCH(entry_write)
TS_LAUNCH(experts)
TS_LAUNCH(feed_forward)
TS_LAUNCH(gate)
TS_LAUNCH(gated_norm)
TS_LAUNCH(gather_rows)
TS_LAUNCH(gaussian_cut)
TS_LAUNCH(head_layer_norm)
TS_LAUNCH(head_linear)
TS_LAUNCH(head_norm)
TS_LAUNCH(idle_share)
TS_LAUNCH(index_select)
TS_LAUNCH(kv_write)
TS_LAUNCH(latent_attention)
TS_LAUNCH(latent_write)
TS_LAUNCH(layer_norm)
TS_LAUNCH(linear)
TS_LAUNCH(linear_add)
TS_LAUNCH(linear_silu)
TS_LAUNCH(low_rank)
TS_LAUNCH(match_rms)
TS_LAUNCH(mix_streams)
TS_LAUNCH(mlstm)
TS_LAUNCH(multiply)
TS_LAUNCH(place_scores)
TS_LAUNCH(placed_attention)
TS_LAUNCH(rg_lru)
TS_LAUNCH(rms_norm)
TS_LAUNCH(rope)
TS_LAUNCH(rotate_heads)
TS_LAUNCH(round_rows)
TS_LAUNCH(route)
TS_LAUNCH(route_by_token)
TS_LAUNCH(scale)
TS_LAUNCH(scale_columns)
TS_LAUNCH(selective_scan)
TS_LAUNCH(short_conv)
TS_LAUNCH(soft_cap)
TS_LAUNCH(sparse_mixer)
TS_LAUNCH(ssd_scan)
TS_LAUNCH(stream_shares)
TS_LAUNCH(take_columns)
TS_LAUNCH(token_shift)
TS_LAUNCH(weigh_streams)
TS_LAUNCH(wkv4)
TS_LAUNCH(wkv6)
TS_LAUNCH(wkv7)
TS_LAUNCH(xielu)
#undef TS_LAUNCH

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of a row of the kernels that have a thread for each channel.
inline int64_t parts_of(int64_t width) { return divide_up(width, kThreads); }

// Starts a kernel whose threads have four elements of a row each; *args has the parts of a row.
template <class Args>
int32_t start_fours(ts_context& device, KernelNumber kernel, int64_t rows, int64_t width, Args args) {
  if (width > INT32_MAX / 2) return TS_BAD_SHAPE;
  args.parts = divide_up(width, 4 * kFourThreads);
  return start(device, kernel, rows * args.parts, kFourThreads, &args);
}

// Threads of a block that has one row: eight elements each, as far as they go.
inline int32_t row_threads(int64_t columns) {
  const int64_t wanted = divide_up(columns, 8 * kNormThreads) * kNormThreads;
  return static_cast<int32_t>(wanted < 1024 ? wanted : 1024);
}

// TS_OK, or what is wrong with the sequences of a step of `rows` rows, or with their pages, of those that a window sees.
int32_t check_pages(const ts_sequences& batch, const ts_kv_layer& layer, int64_t rows, int64_t window);

// Where kernels find the sequences of a step.
template <class Args>
int32_t mirror_sequences(ts_context& device, const ts_sequences& s, Args* args) {
  args->row_starts = mirrored(device, s.row_starts, s.count + 1);
  args->context_tokens = mirrored(device, s.context_tokens, s.count);
  args->page_table = mirrored(device, s.page_table, s.count * s.max_pages);
  args->sequences = s.count;
  args->table_stride = s.max_pages;
  const bool found = args->row_starts != nullptr && args->context_tokens != nullptr && args->page_table != nullptr;
  return found ? TS_OK : TS_BAD_POINTER;
}

// The largest scores of the rows of index_select or entry_select: the kernel `scores` makes them, a block of `threads` a row and a tile of
// kGroupThreads keys, each of `rate` positions.
int32_t select_largest(ts_context& device, const SelectArgs& args, KernelNumber scores, int32_t threads, int64_t rows, const ts_sequences& batch);

// The operands that both have.
template <class Args>
int32_t start_selection(ts_context& device, const Args& a, int64_t rate, KernelNumber scores, int32_t threads) {
  SelectArgs args = {};
  args.layer = *a.layer;
  args.out = a.out.data;
  args.q = a.q.data;
  args.weights = a.weights.data;
  args.out_stride = a.out.stride;
  args.q_stride = a.q.stride;
  args.weights_stride = a.weights.stride;
  args.heads = a.q.heads;
  args.count = width_of(a.out);
  args.dim = a.q.dim;
  args.rate = rate;
  return select_largest(device, args, scores, threads, a.out.rows, a.batch);
}

// The kernel of attention over pages of this kind.
KernelNumber attention_kernel(int32_t kv_kind);

constexpr int64_t kActivationKinds = 10;

}  // namespace cuda
}  // namespace twostroke
