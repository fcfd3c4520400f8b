// The thread pool of pool.h. After a job, workers spin for a short while and then sleep, so that an idle server costs nothing.
#include "twostroke/pool.h"

namespace twostroke {

#if defined(TS_TEST_DELAYS)
void test_delay();  // defined in tests/native/pool.cpp
#else
inline void test_delay() {}
#endif

namespace {

constexpr uint32_t kCallerSleeps = 1u << 31;
constexpr int64_t kMostTasks = kCallerSleeps - 1;
// how long a worker spins for the next job; the ops of a step, and mostly two steps, come sooner than that
constexpr int64_t kSpinNs = 900000;

// Set while a thread runs tasks of a pool. If a task starts a job of the same pool, the same thread runs this job at once.
struct Inside {
  Pool* pool;
  int32_t index;
};
thread_local Inside inside = {nullptr, 0};

uint64_t range_of(uint64_t begin, uint64_t end) { return end << 32 | begin; }

// A thread takes its own tasks from the front, so that it reads consecutive memory, and others' tasks from the back. Returns -1 where no
// task is left.
int64_t take_task(Share& share, bool own) {
  uint64_t range = share.range.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t begin = range & 0xffffffffu, end = range >> 32;
    if (begin >= end) return -1;
    test_delay();
    const uint64_t rest = own ? range_of(begin + 1, end) : range_of(begin, end - 1);
    if (share.range.compare_exchange_weak(range, rest, std::memory_order_acquire, std::memory_order_relaxed))
      return static_cast<int64_t>(own ? begin : end - 1);
  }
}

// Runs tasks and returns how many it ran. It reads the job only after it has taken a task.
uint32_t run_tasks(Pool& pool, int32_t thread) {
  uint32_t done = 0;
  const int32_t parts = pool.threads;
  for (int32_t i = 0; i < parts; ++i) {
    Share& share = pool.shares[(thread + i) % parts];
    for (int64_t index = take_task(share, i == 0); index >= 0; index = take_task(share, i == 0)) {
      pool.task(pool.arg, index, thread);
      ++done;
    }
  }
  return done;
}

void share_out(Pool& pool, int64_t tasks) {
  const int64_t parts = pool.threads;
  for (int64_t t = 0; t < parts; ++t) {
    const uint64_t begin = static_cast<uint64_t>(tasks * t / parts), end = static_cast<uint64_t>(tasks * (t + 1) / parts);
    pool.shares[t].range.store(range_of(begin, end), std::memory_order_release);
    test_delay();
  }
}

// Polls for a job, because the ops of one step follow each other quickly. It ends when the time is over, when the caller lost its core, or
// when the caller sleeps.
bool spin_for_job(Pool& pool, uint32_t seen) {
  const auto there = [&] { return pool.generation.load(std::memory_order_acquire) != seen; };
  return spin(there, [&] { return pool.caller_clock.load(std::memory_order_relaxed); }, kSpinNs, pool.threads);
}

void sleep_for_job(Pool& pool, uint32_t seen) {
  test_delay();
  pool.sleeping.fetch_add(1, std::memory_order_seq_cst);
  while (pool.generation.load(std::memory_order_seq_cst) == seen) sleep_while(pool.generation, seen);
  pool.sleeping.fetch_sub(1, std::memory_order_relaxed);
}

void work(Pool& pool, Worker& worker) {
  worker.holding.store(true, std::memory_order_relaxed);
  const uint32_t done = run_tasks(pool, worker.index);
  test_delay();
  if (done > 0 && (pool.finished.fetch_add(done, std::memory_order_release) & kCallerSleeps) != 0) wake(pool.finished, 1);
  worker.holding.store(false, std::memory_order_relaxed);
}

void worker_main(void* opaque) {
  Worker& worker = *static_cast<Worker*>(opaque);
  Pool& pool = *worker.pool;
  inside = {&pool, worker.index};
  uint32_t seen = 0;
  for (;;) {
    if (pool.generation.load(std::memory_order_acquire) == seen && !spin_for_job(pool, seen)) sleep_for_job(pool, seen);
    // this must come before the read of `stop`, which is set first and must not be missed
    seen = pool.generation.load(std::memory_order_acquire);
    test_delay();
    if (pool.stop.load(std::memory_order_acquire)) return;
    work(pool, worker);
  }
}

void publish(Pool& pool, int64_t most) {
  pool.generation.fetch_add(1, std::memory_order_seq_cst);
  if (pool.sleeping.load(std::memory_order_seq_cst) == 0) return;
  wake(pool.generation, most < INT_MAX ? static_cast<int32_t>(most) : INT_MAX);
}

// The clock of a worker that may hold a task, or the caller's own clock where no worker does.
WorkClock clock_of_holder(Pool& pool) {
  for (int32_t i = 1; i < pool.threads; ++i)
    if (pool.workers[i].holding.load(std::memory_order_relaxed)) return clock_of_thread(pool.workers[i].thread);
  return own_clock();
}

// Leaves the core to a thread that has a task and no core.
void sleep_for_tasks(Pool& pool, uint32_t wanted) {
  test_delay();
  uint32_t found = pool.finished.fetch_or(kCallerSleeps, std::memory_order_acquire) | kCallerSleeps;
  while (found != (wanted | kCallerSleeps)) {
    sleep_while(pool.finished, found);
    found = pool.finished.load(std::memory_order_acquire);
  }
}

void wait_for_tasks(Pool& pool, uint32_t wanted) {
  if (pool.finished.load(std::memory_order_acquire) == wanted) return;
  const auto done = [&] { return pool.finished.load(std::memory_order_acquire) == wanted; };
  if (!spin(done, [&] { return clock_of_holder(pool); }, INT64_MAX, 1)) sleep_for_tasks(pool, wanted);
}

void run_alone(int64_t tasks, ts_task task, void* arg, int32_t thread) {
  for (int64_t i = 0; i < tasks; ++i) task(arg, i, thread);
}

int32_t threads_to_run(int32_t asked) {
#if defined(TS_TEST_DELAYS)
  return asked;  // all threads, so that all that exist take part at the same time
#else
  const int32_t cpus = usable_cpus();
  return asked < cpus ? asked : cpus;
#endif
}

}  // namespace

