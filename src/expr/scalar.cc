// One scalar operation on constants, with ATen's semantics: the rows of scalar_ops.def.
#include <bit>
#include <cmath>

#include "base/result.h"
#include "expr/convert.h"
#include "expr/expr.h"
#include "expr/scalar_rows.h"

namespace coil {
namespace {

// Index arithmetic of any number of operands; sums and products are exact by construction.
int64_t index_op(ScalarOp op, std::span<const Value> args) {
  int64_t r = args.empty() ? 0 : args[0].i;
  for (const Value& v : args.subspan(args.empty() ? 0 : 1)) {
    if (op == ScalarOp::iadd) {
      CHECK(!__builtin_add_overflow(r, v.i, &r), "an index leaves int64");
    } else if (op == ScalarOp::imul) {
      CHECK(!__builtin_mul_overflow(r, v.i, &r), "an index leaves int64");
    } else {
      r = scalar::with_row(op, [&](auto row) { return row.of_integers(r, v.i, 0, 64, false); });
    }
  }
  return r;
}

template <class Row>
double of_floats(Row row, DType dtype, double a, double b, double c) {
  if (Row::kRounded == scalar::Rounded::once || dtype == DType::f64) return row.of_floats(a, b, c);
  return row.of_floats(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
}

Value bits_of(ScalarOp op, DType dtype, const Value& v) {
  if (op == ScalarOp::bits) return {.i = dtype == DType::f64 ? std::bit_cast<int64_t>(v.f) : std::bit_cast<int32_t>(static_cast<float>(v.f))};
  return {.f = dtype == DType::i64 ? std::bit_cast<double>(v.i) : std::bit_cast<float>(static_cast<int32_t>(v.i))};
}

}  // namespace

Value apply_scalar(ScalarOp op, DType dtype, std::span<const Value> args) {
  CHECK(op != ScalarOp::cast && op != ScalarOp::checked_index, "needs both types: see convert() and evaluate()");
  CHECK(info(op).arity < 0 || static_cast<size_t>(info(op).arity) == args.size(), info(op).name);
  if (op == ScalarOp::select || op == ScalarOp::masked) return args[0].i != 0 ? args[1] : args[2];
  if (is_index_op(op)) return {.i = index_op(op, args)};
  if (info(op).result == ResultRule::bits) return bits_of(op, dtype, args[0]);
  const auto arg = [&](size_t k) { return k < args.size() ? args[k] : Value{}; };
  const bool boolean = info(op).result == ResultRule::boolean;
  if (is_float(dtype)) {
    const double r = scalar::with_row(op, [&](auto row) {
      CHECK(row.kForFloats, info(op).name);
      return of_floats(row, dtype, arg(0).f, arg(1).f, arg(2).f);
    });
    return boolean ? Value{.i = r != 0} : Value{.f = round_to(r, compute_type(dtype))};
  }
  const int64_t r = scalar::with_row(op, [&](auto row) {
    CHECK(row.kForIntegers, info(op).name);  // mathematics needs a floating type: the lowering promotes
    return row.of_integers(arg(0).i, arg(1).i, arg(2).i, 8 * byte_size(dtype), is_bool(dtype));
  });
  return {.i = boolean ? r : wrap(r, dtype)};
}

}  // namespace coil
