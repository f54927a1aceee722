// Products with weights of 4 bits in PyTorch's own packings, and the packing; and with weights of 8 bits, which lie as they are.
//
// int4pack: pairs of columns share a byte, in blocks of columns as wide as the kernels of the machine on which PyTorch packed them
// (Session::int4_block); what is left over holds neighbours. Each group of rows has a scale and a summand: number * scale + summand.
// dyn_quant: numbers, scales and bias one after the other as float32 (what PyTorch has without Arm's kernels); the rows of the other
// operand are quantised to 8 bits first.
#include <algorithm>

#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// The number in the upper or the lower 4 bits of a byte (i32): -8 to 7.
Expr number_in(Val byte, Val upper) {
  return as((select(upper, apply(ScalarOp::shr, byte, byte.like(4)), apply(ScalarOp::bit_and, byte, byte.like(15))) - 8.0).e, DType::i8);
}
Val is_one(Expr index) { return index->pool->op(ScalarOp::eq, {index, index->pool->index(1)}); }

// --- int4pack

// `columns` columns from `first` on, in blocks of `count`; `apart`: numbers count / 2 apart share a byte, otherwise neighbours do.
struct PackedBlocks {
  int64_t first, columns, count;
  bool apart;
};

std::vector<PackedBlocks> blocks_of(Op& op, int64_t n) {
  const int64_t wide = op.session.options.int4_block.width, whole = n / wide * wide;
  std::vector<PackedBlocks> parts;
  if (whole > 0) parts.push_back({0, whole, wide, op.session.options.int4_block.apart});
  if (n > whole) parts.push_back({whole, n - whole, n - whole, false});
  return parts;
}

int64_t fixed_size(Op& op, const View& v, size_t dim) {
  const std::optional<int64_t> size = const_int(v.sizes.at(dim));
  if (!size || *size < 1) fail(ErrorCode::unsupported_feature, op.node.target + ": a packed weight whose sizes are not known");
  return *size;
}

// [n, k] numbers -> [n, k / 2] bytes
Views pack_int4(Op& op) {
  const View w = op.tensor("self");
  const int64_t n = fixed_size(op, w, 0), k = fixed_size(op, w, 1);
  Views pieces;
  for (const PackedBlocks& b : blocks_of(op, n)) {
    pieces.push_back(op.rec.pointwise(op.name, DType::u8, {op.pool.index(b.columns * k / 2)}, [&](Coordinates c) {
      const Expr half = op.pool.index(b.count / 2), in_row = floor_mod(c[0], half), row = floor_div(c[0], half);
      const Expr block = floor_div(row, op.pool.index(k)), at_k = floor_mod(row, op.pool.index(k));
      const auto number = [&](int64_t part) {
        const Expr d = b.apart ? in_row + part * (b.count / 2) : in_row * 2 + part;
        return Val(as(op.rec.at(w, std::vector<Expr>{block * b.count + d + b.first, at_k}), DType::i32));
      };
      const Val upper = number(1);
      return as(apply(ScalarOp::bit_or, apply(ScalarOp::shl, upper, upper.like(4)), number(0)).e, DType::u8);  // the low byte
    }));
  }
  const View flat = pieces.size() == 1 ? pieces[0] : op.rec.concat(op.name + ".whole", DType::u8, {op.pool.index(n * k / 2)}, 0, pieces);
  return {reshaped(op, flat, op.out().sizes)};
}

// [n, k / 2] bytes -> [n, k] numbers of -8 to 7
View unpacked_int4(Op& op, const View& packed) {
  const int64_t n = fixed_size(op, packed, 0), k = fixed_size(op, packed, 1) * 2;
  const View flat = reshaped(op, packed, {op.pool.index(n * k / 2)});
  Views pieces;
  for (const PackedBlocks& b : blocks_of(op, n)) {
    const Sizes sizes{op.pool.index(b.columns), op.pool.index(k)};
    pieces.push_back(op.rec.pointwise(op.name + ".numbers", DType::i8, sizes, [&](Coordinates c) {
      const Expr width = op.pool.index(b.count), half = op.pool.index(b.count / 2), two = op.pool.index(2);
      const Expr block = floor_div(c[0], width), d = floor_mod(c[0], width);
      const Expr in_row = b.apart ? floor_mod(d, half) : floor_div(d, two), part = b.apart ? floor_div(d, half) : floor_mod(d, two);
      const Expr at = (block * k + c[1]) * (b.count / 2) + in_row + b.first * k / 2;
      const Val byte = as(op.rec.at(flat, std::vector<Expr>{at}), DType::i32);
      return number_in(byte, is_one(part));
    }));
  }
  return pieces.size() == 1 ? pieces[0] : op.rec.concat(op.name + ".weight", DType::i8, {op.pool.index(n), op.pool.index(k)}, 0, pieces);
}

