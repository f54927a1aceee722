#include "lower/storage.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "lower/names.h"

namespace coil::lowering {
namespace {

// Views that begin where what they show begins.
constexpr std::string_view kInPlace[] = {"permute", "transpose", "t", "mT", "numpy_T", "swapaxes", "movedim", "view", "reshape", "_unsafe_view", "unsqueeze",
                                         "squeeze", "expand", "alias", "detach", "flatten", "unflatten", "view_as_real", "view_as_complex", "real"};
constexpr std::string_view kElsewhere[] = {"slice", "select", "narrow", "split", "split_with_sizes", "unsafe_split", "chunk", "unsafe_chunk", "tensor_split", "hsplit",
                                           "vsplit", "dsplit", "unbind", "diagonal", "linalg_diagonal", "unfold", "as_strided", "imag", "flip"};

// contiguous() of what is.
bool is_no_copy(const Graph& graph, const Node& node, ValueId base) {
  return packet(node.target) == "contiguous" && graph.value(base).is_tensor() && graph.value(base).tensor().strides == graph.value(node.outputs.at(0)).tensor().strides;
}

// What the node's `self` is a view of that begins where it does; nothing where that cannot be said.
std::optional<ValueId> beginning_of(const Graph& graph, ValueId id) {
  while (graph.value(id).producer.valid()) {
    const Node& node = graph.node(graph.value(id).producer);
    const std::string_view name = packet(node.target);
    if (std::ranges::find(kElsewhere, name) != std::end(kElsewhere)) return std::nullopt;
    const ValueId* base = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (!base || !base->valid() || !(std::ranges::find(kInPlace, name) != std::end(kInPlace) || is_no_copy(graph, node, *base))) return id;
    id = *base;
  }
  return id;
}

// Whether the node counts in the memory of `self`, rather than among its elements.
bool counts_in_memory(const Node& node) {
  const std::string_view name = packet(node.target);
  return name.starts_with("as_strided") || name.starts_with("resize");
}

// Results that lie in memory in the same way however the operands do.
bool lies_as_always(const Node& node) {
  constexpr std::string_view kOwn[] = {"contiguous", "mm", "addmm", "bmm", "linear", "embedding"};
  if (std::ranges::find(kOwn, packet(node.target)) != std::end(kOwn)) return true;
  const Argument* format = packet(node.target) == "clone" ? node.find("memory_format") : nullptr;
  return format && std::holds_alternative<MemoryFormat>(*format) && std::get<MemoryFormat>(*format) != MemoryFormat::preserve;
}

void for_each_tensor(const Node& node, const std::function<void(ValueId)>& f) {
  for (const Argument& a : node.args) {
    if (const ValueId* id = std::get_if<ValueId>(&a); id && id->valid()) f(*id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) {
      for (const ValueId id : *list) {
        if (id.valid()) f(id);
      }
    }
  }
}

bool counts_inside(const Node& node) {
  return std::ranges::any_of(node.args, [](const Argument& a) {
    const SubgraphRef* inner = std::get_if<SubgraphRef>(&a);
    return inner && std::ranges::any_of(inner->graph->nodes, [](const Node& n) { return counts_in_memory(n) || counts_inside(n); });
  });
}

// The values in whose memory the program counts, and those that they lie like.
std::vector<char> values_with_strides(const Graph& graph) {
  std::vector<char> marked(graph.values.size(), 0);
  const auto mark = [&](ValueId id) { marked[static_cast<size_t>(id.index)] = 1; };
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool read = std::ranges::any_of(node->outputs, [&](ValueId id) { return marked[static_cast<size_t>(id.index)]; });
    if ((read && !lies_as_always(*node)) || counts_inside(*node)) {
      for_each_tensor(*node, mark);
    } else if (counts_in_memory(*node)) {
      if (const Argument* self = node->find("self"); self && std::holds_alternative<ValueId>(*self)) mark(std::get<ValueId>(*self));
    }
  }
  return marked;
}

// The values from the beginning of whose storage the program counts.
std::vector<char> values_with_storage(const Graph& graph) {
  std::vector<char> marked(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    const Argument* offset = node.find("storage_offset");
    const Argument* self = node.find("self");
    if (!offset || std::holds_alternative<NoneArg>(*offset) || !self || !std::holds_alternative<ValueId>(*self)) continue;
    if (const auto base = beginning_of(graph, std::get<ValueId>(*self))) marked[static_cast<size_t>(base->index)] = 1;
  }
  return marked;
}

// A subgraph's operand may be a part of anything. Only a program has a call's description.
bool begins_elsewhere(const Graph& graph, ValueId id) {
  const std::optional<ValueId> base = beginning_of(graph, id);
  return !base || (graph.in_spec.empty() && !graph.value(*base).producer.valid());
}

}  // namespace

