// The operations that kernels of csrc/cuda may use: their thread and block, memory that a block shares, a barrier, and products of four
// bytes. A warp is 32 consecutive threads; it can exchange values and multiply small matrices. Compiled for nvptx64 these functions are
// instructions of the GPU; with TS_EMULATED they are those of emulator.h.
// Otherwise kernels are plain C++. On both machines they have the same sources and the same operations in the same order, each rounded once
// as IEEE 754 requires.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/machine/words.h"

#define TS_DEVICE_INLINE static inline __attribute__((always_inline))
#define TS_MEMBER_INLINE inline __attribute__((always_inline))

#if defined(TS_EMULATED)

#include "twostroke/cuda/machine/emulator.h"

// A kernel is a function of one struct of arguments; every thread of every block runs it.
#define TS_KERNEL(name, Args)                                                                               \
  static void name##_thread(const Args& args);                                                              \
  extern "C" void ts_kernel_##name(const void* args) { name##_thread(*static_cast<const Args*>(args)); }    \
  static void name##_thread(const Args& args)

#define TS_KERNEL_AHEAD(name, Args) TS_KERNEL(name, Args)

#define TS_SHARED(T, name, count) static twostroke::cuda::Shared<T, count> name(#name)
#define TS_SHARED_WORDS(name, count) TS_SHARED(uint32_t, name, count)

namespace twostroke {
namespace cuda {
TS_DEVICE_INLINE void wait_for_earlier() {}  // the emulator runs one kernel after the other
}  // namespace cuda
}  // namespace twostroke

#else

// With 0, no kernel begins before the one before it has ended. The loader reads this from the PTX, so a change here is enough.
#define TS_BEGINS_EARLY (__CUDA_ARCH__ >= 900)

#if TS_BEGINS_EARLY
// The next grid may take its place as soon as all blocks of this one have theirs. First it waits for the end of this grid and for all that
// this grid wrote. This grid waited in the same way, so all earlier grids have ended, too. Every thread of every kernel begins with this
// wait.
#define TS_KERNEL(name, Args)                                                    \
  TS_DEVICE_INLINE void name##_thread(const Args& args);                         \
  extern "C" __attribute__((device_kernel)) void ts_kernel_##name(const Args args) { \
    __asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");          \
    __asm__ volatile("griddepcontrol.wait;" ::: "memory");                       \
    name##_thread(args);                                                         \
  }                                                                              \
  TS_DEVICE_INLINE void name##_thread(const Args& args)
// A kernel that may load weights before earlier kernels have ended. Each of its threads calls wait_for_earlier before it writes to global
// memory, and before it reads what a kernel of a step has written. So does a thread that has nothing else to do.
#define TS_KERNEL_AHEAD(name, Args)                                                    \
  TS_DEVICE_INLINE void name##_thread(const Args& args);                         \
  extern "C" __attribute__((device_kernel)) void ts_kernel_##name(const Args args) { \
    __asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");          \
    name##_thread(args);                                                         \
  }                                                                              \
  TS_DEVICE_INLINE void name##_thread(const Args& args)
#else
#define TS_KERNEL(name, Args) extern "C" __attribute__((device_kernel)) void ts_kernel_##name(const Args args)
#define TS_KERNEL_AHEAD(name, Args) TS_KERNEL(name, Args)
#endif
#define TS_SHARED(T, name, count) static __attribute__((address_space(3), aligned(16))) T name[count]
// Words that four_of may read.
#define TS_SHARED_WORDS(name, count) static __attribute__((address_space(3), aligned(16))) uint32_t name[count]

