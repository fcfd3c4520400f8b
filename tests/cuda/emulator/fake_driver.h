// Declarations that the parts of the fake driver share.
#pragma once
#include "twostroke/cuda/host/driver_types.h"

namespace fake_driver {

using namespace twostroke::cuda;

constexpr CUresult kInvalid = 1, kLaunchFailed = 719;

struct Entry {
  const char* name;
  void (*kernel)(const void* args);
  size_t argument_bytes;
};

// The figures that a test may ask for. The first two are present numbers; the others are counted from fake_reset on.
#define FAKE_COUNTS(C) \
  C(used) C(graphs_held) C(launches) C(copies_up) C(copies_down) C(waits) C(graph_launches) C(graphs_made) C(nodes_changed) C(early_edges)

struct Counts {
#define C(name) uint64_t name;
  FAKE_COUNTS(C)
#undef C
};
extern Counts counts;

// Whether the test asked this call to fail. With fails_once, the next call does not fail.
bool fails(const char* call);
bool fails_once(const char* call);

// Queues a launch, with a copy of its arguments.
CUresult put_launch(const Entry* entry, uint32_t grid, uint32_t block, const void* arguments);

}  // namespace fake_driver
