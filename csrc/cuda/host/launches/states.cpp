// The launchers of ops that go through sequences token by token, and of gated_norm, which comes after them in models. Slots and rows are
// checked on the host, where the step was written.
#include "twostroke/cuda/host/launch.h"
#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {
namespace {

// Starts a kernel with `blocks` blocks for each sequence, if the check of the operands returned the status TS_OK. The kernel reads slots
// and sequences on the device.
template <class Args>
int32_t start_scan(ts_context& device, KernelNumber kernel, int32_t status, Args args, int64_t blocks, int32_t threads = kThreads) {
  if (status != TS_OK || args.batch.count == 0) return status;
  args.batch.max_pages = 0;  // such kernels read no page table
  args.batch.page_table = args.batch.context_tokens;
  if (!mirror(device, args.slots) || !mirror(device, args.batch)) return TS_BAD_POINTER;
  return start(device, kernel, args.batch.count * blocks, threads, &args);
}

constexpr int64_t kChunkTokens = 8;

// Cuts sequences into chunks of tokens. Only the first chunk of a sequence reads the state, because a chunk has at least `tail` tokens or
// is the whole sequence.
template <class Op>
InChunks<Op> cut(const Op& a, int64_t tail) {
  int64_t most = 1;
  for (int64_t s = 0; s < a.batch.count; ++s) {
    const int64_t tokens = a.batch.row_starts[s + 1] - a.batch.row_starts[s];
    most = tokens > most ? tokens : most;
  }
  const int64_t tokens = tail > kChunkTokens ? most : kChunkTokens;
  return {a, tokens, divide_up(most, tokens)};
}

// Returns the threads of a block with one thread for each column. It is the smallest possible number, because the columns of short heads
// then fit into shared memory.
int32_t column_threads(int64_t width) {
  if (width <= kGroupThreads) return kGroupThreads;
  return width <= kNormThreads ? kNormThreads : kMostHeadRows;
}

}  // namespace

int32_t launch(ts_context& device, const ts_short_conv_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const ShortConvArgs args = cut(a, a.taps.length / width_of(a.x) - 1);
  return start_scan(device, kKernel_short_conv, status, args, parts_of(width_of(a.x)) * args.chunks);
}

int32_t launch(ts_context& device, const ts_token_shift_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  const TokenShiftArgs args = cut(a, width_of(a.out) / width_of(a.x) - 1);
  return start_scan(device, kKernel_token_shift, status, args, parts_of(width_of(a.x)) * args.chunks);
}

int32_t launch(ts_context& device, const ts_compress_args& a) {
  return start_scan(device, kKernel_compress, check_shapes(a), a, parts_of(width_of(a.out)));
}

int32_t launch(ts_context& device, const ts_rg_lru_args& a) {
  return start_scan(device, kKernel_rg_lru, check_shapes(a), a, parts_of(width_of(a.x)));
}

int32_t launch(ts_context& device, const ts_mlstm_args& a) { return start_scan(device, kKernel_mlstm, check_shapes(a), a, a.q.heads); }

int32_t launch(ts_context& device, const ts_wkv4_args& a) {
  return start_scan(device, kKernel_wkv4, check_shapes(a), a, parts_of(width_of(a.k)));
}

int32_t launch(ts_context& device, const ts_wkv6_args& a) {
  return start_scan(device, kKernel_wkv6, check_shapes(a), a, a.v.heads, column_threads(a.v.dim));
}

int32_t launch(ts_context& device, const ts_wkv7_args& a) {
  return start_scan(device, kKernel_wkv7, check_shapes(a), a, a.v.heads, column_threads(a.v.dim));
}

int32_t launch(ts_context& device, const ts_selective_scan_args& a) {
  return start_scan(device, kKernel_selective_scan, check_shapes(a), a, parts_of(width_of(a.x)));
}

int32_t launch(ts_context& device, const ts_ssd_scan_args& a) {
  return start_scan(device, kKernel_ssd_scan, check_shapes(a), a, a.x.heads * divide_up(a.x.dim, kWarp), kWarp);
}

int32_t launch(ts_context& device, const ts_delta_rule_args& a) {
  return start_scan(device, kKernel_delta_rule, check_shapes(a), a, a.v.heads * divide_up(a.v.dim, kWarp), kWarp);
}

int32_t launch(ts_context& device, const ts_gated_norm_args& a) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  return start(device, kKernel_gated_norm, a.out.rows * a.groups, row_threads(width_of(a.out) / a.groups), &a);
}

}  // namespace cuda
}  // namespace twostroke