namespace twostroke {
namespace cuda {

// Waits until all earlier kernels have ended, and for all that they wrote. It costs nothing when it is called again.
TS_DEVICE_INLINE void wait_for_earlier() {
#if TS_BEGINS_EARLY
  __asm__ volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

TS_DEVICE_INLINE int32_t thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
TS_DEVICE_INLINE int32_t threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
TS_DEVICE_INLINE int64_t block_index() { return __nvvm_read_ptx_sreg_ctaid_x(); }
TS_DEVICE_INLINE void barrier() { __syncthreads(); }

// The most threads that blocks of this kernel have. build.py passes it to the assembler, which then gives each thread enough registers.
template <int kMost>
TS_DEVICE_INLINE void at_most_threads() {
  __asm__ volatile("// at most %0 threads" ::"n"(kMost));
}

// sum plus the products of four unsigned bytes with four signed ones, modulo 2^32.
TS_DEVICE_INLINE int32_t dot4(uint32_t unsigned_bytes, int32_t signed_bytes, int32_t sum) {
  int32_t result;
  __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(unsigned_bytes), "r"(signed_bytes), "r"(sum));
  return result;
}

// Every thread of the warp calls these functions, in the same order. shuffle: the value of thread `from` of the warp.
TS_DEVICE_INLINE uint32_t shuffle(uint32_t value, int32_t from) {
  uint32_t result;
  __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(result) : "r"(value), "r"(from));
  return result;
}

TS_DEVICE_INLINE uint64_t shuffle64(uint64_t value, int32_t from) {
  return shuffle(static_cast<uint32_t>(value), from) | static_cast<uint64_t>(shuffle(static_cast<uint32_t>(value >> 32), from)) << 32;
}

// The sum of the numbers of the warp's threads, modulo 2^32.
TS_DEVICE_INLINE uint32_t warp_total(uint32_t value) {
  uint32_t result;
  __asm__ volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
  return result;
}

// Computes sums += A B, modulo 2^32; A has 16 x 32 bytes, B has 32 x 8 bytes. With g = lane / 4 and t = lane % 4 (PTX, mma.m16n8k32), a
// thread has
// a: A[g][4t..], A[g + 8][4t..], A[g][16 + 4t..], A[g + 8][16 + 4t..];
// b: B[4t..][g], B[16 + 4t..][g];
// sums: C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1].
#define TS_MMA(name, a_type, b_type)                                                                                             \
  TS_DEVICE_INLINE void name(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {                     \
    __asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32." a_type "." b_type ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                     : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
  }
TS_MMA(mma_unsigned, "u8", "s8")     // A is unsigned, B signed
TS_MMA(mma_signed, "s8", "s8")       // both are signed
TS_MMA(mma_by_unsigned, "s8", "u8")  // A is signed, B unsigned
#undef TS_MMA

// Adds to a number to which other threads may add at the same time, and returns its earlier value. In global memory these are threads of
// any block, in shared memory threads of this one. Nothing else is done with the number until the kernel ends, or up to the next barrier.
TS_DEVICE_INLINE uint32_t atomic_add(uint32_t* to, uint32_t value) {
  uint32_t before;
  __asm__ volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
  return before;
}
TS_DEVICE_INLINE void atomic_add(uint64_t* to, uint64_t value) {
  __asm__ volatile("red.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
TS_DEVICE_INLINE uint32_t atomic_add(__attribute__((address_space(3))) uint32_t* shared, int64_t index, uint32_t value) {
  uint32_t before;
  const uint32_t to = static_cast<uint32_t>(reinterpret_cast<uint64_t>(shared + index));
  __asm__ volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(to), "r"(value) : "memory");
  return before;
}

// Loads of these values stay before this place. Otherwise a compiler would move them to where the values are needed, and the thread would
// wait for them there.
TS_DEVICE_INLINE void load_before(uint32_t& value) { __asm__ volatile("" : "+r"(value)); }
TS_DEVICE_INLINE void load_before(float& value) { __asm__ volatile("" : "+f"(value)); }
TS_DEVICE_INLINE void load_before(Words4& value) {
  for (int i = 0; i < 4; ++i) {
    uint32_t word = value[i];
    load_before(word);
    value[i] = word;
  }
}

// Where the PTX knows how to, such loads leave the level-1 cache to what is read again.
#if __CUDA_ARCH__ >= 900
#define TS_LOAD_ONCE "ld.global.nc.L1::no_allocate"
#else
#define TS_LOAD_ONCE "ld.global.nc"
#endif

// Loads 16 bytes of global memory that no thread writes meanwhile and that are not read again soon, such as weights.
TS_DEVICE_INLINE Words4 load_once(const void* from) {
  Words4 r;
  __asm__ volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from));
  return r;
}

// The finite float16 number with these bits, exactly.
TS_DEVICE_INLINE float widen_half(uint16_t bits) {
  float result;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
  return result;
}

// Asks for the bytes at an address that this thread will load, so that they are nearer when it does.
TS_DEVICE_INLINE void load_soon(const void* from) { __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// The same for one word and for two, where `there` is true. Otherwise nothing is loaded, and the words keep their values.
#define TS_LOAD_IF(bits) "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " bits ", 0;\n\t@p "
TS_DEVICE_INLINE void load_once_if(bool there, const void* from, uint32_t& to) {
  __asm__ volatile(TS_LOAD_IF("%2") TS_LOAD_ONCE ".u32 %0, [%1];\n\t}" : "+r"(to) : "l"(from), "r"(static_cast<int32_t>(there)));
}
TS_DEVICE_INLINE void load_once_if(bool there, const void* from, uint32_t& first, uint32_t& second) {
  __asm__ volatile(TS_LOAD_IF("%3") TS_LOAD_ONCE ".v2.u32 {%0,%1}, [%2];\n\t}"
                   : "+r"(first), "+r"(second)
                   : "l"(from), "r"(static_cast<int32_t>(there)));
}
// For four words that other kernels have written: zeros where `there` is false.
TS_DEVICE_INLINE Words4 load16_if(bool there, const void* from) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  __asm__ volatile(TS_LOAD_IF("%5") "ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t}"
                   : "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                   : "l"(from), "r"(static_cast<int32_t>(there)));
  return Words4{a, b, c, d};
}
// The same for four words that are loaded once.
TS_DEVICE_INLINE void load_once_if(bool there, const void* from, Words4& to) {
  uint32_t a = to[0], b = to[1], c = to[2], d = to[3];
  __asm__ volatile(TS_LOAD_IF("%5") TS_LOAD_ONCE ".v4.u32 {%0,%1,%2,%3}, [%4];\n\t}"
                   : "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                   : "l"(from), "r"(static_cast<int32_t>(there)));
  to = Words4{a, b, c, d};
}
#undef TS_LOAD_IF

// The words 4 * index and the three after it of an array of TS_SHARED_WORDS.
TS_DEVICE_INLINE Words4 four_of(__attribute__((address_space(3))) uint32_t* shared, int32_t index) {
  typedef Words4 __attribute__((may_alias)) Four;
  return reinterpret_cast<__attribute__((address_space(3))) Four*>(shared)[index];
}

// The 32 bits at byte 4 * index of an array of Words4 in shared memory.
TS_DEVICE_INLINE uint32_t word_of(__attribute__((address_space(3))) Words4* shared, int32_t index) {
  typedef uint32_t __attribute__((may_alias)) Word;
  return reinterpret_cast<__attribute__((address_space(3))) Word*>(shared)[index];
}

// The 64 bits at byte 8 * index.
TS_DEVICE_INLINE uint64_t pair_of(__attribute__((address_space(3))) Words4* shared, int32_t index) {
  typedef uint64_t __attribute__((may_alias)) Pair;
  return reinterpret_cast<__attribute__((address_space(3))) Pair*>(shared)[index];
}

// Selects four bytes from a (bytes 0 to 3) and b (bytes 4 to 7). Hexadecimal digit i of `which`, from the right, is the number of byte i.
template <uint32_t kWhich>
TS_DEVICE_INLINE uint32_t chosen_bytes(uint32_t a, uint32_t b) {
  uint32_t result;
  __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "n"(kWhich));
  return result;
}

// The larger number; where one of them is NaN, the other one.
TS_DEVICE_INLINE float larger_number(float a, float b) { return __builtin_fmaxf(a, b); }

// Begins to copy 16 bytes of global memory to shared[index], or zeros where `there` is false. This thread sees them after wait_copies, and
// the block after one more barrier.
TS_DEVICE_INLINE void copy_async(__attribute__((address_space(3))) Words4* shared, int64_t index, const void* from, bool there) {
  const uint32_t to = static_cast<uint32_t>(reinterpret_cast<uint64_t>(shared + index)), bytes = there ? 16 : 0;
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// Ends a group of copies of this thread.
TS_DEVICE_INLINE void commit_copies() { __asm__ volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for this thread's groups, except for the last kLeft.
template <int kLeft>
TS_DEVICE_INLINE void wait_copies() {
  __asm__ volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace cuda
}  // namespace twostroke

#endif

namespace twostroke {
namespace cuda {

TS_DEVICE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// The larger number, or the second operand where one is NaN, as in the vector instructions of x86.
TS_DEVICE_INLINE float larger(float a, float b) { return a > b ? a : b; }
TS_DEVICE_INLINE float smaller(float a, float b) { return a < b ? a : b; }

TS_DEVICE_INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
TS_DEVICE_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
TS_DEVICE_INLINE int32_t warp_lane() { return thread_index() % kWarp; }
TS_DEVICE_INLINE int32_t warp_index() { return thread_index() / kWarp; }

// The value of the thread whose lane differs in the bits of `mask`.
TS_DEVICE_INLINE uint32_t shuffle_across(uint32_t value, int32_t mask) { return shuffle(value, warp_lane() ^ mask); }
TS_DEVICE_INLINE float shuffle_across(float value, int32_t mask) {
  return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(uint32_t, value), warp_lane() ^ mask));
}

// 16 bytes at an address that is a multiple of 16.
TS_DEVICE_INLINE Words4 load16(const void* from) { return *static_cast<const Words4*>(from); }

TS_DEVICE_INLINE float widen(uint16_t bf16) { return float_of(static_cast<uint32_t>(bf16) << 16); }

}  // namespace cuda
}  // namespace twostroke
