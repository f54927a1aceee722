// Quantising and dequantising: PyTorch's decomposed operators (what PT2E quantisation exports) and torchao's affine ones.
//
// Each step rounds as eager's does: numbers beside a tensor have its type, and a quotient is the product with a rounded reciprocal where
// PyTorch's formula says so. Steps that eager stores in 2 bytes are rounded where they are stored; fused ones keep float32, as everywhere.
#include <limits>

#include "lower/formula.h"
#include "lower/quantization.h"

namespace coil::lowering {
namespace {

// A step that eager computes as an operator of its own. Without dimensions of their own, the operands are numbers of `dtype`.
View step(Op& op, const char* name, DType dtype, const Sizes& sizes, FunctionRef<Expr(Coordinates)> body) {
  if (byte_size(dtype) == 2 && is_float(dtype)) return op.rec.pointwise(op.name + "." + name, dtype, sizes, body);  // a store rounds
  std::vector<Expr> vars;
  for (size_t i = 0; i < sizes.size(); ++i) vars.push_back(op.pool.var(static_cast<int32_t>(i)));
  return {dtype, sizes, simplify_body(body(vars), sizes)};
}

// a and b have the same sizes, or b has none; the result has the promoted type.
View binary(Op& op, ScalarOp scalar, const View& a, const View& b) {
  const DType type = promote(a.dtype, b.dtype);
  return step(op, info(scalar).name.data(), type, a.sizes,
              [&](Coordinates c) { return op.pool.op(scalar, {as(op.rec.at(a, c), type), as(b.rank() ? op.rec.at(b, c) : b.body, type)}); });
}

View unary(Op& op, ScalarOp scalar, const View& a) {
  return step(op, info(scalar).name.data(), a.dtype, a.sizes, [&](Coordinates c) { return op.pool.op(scalar, {op.rec.at(a, c)}); });
}

View number_view(Op& op, double value, DType dtype) {
  if (is_float(dtype)) return {dtype, {}, op.constant(value, dtype)};
  return {dtype, {}, op.pool.constant_int(static_cast<int64_t>(value), dtype)};
}

View reinterpreted(View v, DType dtype) {
  if (v.dtype == dtype) return v;
  v.body = as(v.body, dtype);
  v.dtype = dtype;
  return v;
}

// 1.0 / v
View inverse(Op& op, const View& v) {
  const DType type = is_float(v.dtype) ? v.dtype : DType::f32;
  return step(op, "inverse", type, v.sizes, [&](Coordinates c) { return op.pool.op(ScalarOp::div, {op.constant(1, type), as(op.rec.at(v, c), type)}); });
}

View clamped(Op& op, const View& v, const View& low, const View& high) {
  return step(op, "clamp", v.dtype, v.sizes, [&](Coordinates c) {
    return op.pool.op(ScalarOp::minimum, {op.pool.op(ScalarOp::maximum, {op.rec.at(v, c), as(low.body, v.dtype)}), as(high.body, v.dtype)});
  });
}
View clamped(Op& op, const View& v, double low, double high) { return clamped(op, v, number_view(op, low, v.dtype), number_view(op, high, v.dtype)); }

View stored(Op& op, const View& v, DType dtype) {
  return op.rec.pointwise(op.name, dtype, v.sizes, [&](Coordinates c) { return as(op.rec.at(v, c), dtype); });
}

// The one element of a tensor of any rank.
View single(Op& op, const View& v) { return reshaped(op, v, {}); }

View widened(const View& v) { return byte_size(v.dtype) == 2 && is_float(v.dtype) ? reinterpreted(v, DType::f32) : v; }

}  // namespace

View quantisation_number(Op& op, const char* arg, DType dtype) {
  if (op.is_scalar(arg)) return number_view(op, op.number(arg), dtype);
  return reinterpreted(single(op, op.tensor(arg)), dtype);
}

View along_axis(Op& op, const View& v, const View& like, size_t axis) {
  return op.rec.view(v, like.sizes, [&](Coordinates c) { return std::vector<Expr>{c[axis]}; });
}

namespace {

// --- one scale and zero point for a tensor

Views quantize_per_tensor(Op& op) {
  const View x = widened(op.tensor("input"));
  const View scale = quantisation_number(op, "scale", DType::f64);
  // 1 / scale is computed in double and becomes a float where it meets the tensor.
  View factor{DType::f32, {}, as(op.pool.op(ScalarOp::div, {op.constant(1, DType::f64), scale.body}), DType::f32)};
  if (!factor.body->is_constant()) factor = op.rec.pointwise(op.name + ".inverse", DType::f32, {}, [&](Coordinates) { return factor.body; });
  const View zero = quantisation_number(op, "zero_point", DType::f32);
  const View places = binary(op, ScalarOp::add, unary(op, ScalarOp::round, binary(op, ScalarOp::mul, x, factor)), zero);
  return {stored(op, clamped(op, places, quantisation_number(op, "quant_min", DType::f32), quantisation_number(op, "quant_max", DType::f32)), op.out().dtype)};
}

Views dequantize_per_tensor(Op& op) {
  const DType type = op.out().dtype;
  const View x = op.tensor("input");
  const View wide = step(op, "to", type, x.sizes, [&](Coordinates c) { return as(op.rec.at(x, c), type); });
  // Numbers beside a tensor of 2 bytes are floats.
  const auto beside = [&](const char* arg) { return View{type, {}, quantisation_number(op, arg, compute_type(type)).body}; };
  const View difference = binary(op, ScalarOp::sub, wide, beside("zero_point"));
  return {stored(op, binary(op, ScalarOp::mul, difference, beside("scale")), type)};
}

struct QuantisedRange {
  View least, greatest;  // 0 is in between
};

QuantisedRange range_of(Op& op, const View& x, const std::vector<size_t>& dims, bool keep) {
  const View stored = cheap(op, x);
  const View least = reduced(op, op.name + ".least", ReduceOp::min, x.dtype, stored, dims, keep);
  const View greatest = reduced(op, op.name + ".greatest", ReduceOp::max, x.dtype, stored, dims, keep);
  const View zero = number_view(op, 0, x.dtype);
  return {binary(op, ScalarOp::minimum, least, zero), binary(op, ScalarOp::maximum, greatest, zero)};
}

Views choose_qparams(Op& op, bool symmetric) {
  const View x = op.tensor("input");
  const double low = op.number("quant_min"), high = op.number("quant_max");
  const View eps = number_view(op, static_cast<float>(op.number("eps")), DType::f32);
  auto [least, greatest] = range_of(op, x, wrap_dims({}, x.rank()), false);
  View scale, zero;
  if (symmetric) {
    greatest = binary(op, ScalarOp::maximum, unary(op, ScalarOp::neg, least), greatest);
    scale = binary(op, ScalarOp::maximum, binary(op, ScalarOp::div, greatest, number_view(op, (high - low) / 2, x.dtype)), eps);
    zero = number_view(op, op.dtype("dtype") == DType::u8 ? 128 : 0, DType::i64);
  } else {
    scale = binary(op, ScalarOp::div, binary(op, ScalarOp::sub, greatest, least), number_view(op, high - low, x.dtype));
    scale = binary(op, ScalarOp::maximum, scale, eps);
    const View place = reinterpreted(unary(op, ScalarOp::round, binary(op, ScalarOp::div, least, scale)), DType::i32);
    zero = clamped(op, binary(op, ScalarOp::sub, number_view(op, low, DType::i32), place), low, high);
  }
  const auto result = [&](const View& v, DType dtype) { return reshaped(op, stored(op, v, dtype), {op.pool.index(1)}); };
  return {result(scale, DType::f64), result(zero, DType::i64)};
}

// --- one of each for a channel

Views quantize_per_channel(Op& op) {
  const View x = widened(op.tensor("input"));
  const size_t axis = wrap_dim(op.integer("axis"), x.rank());
  const View factor = along_axis(op, inverse(op, op.tensor("scales")), x, axis), zero = along_axis(op, op.tensor("zero_points"), x, axis);
  const View places = binary(op, ScalarOp::add, unary(op, ScalarOp::round, binary(op, ScalarOp::mul, x, factor)), zero);
  return {stored(op, clamped(op, places, op.number("quant_min"), op.number("quant_max")), op.out().dtype)};
}

Views dequantize_per_channel(Op& op) {
  View x = op.tensor("input");
  const size_t axis = wrap_dim(op.integer("axis"), x.rank());
  const View scale = along_axis(op, op.tensor("scales"), x, axis);
  if (const std::optional<View> zero = op.maybe_tensor("zero_points")) x = binary(op, ScalarOp::sub, x, along_axis(op, *zero, x, axis));
  return {stored(op, binary(op, ScalarOp::mul, x, scale), op.out().dtype)};
}

// --- one of each for a row, or for a group of a row

// Scales that choose_qparams_per_token made are of its input's type, whatever the program says of them.
DType computed_type(Op& op, const char* arg) {
  const View v = op.tensor(arg);
  const ValueId* id = std::get_if<ValueId>(op.node.find(arg));
  const NodeId producer = op.graph.value(*id).producer;
  if (!producer.valid()) return v.dtype;
  const Node& node = op.graph.nodes[static_cast<size_t>(producer.index)];
  if (node.target != "quantized_decomposed.choose_qparams_per_token.default") return v.dtype;
  const DType type = op.graph.value(std::get<ValueId>(*node.find("input"))).tensor().dtype;
  return type == DType::f16 ? DType::f32 : type;
}

// Parameter `arg` by rows of `width` elements (null: whole rows) of a tensor like x.
View by_rows(Op& op, const char* arg, const View& x, Expr width) {
  const View flat = reshaped(op, op.tensor(arg), {count(op.pool, op.tensor(arg).sizes)});
  View v = op.rec.view(flat, x.sizes, [&](Coordinates c) {
    Expr row = row_major(op.pool, c.first(c.size() - 1), Sizes(x.sizes.begin(), x.sizes.end() - 1));
    if (width) row = row * floor_div(x.sizes.back(), width) + floor_div(c.back(), width);
    return std::vector<Expr>{row};
  });
  return reinterpreted(v, computed_type(op, arg));
}

Expr group_width(Op& op, const View& x) {
  const int64_t group = op.integer("group_size");
  const std::optional<int64_t> width = const_int(x.sizes.back());
  if (x.rank() != 2 || group <= 1 || (width && *width >= group && *width % group != 0))
    fail(ErrorCode::bad_program, op.node.target + ": rows are not made of whole groups");
  return width && group > *width ? Expr() : op.pool.index(group);
}

Views quantize_rows(Op& op, Expr width) {
  const View x = op.tensor("input"), factor = inverse(op, by_rows(op, "scales", x, width));
  const View places = binary(op, ScalarOp::add, binary(op, ScalarOp::mul, x, factor), by_rows(op, "zero_points", x, width));
  return {stored(op, clamped(op, unary(op, ScalarOp::round, places), op.number("quant_min"), op.number("quant_max")), op.out().dtype)};
}

Views dequantize_rows(Op& op, Expr width) {
  View x = op.tensor("input");
  if (op.has("zero_points")) x = binary(op, ScalarOp::sub, x, by_rows(op, "zero_points", x, width));
  return {stored(op, binary(op, ScalarOp::mul, x, by_rows(op, "scales", x, width)), op.out().dtype)};
}

Views choose_per_token(Op& op) {
  if (op.dtype("dtype") != DType::i8) fail(ErrorCode::unsupported_feature, op.node.target + " for another type than int8");
  const View x = cheap(op, op.tensor("input"));
  View scale =
      reduced(op, op.name + ".greatest", ReduceOp::max, x.dtype, x, {x.rank() - 1}, true, [&](Expr e, Coordinates) { return op.pool.op(ScalarOp::abs, {e}); });
  if (scale.dtype == DType::f16) scale = reinterpreted(scale, DType::f32);
  scale = binary(op, ScalarOp::maximum, scale, number_view(op, 1e-5, scale.dtype));
  scale = binary(op, ScalarOp::div, scale, number_view(op, 127, scale.dtype));
  return {stored(op, scale, op.out(0).dtype), {op.out(1).dtype, scale.sizes, number_view(op, 0, op.out(1).dtype).body}};
}

Views choose_per_token_asymmetric(Op& op) {
  const View x = op.tensor("input");
  const DType type = x.dtype;
  const auto [least, greatest] = range_of(op, x, {x.rank() - 1}, true);
  View scale = binary(op, ScalarOp::div, binary(op, ScalarOp::sub, greatest, least), number_view(op, 255, type));
  scale = stored(op, binary(op, ScalarOp::maximum, scale, number_view(op, std::numeric_limits<float>::epsilon(), type)), type);
  const View low = binary(op, ScalarOp::div, least, scale), high = binary(op, ScalarOp::div, greatest, scale);
  const auto from = [&](double place, const View& v) { return binary(op, ScalarOp::sub, broadcast(op, number_view(op, place, type), v.sizes), v); };
  const View error =
      binary(op, ScalarOp::add, binary(op, ScalarOp::add, low, number_view(op, -128, type)), binary(op, ScalarOp::add, high, number_view(op, 127, type)));
  const View from_low = from(-128, low), from_high = from(127, high);
  const View zero = step(op, "where", type, x.sizes.empty() ? Sizes{} : scale.sizes, [&](Coordinates c) {
    return op.pool.select(op.pool.op(ScalarOp::gt, {op.rec.at(error, c), op.constant(0, type)}), op.rec.at(from_low, c), op.rec.at(from_high, c));
  });
  return {stored(op, scale, DType::f64), stored(op, unary(op, ScalarOp::round, clamped(op, zero, -128, 127)), DType::i64)};
}

// --- torchao: one of each for a block

// The blocks of x: how many there are in each dimension, and how long.
struct QuantisedBlocks {
  Sizes counts, lengths;
};

QuantisedBlocks blocks_of(Op& op, const View& x) {
  QuantisedBlocks b;
  b.lengths = op.indices("block_size");
  if (b.lengths.size() != x.rank()) fail(ErrorCode::bad_program, op.node.target + ": block_size has another length than the tensor has dimensions");
  for (size_t i = 0; i < x.rank(); ++i) {
    const bool whole = b.lengths[i] == x.sizes[i];
    b.counts.push_back(whole ? op.pool.index(1) : is_const(b.lengths[i], 1) ? x.sizes[i] : floor_div(x.sizes[i], b.lengths[i]));
  }
  return b;
}

View by_blocks(Op& op, const View& v, const View& x, const QuantisedBlocks& blocks) {
  const View flat = reshaped(op, v, {count(op.pool, v.sizes)});
  return op.rec.view(flat, x.sizes, [&](Coordinates c) {
    Sizes block;
    for (size_t i = 0; i < c.size(); ++i) {
      const bool whole = is_const(blocks.counts[i], 1);
      block.push_back(whole ? op.pool.index(0) : is_const(blocks.lengths[i], 1) ? c[i] : floor_div(c[i], blocks.lengths[i]));
    }
    return std::vector<Expr>{row_major(op.pool, block, blocks.counts)};
  });
}

// quant_min or quant_max; without it, that of the type.
double bound_of(Op& op, const char* arg, DType dtype, bool least) {
  if (op.has(arg)) return op.number(arg);
  const Expr e = least ? lowest(op.pool, dtype) : highest(op.pool, dtype);
  if (!is_int(dtype)) fail(ErrorCode::unsupported_feature, op.node.target + " for a type that is no integer");
  return static_cast<double>(e->as_int());
}

Views quantize_affine(Op& op) {
  const View x = op.tensor("input");
  const QuantisedBlocks blocks = blocks_of(op, x);
  if (!op.has("zero_point")) fail(ErrorCode::bad_program, op.node.target + " without zero points");
  const View factor = by_blocks(op, inverse(op, op.tensor("scale")), x, blocks), zero = by_blocks(op, op.tensor("zero_point"), x, blocks);
  const View places = binary(op, ScalarOp::add, unary(op, ScalarOp::round, binary(op, ScalarOp::mul, x, factor)), zero);
  const DType type = op.out().dtype;
  return {stored(op, clamped(op, places, bound_of(op, "quant_min", type, true), bound_of(op, "quant_max", type, false)), type)};
}

Views dequantize_affine(Op& op) {
  const View x = op.tensor("input");
  const QuantisedBlocks blocks = blocks_of(op, x);
  const DType type = op.out().dtype;
  const auto to = [&](const View& v) { return step(op, "to", type, v.sizes, [&](Coordinates c) { return as(op.rec.at(v, c), type); }); };
  View value = to(x);
  if (op.has("zero_point")) value = binary(op, ScalarOp::sub, value, by_blocks(op, to(op.tensor("zero_point")), x, blocks));
  return {stored(op, binary(op, ScalarOp::mul, value, by_blocks(op, op.tensor("scale"), x, blocks)), type)};
}

// The least and the greatest element of each block, with the sizes of the results.
QuantisedRange block_range(Op& op, const View& in, const QuantisedBlocks& blocks) {
  const View x = cheap(op, in);
  const auto extreme = [&](const char* name, ReduceOp reduce) {
    return op.rec.reduce(op.name + name, reduce, x.dtype, blocks.counts, blocks.lengths, [&](Coordinates block, Coordinates inside) {
      Sizes at;
      for (size_t i = 0; i < block.size(); ++i) at.push_back(block[i] * blocks.lengths[i] + inside[i]);
      return op.rec.at(x, at);
    });
  };
  const View least = reshaped(op, extreme(".least", ReduceOp::min), op.out().sizes),
             greatest = reshaped(op, extreme(".greatest", ReduceOp::max), op.out().sizes);
  const View zero = number_view(op, 0, x.dtype);
  return {binary(op, ScalarOp::minimum, least, zero), binary(op, ScalarOp::maximum, greatest, zero)};
}

Views choose_affine(Op& op) {
  const View x = op.tensor("input");
  const std::string mapping = op.text("mapping_type");
  const DType target = *op.dtype("target_dtype"), type = x.dtype;
  const double low = bound_of(op, "quant_min", target, true), high = bound_of(op, "quant_max", target, false);
  const double smallest = type == DType::f16 ? 6.103515625e-05 : std::numeric_limits<float>::min();
  const View eps = number_view(op, op.has("eps") ? op.number("eps") : smallest, type);
  auto [least, greatest] = block_range(op, x, blocks_of(op, x));
  View scale, zero;
  if (mapping == "ASYMMETRIC") {
    scale = binary(op, ScalarOp::div, binary(op, ScalarOp::sub, greatest, least), number_view(op, high - low, type));
    scale =
        op.rec.pointwise(op.name + ".scale", type, scale.sizes, [&](Coordinates c) { return op.pool.op(ScalarOp::maximum, {op.rec.at(scale, c), eps.body}); });
    const View place = unary(op, ScalarOp::round, binary(op, ScalarOp::div, least, scale));
    zero = clamped(op, binary(op, ScalarOp::sub, broadcast(op, number_view(op, low, type), place.sizes), place), low, high);
  } else {
    if (mapping == "SYMMETRIC") {
      greatest = binary(op, ScalarOp::maximum, unary(op, ScalarOp::neg, least), greatest);
      scale = binary(op, ScalarOp::div, greatest, number_view(op, (high - low) / 2, type));
    } else if (mapping == "SYMMETRIC_NO_CLIPPING_ERR") {
      const View below = binary(op, ScalarOp::div, least, number_view(op, low, type)), above = binary(op, ScalarOp::div, greatest, number_view(op, high, type));
      scale = step(op, "where", type, below.sizes, [&](Coordinates c) {
        return op.pool.select(op.pool.op(ScalarOp::gt, {op.rec.at(below, c), op.rec.at(above, c)}), op.rec.at(below, c), op.rec.at(above, c));
      });
    } else {
      fail(ErrorCode::unsupported_feature, op.node.target + " of the kind " + mapping);
    }
    zero = broadcast(op, number_view(op, static_cast<double>(static_cast<int64_t>((high + low + 1) / 2)), type), scale.sizes);
    scale = binary(op, ScalarOp::maximum, scale, eps);
  }
  return {stored(op, scale, op.out(0).dtype), stored(op, zero, op.out(1).dtype)};
}

}  // namespace

void add_quantization(Table& table) {
  const std::string decomposed = "quantized_decomposed.";
  for (const char* overload : {"default", "tensor", "tensor2"}) {
    table[decomposed + "quantize_per_tensor." + overload] = quantize_per_tensor;
    table[decomposed + "dequantize_per_tensor." + overload] = dequantize_per_tensor;
  }
  table[decomposed + "choose_qparams.tensor"] = [](Op& op) { return choose_qparams(op, false); };
  table[decomposed + "choose_qparams_symmetric.tensor"] = [](Op& op) { return choose_qparams(op, true); };
  table[decomposed + "quantize_per_channel.default"] = quantize_per_channel;
  table[decomposed + "dequantize_per_channel.default"] = dequantize_per_channel;
  table[decomposed + "quantize_per_token.default"] = [](Op& op) { return quantize_rows(op, Expr()); };
  table[decomposed + "dequantize_per_token.default"] = [](Op& op) { return dequantize_rows(op, Expr()); };
  table[decomposed + "quantize_per_channel_group.default"] = [](Op& op) { return quantize_rows(op, group_width(op, op.tensor("input"))); };
  table[decomposed + "dequantize_per_channel_group.default"] = [](Op& op) { return dequantize_rows(op, group_width(op, op.tensor("input"))); };
  table[decomposed + "choose_qparams_per_token.default"] = choose_per_token;
  for (const char* name : {"choose_qparams_per_token_asymmetric.default", "_choose_qparams_per_token_asymmetric_impl.default"}) {
    table[decomposed + name] = choose_per_token_asymmetric;
  }
  table["torchao.quantize_affine.default"] = quantize_affine;
  table["torchao.dequantize_affine.default"] = dequantize_affine;
  table["torchao.choose_qparams_affine.default"] = choose_affine;
  table["aten._int_mm.default"] = [](Op& op) { return Views{matrix_product(op, "int_mm", DType::i32, op.tensor("self"), op.tensor("mat2"), 0)}; };
}

}  // namespace coil::lowering
