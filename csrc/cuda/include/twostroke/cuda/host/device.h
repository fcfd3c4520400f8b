// One device as the launching code sees it: the driver's functions, kernels, scratch memory, and the mirrors of inputs.
#pragma once
#include <pthread.h>

#include "twostroke/cuda/arguments.h"
#include "twostroke/cuda/cuda_abi.h"
#include "twostroke/cuda/host/driver_types.h"

namespace twostroke {
namespace cuda {

struct Driver {
  void* library;
#define F(symbol, name, arguments) CUresult(*name) arguments;
  TS_CUDA_DRIVER(F)
#undef F
};

enum KernelNumber {
#define K(name, Args) kKernel_##name,
  TS_CUDA_KERNELS(K)
#undef K
      kKernels
};

constexpr int kMostInputs = 32;

// A block that the host writes before each step of one program, and the place of its mirror on the device. host is NULL where the place is
// free.
struct InputBlock {
  const char* host;
  int64_t bytes;
  uint64_t mirror;
};

struct LaunchHead {
  int32_t kernel, threads;
  uint32_t blocks;
  int32_t call;  // the number of the call of ts_run
};

// Launches in order. Each is a LaunchHead with its arguments after it, so equal lists have equal bytes.
struct LaunchList {
  char* data;
  int64_t bytes, capacity, count;
};

// The bytes of a kernel's arguments, rounded up to whole words.
int64_t argument_bytes(int32_t kernel);

// One launch of a list.
struct Launch {
  char* at;

  const LaunchHead& head() const { return *reinterpret_cast<const LaunchHead*>(at); }
  void* arguments() const { return at + sizeof(LaunchHead); }
  int64_t bytes() const { return static_cast<int64_t>(sizeof(LaunchHead)) + argument_bytes(head().kernel); }
  Launch next() const { return {at + bytes()}; }
  bool is_in(const LaunchList& list) const { return at < list.data + list.bytes; }
};

inline Launch first_of(const LaunchList& list) { return {list.data}; }
inline void forget(LaunchList& list) { list.bytes = list.count = 0; }

struct GraphDriver {
#define F(symbol, name, arguments) CUresult(*name) arguments;
  TS_CUDA_GRAPHS(F)
#undef F
};

// Where steps have at most kMostSeen different lists, every list gets its graph. With more lists, no graph is made only to be thrown away.
constexpr int kMostGraphs = 48, kMostSeen = 32;

struct KeptGraph {  // exec: NULL where the place is free
  LaunchList launches;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode* nodes;
  int64_t used;  // the last use, by Graphs::clock
};

struct Graphs {
  GraphDriver driver;
  CUaddDependencies join;  // NULL where a kernel begins only after the end of the one before it
  KeptGraph kept[kMostGraphs];
  uint64_t seen[kMostSeen];  // the hashes of lists
  int64_t next_seen, clock;
  int32_t most;  // how many graphs to keep; 0 where the driver has no graphs
  bool is_full;  // set after an attempt to make a graph failed
};

constexpr int kResultSlots = 4, kStages = 2;

// The results of one step, on the device and in pinned memory of the host; and the times at which the device began the step and the results
// arrived.
struct ResultSlot {
  uint64_t there;
  void* here;
  int64_t room, bytes;
  CUevent begun, ended;
};

// Pinned memory from which inputs are copied to the device. The copy has read it once `read` has passed.
struct Stage {
  void* memory;
  int64_t room;
  CUevent read;
};

}  // namespace cuda
}  // namespace twostroke

struct ts_context {
  twostroke::cuda::Driver driver;
  twostroke::cuda::CUdevice device;
  bool retained, has_warpgroups;  // has_warpgroups: whether the image has products of warpgroups
  int32_t multiprocessors;
  twostroke::cuda::CUcontext context;
  twostroke::cuda::CUmodule module;
  twostroke::cuda::CUstream stream;
  twostroke::cuda::CUfunction kernels[twostroke::cuda::kKernels];
  uint64_t scratch;
  int64_t scratch_bytes;
  twostroke::cuda::InputBlock inputs[twostroke::cuda::kMostInputs];
  pthread_mutex_t lock;  // guards the collected launches and the graphs, because one thread may write weights while another one steps
  int64_t call;  // the number of the call that is being started, or that failed
  twostroke::cuda::LaunchList collected;
  twostroke::cuda::Graphs graphs;
  twostroke::cuda::ResultSlot results[twostroke::cuda::kResultSlots];
  twostroke::cuda::Stage stages[twostroke::cuda::kStages];
  int32_t next_stage;
};

namespace twostroke {
namespace cuda {

// Keeps the text of the error for ts_cuda_error. Returns TS_CUDA_FAILED, or TS_OK where the call succeeded.
int32_t checked(const ts_context& device, const char* call, CUresult result);
void set_error(const char* what, const char* detail);

// Collects a launch of `kernel` with a copy of args. A grid without blocks is ignored.
int32_t start(ts_context& device, KernelNumber kernel, int64_t blocks, int32_t threads, const void* args);

// Holds the lock, which one thread may take more than once. No holder waits for the device.
struct Held {
  ts_context& device;

  explicit Held(ts_context& of) : device(of) { pthread_mutex_lock(&device.lock); }
  ~Held() { pthread_mutex_unlock(&device.lock); }
  Held(const Held&) = delete;
};

// Makes the device current for the calling thread. Collected launches run first.
int32_t begin(ts_context* device);

// Runs the collected launches as a graph, or one by one. launch_each always runs them one by one; device.call is then the call that failed.
int32_t run_collected(ts_context& device);
int32_t launch_each(ts_context& device);

// Returns the graph of these launches, or NULL where they must run one by one.
KeptGraph* graph_of(ts_context& device, const LaunchList& list);
// looks for the functions of graphs in the driver's library; ts_cuda_load explains `waits`
void find_graphs(ts_context& device, bool waits);
void drop_graphs(ts_context& device);  // drops all graphs after all earlier work

// Returns device memory that is valid until the next call, at a multiple of 256 bytes. Returns 0 and sets *status where there is none.
uint64_t scratch_of(ts_context& device, int64_t bytes, int32_t* status);

// results_of returns the place where the device writes the results of a slot. The next function reports that all of them are written; then
// they are copied to the host, without a wait.
uint64_t results_of(ts_context& device, int32_t slot, int64_t bytes, int32_t* status);
int32_t end_results(ts_context& device, int32_t slot, int64_t bytes);
void close_results(ts_context& device);

// Copies inputs to the device from pinned memory, so that the host does not wait. The caller may change `from` at once.
int32_t copy_up_staged(ts_context& device, uint64_t to, const void* from, int64_t bytes);
void close_stages(ts_context& device);

// Replaces pinned memory by at least `bytes` of it, where *room is less. The old memory must not be in use.
int32_t pinned_room(ts_context& device, void** memory, int64_t* room, int64_t bytes);

// Returns the address of an input's mirror, or NULL where [data, data + count) lies in no block of inputs.
const int32_t* mirrored(const ts_context& device, const int32_t* data, int64_t count);

}  // namespace cuda
}  // namespace twostroke
