// The table of scalar operations (scalar_ops.def) as an enum and an array.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coil {

enum class ScalarOp : uint8_t {
#define OP(name, ...) name,
#include "ops/scalar_ops.def"
#undef OP
};

enum class ResultRule : uint8_t { same, boolean, first_of_two, bits, any };

struct ScalarOpInfo {
  std::string_view name;
  int arity;  // -1: any
  ResultRule result;
  int cost;
};

inline constexpr std::array kScalarOps = {
#define OP(name, arity, result, cost, ...) ScalarOpInfo{#name, arity, ResultRule::result, cost},
#include "ops/scalar_ops.def"
#undef OP
};

constexpr const ScalarOpInfo& info(ScalarOp op) { return kScalarOps[static_cast<size_t>(op)]; }

constexpr std::optional<ScalarOp> scalar_op_from_name(std::string_view name) {
  for (size_t i = 0; i < kScalarOps.size(); ++i) {
    if (kScalarOps[i].name == name) return static_cast<ScalarOp>(i);
  }
  return std::nullopt;
}

constexpr bool is_index_op(ScalarOp op) { return op >= ScalarOp::iadd && op <= ScalarOp::imax; }

}  // namespace coil
