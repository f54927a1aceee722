// How the interpreter's templates read their operands and store their results.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "loop/interpret.h"
#include "ops/memory.h"

namespace coil {
namespace interpreter {

inline int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

}  // namespace interpreter

template <class T>
Result<std::vector<T>> Interpreter::gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars) {
  ExprPool& pool = *program_.pool;
  const int top = vars.empty() ? 0 : *std::max_element(vars.begin(), vars.end()) + 1;
  std::vector<Expr> renamed(static_cast<size_t>(std::max(top, 16)), pool.index(0));
  for (size_t i = 0; i < vars.size(); ++i) renamed[static_cast<size_t>(vars[i])] = pool.var(static_cast<int32_t>(i));
  std::vector<Expr> coordinates;
  for (Expr c : operand.coordinates) coordinates.push_back(substitute_vars(c, renamed));
  Expr body = pool.load(operand.buffer, program_.buffer(operand.buffer).dtype, std::move(coordinates));
  std::vector<T> values(static_cast<size_t>(interpreter::product(domain)));
  TRY_STATUS(evaluate(body, domain, [&](const interpreter::BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      values[static_cast<size_t>(b.first + i)] = b.floats ? static_cast<T>(b.floats[i]) : static_cast<T>(b.integers[i]);
    }
  }));
  return values;
}

template <class T>
void Interpreter::store(BufferId buffer, const std::vector<T>& values) {
  const DType dtype = program_.buffer(buffer).dtype;
  uint8_t* memory = allocate(buffer);
  interpreter::with_type(dtype, [&](auto type) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto v = interpreter::to_memory<decltype(type)>(static_cast<double>(values[i]));
      std::memcpy(memory + i * sizeof v, &v, sizeof v);
    }
  });
}

}  // namespace coil