bool begin(Pool& pool, int32_t num_threads) {
  pool.threads = threads_to_run(num_threads);
  pool.caller_clock.store(own_clock());
  for (int32_t i = 1; i < pool.threads; ++i) {
    Worker& worker = pool.workers[i];
    worker.pool = &pool;
    worker.index = i;
    worker.thread.body = worker_main;
    worker.thread.arg = &worker;
    if (!start_thread(worker.thread)) {
      pool.threads = i;
      return false;
    }
  }
  return true;
}

void end(Pool& pool) {
  pool.stop.store(true, std::memory_order_release);
  publish(pool, INT_MAX);
  for (int32_t i = 1; i < pool.threads; ++i) join_thread(pool.workers[i].thread);
}

void run(Pool& pool, int64_t tasks, ts_task task, void* arg) {
  if (inside.pool == &pool) return run_alone(tasks, task, arg, inside.index);
  if (pool.threads == 1 || tasks <= 1 || tasks > kMostTasks) return run_alone(tasks, task, arg, 0);
  const Inside before = inside;  // the caller may be a task of another pool
  inside = {&pool, 0};
  pool.task = task;
  pool.arg = arg;
  pool.caller_clock.store(own_clock(), std::memory_order_relaxed);
  pool.finished.store(0, std::memory_order_relaxed);
  share_out(pool, tasks);
  publish(pool, tasks - 1);
  const uint32_t own = run_tasks(pool, 0);
  wait_for_tasks(pool, static_cast<uint32_t>(tasks) - own);
  inside = before;
}

}  // namespace twostroke
