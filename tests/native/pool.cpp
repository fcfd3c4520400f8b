// The thread pool alone, as tests/native/test_pool.py compiles and runs it. Every task must be done once, with the function and the
// argument of its own job, whatever delays the threads. The program ends with 0, or with the first error. For tests only.
//
// pool many|nested|stopped|create [threads] [jobs]
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "twostroke/context.h"
#include "twostroke/pool.h"

using twostroke::Pool;

#if defined(TS_TEST_DELAYS)
// At these places a real thread may lose its core, and here it sometimes does.
namespace twostroke {
void test_delay() {
  static thread_local uint32_t state = static_cast<uint32_t>(syscall(SYS_gettid));
  state = state * 1664525u + 1013904223u;
  if (state >> 24 == 0) usleep(100);
}
}  // namespace twostroke
#endif

namespace {

[[noreturn]] void wrong(const char* what, int64_t number) {
  fprintf(stderr, "%s (%lld)\n", what, static_cast<long long>(number));
  _exit(1);
}

Pool* make_pool(int32_t threads) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignof(Pool), sizeof(Pool)) != 0) wrong("no memory", 0);
  memset(memory, 0, sizeof(Pool));
  Pool* pool = static_cast<Pool*>(memory);
  pool->generation.store(UINT32_MAX - 100);  // the number wraps around soon
  if (!twostroke::begin(*pool, threads)) wrong("no threads", threads);
  return pool;
}

void drop(Pool* pool) {
  twostroke::end(*pool);
  free(pool);
}

constexpr int64_t kMost = 300;

// It is on the caller's stack for one job alone. A thread that uses it after the job writes to memory with other contents.
struct Count {
  uint64_t job, sign;
  int64_t tasks;
  int32_t threads;
  uint64_t* out;  // plain memory, so that the sanitizer sees every access that is not ordered
};

template <uint64_t kSign>
void count(void* arg, int64_t index, int32_t thread) {
  Count& job = *static_cast<Count*>(arg);
  if (job.sign != kSign) wrong("the function of one job with the argument of another", static_cast<int64_t>(job.job));
  if (index < 0 || index >= job.tasks) wrong("no such task", index);
  if (thread < 0 || thread >= job.threads) wrong("no such thread", thread);
  job.out[index] += job.job;
}

// Jobs of all sizes, one right after the other, with some pauses in which the workers fall asleep.
void many(int32_t threads, int64_t jobs) {
  Pool* pool = make_pool(threads);
  uint64_t out[kMost] = {}, expected[kMost] = {};
  uint32_t state = 1;
  for (int64_t j = 1; j <= jobs; ++j) {
    state = state * 1664525u + 1013904223u;
    Count job = {static_cast<uint64_t>(j), 1 + static_cast<uint64_t>(j % 2), (state >> 8) % kMost, threads, out};
    twostroke::run(*pool, job.tasks, j % 2 == 0 ? count<1> : count<2>, &job);
    for (int64_t i = 0; i < job.tasks; ++i) expected[i] += job.job;
    if (memcmp(out, expected, sizeof(out)) != 0) wrong("a task was left out or done twice", j);
    memset(&job, 0xff, sizeof(job));
    if (j % 997 == 0) usleep(2000);
  }
  drop(pool);
}

struct Nest {
  Pool *pool, *other;
  int32_t threads;
  uint64_t out[16][8];
};

struct Inner {
  Nest* nest;
  int64_t outer;
  int32_t thread;
};

void inner_task(void* arg, int64_t index, int32_t thread) {
  Inner& inner = *static_cast<Inner*>(arg);
  if (thread != inner.thread) wrong("an inner task left its thread", thread);
  inner.nest->out[inner.outer][index] += 1;
}

void outer_task(void* arg, int64_t index, int32_t thread) {
  Inner inner = {static_cast<Nest*>(arg), index, thread};
  if (thread == 0) {  // a job of another pool in between; this thread still belongs to a task
    uint64_t out[4] = {};
    Count job = {1, 1, 4, 2, out};
    twostroke::run(*inner.nest->other, 4, count<1>, &job);
    for (uint64_t each : out)
      if (each != 1) wrong("a task of the other pool was left out or done twice", index);
  }
  twostroke::run(*inner.nest->pool, 8, inner_task, &inner);
}

void nested(int32_t threads, int64_t jobs) {
  Nest nest = {make_pool(threads), make_pool(2), threads, {}};
  for (int64_t j = 1; j <= jobs; ++j) {
    twostroke::run(*nest.pool, 16, outer_task, &nest);
    for (auto& row : nest.out)
      for (uint64_t each : row)
        if (each != static_cast<uint64_t>(j)) wrong("an inner task was left out or done twice", j);
  }
  drop(nest.pool);
  drop(nest.other);
}

std::atomic<int32_t> stopped, released;

void stop_here(int) {
  stopped.fetch_add(1);
  while (released.load() == 0) usleep(200);
}

// Every thread but this one is stopped, as if it had lost its core for good. Jobs must end in spite of that. Then the threads come back
// late.
void stop_workers(int32_t threads, int64_t jobs) {
  uint64_t out[kMost] = {};
  ts_context* context = ts_context_create(threads);
  signal(SIGUSR1, stop_here);
  int32_t asked = 0;  // no more threads run than there are CPUs
  DIR* folder = opendir("/proc/self/task");
  while (dirent* entry = readdir(folder)) {
    const pid_t id = atoi(entry->d_name);
    if (id > 0 && id != static_cast<pid_t>(syscall(SYS_gettid))) asked += syscall(SYS_tgkill, getpid(), id, SIGUSR1) == 0;
  }
  closedir(folder);
  if (asked > threads - 1) wrong("more threads than asked for", asked);
  while (stopped.load() < asked) usleep(200);
  for (int64_t j = 1; j <= jobs; ++j) {
    Count job = {1, 1, kMost, threads, out};
    ts_parallel(context, kMost, count<1>, &job);
    if (j == jobs / 2) released.store(1);
  }
  for (uint64_t each : out)
    if (each != static_cast<uint64_t>(jobs)) wrong("a task was left out or done twice", static_cast<int64_t>(each));
  ts_context_destroy(context);
}

}  // namespace

int main(int num_words, char** words) {
  const char* what = num_words > 1 ? words[1] : "";
  const int32_t threads = num_words > 2 ? atoi(words[2]) : 2;
  const int64_t jobs = num_words > 3 ? atoll(words[3]) : 1000;
  if (strcmp(what, "many") == 0) many(threads, jobs);
  else if (strcmp(what, "nested") == 0) nested(threads, jobs);
  else if (strcmp(what, "stopped") == 0) stop_workers(threads, jobs);
  else if (strcmp(what, "create") == 0) for (int64_t j = 0; j < jobs; ++j) drop(make_pool(threads));
  else wrong("no such test", 0);
  return 0;
}
