// Evaluates a body at all points of a domain, blocks of points at a time.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "loop/loop.h"

namespace coil::interpreter {

inline constexpr int64_t kBlock = 512;

// A stored tensor: borrowed bytes, logical sizes, strides in elements.
struct Tensor {
  DType dtype = DType::f32;
  const uint8_t* data = nullptr;
  std::vector<int64_t> sizes, strides;
};

using TensorOf = std::function<Tensor(BufferId)>;
using SymbolOf = std::function<int64_t(SymbolId)>;

// Values of a block of points, consecutive in row-major order of the domain. One of the arrays is set, by the body's type.
struct BlockView {
  int64_t first = 0, count = 0;
  const double* floats = nullptr;
  const int64_t* integers = nullptr;
};

// f32 steps are rounded to f32, integers wrap. An error is a data-dependent index out of range (COIL-E210); a load outside its
// buffer is a bug and CHECKs.
Status evaluate_blocks(Expr body, const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol, FunctionRef<void(const BlockView&)> sink);

}  // namespace coil::interpreter
