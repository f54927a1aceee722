#include "lower/storage.h"

#include <algorithm>

#include <fmt/format.h>

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

bool begins_elsewhere(const Graph& graph, ValueId id) {
  while (graph.value(id).producer.valid()) {
    const Node& node = graph.node(graph.value(id).producer);
    const std::string_view name = packet(node.target);
    if (std::ranges::find(kElsewhere, name) != std::end(kElsewhere)) return true;
    if (std::ranges::find(kInPlace, name) == std::end(kInPlace) || node.args.empty()) return false;
    const ValueId* base = std::get_if<ValueId>(&node.args[0]);
    if (!base || !base->valid()) return false;
    id = *base;
  }
  return false;
}

}  // namespace

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
