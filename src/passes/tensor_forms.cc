#include "passes/tensor_forms.h"

#include <fmt/format.h>

#include "passes/inplace.h"

namespace coil {
namespace {

// Strides of dimensions of one element say nothing.
bool is_same_form(const TensorType& a, const TensorType& b) {
  if (a.sizes != b.sizes) return false;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    const bool is_one = a.sizes[i]->is_constant() && a.sizes[i]->as_int() == 1;
    if (!is_one && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

}  // namespace

TensorForms::TensorForms(const Graph& graph) : graph_(graph), objects_(graph.values.size()) {
  for (size_t i = 0; i < objects_.size(); ++i) objects_[i].first = objects_[i].last = ValueId(i);
}

void TensorForms::rename(ValueId result, ValueId self) { at(result).first = at(self).first; }

void TensorForms::change(const Node& node) {
  const ValueId result = node.outputs[0];
  rename(result, std::get<ValueId>(node.args[0]));
  Object& object = at(at(result).first);
  object.last = result;
  object.changed_by = &node;
}

Status TensorForms::check(const GraphInput& in) const {
  if (!in.value.valid() || !graph_.value(in.value).is_tensor()) return ok_status();
  const Object& object = objects_[static_cast<size_t>(in.value.index)];
  if (!object.changed_by || is_same_form(graph_.value(in.value).tensor(), graph_.value(object.last).tensor())) return ok_status();
  const char* owner = in.kind == GraphInput::Kind::user ? "the caller's tensor" : "the module's tensor";
  return unsupported(*object.changed_by, fmt::format("{} '{}' would have other sizes or strides after the call", owner, in.name),
                     "work on a view of it, such as x.t() or x.unsqueeze(0), which leaves the tensor as it is");
}

}  // namespace coil
