// Steps that are started before the results of the step before them are read. This file holds the places of their results, and pinned
// memory, so that no copy waits.
#include "twostroke/cuda/host/launch.h"

#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kLeastRoom = 1 << 14;

// Taking pinned memory may hold up the device, so sizes grow in large steps.
int64_t grown(int64_t bytes) {
  int64_t room = kLeastRoom;
  while (room < bytes) room *= 2;
  return room;
}

bool is_slot(int32_t slot) { return slot >= 0 && slot < kResultSlots; }

int32_t make_event(ts_context& device, CUevent* event) {
  return *event != nullptr ? TS_OK : checked(device, "cuEventCreate", device.driver.create_event(event, 0));
}

int32_t record(ts_context& device, CUevent event) { return checked(device, "cuEventRecord", device.driver.record(event, device.stream)); }

}  // namespace

int32_t pinned_room(ts_context& device, void** memory, int64_t* room, int64_t bytes) {
  if (bytes <= *room) return TS_OK;
  bytes = grown(bytes);
  if (*memory != nullptr) device.driver.free_pinned(*memory);
  *memory = nullptr;
  *room = 0;
  const int32_t status = checked(device, "cuMemHostAlloc", device.driver.allocate_pinned(memory, static_cast<size_t>(bytes), 0));
  if (status == TS_OK) *room = bytes;
  return status;
}

uint64_t results_of(ts_context& device, int32_t slot, int64_t bytes, int32_t* status) {
  *status = is_slot(slot) ? TS_OK : TS_BAD_INDEX;
  if (*status != TS_OK) return 0;
  ResultSlot& results = device.results[slot];
  if (bytes <= results.room) return results.there;
  if (results.there != 0) *status = ts_cuda_free(&device, results.there);  // the call waits for the work that reads the memory
  results.there = 0;
  int64_t room = results.room;
  results.room = 0;
  if (*status == TS_OK) *status = pinned_room(device, &results.here, &room, bytes);
  if (*status == TS_OK) *status = ts_cuda_allocate(&device, room, &results.there);
  if (*status == TS_OK) results.room = room;
  return results.there;
}

int32_t end_results(ts_context& device, int32_t slot, int64_t bytes) {
  if (!is_slot(slot)) return TS_BAD_INDEX;
  ResultSlot& results = device.results[slot];
  results.bytes = bytes;
  int32_t status = begin(&device);
  if (status == TS_OK) status = make_event(device, &results.ended);
  if (status == TS_OK && bytes > 0)
    status = checked(device, "cuMemcpyDtoHAsync",
                     device.driver.copy_down(results.here, results.there, static_cast<size_t>(bytes), device.stream));
  return status == TS_OK ? record(device, results.ended) : status;
}

void close_results(ts_context& device) {
  for (ResultSlot& each : device.results) {
    if (each.there != 0) device.driver.free_memory(each.there);
    if (each.here != nullptr) device.driver.free_pinned(each.here);
    if (each.begun != nullptr) device.driver.destroy_event(each.begun);
    if (each.ended != nullptr) device.driver.destroy_event(each.ended);
  }
}

int32_t copy_up_staged(ts_context& device, uint64_t to, const void* from, int64_t bytes) {
  int32_t status = begin(&device);
  if (status != TS_OK || bytes == 0) return status;
  Stage& stage = device.stages[device.next_stage];
  device.next_stage = (device.next_stage + 1) % kStages;
  if (stage.read != nullptr) status = checked(device, "cuEventSynchronize", device.driver.wait_event(stage.read));
  if (status == TS_OK) status = make_event(device, &stage.read);
  if (status == TS_OK) status = pinned_room(device, &stage.memory, &stage.room, bytes);
  if (status != TS_OK) return status;
  memcpy(stage.memory, from, static_cast<size_t>(bytes));
  status = checked(device, "cuMemcpyHtoDAsync", device.driver.copy_up(to, stage.memory, static_cast<size_t>(bytes), device.stream));
  return status == TS_OK ? record(device, stage.read) : status;
}

void close_stages(ts_context& device) {
  for (Stage& each : device.stages) {
    if (each.memory != nullptr) device.driver.free_pinned(each.memory);
    if (each.read != nullptr) device.driver.destroy_event(each.read);
  }
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

int32_t ts_cuda_begin_step(ts_context* device, int32_t slot) {
  int32_t status = begin(device);
  if (status != TS_OK) return status;
  if (!is_slot(slot)) return TS_BAD_INDEX;
  status = make_event(*device, &device->results[slot].begun);
  return status == TS_OK ? record(*device, device->results[slot].begun) : status;
}

int32_t ts_cuda_follow(ts_context* device, const int32_t* tokens, int64_t rows, const int32_t* pairs, int64_t count, int64_t told_bytes,
                       int32_t slot) {
  int32_t status = begin(device);
  if (status != TS_OK || count == 0) return status;
  if (tokens == nullptr || pairs == nullptr) return TS_BAD_POINTER;
  if (!is_slot(slot)) return TS_BAD_INDEX;
  if (told_bytes != sizeof(SampledRow)) return TS_BAD_FORMAT;
  const ResultSlot& results = device->results[slot];
  const int32_t *to = mirrored(*device, tokens, rows), *from = mirrored(*device, pairs, 2 * count);
  if (to == nullptr || from == nullptr) return TS_BAD_POINTER;
  for (int64_t i = 0; i < count; ++i)
    if (pairs[2 * i] < 0 || pairs[2 * i] >= rows || pairs[2 * i + 1] < 0 || (pairs[2 * i + 1] + 1) * told_bytes > results.bytes) return TS_BAD_INDEX;
  const Held held(*device);
  const FollowArgs args = {const_cast<int32_t*>(to), from, reinterpret_cast<const SampledRow*>(results.there), count};
  return start(*device, kKernel_follow, divide_up(count, kThreads), kThreads, &args);
}

int32_t ts_cuda_results(ts_context* device, int32_t slot, void* told, int64_t bytes, double* seconds) {
  int32_t status = begin(device);
  if (status != TS_OK) return status;
  if (!is_slot(slot) || device->results[slot].ended == nullptr || device->results[slot].begun == nullptr) return TS_BAD_INDEX;
  const ResultSlot& results = device->results[slot];
  if (bytes != results.bytes) return TS_BAD_SHAPE;
  if (seconds == nullptr || (told == nullptr && bytes > 0)) return TS_BAD_POINTER;
  status = checked(*device, "cuEventSynchronize", device->driver.wait_event(results.ended));
  float milliseconds = 0;
  if (status == TS_OK) status = checked(*device, "cuEventElapsedTime", device->driver.elapsed(&milliseconds, results.begun, results.ended));
  if (status != TS_OK) return status;
  *seconds = 1e-3 * static_cast<double>(milliseconds);
  if (bytes > 0) memcpy(told, results.here, static_cast<size_t>(bytes));
  return TS_OK;
}