// Whether a constant, or what is not known, may hold a zero.
bool may_hold_zero(Op& op, const View& v) {
  if (v.body->kind != ExprKind::load) return true;
  const BufferInfo& b = op.rec.program().buffer(BufferId(v.body->id));
  if (b.kind != BufferInfo::Kind::constant) return true;
  const auto width = static_cast<size_t>(byte_size(b.dtype));
  for (size_t at = 0; at + width <= b.data.bytes.size(); at += width) {
    const auto element = b.data.bytes.subspan(at, width);
    const auto low = element.first(width - 1);
    if (std::ranges::all_of(low, [](uint8_t x) { return x == 0; }) && (element.back() & 0x7f) == 0) return true;
  }
  return false;
}

// What scales number [n, k] of a weight, given its column, its group of rows and itself.
using Scaling = std::function<Val(Expr n, Expr group, Val number)>;

// The sum over k of a [m, k] and the scaled numbers [n, k], in float32. find_quantised() knows weights of the form (number - zero) * scale.
View quantised_product(Op& op, const View& a, const View& numbers, int64_t group, const Scaling& scaled) {
  const Sizes sizes{numbers.sizes[1], numbers.sizes[0]};
  const View weight = op.rec.pointwise(op.name + ".weight", DType::f32, sizes, [&](Coordinates c) {
    const Val number = as(op.rec.at(numbers, std::vector<Expr>{c[1], c[0]}), DType::f32);
    return scaled(c[1], floor_div(c[0], op.pool.index(group)), number).e;
  });
  return matrix_product(op, op.name, DType::f32, a, weight, 0);
}

View in_float32(Op& op, const View& v) {
  return v.dtype == DType::f32 ? v : op.rec.pointwise(op.name + ".rows", DType::f32, v.sizes, [&](Coordinates c) { return op.rec.at(v, c); });
}

Views int4_product(Op& op) {
  const View x = op.tensor("self"), parameters = op.tensor("qScaleAndZeros");  // [k / group, n, 2]
  const View numbers = unpacked_int4(op, op.tensor("mat2"));
  const auto parameter = [&](Expr n, Expr g, int64_t which) {
    return Val(as(op.rec.at(parameters, std::vector<Expr>{g, n, op.pool.index(which)}), DType::f32));
  };
  const bool divides = !may_hold_zero(op, parameters);
  const View y = quantised_product(op, in_float32(op, x), numbers, op.integer("qGroupSize"), [&](Expr n, Expr g, Val number) {
    const Val scale = parameter(n, g, 0), summand = parameter(n, g, 1);
    return divides ? (number - (-summand / scale)) * scale : number * scale + summand;
  });
  return {op.rec.pointwise(op.name + ".result", op.out().dtype, y.sizes, [&](Coordinates c) { return as(op.rec.at(y, c), op.out().dtype); })};
}

// --- dyn_quant

Views pack_dyn_quant(Op& op) {
  Views pieces;
  for (const char* arg : {"weights", "scales_zeros", "bias"}) {
    const std::optional<View> v = op.maybe_tensor(arg);
    if (!v) continue;
    const View flat = reshaped(op, *v, {count(op.pool, v->sizes)});
    pieces.push_back(converted(op, flat, DType::f32));
  }
  Expr total = op.pool.index(0);
  for (const View& piece : pieces) total = total + piece.sizes[0];
  if (op.out().sizes.size() != 1 || !provably_equal(total, op.out().sizes[0]))
    fail(ErrorCode::unsupported_feature, op.node.target + " for the kernels of another processor");
  return {op.rec.concat(op.name, DType::f32, {total}, 0, pieces)};
}

// Halves away from zero.
Val rounded_away(Val v) {
  const Val whole = trunc(v), rest = v - whole;
  return whole + select(abs(rest) >= 0.5, sign(v), v.like(0));
}

