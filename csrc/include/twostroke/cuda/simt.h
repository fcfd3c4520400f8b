// What a kernel of csrc/cuda may ask of the machine that runs it: its thread and block, memory that a block shares, a barrier, four
// products of bytes. Compiled for nvptx64 these are instructions of the GPU; with TS_EMULATED they are the functions of emulator.h.
// Kernels are plain C++ otherwise: the same sources, the same operations in the same order, each rounded once as IEEE 754 says.
// Knows: both machines. Must not know: kernels.
#pragma once
#include <stdint.h>

#define TS_DEVICE_INLINE static inline __attribute__((always_inline))
#define TS_MEMBER_INLINE inline __attribute__((always_inline))

#if defined(TS_EMULATED)

#include "twostroke/cuda/emulator.h"

// A kernel is a function of one struct of arguments; every thread of every block runs it.
#define TS_KERNEL(name, Args)                                                                               \
  static void name##_thread(const Args& args);                                                              \
  extern "C" void ts_kernel_##name(const void* args) { name##_thread(*static_cast<const Args*>(args)); }    \
  static void name##_thread(const Args& args)

#define TS_SHARED(T, name, count) static twostroke::cuda::Shared<T, count> name(#name)

#else

#define TS_KERNEL(name, Args) extern "C" __attribute__((device_kernel)) void ts_kernel_##name(const Args args)
#define TS_SHARED(T, name, count) static __attribute__((address_space(3))) T name[count]

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE int32_t thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
TS_DEVICE_INLINE int32_t threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
TS_DEVICE_INLINE int64_t block_index() { return __nvvm_read_ptx_sreg_ctaid_x(); }
TS_DEVICE_INLINE void barrier() { __syncthreads(); }

// sum + the products of four unsigned bytes with four signed ones, modulo 2^32.
TS_DEVICE_INLINE int32_t dot4(uint32_t unsigned_bytes, int32_t signed_bytes, int32_t sum) {
  int32_t result;
  __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(unsigned_bytes), "r"(signed_bytes), "r"(sum));
  return result;
}

}  // namespace cuda
}  // namespace twostroke

#endif

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// The second operand where one is NaN, as the vector instructions of x86 have it.
TS_DEVICE_INLINE float larger(float a, float b) { return a > b ? a : b; }
TS_DEVICE_INLINE float smaller(float a, float b) { return a < b ? a : b; }

TS_DEVICE_INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
TS_DEVICE_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
TS_DEVICE_INLINE float widen(uint16_t bf16) { return float_of(static_cast<uint32_t>(bf16) << 16); }

}  // namespace cuda
}  // namespace twostroke
