// The emulator that emulator.h declares: fibers, the order in which they run, and the check of shared memory. Only tests use it; no
// installed library contains it.
#include "twostroke/cuda/machine/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace twostroke {
namespace cuda {
namespace {

constexpr int32_t kMostThreads = 1024, kMostWarps = kMostThreads / kWarp;
constexpr int32_t kMostCopies = 64;  // the most copies of a thread that have begun and are not done
// The size is not a multiple of a page. So the ends of the stacks, which are used most, lie in different sets of a cache.
constexpr size_t kStackBytes = (64 << 10) + 5 * 64;
constexpr int32_t kSeveral = -1, kAdding = -2;  // marks for an element that several threads read, and for one to which threads add

struct Fiber {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  Copy copies[kMostCopies];
  int32_t groups[kMostCopies], copies_begun, group;  // groups: the group of each copy; group: the number of the group that is open
};

enum State : uint8_t { kReady, kAtBarrier, kInWarp, kPolling, kDone };

// The words that the threads of a warp give to each other. There are two rounds, because a thread may begin the next round before others
// have read this one.
struct Warp {
  uint32_t given[2][kWarp][kMostGiven];
  int64_t rounds;
  int32_t arrived;
};

struct Machine {
  Kernel kernel;
  const void* args;
  Fiber fibers[kMostThreads], scheduler;
  // the states of the fibers lie next to each other, because they are read far more often than the other fields
  State states[kMostThreads];
  Warp warps[kMostWarps];
  char* stacks;
  int32_t threads, thread;
  int64_t block, serial, stretch, launch;  // serial: the number of the block among all blocks that ever ran
  uint64_t random;
  bool failed, advanced;  // advanced: whether the running thread got what it waited for
  char error[256];
};

Machine machine;

uint64_t next_random() {  // the generator xorshift64*
  uint64_t x = machine.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  machine.random = x;
  return x * 0x2545f4914f6cdd1dull;
}

template <class Index>
void shuffle_order(Index* order, int64_t count) {
  for (int64_t i = 0; i < count; ++i) order[i] = static_cast<Index>(i);
  for (int64_t i = count - 1; i > 0; --i) {
    const int64_t j = static_cast<int64_t>((next_random() >> 32) * static_cast<uint64_t>(i + 1) >> 32);
    const Index kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

#if defined(__x86_64__)
// Stores on the stack the registers that a call must preserve, then continues on another stack.
extern "C" void ts_switch_stacks(void** keep, void* to);
__asm__(
    ".text\n.type ts_switch_stacks,@function\nts_switch_stacks:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size ts_switch_stacks, .-ts_switch_stacks\n");
void go(Fiber& from, Fiber& to) { ts_switch_stacks(&from.stack_pointer, to.stack_pointer); }
#else
void go(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }
#endif

void thread_main() {
  machine.kernel(machine.args);
  Fiber& own = machine.fibers[machine.thread];
  if (own.copies_begun > 0) fail("copies that the thread did not wait for", "copies", own.copies_begun);
  machine.states[machine.thread] = kDone;
  go(own, machine.scheduler);
}

void prepare(Fiber& fiber, char* stack) {
  fiber.copies_begun = fiber.group = 0;
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;  // the function begins as if a call had entered it
  *top = reinterpret_cast<void*>(thread_main);
  fiber.stack_pointer = top - 6;  // room for the six registers
  memset(top - 6, 0, 6 * sizeof(void*));
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, thread_main, 0);
#endif
}

// Runs every thread to its next barrier or its end. A copy arrives where no thread can run
// without it. Returns false where threads are left that wait in vain.
bool run_stretch(const int32_t* order) {
  for (bool ran = true, waiting = true; waiting; ran = false) {
    waiting = false;
    for (int32_t i = 0; i < machine.threads; ++i) {
      State& state = machine.states[order[i]];
      if (state == kReady || state == kPolling) {
        machine.thread = order[i];
        machine.advanced = state == kReady;
        state = kReady;
        go(machine.scheduler, machine.fibers[order[i]]);
        ran = ran || machine.advanced || state != kPolling;
      }
      waiting = waiting || state == kReady || state == kInWarp || state == kPolling;
    }
    if (waiting && !ran && !land_copy()) return false;
  }
  return true;
}

void run_block(int64_t block) {
  machine.block = block;
  ++machine.serial;
  begin_block_copies();
  for (Warp& warp : machine.warps) warp.arrived = 0;
  for (int32_t t = 0; t < machine.threads; ++t) prepare(machine.fibers[t], machine.stacks + t * kStackBytes);
  memset(machine.states, kReady, sizeof machine.states);
  int32_t order[kMostThreads];
  for (int32_t done = 0; done < machine.threads;) {
    ++machine.stretch;
    shuffle_order(order, machine.threads);
    if (!run_stretch(order)) {
      const bool polling = memchr(machine.states, kPolling, static_cast<size_t>(machine.threads)) != nullptr;
      fail(polling ? "a signal that never comes" : "an operation of a warp that some of its threads do not reach", "threads", machine.thread);
      return;  // the waiting threads stay where they are
    }
    join_warps_at_barrier();
    const int32_t before = done;
    done = 0;
    for (int32_t t = 0; t < machine.threads; ++t) {
      if (machine.states[t] == kAtBarrier) machine.states[t] = kReady;
      done += machine.states[t] == kDone;
    }
    if (done > before && done < machine.threads) {
      fail("a barrier that threads which have ended do not reach", "threads", done);
      return;  // the other threads stay where they are
    }
  }
  if (land_copy()) fail("bulk copies that no thread waited for", "copies", 0);
}

}  // namespace

const Given* exchanged(const uint32_t* own, int32_t count) {
  const int32_t first = machine.thread / kWarp * kWarp, rest = machine.threads - first, lanes = rest < kWarp ? rest : kWarp;
  Warp& warp = machine.warps[machine.thread / kWarp];
  uint32_t(*given)[kMostGiven] = warp.given[warp.rounds & 1];
  for (int32_t i = 0; i < count; ++i) given[machine.thread - first][i] = own[i];
  if (++warp.arrived < lanes) {
    machine.states[machine.thread] = kInWarp;
    go(machine.fibers[machine.thread], machine.scheduler);
    return given;
  }
  warp.arrived = 0;
  ++warp.rounds;
  for (int32_t i = 0; i < lanes; ++i)
    if (machine.states[first + i] == kInWarp) machine.states[first + i] = kReady;
  return given;
}

void let_others_run() {
  machine.states[machine.thread] = kPolling;
  go(machine.fibers[machine.thread], machine.scheduler);
}

void note_advance() { machine.advanced = true; }

namespace {

// Widens the 32 bytes of a row or a column that four threads hold. Word `first` of each thread has the first 16 bytes, word `second` the
// others.
void widen(const uint32_t (*given)[kMostGiven], int32_t first, int32_t second, bool is_signed, int16_t (&bytes)[32]) {
  for (int32_t k = 0; k < 32; ++k) {
    const uint32_t byte = given[k % 16 / 4][k < 16 ? first : second] >> (8 * (k % 4)) & 0xff;
    bytes[k] = is_signed ? static_cast<int8_t>(byte) : static_cast<int16_t>(byte);
  }
}

// simt.h defines what this computes.
void multiply_matrices(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool a_signed, bool b_signed) {
  const uint32_t own[kMostGiven] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const int32_t lane = machine.thread % kWarp;
  const uint32_t(*given)[kMostGiven] = exchanged(own, kMostGiven);
  int16_t rows[2][32], columns[2][32];  // rows lane / 4 and lane / 4 + 8; columns lane % 4 * 2 and the next
  for (int32_t i = 0; i < 2; ++i) {
    widen(given + lane / 4 * 4, i, i + 2, a_signed, rows[i]);
    widen(given + (lane % 4 * 2 + i) * 4, 4, 5, b_signed, columns[i]);
  }
  for (int32_t i = 0; i < 4; ++i) {
    int32_t sum = 0;
    for (int32_t k = 0; k < 32; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(sum));
  }
}

void renew(Accesses& accesses) {
  if (accesses.block == machine.serial) return;
  accesses = {machine.serial, 0, 0, 0, 0};
}

}  // namespace

void fail(const char* what, const char* name, int64_t index) {
  if (machine.failed) return;
  machine.failed = true;
  snprintf(machine.error, sizeof machine.error, "%s: %s[%lld], block %lld, thread %d", what, name, static_cast<long long>(index),
           static_cast<long long>(machine.block), machine.thread);
}

Now running() { return {machine.launch, machine.serial, machine.stretch, machine.thread}; }

int32_t thread_index() { return machine.thread; }
int32_t threads() { return machine.threads; }
int64_t block_index() { return machine.block; }

void barrier() {
  machine.states[machine.thread] = kAtBarrier;
  go(machine.fibers[machine.thread], machine.scheduler);
}

uint32_t shuffle(uint32_t value, int32_t from) {
  if (from < 0 || from >= kWarp) fail("a value of a thread that no warp has", "shuffle", from);
  return exchanged(&value, 1)[from % kWarp][0];
}

uint64_t shuffle64(uint64_t value, int32_t from) {
  if (from < 0 || from >= kWarp) fail("a value of a thread that no warp has", "shuffle64", from);
  const uint32_t words[2] = {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)}, *given = exchanged(words, 2)[from % kWarp];
  return given[0] | static_cast<uint64_t>(given[1]) << 32;
}

uint32_t warp_total(uint32_t value) {
  const int32_t rest = machine.threads - machine.thread / kWarp * kWarp, lanes = rest < kWarp ? rest : kWarp;
  const uint32_t(*given)[kMostGiven] = exchanged(&value, 1);
  uint32_t sum = 0;
  for (int32_t i = 0; i < lanes; ++i) sum += given[i][0];
  return sum;
}

void mma_unsigned(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { multiply_matrices(sums, a, b, false, true); }
void mma_signed(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { multiply_matrices(sums, a, b, true, true); }
void mma_by_unsigned(int32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { multiply_matrices(sums, a, b, true, false); }

uint32_t atomic_add(uint32_t* to, uint32_t value) {
  const uint32_t before = *to;
  *to = before + value;
  return before;
}

void atomic_add(uint64_t* to, uint64_t value) { *to += value; }

void begin_copy(const Copy& copy) {
  Fiber& own = machine.fibers[machine.thread];
  if (own.copies_begun == kMostCopies) return fail("more copies than the emulator keeps", "copies", own.copies_begun);
  own.groups[own.copies_begun] = own.group;
  own.copies[own.copies_begun++] = copy;
}

void commit_copies() { ++machine.fibers[machine.thread].group; }

void finish_copies(int32_t left) {
  Fiber& own = machine.fibers[machine.thread];
  int32_t kept = 0;
  for (int32_t i = 0; i < own.copies_begun; ++i) {
    if (own.groups[i] < own.group - left) {
      own.copies[i].write(own.copies[i].shared, own.copies[i].index, own.copies[i].value);
    } else {
      own.groups[kept] = own.groups[i];
      own.copies[kept++] = own.copies[i];
    }
  }
  own.copies_begun = kept;
}

void note_read(Accesses& accesses, const char* name, int64_t index) {
  renew(accesses);
  if (accesses.write_stretch == kCopied) return copied_read(accesses, name, index);
  const int32_t own = machine.thread;
  if (accesses.write_stretch == 0) fail("read of shared memory that this block never wrote", name, index);
  if (accesses.write_stretch == machine.stretch && accesses.writer != own)
    fail("read of what another thread wrote, with no barrier in between", name, index);
  accesses.reader = accesses.read_stretch == machine.stretch && accesses.reader != own ? kSeveral : own;
  accesses.read_stretch = machine.stretch;
}

void note_write(Accesses& accesses, const char* name, int64_t index) {
  renew(accesses);
  if (accesses.write_stretch == kCopied) copied_write(accesses, name, index);
  const int32_t own = machine.thread;
  if (accesses.write_stretch == machine.stretch && accesses.writer != own)
    fail("write of what another thread wrote, with no barrier in between", name, index);
  if (accesses.read_stretch == machine.stretch && accesses.reader != own)
    fail("write of what another thread read, with no barrier in between", name, index);
  accesses.writer = own;
  accesses.write_stretch = machine.stretch;
}

void note_atomic(Accesses& accesses, const char* name, int64_t index) {
  renew(accesses);
  if (accesses.write_stretch == 0) fail("read of shared memory that this block never wrote", name, index);
  const bool written = accesses.write_stretch == machine.stretch && accesses.writer != kAdding;
  if (written || accesses.read_stretch == machine.stretch) fail("adding to what is read or written too, with no barrier in between", name, index);
  accesses.writer = kAdding;
  accesses.write_stretch = machine.stretch;
}

void note_outside(const char* name, int64_t index) { fail("an index outside shared memory", name, index); }

const char* run_grid(Kernel kernel, const void* args, int64_t blocks, int32_t threads_of_block, uint64_t seed) {
  machine.failed = false;
  ++machine.launch;
  if (threads_of_block < 1 || threads_of_block > kMostThreads || blocks < 1) return "a grid that no device takes";
  if (machine.stacks == nullptr) machine.stacks = static_cast<char*>(malloc(kStackBytes * kMostThreads));
  int64_t* order = static_cast<int64_t*>(malloc(sizeof(int64_t) * static_cast<size_t>(blocks)));
  if (machine.stacks == nullptr || order == nullptr) return "no memory for the emulator";
  machine.kernel = kernel;
  machine.args = args;
  machine.threads = threads_of_block;
  machine.random = seed * 2 + 1;
  shuffle_order(order, blocks);
  for (int64_t i = 0; i < blocks && !machine.failed; ++i) run_block(order[i]);
  free(order);
  return machine.failed ? machine.error : nullptr;
}

}  // namespace cuda
}  // namespace twostroke
