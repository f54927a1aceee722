// Fake quantisation: numbers are rounded to what a quantised type holds, and stay floats.
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/quantization.h"

namespace coil::lowering {
namespace {

// The result and, with `mask`, where nothing was cut off.
Views fake_quantized(Op& op, const View& scale, const View& zero, bool mask) {
  const View x = op.tensor("self");
  const DType type = accumulate_type(x.dtype);
  const double low = op.number("quant_min"), high = op.number("quant_max");
  const auto place = [&](Coordinates c) {
    const Val s = as(read(scale, c), DType::f32), z = as(read(zero, c), type);
    const Val factor = 1.0 / s, scaled = Val(as(op.rec.at(x, c), type)) * Val(as(factor.e, type));
    return z + round(scaled);
  };
  const View result = op.rec.pointwise(op.name, op.out().dtype, x.sizes, [&](Coordinates c) {
    const Val at = place(c), raised = apply(ScalarOp::fmax, at, at.like(low)), kept = apply(ScalarOp::fmin, raised, at.like(high));  // NaN is the least
    return as(((kept - Val(as(read(zero, c), type))) * Val(as(read(scale, c), type))).e, op.out().dtype);
  });
  if (!mask) return {result};
  const View inside = op.rec.pointwise(op.name + ".mask", DType::boolean, x.sizes, [&](Coordinates c) { return both(place(c) >= low, place(c) <= high).e; });
  return {result, inside};
}

Lowering fake_row(bool mask) {
  return [mask](Op& op) {
    if (!op.node.find("axis")) return fake_quantized(op, quantisation_number(op, "scale", DType::f32), quantisation_number(op, "zero_point", DType::i64), mask);
    const View x = op.tensor("self");
    const size_t axis = wrap_dim(op.integer("axis"), x.rank());
    return fake_quantized(op, along_axis(op, op.tensor("scale"), x, axis), along_axis(op, op.tensor("zero_point"), x, axis), mask);
  };
}

// Scale and zero point are parameters that are learnt: a zero point is a float, rounded where it is used.
Views learnable_fake_quantized(Op& op) {
  const View x = op.tensor("self");
  const double low = op.number("quant_min"), high = op.number("quant_max");
  const bool channels = op.node.find("axis") != nullptr;
  const auto all = [&](const char* arg) {
    const View v = op.tensor(arg);
    return channels ? along_axis(op, v, x, wrap_dim(op.integer("axis"), x.rank())) : reshaped(op, v, {});
  };
  View zero = all("zero_point");
  zero.body = min(max(round(Val(as(zero.body, DType::f32))), low), high).e;
  zero.dtype = DType::f32;
  return fake_quantized(op, all("scale"), zero, false);
}

// With fake_quant_enabled at 0 the tensor passes as it is.
Views fake_quantized_if_enabled(Op& op) {
  const View enabled = reshaped(op, op.tensor("fake_quant_enabled"), {}), x = op.tensor("self");
  const Views results = fake_quantized(op, quantisation_number(op, "scale", DType::f32), quantisation_number(op, "zero_point", DType::i64), true);
  const auto choice = [&](const char* name, const View& on, FunctionRef<Expr(Coordinates)> off) {
    return op.rec.pointwise(op.name + name, on.dtype, x.sizes,
                            [&](Coordinates c) { return op.pool.select(as(enabled.body, DType::boolean), op.rec.at(on, c), off(c)); });
  };
  return Views{choice(".result", results[0], [&](Coordinates c) { return op.rec.at(x, c); }),
               choice(".mask", results[1], [&](Coordinates) { return op.pool.boolean(true); })};
}

}  // namespace

void add_fake_quantization(Table& table) {
  for (const char* overload : {"_per_tensor_affine.default", "_per_tensor_affine.tensor_qparams", "_per_channel_affine.default"}) {
    table[std::string("aten.fake_quantize") + overload] = fake_row(false);
  }
  for (const char* kind : {"tensor", "channel"}) {
    table[std::string("aten.fake_quantize_per_") + kind + "_affine_cachemask.default"] = fake_row(true);
  }
  table["aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default"] = fake_quantized_if_enabled;
  for (const char* kind : {"tensor", "channel"}) {
    table[std::string("aten._fake_quantize_learnable_per_") + kind + "_affine.default"] = learnable_fake_quantized;
  }
}

}  // namespace coil::lowering
