// The thread pool and the scratch memory behind a ts_context.
// Tasks only ever divide outputs: which thread runs a task never changes a result.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "twostroke/abi.h"

typedef void (*ts_task)(void* arg, int64_t index, int32_t thread);

// Runs task(arg, i, thread) for i in [0, tasks) and returns when all are done. The caller takes part as thread 0.
void ts_parallel(ts_context*, int64_t tasks, ts_task task, void* arg);
int32_t ts_threads(const ts_context*);
// Whether few rows read several stretches of weights in turn (ts_reading).
bool ts_reads_in_turn(const ts_context*);
// What suits this CPU's maker. Measured: Intel's read in turn quicker, AMD's (Zen 4) do not; Arm's were never measured and do not.
bool ts_likes_turns();
// 64-byte aligned, valid until the next ts_scratch on this context; NULL when there is no memory. Grows, never shrinks.
void* ts_scratch(ts_context*, size_t bytes);
