#include "lower/storage.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lower/names.h"

namespace coil::lowering {
namespace {

// Views that begin where what they show begins.
constexpr std::string_view kInPlace[] = {"permute",         "transpose", "t",       "mT",     "numpy_T", "swapaxes", "movedim", "view",      "reshape",
                                         "_unsafe_view",    "unsqueeze", "squeeze", "expand", "alias",   "detach",   "flatten", "unflatten", "view_as_real",
                                         "view_as_complex", "real"};
constexpr std::string_view kElsewhere[] = {"slice",  "select",       "narrow",          "split",  "split_with_sizes", "unsafe_split",
                                           "chunk",  "unsafe_chunk", "tensor_split",    "hsplit", "vsplit",           "dsplit",
                                           "unbind", "diagonal",     "linalg_diagonal", "unfold", "as_strided",       "imag"};

// contiguous() of what is.
bool is_no_copy(const Graph& graph, const Node& node, ValueId base) {
  return packet(node.target) == "contiguous" && graph.value(base).is_tensor() &&
         graph.value(base).tensor().strides == graph.value(node.outputs.at(0)).tensor().strides;
}

// The tensor that a node shows a part of, or all; nothing where its result has memory of its own.
std::optional<ValueId> shown_by(const Graph& graph, const Node& node) {
  const auto listed = [name = packet(node.target)](const auto& list) { return std::ranges::find(list, name) != std::end(list); };
  const ValueId* base = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
  if (!base || !base->valid() || !(listed(kInPlace) || listed(kElsewhere) || is_no_copy(graph, node, *base))) return std::nullopt;
  return *base;
}

bool shows_elsewhere(const Node& node) { return std::ranges::find(kElsewhere, packet(node.target)) != std::end(kElsewhere); }

// What the value is a view of that begins where it does; nothing where that cannot be said.
std::optional<ValueId> beginning_of(const Graph& graph, ValueId id) {
  while (graph.value(id).producer.valid()) {
    const Node& node = graph.node(graph.value(id).producer);
    if (shows_elsewhere(node)) return std::nullopt;
    const std::optional<ValueId> base = shown_by(graph, node);
    if (!base) return id;
    id = *base;
  }
  return id;
}

bool is_row_major(const TensorType& type) {
  if (type.strides.size() != type.sizes.size()) return false;
  Expr stride = type.sizes.empty() ? Expr() : type.sizes[0]->pool->index(1);
  for (size_t d = type.sizes.size(); d-- > 0;) {
    if (!is_const(type.sizes[d], 1) && !provably_equal(type.strides[d], stride)) return false;
    stride = stride * type.sizes[d];
  }
  return true;
}

// The value that has the memory which `id` is a part of, and the values from there on to `id`; none where that cannot be said: numbers are read as
// others on the way, a reshape may copy, or a subgraph's operand may be a part of anything. (Only a program has a call's description.)
std::vector<ValueId> way_to_memory(const Graph& graph, ValueId id) {
  std::vector<ValueId> way = {id};
  while (graph.value(id).producer.valid()) {
    const Node& node = graph.node(graph.value(id).producer);
    const std::optional<ValueId> base = shown_by(graph, node);
    if (!base) break;
    const std::string_view name = packet(node.target);
    const TensorType& type = graph.value(*base).tensor();
    if (type.dtype != graph.value(id).tensor().dtype || ((name == "reshape" || name == "flatten") && !is_row_major(type))) return {};
    id = *base;
    way.push_back(id);
  }
  if (graph.in_spec.empty() && !graph.value(id).producer.valid()) return {};
  std::ranges::reverse(way);
  return way;
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

void for_each_tensor(const Node& node, FunctionRef<void(ValueId)> f) {
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
    const ValueId id = std::get<ValueId>(*self);
    const std::optional<ValueId> base = beginning_of(graph, id);
    const std::vector<ValueId> way = base ? std::vector<ValueId>{*base} : way_to_memory(graph, id);
    if (!way.empty()) marked[static_cast<size_t>(way[0].index)] = 1;
  }
  return marked;
}

// A subgraph's operand may be a part of anything. Only a program has a call's description.
bool begins_elsewhere(const Graph& graph, ValueId id) {
  const std::optional<ValueId> base = beginning_of(graph, id);
  return !base || (graph.in_spec.empty() && !graph.value(*base).producer.valid());
}

// The row-major numbers of a tensor's elements in the order of memory.
View places_in_memory(Op& op, const Sizes& sizes, const std::vector<size_t>& order) {
  Sizes ordered;
  std::vector<Expr> at;
  for (const size_t d : order) {
    ordered.push_back(sizes[d]);
    at.push_back(op.pool.var(static_cast<int>(d)));
  }
  return {DType::i64, sizes, row_major(op.pool, at, ordered)};
}

// What of `places` the value shows: its node's row, run for them.
View shown(Op& op, ValueId id, const View& places) {
  const Node& node = op.graph.node(op.graph.value(id).producer);
  Op one(op.session, op.scope, node);
  one.see([&](const View&) { return places; });
  const auto row = table().find(node.target);
  const auto number = static_cast<size_t>(std::ranges::find(node.outputs, id) - node.outputs.begin());
  const Views results = row == table().end() ? Views() : row->second(one);
  if (number >= results.size() || !results[number].body) fail(ErrorCode::unsupported_feature, op.node.target + " of a result of " + node.target);
  return results[number];
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
  if (!fits->is_constant())
    return op.rec.check(op.name, "assertion failed: " + op.node.target + " reaches beyond the tensor that it is given (" + where(op.node) + ")", fits);
  if (fits->as_int() == 0) fail(ErrorCode::unsupported_feature, op.node.target + " reaches beyond the tensor that it is given, into the rest of its storage");
}

Storage storage_of_self(Op& op) {
  const ValueId id = *std::get_if<ValueId>(op.node.find("self"));
  const bool given = op.has("storage_offset"), elsewhere = !beginning_of(op.graph, id);
  const std::vector<ValueId> way = elsewhere ? way_to_memory(op.graph, id) : std::vector<ValueId>();
  if (given && way.empty() && begins_elsewhere(op.graph, id))
    fail(ErrorCode::unsupported_feature, op.node.target + " with an offset in the storage of a part of another tensor");
  Storage s;
  const ValueId base = way.empty() ? id : way[0];
  const std::vector<size_t> order = memory_order(op, op.graph.value(base).tensor());
  s.elements = permuted(op, way.empty() ? op.tensor("self") : op.value(base), order);
  s.places = places_in_memory(op, op.graph.value(base).tensor().sizes, order);
  for (size_t i = 1; i < way.size(); ++i) s.places = shown(op, way[i], s.places);
  const std::vector<Expr> first(s.places.rank(), op.pool.index(0));
  s.offset = given ? op.index("storage_offset") : op.rec.at(s.places, first);
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
