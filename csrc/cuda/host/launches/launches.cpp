// The launches of one call are collected first. Then they run one by one, or as a graph that was kept, in which a launch takes a fraction
// of the time.
#include "twostroke/cuda/host/device.h"

#include <stdlib.h>
#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kFirstRoom = 1 << 14;

bool has_room(LaunchList& list, int64_t bytes) {
  if (list.bytes + bytes <= list.capacity) return true;
  const int64_t wanted = 2 * list.capacity > kFirstRoom ? 2 * list.capacity : kFirstRoom;
  char* grown = static_cast<char*>(realloc(list.data, static_cast<size_t>(wanted)));
  if (grown == nullptr) return false;
  list.data = grown;
  list.capacity = wanted;
  return true;
}

}  // namespace

int64_t argument_bytes(int32_t kernel) {
  static const int64_t kBytes[] = {
#define K(name, Args) (sizeof(Args) + 7) / 8 * 8,
      TS_CUDA_KERNELS(K)
#undef K
  };
  return kBytes[kernel];
}

int32_t start(ts_context& device, KernelNumber kernel, int64_t blocks, int32_t threads, const void* args) {
  static const size_t kSizes[] = {
#define K(name, Args) sizeof(Args),
      TS_CUDA_KERNELS(K)
#undef K
  };
  static_assert(sizeof(LaunchHead) % 8 == 0, "the arguments follow it");
  if (blocks == 0) return TS_OK;
  if (blocks > INT32_MAX) return TS_BAD_SHAPE;
  LaunchList& list = device.collected;
  const int64_t bytes = static_cast<int64_t>(sizeof(LaunchHead)) + argument_bytes(kernel);
  if (!has_room(list, bytes)) return TS_NO_MEMORY;
  const LaunchHead head = {kernel, threads, static_cast<uint32_t>(blocks), static_cast<int32_t>(device.call)};
  memset(list.data + list.bytes, 0, static_cast<size_t>(bytes));
  memcpy(list.data + list.bytes, &head, sizeof head);
  memcpy(list.data + list.bytes + sizeof head, args, kSizes[kernel]);
  list.bytes += bytes;
  ++list.count;
  return TS_OK;
}

int32_t launch_each(ts_context& device) {
  static const char* const kCalls[] = {
#define K(name, Args) "cuLaunchKernel of " #name,
      TS_CUDA_KERNELS(K)
#undef K
  };
  LaunchList& list = device.collected;
  int32_t status = TS_OK;
  for (Launch each = first_of(list); each.is_in(list) && status == TS_OK; each = each.next()) {
    const LaunchHead& head = each.head();
    void* arguments[] = {each.arguments()};
    const CUresult result = device.driver.launch(device.kernels[head.kernel], head.blocks, 1, 1, static_cast<uint32_t>(head.threads), 1, 1, 0,
                                                 device.stream, arguments, nullptr);
    status = checked(device, kCalls[head.kernel], result);
    if (status != TS_OK) device.call = head.call;
  }
  forget(list);
  return status;
}

int32_t run_collected(ts_context& device) {
  KeptGraph* graph = graph_of(device, device.collected);
  if (graph == nullptr) return launch_each(device);
  forget(device.collected);
  return checked(device, "cuGraphLaunch", device.graphs.driver.launch(graph->exec, device.stream));
}

}  // namespace cuda
}  // namespace twostroke
