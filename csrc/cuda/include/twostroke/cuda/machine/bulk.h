// Operations of compute capability 9.0 that kernels of prompts use: signals, bulk copies into shared memory, and products of a warpgroup. A
// warpgroup is four warps, and the number of the first one is a multiple of 4. In images without them (TS_HAS_WARPGROUPS is 0) their kernels
// are empty, and the host starts others.
// A signal (PTX: mbarrier) counts arrivals and bytes. Its phase ends when all arrivals and all announced bytes are there; then the next
// phase begins. Phases have the parities 0, 1, 0, 1 ...
#pragma once
#include "twostroke/cuda/machine/simt.h"

namespace twostroke {
namespace cuda {

constexpr int kGroupWarps = 4, kGroupSize = kGroupWarps * kWarp;  // the warps and the threads of a warpgroup
constexpr int kProductRows = 64;  // rows of activations of one product
constexpr int kProductColumns = 128;  // columns of one product
constexpr int kProductWords = kProductRows * kProductColumns / 16;  // a product's activations in shared memory

// The place in shared memory, in units of 16 bytes, of columns 16 chunk .. 16 chunk + 15 of a row of activations. Rows have 128 bytes; the
// eight chunks of a row change places from row to row, so that all banks are used (PTX: 128-byte swizzle, K-major).
constexpr int32_t product_place(int32_t row, int32_t chunk) { return row * 8 + (chunk ^ row % 8); }

struct Words2 {
  uint32_t x, y;
};

}  // namespace cuda
}  // namespace twostroke

#if defined(TS_EMULATED)

#define TS_HAS_WARPGROUPS 1
#define TS_SIGNALS(name, count) static twostroke::cuda::Signals<count> name(#name)
#define TS_SHARED_KILOBYTES(T, name, count) TS_SHARED(T, name, count)

namespace twostroke {
namespace cuda {

constexpr int kMostWarps = 32;

struct Signal {  // arrived, seen: what each warp had done when it arrived, and when the last phase ended
  int64_t block, bytes;
  int32_t count, missing;
  uint32_t phase, arrived[kMostWarps], seen[kMostWarps];
};

template <int kCount>
class Signals {
 public:
  explicit Signals(const char* name) : name_(name) {}
  Signal& operator[](int64_t index) {
    if (index < 0 || index >= kCount) note_outside(name_, index);
    return signals_[index < 0 || index >= kCount ? 0 : index];
  }

 private:
  const char* name_;
  Signal signals_[kCount] = {};
};

void begin_signal(Signal& signal, int32_t count);
void arrive_at(Signal& signal, int64_t bytes);
void wait_for(Signal& signal, uint32_t parity);
void begin_bulk_copy(Accesses* accesses, Words4* to, const char* name, int64_t index, const void* from, int64_t count, Signal& signal);
void begin_product(int32_t (&sums)[32], const uint32_t (&a)[16], Accesses* accesses, const Words4* b, const char* name, int64_t index, bool more);
void end_product(int32_t (&sums)[32]);
void meet_warp();

template <class S>
inline void begin_signal(S& signals, int32_t index, int32_t count) {
  begin_signal(signals[index], count);
}
inline void end_signals() {}
template <int kRegisters>
inline void give_registers() {}
template <int kRegisters>
inline void take_registers() {}
template <class S>
inline void arrive(S& signals, int32_t index) {
  arrive_at(signals[index], 0);
}
template <class S>
inline void arrive_expecting(S& signals, int32_t index, int32_t bytes) {
  arrive_at(signals[index], bytes);
}
template <class S>
inline void wait_signal(S& signals, int32_t index, uint32_t parity) {
  wait_for(signals[index], parity);
}
template <class S, class G>
inline void copy_bulk(S& shared, int32_t index, const void* from, int32_t bytes, G& signals, int32_t signal) {
  Accesses* accesses = shared.accesses(index, bytes / 16);
  if (accesses != nullptr) begin_bulk_copy(accesses, shared.values(index), shared.name(), index, from, bytes / 16, signals[signal]);
}
template <bool kMore, class S>
inline void begin_product(int32_t (&sums)[32], const uint32_t (&a)[16], S& shared, int32_t index) {
  Accesses* accesses = shared.accesses(index, kProductWords);
  if (accesses != nullptr) begin_product(sums, a, accesses, shared.values(index), shared.name(), index, kMore);
}
// Whether a product's operands are unchanged is found at end_product.
inline void keep_operands(const uint32_t (&)[16]) {}
inline Words2 load_once8(const void* from) { return *static_cast<const Words2*>(from); }
uint32_t largest_of_warp(uint32_t value);

}  // namespace cuda
}  // namespace twostroke

