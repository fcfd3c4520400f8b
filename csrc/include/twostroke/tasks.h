// Divides the tasks of one op among threads.
#pragma once
#include "twostroke/context.h"

namespace twostroke {

// Calls kTask(a, number) for the numbers in [0, tasks), divided among the threads, and returns when all are done.
template <auto kTask, class Args>
void share_tasks(ts_context* context, int64_t tasks, const Args& a) {
  const ts_task task = [](void* arg, int64_t number, int32_t) { kTask(*static_cast<const Args*>(arg), number); };
  ts_parallel(context, tasks, task, const_cast<Args*>(&a));
}

}  // namespace twostroke
