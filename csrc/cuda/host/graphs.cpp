// Graphs of launches. A list of launches that comes for the second time becomes a graph, and the graph is kept. Where few launches of a
// kept graph differ from the list, for example because they depend on the contexts' lengths, they are changed in the graph. Nothing here is
// an error: where a graph cannot be made, the launches run one by one.
#include "twostroke/cuda/host/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace twostroke {
namespace cuda {
namespace {

constexpr int64_t kLeastLaunches = 3;  // a graph has a cost of its own, so shorter lists run one by one
// A kept graph may differ from a list in at most one of this many launches. Where more differ, a new graph is quicker.
constexpr int64_t kFewest = 2;

// Returns the function, in its second version where the driver has one, because that version takes more fields of CUkernelNode.
void* find(void* library, const char* symbol) {
  char second[64];
  snprintf(second, sizeof second, "%s_v2", symbol);
  void* found = dlsym(library, second);
  return found != nullptr ? found : dlsym(library, symbol);
}

CUkernelNode node_of(const ts_context& device, const LaunchHead& head, void** arguments) {
  CUkernelNode node = {};
  node.function = device.kernels[head.kernel];
  node.grid_x = head.blocks;
  node.block_x = static_cast<uint32_t>(head.threads);
  node.grid_y = node.grid_z = node.block_y = node.block_z = 1;
  node.arguments = arguments;
  return node;
}

bool same(const LaunchList& a, const LaunchList& b) { return a.bytes == b.bytes && memcmp(a.data, b.data, static_cast<size_t>(a.bytes)) == 0; }

bool same(const Launch& a, const Launch& b) { return memcmp(a.at, b.at, static_cast<size_t>(a.bytes())) == 0; }

uint64_t hash_of(const LaunchList& list) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t at = 0; at < list.bytes; at += 8) {
    uint64_t word;
    memcpy(&word, list.data + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash == 0 ? 1 : hash;
}

// Whether the list came before, and not long ago.
bool was_seen(Graphs& graphs, const LaunchList& list) {
  const uint64_t hash = hash_of(list);
  for (const uint64_t each : graphs.seen)
    if (each == hash) return true;
  graphs.seen[graphs.next_seen++ % kMostSeen] = hash;
  return false;
}

void release(Graphs& graphs, KeptGraph& kept) {
  if (kept.exec != nullptr) graphs.driver.destroy_exec(kept.exec);
  if (kept.graph != nullptr) graphs.driver.destroy(kept.graph);
  free(kept.nodes);
  free(kept.launches.data);
  kept = {};
}

// Returns how many launches differ, or -1 where the kept graph cannot become a graph of the list. A changed launch keeps its kernel.
int64_t differing(const LaunchList& kept, const LaunchList& list) {
  if (kept.count != list.count || kept.bytes != list.bytes) return -1;
  int64_t found = 0;
  Launch b = first_of(list);
  for (Launch a = first_of(kept); a.is_in(kept); a = a.next(), b = b.next()) {
    if (a.head().kernel != b.head().kernel || a.head().threads != b.head().threads) return -1;
    found += !same(a, b);
  }
  return found;
}

bool change(const ts_context& device, KeptGraph& kept, const LaunchList& list) {
  int64_t at = 0;
  Launch b = first_of(list);
  for (Launch a = first_of(kept.launches); a.is_in(kept.launches); a = a.next(), b = b.next(), ++at) {
    if (same(a, b)) continue;
    void* arguments[] = {b.arguments()};
    const CUkernelNode node = node_of(device, b.head(), arguments);
    if (device.graphs.driver.change(kept.exec, kept.nodes[at], &node) != 0) return false;
  }
  memcpy(kept.launches.data, list.data, static_cast<size_t>(list.bytes));
  return true;
}

// Adds each launch after the one before it, as in a stream.
bool build(const ts_context& device, const LaunchList& list, KeptGraph& made) {
  const GraphDriver& driver = device.graphs.driver;
  made.nodes = static_cast<CUgraphNode*>(malloc(static_cast<size_t>(list.count) * sizeof(CUgraphNode)));
  made.launches = list;
  made.launches.data = static_cast<char*>(malloc(static_cast<size_t>(list.bytes)));
  if (made.nodes == nullptr || made.launches.data == nullptr) return false;
  memcpy(made.launches.data, list.data, static_cast<size_t>(list.bytes));
  if (driver.create(&made.graph, 0) != 0) return false;
  CUgraphNode* node = made.nodes;
  for (Launch each = first_of(list); each.is_in(list); each = each.next(), ++node) {
    void* arguments[] = {each.arguments()};
    const CUkernelNode wanted = node_of(device, each.head(), arguments);
    const bool is_first = node == made.nodes, joins = !is_first && device.graphs.join == nullptr;
    if (driver.add(node, made.graph, joins ? node - 1 : nullptr, joins ? 1 : 0, &wanted) != 0) return false;
    if (is_first || joins) continue;
    if (device.graphs.join(made.graph, node - 1, node, &kProgrammaticEdge, 1) != 0) return false;
  }
  return driver.instantiate(&made.exec, made.graph, 0) == 0 && driver.upload(made.exec, device.stream) == 0;
}

// Returns a free place, or the place of the graph that was not used for the longest time.
KeptGraph& place_for(ts_context& device) {
  KeptGraph* oldest = &device.graphs.kept[0];
  for (int i = 0; i < device.graphs.most; ++i) {
    KeptGraph& each = device.graphs.kept[i];
    if (each.exec == nullptr) return each;
    if (each.used < oldest->used) oldest = &each;
  }
  device.driver.synchronize(device.stream);  // the graph may still run
  release(device.graphs, *oldest);
  return *oldest;
}

KeptGraph* make(ts_context& device, const LaunchList& list) {
  KeptGraph& place = place_for(device);
  if (build(device, list, place)) return &place;
  release(device.graphs, place);
  if (device.graphs.join != nullptr) {
    device.graphs.join = nullptr;
    return make(device, list);
  }
  device.graphs.is_full = true;  // a new try at each step would cost more than launches
  return nullptr;
}

KeptGraph* kept_graph(ts_context& device, const LaunchList& list) {
  Graphs& graphs = device.graphs;
  for (KeptGraph& each : graphs.kept)
    if (each.exec != nullptr && same(each.launches, list)) return &each;
  for (KeptGraph& each : graphs.kept) {
    const int64_t different = each.exec == nullptr ? -1 : differing(each.launches, list);
    if (different < 0 || different * kFewest > list.count) continue;
    if (change(device, each, list)) return &each;
    device.driver.synchronize(device.stream);
    release(graphs, each);  // a part of the graph may have changed
    return nullptr;
  }
  return nullptr;
}

}  // namespace

void find_graphs(ts_context& device, bool waits) {
  bool all = true;
#define F(symbol, name, arguments)                                                                                     \
  device.graphs.driver.name = reinterpret_cast<CUresult(*) arguments>(find(device.driver.library, #symbol));           \
  all = all && device.graphs.driver.name != nullptr;
  TS_CUDA_GRAPHS(F)
#undef F
  device.graphs.most = all ? kMostGraphs : 0;
  device.graphs.join = waits ? reinterpret_cast<CUaddDependencies>(dlsym(device.driver.library, kAddDependencies)) : nullptr;
}

KeptGraph* graph_of(ts_context& device, const LaunchList& list) {
  Graphs& graphs = device.graphs;
  if (graphs.most == 0 || list.count < kLeastLaunches) return nullptr;
  KeptGraph* found = kept_graph(device, list);
  if (found == nullptr && !graphs.is_full && was_seen(graphs, list)) found = make(device, list);
  if (found != nullptr) found->used = ++graphs.clock;
  return found;
}

void drop_graphs(ts_context& device) {
  for (KeptGraph& each : device.graphs.kept)
    if (each.exec != nullptr) release(device.graphs, each);
  memset(device.graphs.seen, 0, sizeof device.graphs.seen);
  device.graphs.is_full = false;
}

}  // namespace cuda
}  // namespace twostroke

using namespace twostroke::cuda;

int32_t ts_cuda_graphs(ts_context* device, int32_t most) {
  if (device == nullptr) return TS_BAD_POINTER;
  if (most < 0 || most > kMostGraphs) return TS_BAD_SHAPE;
  const int32_t status = ts_cuda_wait(device);
  const Held held(*device);
  drop_graphs(*device);
  device->graphs.most = device->graphs.driver.create == nullptr ? 0 : most;
  return status;
}
