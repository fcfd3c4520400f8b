// A pool of threads that share the tasks of one job, then those of the next. A job is done when its tasks are done, so an idle thread
// delays no other.
//
// How a task is taken. A share is a range of task numbers in one atomic word. A thread takes a task by compare-and-swap, with acquire, and
// only then reads the job. It uses nothing that it knew before. So a thread that comes late takes a task of the current job, with that
// job's function. A word that looks as it did in an earlier job (ABA) means the same, and no number of generations can wrap around. The
// job's fields cannot change while a task is held, because the caller begins no other job before every task is finished.
//
// How a task is finished. When a worker finds no more tasks, it adds the number of tasks that it did to `finished`, with release. The
// caller reads that with acquire. So the caller sees everything that tasks wrote, and everything that they read may change.
//
// Where other programs use the cores too, the system takes a core away from one of our threads for some milliseconds. If that thread has a
// task, the caller must wait for it; if it is the caller, the workers must wait. A thread that waits reads the clock of the other thread's
// own work. While that clock advances, the other thread has a core and the wait is short, so polling is best. When the clock stands still,
// sleeping is best. The system then gives the core of the sleeping thread to the thread without one, and it prefers a thread that slept
// when that thread wakes.
//
// The pool never begins more threads than there are CPUs, however many are asked for. One more thread could only take the core of another.
// If instead the other threads slept until they were needed, each job would wake one of them for as long as the thread that was woken
// before had no core.
#pragma once
#include "twostroke/context.h"
#include "twostroke/waiting.h"

namespace twostroke {

constexpr int32_t kMaxThreads = 256;

struct Pool;

// The tasks that one thread still has. Their begin is in the low half, their end in the high half. Each share has a cache line of its own.
struct alignas(64) Share {
  std::atomic<uint64_t> range;
};

struct alignas(64) Worker {
  Pool* pool;
  int32_t index;
  Thread thread;
  std::atomic<bool> holding;  // the thread may hold a task
};

struct Pool {
  int32_t threads;  // the threads that run, with the caller
  ts_task task;
  void* arg;
  // Each job raises this number, and workers sleep on it. A worker that missed every job until the number wrapped around misses one more
  // job.
  alignas(64) std::atomic<uint32_t> generation;
  std::atomic<uint32_t> sleeping;
  std::atomic<WorkClock> caller_clock;
  std::atomic<bool> stop;
  alignas(64) std::atomic<uint32_t> finished;  // the number of tasks that workers did, and kCallerSleeps
  Share shares[kMaxThreads];
  Worker workers[kMaxThreads];
};

// Begins as many threads as are asked for, and no more than there are CPUs. `pool` must be zeros. Returns false where some could not be
// begun.
bool begin(Pool& pool, int32_t num_threads);
void end(Pool& pool);
// Runs one job; only one call at a time. A task that calls it runs the inner tasks itself, one after the other.
void run(Pool& pool, int64_t tasks, ts_task task, void* arg);

}  // namespace twostroke
