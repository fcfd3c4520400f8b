// How each op becomes kernels: there is one function for each op that has kernels. Shapes and indices are checked as in the CPU's ops.
#pragma once
#include "twostroke/checks.h"
#include "twostroke/cuda/host/device.h"
#include "twostroke/rows/pointwise.h"
#include "twostroke/states/states.h"

namespace twostroke {
namespace cuda {

// Where no file defines an op's launcher, its address is NULL; such an op has no kernels.
#define OP(name, fields) __attribute__((weak)) int32_t launch(ts_context& device, const ts_##name##_args& args);
TS_OPS(OP)
#undef OP

// Replaces the address of an input by that of its mirror. Returns whether it has one.
inline bool mirror(const ts_context& device, ts_indices& input) {
  input.data = mirrored(device, input.data, input.count);
  return input.data != nullptr;
}

inline bool mirror(const ts_context& device, ts_sequences& s) {
  s.row_starts = mirrored(device, s.row_starts, s.count + 1);
  s.context_tokens = mirrored(device, s.context_tokens, s.count);
  s.page_table = mirrored(device, s.page_table, s.count * s.max_pages);
  return s.row_starts != nullptr && s.context_tokens != nullptr && s.page_table != nullptr;
}

// Starts a kernel whose threads have four elements of a row each.
inline int32_t start_fours(ts_context& device, KernelNumber kernel, int64_t rows, int64_t width, const void* args) {
  return width > INT32_MAX / 2 ? TS_BAD_SHAPE : start(device, kernel, rows * four_parts(width), kFourThreads, args);
}

// Starts the kernel of an op whose threads have four elements of a row of its result each.
template <class Op>
int32_t start_fours(ts_context& device, KernelNumber kernel, const Op& a) {
  const int32_t status = check_shapes(a);
  return status == TS_OK ? start_fours(device, kernel, a.out.rows, width_of(a.out), &a) : status;
}

// The same for an op with an input that the host writes. The kernel reads the input's mirror.
template <class Op>
int32_t start_fours(ts_context& device, KernelNumber kernel, const Op& a, ts_indices Op::*input) {
  const int32_t status = check_shapes(a);
  if (status != TS_OK) return status;
  Op args = a;
  return mirror(device, args.*input) ? start_fours(device, kernel, a.out.rows, width_of(a.out), &args) : TS_BAD_POINTER;
}

// The threads of a block with one row: one thread for eight elements, up to the largest block.
inline int32_t row_threads(int64_t columns) {
  const int64_t wanted = divide_up(columns, 8 * kNormThreads) * kNormThreads;
  return static_cast<int32_t>(wanted < 1024 ? wanted : 1024);
}

// Checks the sequences of a step of `rows` rows, and the pages that a window sees. Returns TS_OK, or the status of what is wrong.
int32_t check_pages(const ts_sequences& batch, const ts_kv_layer& layer, int64_t rows, int64_t window);

// Writes into *args where kernels find the sequences of a step.
template <class Args>
int32_t mirror_sequences(ts_context& device, ts_sequences s, Args* args) {
  if (!mirror(device, s)) return TS_BAD_POINTER;
  args->row_starts = s.row_starts;
  args->context_tokens = s.context_tokens;
  args->page_table = s.page_table;
  args->sequences = s.count;
  args->table_stride = s.max_pages;
  return TS_OK;
}

// Finds the largest scores of the rows of index_select or entry_select. The kernel `scores` computes them. Its blocks have `threads`
// threads, one row and a tile of kGroupThreads keys, each of `rate` positions.
int32_t select_largest(ts_context& device, const SelectArgs& args, KernelNumber scores, int32_t threads, int64_t rows, const ts_sequences& batch);

// Fills in the operands that both ops have.
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

// Returns the kernel of attention over pages of this kind.
KernelNumber attention_kernel(int32_t kv_kind);

}  // namespace cuda
}  // namespace twostroke
