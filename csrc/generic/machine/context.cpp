// A ts_context: its threads, its scratch memory, and the order in which it reads weights.
#include "twostroke/context.h"

#include <string.h>

#include "twostroke/exchange.h"
#include "twostroke/level.h"
#include "twostroke/pool.h"

struct ts_context {
  twostroke::Pool pool;
  int32_t threads;  // the threads among which work is divided; the pool may run fewer
  void* scratch;
  size_t scratch_bytes;
  bool in_turn;
  ts_exchange* exchange;  // the exchange with other ranks; NULL for a rank alone
};

ts_context* ts_context_create(int32_t num_threads) {
  if (num_threads < 1 || num_threads > twostroke::kMaxThreads) return nullptr;
  if constexpr (twostroke::kLevel.matrix_registers) {
    if ((ts_levels() >> 4 & 1) == 0) return nullptr;  // the question also makes the kernel save matrix registers for this process
  }
  void* memory = twostroke::aligned_memory(alignof(ts_context), sizeof(ts_context));
  if (memory == nullptr) return nullptr;
  memset(memory, 0, sizeof(ts_context));
  ts_context* context = static_cast<ts_context*>(memory);
  context->threads = num_threads;
  ts_context_read(context, TS_READ_BY_MAKER);
  if (!twostroke::begin(context->pool, num_threads)) {
    ts_context_destroy(context);
    return nullptr;
  }
  return context;
}

void ts_context_destroy(ts_context* context) {
  if (context == nullptr) return;
  twostroke::end(context->pool);
  twostroke::free_aligned(context->scratch);
  twostroke::free_aligned(context);
}

int32_t ts_context_read(ts_context* context, int32_t reading) {
  if (context == nullptr) return TS_BAD_POINTER;
  if (reading < TS_READ_BY_MAKER || reading > TS_READ_IN_TURN) return TS_BAD_FORMAT;
  context->in_turn = reading == TS_READ_BY_MAKER ? ts_likes_turns() : reading == TS_READ_IN_TURN;
  return TS_OK;
}

int32_t ts_context_join(ts_context* context, ts_exchange* exchange) {
  if (context == nullptr) return TS_BAD_POINTER;
  context->exchange = exchange;
  return TS_OK;
}

ts_exchange* twostroke::exchange_of(ts_context* context) { return context->exchange; }

int64_t ts_context_scratch_bytes(const ts_context* context) {
  return context == nullptr ? 0 : static_cast<int64_t>(context->scratch_bytes);
}

void ts_parallel(ts_context* context, int64_t tasks, ts_task task, void* arg) { twostroke::run(context->pool, tasks, task, arg); }

int32_t ts_threads(const ts_context* context) { return context->threads; }

bool ts_reads_in_turn(const ts_context* context) { return context->in_turn; }

void* ts_scratch(ts_context* context, size_t bytes) {
  if (bytes > context->scratch_bytes) {
    void* larger = twostroke::aligned_memory(64, bytes);
    if (larger == nullptr) return nullptr;
    twostroke::free_aligned(context->scratch);
    context->scratch = larger;
    context->scratch_bytes = bytes;
  }
  return context->scratch;
}