std::vector<size_t> memory_order(Op& op, const TensorType& type) {
  std::vector<size_t> single, inwards;
  std::vector<char> used(type.sizes.size(), 0);
  const bool empty = std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr s) { return is_const(s, 0); });
  for (size_t d = 0; d < used.size(); ++d) {
    if (!empty && !is_const(type.sizes[d], 1)) continue;
    single.push_back(d);  // whatever its stride
    used[d] = 1;
  }
  Expr stride = op.pool.index(1);
  while (single.size() + inwards.size() < used.size()) {
    size_t d = 0;
    while (d < used.size() && (used[d] || !provably_equal(type.strides.at(d), stride))) ++d;
    if (d == used.size()) fail(ErrorCode::unsupported_feature, op.node.target + " of a tensor with gaps or overlaps");
    used[d] = 1;
    inwards.push_back(d);
    stride = stride * type.sizes[d];
  }
  single.insert(single.end(), inwards.rbegin(), inwards.rend());
  return single;
}

void check_reach(Op& op, const Storage& storage, const Sizes& sizes, const Sizes& strides) {
  Expr last = storage.offset, nothing = op.pool.boolean(false);
  for (size_t i = 0; i < sizes.size(); ++i) {
    last = last + (sizes[i] - 1) * strides.at(i);
    nothing = op.pool.op(ScalarOp::logical_or, {nothing, index_less(sizes[i], op.pool.index(1))});
  }
  const Expr fits = op.pool.op(ScalarOp::logical_or, {nothing, index_less(last, count(op.pool, storage.elements.sizes))});
  if (!fits->is_constant()) return op.rec.check(op.name, "assertion failed: " + op.node.target + " reaches beyond the tensor that it is given (" + where(op.node) + ")", fits);
  if (fits->as_int() == 0) fail(ErrorCode::unsupported_feature, op.node.target + " reaches beyond the tensor that it is given, into the rest of its storage");
}

Storage storage_of_self(Op& op) {
  const ValueId* id = std::get_if<ValueId>(op.node.find("self"));
  const View x = op.tensor("self");
  Storage s;
  s.order = memory_order(op, op.graph.value(*id).tensor());
  s.elements = permuted(op, x, s.order);
  const bool given = op.has("storage_offset");
  if (given && begins_elsewhere(op.graph, *id)) fail(ErrorCode::unsupported_feature, op.node.target + " with an offset in the storage of a part of another tensor");
  s.offset = given ? op.index("storage_offset") : op.pool.index(0);
  return s;
}

void mark_counted_inputs(const Graph& graph, std::vector<LoopInput>& inputs) {
  const std::vector<char> strides = values_with_strides(graph), storage = values_with_storage(graph);
  size_t number = 0;
  for (const GraphInput& in : graph.inputs) {
    if (!in.value.valid() || (in.kind != GraphInput::Kind::user && in.kind != GraphInput::Kind::user_symint)) continue;
    LoopInput& input = inputs.at(number++);
    const size_t id = static_cast<size_t>(in.value.index);
    input.exact_strides = in.kind == GraphInput::Kind::user && strides[id];
    input.whole_storage = storage[id];
  }
}

}  // namespace coil::lowering
