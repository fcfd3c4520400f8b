// The machine of simt.h on a CPU, for tests. A block's threads are fibers that run until a barrier, in an order drawn from a seed.
// Shared memory records which threads wrote and read each element since the last barrier. A thread may not read an element that another
// thread wrote since then. It may not write an element that another thread read or wrote since then. It may not read an element that this
// block never wrote, or use an index outside the array. All threads of a block must reach a barrier, and all threads of a warp an operation
// of the warp. Everything else is an error.
// Copies in the background are done as late as possible, when the thread waits for them. Global memory is checked in a build of its own:
// watch.cpp.
#pragma once
#include <stdint.h>

#include "twostroke/cuda/machine/words.h"

namespace twostroke {
namespace cuda {

int32_t thread_index();
int32_t threads();
int64_t block_index();
void barrier();

// Keeps the first error of a launch.
void fail(const char* what, const char* name, int64_t index);

inline int32_t dot4(uint32_t unsigned_bytes, int32_t signed_bytes, int32_t sum) {
  uint32_t total = static_cast<uint32_t>(sum);
  for (int i = 0; i < 4; ++i) {
    const int32_t a = static_cast<int32_t>(unsigned_bytes >> (8 * i) & 0xff);
    const int32_t b = static_cast<int8_t>(static_cast<uint32_t>(signed_bytes) >> (8 * i) & 0xff);
    total += static_cast<uint32_t>(a * b);
  }
  return static_cast<int32_t>(total);
}

// simt.h defines what this computes.
template <int kMost>
inline void at_most_threads() {
  if (threads() > kMost) fail("more threads than the kernel says", "threads", threads());
}
uint32_t shuffle(uint32_t value, int32_t from);
uint64_t shuffle64(uint64_t value, int32_t from);
uint32_t warp_total(uint32_t value);
void mma_unsigned(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_signed(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void mma_by_unsigned(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <class T>
inline void load_before(T&) {}
inline float widen_half(uint16_t bits) {
  const float magnitude = __builtin_bit_cast(float, static_cast<uint32_t>(bits & 0x7fff) << 13) * 0x1p112f;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | static_cast<uint32_t>(bits & 0x8000) << 16);
}
inline void load_soon(const void*) {}
inline Words4 load_once(const void* from) { return *static_cast<const Words4*>(from); }
template <class T>
inline void load_once_if(bool there, const void* from, T& to) {
  if (there) to = *static_cast<const T*>(from);
}
inline void load_once_if(bool there, const void* from, uint32_t& first, uint32_t& second) {
  load_once_if(there, from, first);
  load_once_if(there, static_cast<const uint32_t*>(from) + 1, second);
}
inline Words4 load16_if(bool there, const void* from) { return there ? load_once(from) : Words4{0, 0, 0, 0}; }
template <class S>
inline Words4 four_of(S& words, int32_t index) {
  return Words4{words[4 * index], words[4 * index + 1], words[4 * index + 2], words[4 * index + 3]};
}

template <class S>
inline uint32_t word_of(S& shared, int32_t index) {
  const Words4 four = shared[index / 4];
  return four[index % 4];
}
template <class S>
inline uint64_t pair_of(S& shared, int32_t index) {
  const Words4 four = shared[index / 2];
  return four[index % 2 * 2] | static_cast<uint64_t>(four[index % 2 * 2 + 1]) << 32;
}
template <uint32_t kWhich>
inline uint32_t chosen_bytes(uint32_t a, uint32_t b) {
  const uint64_t both = a | static_cast<uint64_t>(b) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(both >> (8 * (kWhich >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}
inline float larger_number(float a, float b) { return a > b || b != b ? a : b; }
// This function is not inlined, so watch.cpp does not see its access, which no barrier needs to order.
uint32_t atomic_add(uint32_t* to, uint32_t value);
void atomic_add(uint64_t* to, uint64_t value);

// A copy of 16 bytes into shared memory that has begun. write: the function that stores `value` there.
struct Copy {
  void (*write)(void* shared, int64_t index, Words4 value);
  void* shared;
  int64_t index;
  Words4 value;
};
void begin_copy(const Copy& copy);
void commit_copies();
void finish_copies(int32_t left);
template <int kLeft>
inline void wait_copies() {
  finish_copies(kLeft);
}
template <class S>
inline void copy_async(S& shared, int64_t index, const void* from, bool there) {
  const Words4 nothing = {0, 0, 0, 0};
  begin_copy({[](void* to, int64_t at, Words4 value) { (*static_cast<S*>(to))[at] = value; }, &shared, index, there ? load_once(from) : nothing});
}

// The accesses of one element. Numbers of blocks and of the stretches between barriers are never used twice. write_stretch is kCopied where
// a bulk copy wrote the element last: see bulk.h.
constexpr int64_t kCopied = -1;
struct Accesses {
  int64_t block, write_stretch, read_stretch;
  int32_t writer, reader;
};

void note_read(Accesses& accesses, const char* name, int64_t index);
void note_write(Accesses& accesses, const char* name, int64_t index);
void note_atomic(Accesses& accesses, const char* name, int64_t index);
void note_outside(const char* name, int64_t index);

// The thread that runs now. Numbers of launches, blocks and stretches are never used twice, and begin with 1.
struct Now {
  int64_t launch, block, stretch;
  int32_t thread;
};
Now running();

// For bulk.cpp, which emulates bulk.h. exchanged: gives `count` words to the warp, waits until the other threads have given theirs, and
// returns the words of all. let_others_run: this thread waits for something that other threads or copies do; note_advance: it has come.
constexpr int kMostGiven = 6;  // the most words that a thread gives to its warp at once
typedef uint32_t Given[kMostGiven];
const Given* exchanged(const uint32_t* own, int32_t count);
void let_others_run();
void note_advance();
// For emulator.cpp. begin_block_copies: a block begins. land_copy: a copy under way arrives; the result is false where there is none. join_warps_at_barrier: all
// threads have met. copied_read and copied_write: accesses of an element that a bulk copy wrote last.
void begin_block_copies();
bool land_copy();
void join_warps_at_barrier();
void copied_read(const Accesses& accesses, const char* name, int64_t index);
void copied_write(const Accesses& accesses, const char* name, int64_t index);

// Announces whole pages of device memory. Each access of a kernel to them is checked, if the kernel was compiled for that (watch.cpp).
void watch(const void* memory, int64_t bytes);

// An array in shared memory.
template <class T, int kCount>
class Shared {
 public:
  class Element {
   public:
    Element(Shared& of, int64_t index) : of_(of), index_(index) {}
    operator T() const {
      note_read(of_.accesses_[index_], of_.name_, index_);
      return of_.values_[index_];
    }
    void operator=(T value) {
      note_write(of_.accesses_[index_], of_.name_, index_);
      of_.values_[index_] = value;
    }

   private:
    Shared& of_;
    int64_t index_;
  };
  T add(int64_t index, T value) {
    if (index < 0 || index >= kCount) note_outside(name_, index);
    const int64_t at = index < 0 || index >= kCount ? 0 : index;
    note_atomic(accesses_[at], name_, at);
    const T before = values_[at];
    values_[at] = before + value;
    return before;
  }

  // For bulk copies and products of warpgroups, which check whole regions.
  Accesses* accesses(int64_t index, int64_t count) {
    if (index < 0 || index + count > kCount) note_outside(name_, index);
    return index < 0 || index + count > kCount ? nullptr : accesses_ + index;
  }
  T* values(int64_t index) { return values_ + index; }
  const char* name() const { return name_; }

  explicit Shared(const char* name) : name_(name) {}
  Element operator[](int64_t index) {
    if (index < 0 || index >= kCount) note_outside(name_, index);
    return {*this, index < 0 || index >= kCount ? 0 : index};
  }

 private:
  const char* name_;
  T values_[kCount] = {};
  Accesses accesses_[kCount] = {};
};

template <int kCount>
uint32_t atomic_add(Shared<uint32_t, kCount>& shared, int64_t index, uint32_t value) {
  return shared.add(index, value);
}

// A kernel in the emulator: the work of one thread.
typedef void (*Kernel)(const void* args);

// Runs a whole grid, with its blocks in an order drawn from the seed. Returns NULL, or the first error, which is valid until the next run.
const char* run_grid(Kernel kernel, const void* args, int64_t blocks, int32_t threads_of_block, uint64_t seed);

}  // namespace cuda
}  // namespace twostroke
