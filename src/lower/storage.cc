#include "lower/storage.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lower/whole_inputs.h"

namespace coil::lowering {
namespace {

// Dimensions from the one with the largest strides to the one with the smallest.
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

// Views that begin where what they show begins.
constexpr std::string_view kInPlace[] = {"permute", "transpose", "t", "mT", "numpy_T", "swapaxes", "movedim", "view", "reshape", "_unsafe_view", "unsqueeze",
                                         "squeeze", "expand", "alias", "detach", "flatten", "unflatten", "view_as_real", "view_as_complex", "real"};
constexpr std::string_view kElsewhere[] = {"slice", "select", "narrow", "split", "split_with_sizes", "unsafe_split", "chunk", "unsafe_chunk", "tensor_split", "hsplit",
                                           "vsplit", "dsplit", "unbind", "diagonal", "linalg_diagonal", "unfold", "as_strided", "imag", "flip"};

std::string_view packet(std::string_view target) {
  target.remove_prefix(std::min(target.find('.') + 1, target.size()));
  return target.substr(0, target.find('.'));
}

// What the node's `self` is a view of that begins where it does; nothing where that cannot be said.
std::optional<ValueId> beginning_of(const Graph& graph, ValueId id) {
  while (graph.value(id).producer.valid()) {
    const Node& node = graph.node(graph.value(id).producer);
    const std::string_view name = packet(node.target);
    if (std::ranges::find(kElsewhere, name) != std::end(kElsewhere)) return std::nullopt;
    if (std::ranges::find(kInPlace, name) == std::end(kInPlace) || node.args.empty()) return id;
    const ValueId* base = std::get_if<ValueId>(&node.args[0]);
    if (!base || !base->valid()) return id;
    id = *base;
  }
  return id;
}

// A subgraph's operand may be a part of anything. Only a program has a call's description.
bool begins_elsewhere(const Graph& graph, ValueId id) {
  const std::optional<ValueId> base = beginning_of(graph, id);
  return !base || (graph.in_spec.empty() && !graph.value(*base).producer.valid());
}

}  // namespace

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

}  // namespace coil::lowering

namespace coil {

std::vector<int32_t> whole_inputs(const Graph& graph) {
  std::vector<char> counted(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    const Argument* offset = node.find("storage_offset");
    const Argument* self = node.find("self");
    if (!offset || std::holds_alternative<NoneArg>(*offset) || !self || !std::holds_alternative<ValueId>(*self)) continue;
    if (const auto base = lowering::beginning_of(graph, std::get<ValueId>(*self))) counted[static_cast<size_t>(base->index)] = 1;
  }
  std::vector<int32_t> found;
  int32_t number = 0;
  for (const GraphInput& in : graph.inputs) {
    if (!in.value.valid() || (in.kind != GraphInput::Kind::user && in.kind != GraphInput::Kind::user_symint)) continue;
    if (counted[static_cast<size_t>(in.value.index)]) found.push_back(number);
    ++number;
  }
  return found;
}

}  // namespace coil
