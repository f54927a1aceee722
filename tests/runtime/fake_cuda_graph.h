// Graphs of the fake driver: a part of fake_cuda.cpp.

namespace {

// A graph is a chain here: nodes run in the order in which they were added.
struct Node {
  const Function* function = nullptr;  // null: a copy
  uint32_t cluster = 1;
  std::function<int()> work;
  size_t index = 0;
  bool linked = true, early = false;
};
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};
struct Executable {
  std::vector<std::function<int()>> work;
};
void set_kernel(const cd::CudaKernelNode& k, uint32_t cluster, bool early, std::function<int()>* work) {
  *work = work_of(*static_cast<const Function*>(k.function), k.grid, k.block, k.shared_bytes, cluster, early, k.params);
}
int set_copy(const cd::CudaCopyNode& c, std::function<int()>* work) {
  if (c.from.memory_type != 2 || c.to.memory_type != 2 || c.height != 1 || c.depth != 1) return kInvalid;
  *work = [=] { return memcpy(reinterpret_cast<void*>(c.to.device + c.to.x), reinterpret_cast<void*>(c.from.device + c.from.x), c.width), +kOk; };
  return kOk;
}
int add_node(void** node, void* graph, void* const* after, size_t count, Node made) {
  Graph* g = static_cast<Graph*>(graph);
  if (count > 1 || (count == 1 && (g->nodes.empty() || after[0] != g->nodes.back().get()))) return kInvalid;
  made.linked = g->nodes.empty() || count == 1;
  made.index = g->nodes.size();
  g->nodes.push_back(std::make_unique<Node>(std::move(made)));
  return *node = g->nodes.back().get(), kOk;
}

}  // namespace

API cuGraphCreate(void** graph, uint32_t) {
  const Lock lock(driver().mutex);
  driver().counts.graphs++;
  return *graph = new Graph, kOk;
}
API cuGraphDestroy(void* graph) {
  const Lock lock(driver().mutex);
  driver().counts.graphs--;
  delete static_cast<Graph*>(graph);
  return kOk;
}
API cuGraphAddKernelNode_v2(void** node, void* graph, void* const* after, size_t count, const cd::CudaKernelNode* k) {
  const Lock lock(driver().mutex);
  Node made;
  made.function = static_cast<const Function*>(k->function);
  set_kernel(*k, 1, false, &made.work);
  return add_node(node, graph, after, count, std::move(made));
}
// Programmatic edges between neighbours, both of them kernels.
API cuGraphAddDependencies_v2(void* graph, void* const* from, void* const* to, const cd::CudaEdge* edges, size_t count) {
  const Lock lock(driver().mutex);
  Graph* g = static_cast<Graph*>(graph);
  for (size_t i = 0; i < count; i++) {
    Node *before = static_cast<Node*>(from[i]), *after = static_cast<Node*>(to[i]);
    const cd::CudaEdge& e = edges[i];
    if (e.type != cd::kCudaEdgeProgrammatic || e.from_port != 1 || e.to_port != 0 || !before->function || !after->function) return kInvalid;
    if (after->index != before->index + 1 || g->nodes[after->index].get() != after) return kInvalid;
    after->linked = after->early = true;
    if (EmulatedCall* call = after->work.target<EmulatedCall>()) call->launch.early = true;
    driver().counts.early_starts++;
  }
  return kOk;
}
API cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count, const cd::CudaCopyNode* c, void* context) {
  const Lock lock(driver().mutex);
  Node made;
  if (context != current || set_copy(*c, &made.work)) return kInvalid;
  return add_node(node, graph, after, count, std::move(made));
}
// Before the graph is instantiated.
API cuGraphKernelNodeSetAttribute(void* node, int32_t attribute, const void* value) {
  const Lock lock(driver().mutex);
  Node* n = static_cast<Node*>(node);
  if (attribute != 4 || !n->function) return kInvalid;
  memcpy(&n->cluster, value, sizeof n->cluster);
  return n->work.target<EmulatedCall>() ? n->work.target<EmulatedCall>()->launch.cluster = n->cluster, kOk : kOk;
}
API cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  const Lock lock(driver().mutex);
  if (getenv("FAKE_CUDA_NO_GRAPHS")) return kOutOfMemory;
  for (const auto& node : static_cast<Graph*>(graph)->nodes) {
    if (!node->linked) return kInvalid;
  }
  Executable* made = new Executable;
  for (const auto& node : static_cast<Graph*>(graph)->nodes) made->work.push_back(node->work);
  driver().counts.executables++;
  return *executable = made, kOk;
}
API cuGraphExecDestroy(void* executable) {
  const Lock lock(driver().mutex);
  driver().counts.executables--;
  delete static_cast<Executable*>(executable);  // launches have copies
  return kOk;
}
API cuGraphExecKernelNodeSetParams_v2(void* executable, void* node, const cd::CudaKernelNode* k) {
  const Lock lock(driver().mutex);
  const Node& n = *static_cast<const Node*>(node);
  if (!n.function) return kInvalid;
  driver().counts.changed_nodes++;
  spend(driver().change_ns);
  return set_kernel(*k, n.cluster, n.early, &static_cast<Executable*>(executable)->work[n.index]), kOk;
}
API cuGraphExecMemcpyNodeSetParams(void* executable, void* node, const cd::CudaCopyNode* c, void*) {
  const Lock lock(driver().mutex);
  const Node& n = *static_cast<const Node*>(node);
  if (n.function) return kInvalid;
  driver().counts.changed_nodes++;
  spend(driver().change_ns);
  return set_copy(*c, &static_cast<Executable*>(executable)->work[n.index]);
}
API cuGraphLaunch(void* executable, void* stream) {
  const Lock lock(driver().mutex);
  if (getenv("FAKE_CUDA_GRAPHS_FAIL")) return kInvalid;
  driver().counts.graph_launches++;
  spend(driver().graph_ns);
  for (const auto& work : static_cast<Executable*>(executable)->work) {
    if (const int result = enqueue(stream, work)) return result;
  }
  return kOk;
}
