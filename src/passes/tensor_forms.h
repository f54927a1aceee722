// Which names of a graph are one tensor object, and what sizes and strides it has in the end: y of y = x.t_() is x, turned.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace coil {

class TensorForms {
 public:
  explicit TensorForms(const Graph& graph);

  // The result of `node`, which writes elements, is `self` by another name.
  void rename(ValueId result, ValueId self);
  // The result of `node` is its first argument by another name, and in another form (reshapes_in_place).
  void change(const Node& node);
  // unsupported_feature if the input would have another form after the call: the caller's tensor, or a buffer that the next call reads.
  Status check(const GraphInput& in) const;

 private:
  struct Object {
    ValueId first;                     // of any name: the object's first one
    ValueId last;                      // of a first name: the object's last one...
    const Node* changed_by = nullptr;  // ...and what gave it that
  };

  Object& at(ValueId v) { return objects_[static_cast<size_t>(v.index)]; }

  const Graph& graph_;
  std::vector<Object> objects_;
};

}  // namespace coil
