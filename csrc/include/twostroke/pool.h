// Threads that share the tasks of one job after the other. A job is done when its tasks are done: an idle thread delays no other.
//
// How a task is taken. A share is a range of task numbers in one atomic word. A thread takes one by compare-and-swap, with acquire, and
// only then reads what the job is. Nothing that it knew before is used, so a thread that comes late takes a task of the job of now, with
// that job's function: a word that looks as it did in an earlier job (ABA) means the same, and no number of generations can wrap around.
// The job's fields cannot change while a task is held, because the caller begins no other job before every task was finished.
//
// How a task is finished. A worker adds what it did to `finished`, with release, when it finds no more; the caller reads that with
// acquire. So all that tasks wrote is seen by the caller, and all that they read is free to change.
//
// Where other programs use the cores too, the system takes a core away from one of our threads for some milliseconds. If that one has a
// task, the caller has to wait for it, and if that one is the caller, the workers do. A thread that waits reads the clock of the other's
// own work. While that clock runs on, a core is used and the wait is short, so polling is best. Once it stands, sleeping is best: the
// system then gives the core of the sleeping thread to the one that has none, and it prefers a thread that slept when that one wakes.
//
// No more threads begin than there are CPUs, however many are asked for. One more could only take the core of another. Where the others slept
// until they were needed, each job woke one of them as long as the one that was woken before had no core.
#pragma once
#include "twostroke/context.h"
#include "twostroke/waiting.h"

namespace twostroke {

constexpr int32_t kMaxThreads = 256;

struct Pool;

// The tasks that one thread still has: their begin in the low half, their end in the high half. A line of the cache each.
struct alignas(64) Share {
  std::atomic<uint64_t> range;
};

struct alignas(64) Worker {
  Pool* pool;
  int32_t index;
  Thread thread;
  std::atomic<bool> holding;  // it may have a task
};

struct Pool {
  int32_t threads;  // that run, with the caller
  ts_task task;
  void* arg;
  // Raised with every job. Workers sleep on it; one that missed all of them until the number came round again misses one more job.
  alignas(64) std::atomic<uint32_t> generation;
  std::atomic<uint32_t> sleeping;
  std::atomic<WorkClock> caller_clock;
  std::atomic<bool> stop;
  alignas(64) std::atomic<uint32_t> finished;  // tasks that workers did, and kCallerSleeps
  Share shares[kMaxThreads];
  Worker workers[kMaxThreads];
};

// `pool` is zeros. Begins as many threads as are asked for, and no more than there are CPUs: false where some could not be begun.
bool begin(Pool& pool, int32_t num_threads);
void end(Pool& pool);
// One call at a time; a task that calls it runs the inner tasks itself, one after the other.
void run(Pool& pool, int64_t tasks, ts_task task, void* arg);

}  // namespace twostroke
