// Graphs of the fake driver: launches one after the other, each with the arguments that it was given.
#include "fake_driver.h"

#include <stdlib.h>
#include <string.h>

using namespace fake_driver;

namespace {

constexpr size_t kMostNodes = 4096;

struct Node {  // a launch; kept: its arguments
  const Entry* entry;
  void* kept;
  uint32_t grid, block;
};

// early: the number of edges whose kernel waits by itself. from: for a graph that can run, the graph from which it was made.
struct Graph {
  const Graph* from;
  size_t count, edges, early;
  Node nodes[kMostNodes];
};

Node node_of(const CUkernelNode& params) {
  const Entry* entry = reinterpret_cast<const Entry*>(params.function);
  Node made = {entry, malloc(entry->argument_bytes), params.grid_x, params.block_x};
  memcpy(made.kept, params.arguments[0], entry->argument_bytes);
  return made;
}

// Whether a node is the last one of a graph, or the last but `newer`.
bool is_last(const Graph& graph, CUgraphNode node, size_t newer) {
  return graph.count > newer && node == reinterpret_cast<CUgraphNode>(const_cast<Node*>(&graph.nodes[graph.count - 1 - newer]));
}

Graph* new_graph() {
  ++counts.graphs_held;
  return static_cast<Graph*>(calloc(1, sizeof(Graph)));
}

CUresult destroy(void* which) {
  Graph* graph = static_cast<Graph*>(which);
  for (size_t i = 0; i < graph->count; ++i) free(graph->nodes[i].kept);
  free(graph);
  --counts.graphs_held;
  return 0;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, uint32_t flags) {
  if (flags != 0 || fails("cuGraphCreate")) return kInvalid;
  *graph = reinterpret_cast<CUgraph>(new_graph());
  return 0;
}
CUresult cuGraphDestroy(CUgraph graph) { return destroy(graph); }
CUresult cuGraphExecDestroy(CUgraphExec exec) { return destroy(exec); }

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph which, const CUgraphNode* behind, size_t count, const CUkernelNode* params) {
  Graph* graph = reinterpret_cast<Graph*>(which);
  if (fails("cuGraphAddKernelNode") || graph->count == kMostNodes || params->kernel != nullptr || params->context != nullptr) return kInvalid;
  if (count > 1 || (count == 1 && !is_last(*graph, *behind, 0))) return kInvalid;
  graph->edges += count;
  *node = reinterpret_cast<CUgraphNode>(&graph->nodes[graph->count]);
  graph->nodes[graph->count++] = node_of(*params);
  return 0;
}

CUresult cuGraphAddDependencies_v2(CUgraph which, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdge* edges, size_t count) {
  Graph* graph = reinterpret_cast<Graph*>(which);
  if (fails("cuGraphAddDependencies") || count != 1 || !is_last(*graph, *from, 1) || !is_last(*graph, *to, 0)) return kInvalid;
  if (edges->from_port != 1 || edges->to_port != 0 || edges->type != 1) return kInvalid;
  ++graph->edges;
  ++graph->early;
  return 0;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph which, unsigned long long flags) {
  const Graph* graph = reinterpret_cast<const Graph*>(which);
  if (flags != 0 || fails("cuGraphInstantiate")) return kOutOfMemory;
  if (graph->edges + 1 != graph->count) return kInvalid;  // launches that do not wait for each other
  Graph* made = new_graph();
  made->from = graph;
  made->count = graph->count;
  for (size_t i = 0; i < graph->count; ++i) {
    made->nodes[i] = graph->nodes[i];
    made->nodes[i].kept = malloc(graph->nodes[i].entry->argument_bytes);
    memcpy(made->nodes[i].kept, graph->nodes[i].kept, graph->nodes[i].entry->argument_bytes);
  }
  *exec = reinterpret_cast<CUgraphExec>(made);
  ++counts.graphs_made;
  counts.early_edges += graph->early;
  return 0;
}

CUresult cuGraphUpload(CUgraphExec, CUstream) { return fails("cuGraphUpload") ? kOutOfMemory : 0; }

CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  if (fails("cuGraphLaunch")) return kLaunchFailed;
  const Graph* graph = reinterpret_cast<const Graph*>(exec);
  ++counts.graph_launches;
  CUresult status = 0;
  for (size_t i = 0; i < graph->count && status == 0; ++i) {
    const Node& node = graph->nodes[i];
    status = put_launch(node.entry, node.grid, node.block, node.kept);
  }
  return status;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUkernelNode* params) {
  Graph* graph = reinterpret_cast<Graph*>(exec);
  const Node* original = reinterpret_cast<const Node*>(node);
  if (fails("cuGraphExecKernelNodeSetParams") || original < graph->from->nodes || original >= graph->from->nodes + graph->count) return kInvalid;
  Node& changed = graph->nodes[original - graph->from->nodes];
  free(changed.kept);
  changed = node_of(*params);
  ++counts.nodes_changed;
  return 0;
}

}  // extern "C"
