// Evaluates a body at all points of a domain, as numbers with bounds of their errors.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "loop/loop.h"
#include "reference/number.h"

namespace coil::reference {

// A buffer's contents: either exact, as they lie in memory, or computed, dense and row-major.
struct Tensor {
  TensorData memory;
  std::shared_ptr<const std::vector<Num>> computed;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes, strides;  // in elements

  Num at(int64_t offset) const;  // in elements
};
Tensor exact(TensorData data);
Tensor computed(DType dtype, std::vector<int64_t> sizes, std::vector<Num> values);

using TensorOf = std::function<const Tensor&(BufferId)>;
using SymbolOf = std::function<int64_t(SymbolId)>;

// Values of neighbouring points in row-major order of the domain, from number `first` on.
using Sink = std::function<void(int64_t first, std::span<const Num> values)>;

// An error is an index from data that is out of range (input_value).
Status evaluate(Expr body, const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol, const Sink& sink);

}  // namespace coil::reference
