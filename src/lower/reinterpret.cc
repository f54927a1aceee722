// The same bits as numbers of another type: of the same size, or of another one, which divides or joins the elements of the last dimension.
//
// Numbers of 2 bytes are copied byte by byte (a routine of the library): as values they live in float32, where a NaN does not keep its bits.
#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

// The integer of the same size whose bits an expression of this type can have.
DType bits_type(DType d) {
  if (d == DType::f32) return DType::i32;
  if (d == DType::f64) return DType::i64;
  return is_bool(d) || is_float8(d) ? DType::u8 : d;
}

// The arithmetic that shifts bits: of 4 bytes, or of 8.
DType shifting_type(int bytes) { return bytes > 4 ? DType::i64 : DType::i32; }

Val bits_of(Expr value, DType type) { return is_float(type) ? value->pool->op(ScalarOp::bits, {value}) : as(value, bits_type(type)); }

Expr from_bits(Val bits, DType type) {
  const Expr own = as(bits.e, bits_type(type));  // the low ones
  if (is_bool(type)) return as(own, DType::boolean);
  return is_float(type) ? own->pool->op(ScalarOp::from_bits, {own}) : own;
}

Val shift_by(Op& op, Expr bytes, DType type) { return as(op.pool.cast(bytes * 8, DType::i64), type); }

// Element j is part j % ratio of element j / ratio: the least significant one comes first.
View divided(const View& v, DType to, int ratio, Op& op, Sizes sizes) {
  const DType wide = shifting_type(byte_size(v.dtype));
  const Expr ratio_index = op.pool.index(ratio);
  return op.rec.pointwise(op.name, to, sizes, [&](Coordinates c) {
    Sizes at(c.begin(), c.end());
    at.back() = floor_div(c.back(), ratio_index);
    const Val bits = as(bits_of(op.rec.at(v, at), v.dtype).e, wide);
    return from_bits(apply(ScalarOp::shr, bits, shift_by(op, floor_mod(c.back(), ratio_index) * byte_size(to), wide)), to);
  });
}

View joined_elements(const View& v, DType to, int ratio, Op& op, Sizes sizes) {
  const DType wide = shifting_type(byte_size(to));
  const int bits = 8 * byte_size(v.dtype);
  return op.rec.pointwise(op.name, to, sizes, [&](Coordinates c) {
    Sizes at(c.begin(), c.end());
    Val all = op.pool.constant_int(0, wide);
    for (int part = 0; part < ratio; ++part) {
      at.back() = c.back() * ratio + part;
      const Val own = as(bits_of(op.rec.at(v, at), v.dtype).e, wide),
                low = apply(ScalarOp::bit_and, own, Val(op.pool.constant_int((int64_t{1} << bits) - 1, wide)));
      all = part ? apply(ScalarOp::bit_or, all, apply(ScalarOp::shl, low, low.like(part * bits))) : low;
    }
    return from_bits(all, to);
  });
}

View reinterpreted(Op& op, const View& v, DType to, const Sizes& sizes) {
  if (v.dtype == to) return v;
  const int from_bytes = byte_size(v.dtype), to_bytes = byte_size(to);
  if (is_half(v.dtype) || is_half(to)) {
    Library call;
    call.routine = "copy_bytes";
    call.subject = op.name;
    call.dtype = to;
    call.sizes = {count(op.pool, sizes) * to_bytes};
    return op.rec.library(op.name, std::move(call), {v}, {{to, sizes}})[0];
  }
  if (from_bytes > to_bytes) return divided(v, to, from_bytes / to_bytes, op, sizes);
  if (from_bytes < to_bytes) return joined_elements(v, to, to_bytes / from_bytes, op, sizes);
  return {to, sizes, from_bits(bits_of(v.body, v.dtype), to)};
}

// Numbers are seen as their parts, which lie in pairs along the last dimension.
Views view_dtype(Op& op) {
  View v = op.tensor("self");
  const DType to = op.out().dtype;
  if (v.dtype == to) return {v};
  if (is_complex(v.dtype)) {
    Sizes sizes = v.sizes;
    if (sizes.empty()) fail(ErrorCode::bad_program, op.node.target + ": a single complex number has no dimension to divide");
    sizes.back() = sizes.back() * 2;
    v = reshaped(op, pairs_of(v), sizes);
  }
  if (!is_complex(to)) return {reinterpreted(op, v, to, op.out().sizes)};
  Sizes parts = op.out().sizes, pairs = parts;
  parts.back() = parts.back() * 2;
  pairs.push_back(op.pool.index(2));
  return {complex_of_pairs(reshaped(op, reinterpreted(op, v, part_type(to), parts), pairs))};
}

}  // namespace

void add_reinterpret(Table& table) {
  for (const char* target : {"aten.view.dtype", "aten.view_copy.dtype"}) table[target] = view_dtype;
}

}  // namespace coil::lowering
