// Blocks of inputs: the host writes them before each step of a program, and the device has a mirror of each.
#include "twostroke/cuda/host/device.h"

namespace twostroke {
namespace cuda {
namespace {

// Returns the block that begins at this address, or a free place for nullptr. Returns NULL where there is none.
InputBlock* block_at(ts_context& device, const void* host) {
  for (InputBlock& block : device.inputs)
    if (block.host == host) return &block;
  return nullptr;
}

}  // namespace

const int32_t* mirrored(const ts_context& device, const int32_t* data, int64_t count) {
  const char* from = reinterpret_cast<const char*>(data);
  for (const InputBlock& block : device.inputs) {
    if (block.host == nullptr || from < block.host || from + 4 * count > block.host + block.bytes) continue;
    return reinterpret_cast<const int32_t*>(block.mirror + static_cast<uint64_t>(from - block.host));
  }
  return nullptr;
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

int32_t ts_cuda_inputs(ts_context* device, const void* host, int64_t bytes) {
  if (device == nullptr || host == nullptr) return TS_BAD_POINTER;
  if (bytes < 0) return TS_BAD_SHAPE;
  if (InputBlock* known = block_at(*device, host)) {
    const int32_t status = ts_cuda_free(device, known->mirror);  // the call waits for the work that reads the mirror
    if (status != TS_OK) return status;
    *known = {};
  }
  if (bytes == 0) return TS_OK;
  InputBlock* free_place = block_at(*device, nullptr);
  if (free_place == nullptr) return TS_CUDA_NO_ROOM;
  InputBlock made = {static_cast<const char*>(host), bytes, 0};
  const int32_t status = ts_cuda_allocate(device, bytes, &made.mirror);
  if (status != TS_OK) return status;
  *free_place = made;
  return ts_cuda_zero(device, made.mirror, bytes);
}

int32_t ts_cuda_upload(ts_context* device, const void* host, int64_t bytes) {
  if (device == nullptr || host == nullptr) return TS_BAD_POINTER;
  const InputBlock* block = block_at(*device, host);
  if (block == nullptr) return TS_BAD_POINTER;
  if (bytes < 0 || bytes > block->bytes) return TS_BAD_SHAPE;
  return copy_up_staged(*device, block->mirror, host, bytes);
}