// Each row of [m, k] as PyTorch quantises it to 8 bits, and back: 0 is a number, both ends are about those of the row.
View quantised_rows(Op& op, const View& given) {
  const View x = cheap(op, in_float32(op, given));
  const View least = reduced(op, op.name + ".least", ReduceOp::min, DType::f32, x, {1}, false),
             greatest = reduced(op, op.name + ".greatest", ReduceOp::max, DType::f32, x, {1}, false);
  const Sizes rows{x.sizes[0]};
  const auto low = [&](Expr m) { return min(Val(op.rec.at(least, std::vector<Expr>{m})), 0.0); };
  const auto high = [&](Expr m) { return max(Val(op.rec.at(greatest, std::vector<Expr>{m})), 0.0); };
  const View scale = op.rec.pointwise(op.name + ".scale", DType::f32, rows, [&](Coordinates c) {
    const Val a = low(c[0]), b = high(c[0]);
    return select(equal(a, b), 1.0, 255.0 / (b - a)).e;
  });
  const auto scale_of = [&](Expr m) { return Val(op.rec.at(scale, std::vector<Expr>{m})); };
  const View zero = op.rec.pointwise(op.name + ".zero", DType::f32, rows, [&](Coordinates c) {
    const Val a = low(c[0]) * scale_of(c[0]), b = high(c[0]) * scale_of(c[0]);
    const Val from_low = -128.0 - a, from_high = 127.0 - b;
    const Val place = select((a + -128.0) + (b + 127.0) > 0.0, from_low, from_high);
    return round(min(max(place, -128.0), 127.0)).e;
  });
  const View numbers = op.rec.pointwise(op.name + ".numbers", DType::i8, x.sizes, [&](Coordinates c) {
    const Val place = rounded_away(Val(op.rec.at(x, c)) * scale_of(c[0])) + Val(op.rec.at(zero, std::vector<Expr>{c[0]}));
    return as(min(max(place, -128.0), 127.0).e, DType::i8);
  });
  const View inverse = op.rec.pointwise(op.name + ".inverse", DType::f32, rows, [&](Coordinates c) {
    const Val s = scale_of(c[0]);
    return select(equal(s, 0.0), s, 1.0 / s).e;
  });
  return op.rec.pointwise(op.name + ".values", DType::f32, x.sizes, [&](Coordinates c) {
    const std::vector<Expr> row{c[0]};
    return ((Val(as(op.rec.at(numbers, c), DType::f32)) - Val(op.rec.at(zero, row))) * Val(op.rec.at(inverse, row))).e;
  });
}

Views dyn_quant_product(Op& op) {
  const View x = op.tensor("inp"), packed = op.tensor("packed_weights");
  const int64_t k = op.integer("in_features"), n = op.integer("out_features"), group = op.integer("block_size");
  const std::optional<int64_t> have = const_int(packed.sizes.at(0));
  const int64_t numbers_at = n * k / 2, scales = group > 0 ? n * (k / group) : 0, bias_at = numbers_at + scales;
  if (packed.dtype != DType::f32 || !have || (*have != bias_at && *have != bias_at + n)) {
    fail(ErrorCode::unsupported_feature, op.node.target + ": a weight packed for the kernels of another processor");
  }
  if (x.rank() != 2 || group < 1 || k % 2 != 0 || k % group != 0) fail(ErrorCode::bad_program, op.node.target + ": rows are not made of whole blocks");
  const auto at = [&](Expr place) { return Val(op.rec.at(packed, std::vector<Expr>{place})); };
  const View numbers = op.rec.pointwise(op.name + ".weight_numbers", DType::i8, {op.pool.index(n), op.pool.index(k)}, [&](Coordinates c) {
    const Expr two = op.pool.index(2);
    const Val byte = as(at(c[0] * (k / 2) + floor_div(c[1], two)).e, DType::i32);
    return number_in(byte, is_one(floor_mod(c[1], two)));
  });
  const View sum = quantised_product(op, quantised_rows(op, x), numbers, group,
                                     [&](Expr column, Expr g, Val number) { return number * at(column * (k / group) + g + numbers_at); });
  const DType to = op.out().dtype;
  return {op.rec.pointwise(op.name + ".result", to, sum.sizes, [&](Coordinates c) {
    Val v = op.rec.at(sum, c);
    if (*have > bias_at) v = v + at(c[1] + bias_at);
    if (to != DType::bf16) return v.e;
    const Val bits = apply(ScalarOp::bits, v);  // PyTorch cuts these digits off
    return op.pool.op(ScalarOp::from_bits, {apply(ScalarOp::bit_and, bits, bits.like(-65536)).e});
  })};
}

// --- weights of 8 bits, with a scale for each column

Views int8_weight_product(Op& op) {
  const View x = op.tensor("self"), w = op.tensor("mat2"), scales = op.tensor("scales");
  const View wide = op.rec.pointwise(op.name + ".weight", x.dtype, w.sizes, [&](Coordinates c) { return as(op.rec.at(w, c), x.dtype); });
  const View sum = matrix_product(op, op.name, DType::f32, x, permuted(op, wide, {1, 0}), 0);
  return {op.rec.pointwise(op.name + ".scaled", op.out().dtype, sum.sizes,
                           [&](Coordinates c) { return op.pool.op(ScalarOp::mul, {op.rec.at(sum, c), as(op.rec.at(scales, c.last(1)), DType::f32)}); })};
}

}  // namespace

void add_packed_products(Table& table) {
  table["aten._convert_weight_to_int4pack_for_cpu.default"] = pack_int4;
  table["aten._weight_int4pack_mm_for_cpu.default"] = int4_product;
  table["aten._dyn_quant_pack_4bit_weight.default"] = pack_dyn_quant;
  table["aten._dyn_quant_matmul_4bit.default"] = dyn_quant_product;
  table["aten._weight_int8pack_mm.default"] = int8_weight_product;
}

}  // namespace coil::lowering
