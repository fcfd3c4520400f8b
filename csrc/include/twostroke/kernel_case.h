// The kernel that runs: the question of ts_kernel, and the answers of the ops that have several kernels. Each answer comes from the table by
// which the op chooses its kernel, so it always names the kernel that runs.
#pragma once
#include "twostroke/ops.h"

namespace twostroke {

struct KernelCase {
  int32_t weight_kind, kv_kind;
  int64_t rows, head_dim;  // rows: the rows that are multiplied together
  bool in_turn;  // the order in which few rows read weights (ts_reading)
};

const char* product_kernel(const KernelCase&);
const char* attention_kernel(const KernelCase&);
const char* latent_attention_kernel(const KernelCase&);

// NULL means that the op has one kernel for each format, whatever the rows.
template <class Args>
const char* kernel_of(const KernelCase&) {
  return nullptr;
}
template <>
inline const char* kernel_of<ts_linear_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_linear_add_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_linear_silu_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_feed_forward_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_experts_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_head_linear_args>(const KernelCase& asked) {
  return product_kernel(asked);
}
template <>
inline const char* kernel_of<ts_latent_attention_args>(const KernelCase& asked) {
  return latent_attention_kernel(asked);
}
template <>
inline const char* kernel_of<ts_chosen_latent_attention_args>(const KernelCase& asked) {
  return latent_attention_kernel(asked);
}
template <>
inline const char* kernel_of<ts_attention_args>(const KernelCase& asked) {
  return attention_kernel(asked);
}

}  // namespace twostroke
