// The same bits as numbers of another type of the same size.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// Types whose bits an expression can have as integers, and the integers they are.
std::optional<DType> bits_type(DType d) {
  if (d == DType::f32) return DType::i32;
  if (d == DType::f64) return DType::i64;
  if (is_float8(d)) return DType::u8;
  if (is_int(d)) return d;
  return std::nullopt;
}

Views view_dtype(Op& op) {
  const View v = op.tensor("self");
  const DType to = op.out().dtype;
  const std::optional<DType> from_bits = bits_type(v.dtype), to_bits = bits_type(to);
  if (v.dtype == to) return {v};
  if (byte_size(v.dtype) != byte_size(to) || !from_bits || !to_bits) {
    fail(ErrorCode::unsupported_feature, fmt::format("{}: the bits of {} as {}", op.node.target, info(v.dtype).torch_name, info(to).torch_name));
  }
  Expr body = is_float(v.dtype) ? op.pool.op(ScalarOp::bits, {v.body}) : v.body;
  body = as(body, *to_bits);  // of the same size: the same bits
  return {View{to, v.sizes, is_float(to) ? op.pool.op(ScalarOp::from_bits, {body}) : body}};
}

}  // namespace

void add_reinterpret(Table& table) { table["aten.view.dtype"] = view_dtype; }

}  // namespace coil::lowering
