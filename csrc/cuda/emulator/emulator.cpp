// emulator.h: fibers, their order, and the check of shared memory. Used by tests alone; no library that is installed contains it.
// Knows: stacks. Must not know: kernels.
#include "twostroke/cuda/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace twostroke {
namespace cuda {
namespace {

constexpr int32_t kMostThreads = 1024;
constexpr size_t kStackBytes = 64 << 10;
constexpr int32_t kSeveral = -1;  // readers

struct Fiber {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  bool done;
};

struct Machine {
  Kernel kernel;
  const void* args;
  Fiber fibers[kMostThreads], scheduler;
  char* stacks;
  int32_t threads, thread;
  int64_t block, serial, stretch, launch;  // serial: of the block among all that ever ran
  uint64_t random;
  bool failed;
  char error[256];
};

Machine machine;

uint64_t next_random() {  // xorshift64*
  uint64_t x = machine.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  machine.random = x;
  return x * 0x2545f4914f6cdd1dull;
}

template <class Index>
void shuffle(Index* order, int64_t count) {
  for (int64_t i = 0; i < count; ++i) order[i] = static_cast<Index>(i);
  for (int64_t i = count - 1; i > 0; --i) {
    const int64_t j = static_cast<int64_t>(next_random() % static_cast<uint64_t>(i + 1));
    const Index kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

#if defined(__x86_64__)
// Keeps what a call must keep on the stack, then goes on with another one.
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
  own.done = true;
  go(own, machine.scheduler);
}

void prepare(Fiber& fiber, char* stack) {
  fiber.done = false;
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;  // the function begins as if it had been called
  *top = reinterpret_cast<void*>(thread_main);
  fiber.stack_pointer = top - 6;  // the six registers
  memset(top - 6, 0, 6 * sizeof(void*));
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, thread_main, 0);
#endif
}

void run_block(int64_t block) {
  machine.block = block;
  ++machine.serial;
  for (int32_t t = 0; t < machine.threads; ++t) prepare(machine.fibers[t], machine.stacks + t * kStackBytes);
  int32_t order[kMostThreads];
  for (int32_t done = 0; done < machine.threads;) {
    ++machine.stretch;
    shuffle(order, machine.threads);
    for (int32_t i = 0; i < machine.threads; ++i) {
      Fiber& next = machine.fibers[order[i]];
      machine.thread = order[i];
      if (!next.done) go(machine.scheduler, next);
    }
    const int32_t before = done;
    done = 0;
    for (int32_t t = 0; t < machine.threads; ++t) done += machine.fibers[t].done;
    if (done > before && done < machine.threads) {
      fail("a barrier that threads which have ended do not reach", "threads", done);
      return;  // the others are left where they wait
    }
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

void barrier() { go(machine.fibers[machine.thread], machine.scheduler); }

void note_read(Accesses& accesses, const char* name, int64_t index) {
  renew(accesses);
  const int32_t own = machine.thread;
  if (accesses.write_stretch == 0) fail("read of shared memory that this block never wrote", name, index);
  if (accesses.write_stretch == machine.stretch && accesses.writer != own)
    fail("read of what another thread wrote, with no barrier in between", name, index);
  accesses.reader = accesses.read_stretch == machine.stretch && accesses.reader != own ? kSeveral : own;
  accesses.read_stretch = machine.stretch;
}

void note_write(Accesses& accesses, const char* name, int64_t index) {
  renew(accesses);
  const int32_t own = machine.thread;
  if (accesses.write_stretch == machine.stretch && accesses.writer != own)
    fail("write of what another thread wrote, with no barrier in between", name, index);
  if (accesses.read_stretch == machine.stretch && accesses.reader != own)
    fail("write of what another thread read, with no barrier in between", name, index);
  accesses.writer = own;
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
  shuffle(order, blocks);
  for (int64_t i = 0; i < blocks && !machine.failed; ++i) run_block(order[i]);
  free(order);
  return machine.failed ? machine.error : nullptr;
}

}  // namespace cuda
}  // namespace twostroke
