// The thread pool and the scratch memory of a ts_context. Tasks divide only outputs, so it never changes a result which thread runs a task.
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
// Whether reading in turn suits this CPU's maker. Measured: Intel's CPUs are quicker in turn, AMD's (Zen 4) are not. Arm's were never
// measured and do not read in turn.
bool ts_likes_turns();
// Returns memory that is aligned to 64 bytes and valid until the next ts_scratch on this context. NULL where there is none. The memory
// grows and never shrinks.
void* ts_scratch(ts_context*, size_t bytes);
