// Products of float8 matrices with scales: one for each matrix, or one for each row of the first and each column of the second.
//
// float8 numbers are bfloat16 numbers too, so the product is one of those with float32 sums, as exact as eager's. Scales, bias and the
// conversion of the result follow in float32 and become the product's epilogue.
#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/grouped_products.h"

namespace coil::lowering {
namespace {

View widened(Op& op, const char* arg, size_t most_dims = 2) {
  const View v = op.tensor(arg);
  if (!is_float8(v.dtype) || v.rank() < 2 || v.rank() > most_dims)
    fail(ErrorCode::bad_program, fmt::format("{}: '{}' is no float8 matrix", op.node.target, arg));
  return op.rec.pointwise(op.name + "." + arg, DType::bf16, v.sizes, [&](Coordinates c) { return op.rec.at(decoded(v), c); });
}

// The one tensor of an argument that may be a list.
View scale_of(Op& op, const char* arg) {
  const Argument* given = op.node.find(arg);
  if (given && std::holds_alternative<ValueId>(*given)) return op.tensor(arg);
  const Views list = op.tensors(arg);
  if (list.size() != 1) fail(ErrorCode::unsupported_feature, op.node.target + ": scales of two levels");
  return list[0];
}

// A scale for each element of `like`'s row (dimension 0) or column (dimension 1), or one for all.
Val scale_at(Op& op, const View& scale, const View& like, size_t dim, Coordinates c) {
  if (scale.dtype != DType::f32)
    fail(ErrorCode::unsupported_feature,
         op.node.target + ": scales of " + std::string(info(scale.dtype).torch_name) + " (blocks of numbers with a scale each)");
  Sizes zeros(scale.rank(), op.pool.index(0));
  const Expr elements = count(op.pool, scale.sizes);
  if (is_const(elements, 1)) return op.rec.at(scale, zeros);
  if (scale.rank() != 2 || !provably_equal(elements, like.sizes[dim]) || !provably_equal(scale.sizes[dim], elements)) {
    fail(ErrorCode::unsupported_feature, op.node.target + ": scales that are neither one for the matrix nor one for each " + (dim ? "column" : "row"));
  }
  zeros[dim] = c[dim];
  return op.rec.at(scale, zeros);
}

// Recipes of _scaled_mm_v2: a scale for the tensor, a scale for each row; others have blocks.
void check_recipe(Op& op, const char* arg) {
  for (const int64_t recipe : op.integers(arg)) {
    if (recipe > 1) fail(ErrorCode::unsupported_feature, fmt::format("{}: '{}' asks for blocks of numbers with a scale each", op.node.target, arg));
  }
}

Views scaled_product(Op& op) {
  const bool recipes = op.node.find("recipe_a") != nullptr;
  if (recipes) {
    check_recipe(op, "recipe_a");
    check_recipe(op, "recipe_b");
    if (!op.integers("contraction_dim").empty()) fail(ErrorCode::unsupported_feature, op.node.target + ": 'contraction_dim'");
  }
  const View a = widened(op, "self"), b = widened(op, "mat2");
  const View scale_a = scale_of(op, "scale_a"), scale_b = scale_of(op, "scale_b");
  const View sum = matrix_product(op, op.name, DType::f32, a, b, 0);
  const std::optional<View> bias = op.maybe_tensor("bias");
  const DType to = op.out().dtype;
  // What the next layer's scale divides by; eager looks at it for float8 results only.
  const std::optional<View> result_scale = !recipes && is_float8(to) ? op.maybe_tensor("scale_result") : std::nullopt;
  const auto value = [&](Coordinates c) {
    Val v = Val(op.rec.at(sum, c)) * (scale_at(op, scale_a, sum, 0, c) * scale_at(op, scale_b, sum, 1, c));
    if (bias) v = v + Val(as(op.rec.at(*bias, c.last(1)), DType::f32));
    if (result_scale) v = v / Val(as(op.rec.at(reshaped(op, *result_scale, {}), {}), DType::f32));
    return v.e;
  };
  if (!is_float8(to)) return {op.rec.pointwise(op.name + ".scaled", to, sum.sizes, [&](Coordinates c) { return as(value(c), to); })};
  const View scaled = op.rec.pointwise(op.name + ".scaled", DType::f32, sum.sizes, value);
  return {op.rec.pointwise(op.name + ".result", to, sum.sizes, [&](Coordinates c) { return op.rec.at(encoded(scaled, to), c); })};
}

// A grouped product with a scale for each row of a group's first matrix and for each column of its second. A list of matrices has as many lists of scales;
// groups of terms have theirs one after the other.
Views scaled_grouped_product(Op& op) {
  if (op.node.find("recipe_a")) {
    check_recipe(op, "recipe_a");
    check_recipe(op, "recipe_b");
    if (!op.integers("contraction_dim").empty()) fail(ErrorCode::unsupported_feature, op.node.target + ": 'contraction_dim'");
  }
  if (op.has("bias") || op.has("scale_result"))
    fail(ErrorCode::unsupported_feature, op.node.target + ": a bias or a scale of the result, which PyTorch does not take either");
  ExprPool& p = op.pool;
  const View a = widened(op, "self", 3), b = widened(op, "mat2", 3), scale_a = scale_of(op, "scale_a"), scale_b = scale_of(op, "scale_b");
  const std::optional<View> ends = op.maybe_tensor("offs");
  const View sum = grouped_product(op, op.name, DType::f32, a, b, ends);
  const bool rows = a.rank() == 2 && b.rank() == 3, columns = a.rank() == 3 && b.rank() == 2, terms = a.rank() == 2 && b.rank() == 2;
  for (const auto& [scale, of] : {std::pair(&scale_a, &a), std::pair(&scale_b, &b)}) {
    if (scale->dtype != DType::f32 || scale->rank() + 1 != of->rank())
      fail(ErrorCode::unsupported_feature, op.node.target + ": scales that are not one float32 for each row and column");
  }
  const std::optional<View> number = rows || columns ? std::optional(group_numbers(op, op.name, *ends, sum.sizes[rows ? 0 : 1])) : std::nullopt;
  const auto group = [&](Expr at) {  // rows of no group are zeros, whatever their scale
    const Expr groups = ends->sizes[0];
    return p.checked_index(p.op(ScalarOp::minimum, {op.rec.at(*number, std::vector<Expr>{at}), p.cast(groups - 1, DType::i64)}), groups);
  };
  const DType to = op.out().dtype;
  return {op.rec.pointwise(op.name + ".scaled", to, sum.sizes, [&](Coordinates c) {
    const Expr m = c[c.size() - 2], n = c.back();
    const std::vector<Expr> at_a = rows      ? std::vector<Expr>{m}
                                   : columns ? std::vector<Expr>{group(n), m}
                                   : terms   ? std::vector<Expr>{c[0] * sum.sizes[1] + m}
                                             : std::vector<Expr>{c[0], m};
    const std::vector<Expr> at_b = rows      ? std::vector<Expr>{group(m), n}
                                   : columns ? std::vector<Expr>{n}
                                   : terms   ? std::vector<Expr>{c[0] * sum.sizes[2] + n}
                                             : std::vector<Expr>{c[0], n};
    return as((Val(op.rec.at(sum, c)) * (Val(op.rec.at(scale_a, at_a)) * Val(op.rec.at(scale_b, at_b)))).e, to);
  })};
}

}  // namespace

void add_scaled_products(Table& float8) {
  for (const char* target : {"aten._scaled_mm.default", "aten._scaled_mm_v2.default"}) float8[target] = scaled_product;
  for (const char* target : {"aten._scaled_grouped_mm.default", "aten._scaled_grouped_mm_v2.default"}) float8[target] = scaled_grouped_product;
}

}  // namespace coil::lowering