#else

#define TS_HAS_WARPGROUPS (__CUDA_ARCH__ == 900)
#define TS_SIGNALS(name, count) static __attribute__((address_space(3))) uint64_t name[count]
#define TS_SHARED_KILOBYTES(T, name, count) static __attribute__((address_space(3), aligned(1024))) T name[count]

namespace twostroke {
namespace cuda {

// Loads 8 bytes of global memory that no thread writes meanwhile.
TS_DEVICE_INLINE Words2 load_once8(const void* from) {
  Words2 r;
  __asm__ volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(from));
  return r;
}

// The largest of the numbers of the warp's threads.
TS_DEVICE_INLINE uint32_t largest_of_warp(uint32_t value) {
  uint32_t result;
  __asm__ volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
  return result;
}

#if TS_HAS_WARPGROUPS

typedef __attribute__((address_space(3))) uint64_t* SignalPlace;
typedef __attribute__((address_space(3))) Words4* SharedWords;

TS_DEVICE_INLINE uint32_t address_of(SignalPlace signals, int32_t index) { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(signals + index)); }

// Begins phase 0 of a signal with this many arrivals in each phase. One thread does it; then end_signals and a barrier.
TS_DEVICE_INLINE void begin_signal(SignalPlace signals, int32_t index, int32_t count) {
  __asm__ volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_of(signals, index)), "r"(count) : "memory");
}
TS_DEVICE_INLINE void end_signals() {
  __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __asm__ volatile("fence.proxy.async;" ::: "memory");
}
TS_DEVICE_INLINE void arrive(SignalPlace signals, int32_t index) {
  __asm__ volatile("{.reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(address_of(signals, index)) : "memory");
}
// Arrives, and announces bytes of copies that belong to this phase.
TS_DEVICE_INLINE void arrive_expecting(SignalPlace signals, int32_t index, int32_t bytes) {
  __asm__ volatile("{.reg .b64 state;\n mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}" ::"r"(address_of(signals, index)), "r"(bytes) : "memory");
}
// Waits for the end of the phase with this parity, which is the current phase or the one before it.
TS_DEVICE_INLINE void wait_signal(SignalPlace signals, int32_t index, uint32_t parity) {
  uint32_t ended;
  do {
    __asm__ volatile("{.reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n selp.b32 %0, 1, 0, p;}"
                     : "=r"(ended)
                     : "r"(address_of(signals, index)), "r"(parity)
                     : "memory");
  } while (ended == 0);
}
// All threads of a warpgroup call these. From then on they have this many registers: less than before, so that others can take them, or more.
template <int kRegisters>
TS_DEVICE_INLINE void give_registers() {
  __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
TS_DEVICE_INLINE void take_registers() {
  __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Begins to copy bytes, a multiple of 16, to shared[index], and counts them for the signal when they are there.
TS_DEVICE_INLINE void copy_bulk(SharedWords shared, int32_t index, const void* from, int32_t bytes, SignalPlace signals, int32_t signal) {
  const uint32_t to = static_cast<uint32_t>(reinterpret_cast<uint64_t>(shared + index));
  __asm__ volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                   "r"(address_of(signals, signal))
                   : "memory");
}

// Begins sums = A B, modulo 2^32, or with kMore adds A B to the sums of a product that has begun. A has 64 x 128 signed bytes in the
// registers of a warpgroup; B has 128 x 64 signed bytes from shared[index] on, at the
// places of product_place. index is a multiple of 64. With g = lane / 4, t = lane % 4 and w the warp's number in its group, a thread has
// a: for each s of four, A[16w + g][32s + 4t..], A[16w + g + 8][32s + 4t..], A[16w + g][32s + 16 + 4t..], A[16w + g + 8][32s + 16 + 4t..];
// sums: for each j of eight, C[16w + g][8j + 2t], C[16w + g][8j + 2t + 1], C[16w + g + 8][8j + 2t], C[16w + g + 8][8j + 2t + 1].
// Until end_product nothing reads or writes sums and a, and no product with other sums begins. After it comes keep_operands for each a.
template <bool kMore>
TS_DEVICE_INLINE void begin_product(int32_t (&d)[32], const uint32_t (&a)[16], SharedWords shared, int32_t index) {
  // the start of the matrix; rows in eights at distances of 1,024 bytes; the swizzle of 128 bytes
  constexpr uint64_t kEights = 1024 / 16, kSwizzle = 1;
  const uint32_t at = static_cast<uint32_t>(reinterpret_cast<uint64_t>(shared + index));
  const uint64_t b = (at >> 4 & 0x3fff) | uint64_t{1} << 16 | kEights << 32 | kSwizzle << 62;
#define TS_SUMS "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define TS_PRODUCT "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " TS_SUMS ", "
#define TS_FOUR(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define TS_ALL(c) TS_FOUR(c, 0), TS_FOUR(c, 4), TS_FOUR(c, 8), TS_FOUR(c, 12), TS_FOUR(c, 16), TS_FOUR(c, 20), TS_FOUR(c, 24), TS_FOUR(c, 28)
#define TS_GROUP(c, a0, a1, a2, a3, b0, b1, b2, b3, first)                                                                        \
  __asm__ volatile("{wgmma.fence.sync.aligned;\n" TS_PRODUCT "{" a0 "}, " b0 ", " first ";\n" TS_PRODUCT "{" a1 "}, " b1 ", 1;\n" TS_PRODUCT     \
                   "{" a2 "}, " b2 ", 1;\n" TS_PRODUCT "{" a3 "}, " b3 ", 1;\n"                                                         \
                   "wgmma.commit_group.sync.aligned;}"                                                                            \
                   : TS_ALL(c)                                                                                                    \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(a[8]), "r"(a[9]), "r"(a[10]),  \
                     "r"(a[11]), "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]), "l"(b), "l"(b + 2), "l"(b + 4), "l"(b + 6)         \
                   : "memory")
  if (kMore)
    TS_GROUP("+r", "%32,%33,%34,%35", "%36,%37,%38,%39", "%40,%41,%42,%43", "%44,%45,%46,%47", "%48", "%49", "%50", "%51", "1");
  else
    TS_GROUP("=r", "%32,%33,%34,%35", "%36,%37,%38,%39", "%40,%41,%42,%43", "%44,%45,%46,%47", "%48", "%49", "%50", "%51", "0");
#undef TS_GROUP
#undef TS_PRODUCT
#undef TS_SUMS
}

TS_DEVICE_INLINE void end_product(int32_t (&d)[32]) {
  __asm__ volatile("wgmma.wait_group.sync.aligned 0;" : TS_ALL("+r") : : "memory");
#undef TS_ALL
#undef TS_FOUR
}

// These registers have their values up to here.
TS_DEVICE_INLINE void keep_operands(const uint32_t (&a)[16]) {
  __asm__ volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(a[8]), "r"(a[9]), "r"(a[10]),
                   "r"(a[11]), "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]));
}

// Every thread of the warp waits for the others, and for what they did with shared memory.
TS_DEVICE_INLINE void meet_warp() { __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

#endif

}  // namespace cuda
}  // namespace twostroke

#endif
