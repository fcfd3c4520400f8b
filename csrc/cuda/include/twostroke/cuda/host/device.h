// One device as the launching code sees it: the driver's functions, kernels, scratch memory, the mirrors of inputs.
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

// What the host writes before each step of one program, and where its mirror lies on the device; host is NULL for a free place.
struct InputBlock {
  const char* host;
  int64_t bytes;
  uint64_t mirror;
};

struct LaunchHead {
  int32_t kernel, threads;
  uint32_t blocks;
  int32_t call;  // of ts_run's calls
};

// Launches in order, each a LaunchHead with its arguments after it: equal lists are equal bytes.
struct LaunchList {
  char* data;
  int64_t bytes, capacity, count;
};

// Bytes of a kernel's arguments, whole words.
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

// Steps of fewer lists than kMostSeen all have their graphs; of more, none is made to be thrown away.
constexpr int kMostGraphs = 48, kMostSeen = 32;

struct KeptGraph {  // exec: NULL for a free place
  LaunchList launches;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode* nodes;
  int64_t used;  // by Graphs::clock
};

struct Graphs {
  GraphDriver driver;
  CUaddDependencies join;  // NULL where kernels begin after the end of the one before
  KeptGraph kept[kMostGraphs];
  uint64_t seen[kMostSeen];  // hashes of lists
  int64_t next_seen, clock;
  int32_t most;  // to keep; 0 where the driver has none
  bool is_full;  // none could be made
};

constexpr int kResultSlots = 4, kStages = 2;

// Results of one step, on the device and in pinned memory of the host; when the device began that step and when the results were here.
struct ResultSlot {
  uint64_t there;
  void* here;
  int64_t room, bytes;
  CUevent begun, ended;
};

// Pinned memory from which inputs are copied up; the copy has read it once `read` has passed.
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
  bool retained;
  int32_t multiprocessors;
  twostroke::cuda::CUcontext context;
  twostroke::cuda::CUmodule module;
  twostroke::cuda::CUstream stream;
  twostroke::cuda::CUfunction kernels[twostroke::cuda::kKernels];
  uint64_t scratch;
  int64_t scratch_bytes;
  twostroke::cuda::InputBlock inputs[twostroke::cuda::kMostInputs];
  pthread_mutex_t lock;  // of what is collected, and of the graphs: weights may be written by one thread while another one steps
  int64_t call;  // that is being started, or that failed
  twostroke::cuda::LaunchList collected;
  twostroke::cuda::Graphs graphs;
  twostroke::cuda::ResultSlot results[twostroke::cuda::kResultSlots];
  twostroke::cuda::Stage stages[twostroke::cuda::kStages];
  int32_t next_stage;
};

namespace twostroke {
namespace cuda {

// Keeps the words for ts_cuda_error; returns TS_CUDA_FAILED, or TS_OK where the call succeeded.
int32_t checked(const ts_context& device, const char* call, CUresult result);
void set_error(const char* what, const char* detail);

// Collects a launch of `kernel` with a copy of args; a grid without blocks is nothing to do.
int32_t start(ts_context& device, KernelNumber kernel, int64_t blocks, int32_t threads, const void* args);

// Holds the lock, which one thread may take more than once; nothing waits for the device meanwhile.
struct Held {
  ts_context& device;

  explicit Held(ts_context& of) : device(of) { pthread_mutex_lock(&device.lock); }
  ~Held() { pthread_mutex_unlock(&device.lock); }
  Held(const Held&) = delete;
};

// Makes the calling thread ready; what was collected runs first.
int32_t begin(ts_context* device);

// Runs what was collected: as a graph, or one by one. launch_each: one by one; device.call is the call that failed.
int32_t run_collected(ts_context& device);
int32_t launch_each(ts_context& device);

// The graph of these launches; NULL where they are to run one by one.
KeptGraph* graph_of(ts_context& device, const LaunchList& list);
void find_graphs(ts_context& device, bool waits);  // of the driver's library. waits: see ts_cuda_load
void drop_graphs(ts_context& device);  // after all work

// Device memory until the next call, at 256 bytes; 0 and *status where there is none.
uint64_t scratch_of(ts_context& device, int64_t bytes, int32_t* status);

// Where the device writes results of a slot, and that all of them are written: then they come down, without a wait.
uint64_t results_of(ts_context& device, int32_t slot, int64_t bytes, int32_t* status);
int32_t end_results(ts_context& device, int32_t slot, int64_t bytes);
void close_results(ts_context& device);

// Copies inputs up from pinned memory, so that the host does not wait for the device; `from` may change at once.
int32_t copy_up_staged(ts_context& device, uint64_t to, const void* from, int64_t bytes);
void close_stages(ts_context& device);

// Replaces pinned memory by at least `bytes` of it, where *room is less. Nothing may use the old memory any more.
int32_t pinned_room(ts_context& device, void** memory, int64_t* room, int64_t bytes);

// Where the mirror of an input lies; NULL where [data, data + count) is in no block of inputs.
const int32_t* mirrored(const ts_context& device, const int32_t* data, int64_t count);

}  // namespace cuda
}  // namespace twostroke
