// Unsigned numbers of 16, 32 and 64 bits: how rows for other integers serve them; this file decides it for all operators.
//
// A view of such a type has a body of bits: signed integers of its size. Rows that move data serve as they are (moving_rows). Others see
// the numbers as int64, which holds those of 16 and 32 bits, and their results are cut to the type's bits. Those of 64 bits are seen in
// one of three ways: as the int64 with their bits where the result is the same modulo 2^64; with the highest bit turned where only
// their order counts; as floating-point numbers where the result is one. PyTorch's CPU has some of the operators only: what it refuses
// for these types is refused here too, but for results in floating point, to which it promotes nearly everywhere.
#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/half_rounding.h"
#include "lower/moving_rows.h"
#include "lower/names.h"

namespace coil::lowering {
namespace {

// Besides moving_rows().
// clang-format off: a row of names a line would be a page
constexpr MovingRow kUnsignedMovement[] = {
    {"resolve_conj"}, {"resolve_neg"}, {"conj"}, {"_conj"}, {"conj_physical"}, {"real"}, {"positive"}, {"ceil"}, {"floor"}, {"round"}, {"trunc"},
    {"nan_to_num"}, {"block_diag"}, {"cartesian_prod"}, {"combinations"}, {"diagflat"}, {"diag"}, {"diag_embed"}, {"_chunk_cat"}, {"zeros"},
    {"zeros_like"}, {"new_zeros"}, {"zero"}, {"ones"}, {"ones_like"}, {"new_ones"}, {"gather"}, {"take_along_dim"}, {"scatter", "self src value"},
};
// clang-format on

// Integers and booleans come out of these; of 64 bits, the result is the same as that for the int64 with the same bits.
// clang-format off: a row of names a line would be pages
constexpr const char* kModular[] = {
    "mul", "eq", "ne", "equal", "__and__", "__or__", "__xor__", "logical_not", "logical_and", "logical_or", "logical_xor", "sum", "prod", "nansum", "cumsum", "cumprod", "sum_to_size", "all", "any", "count_nonzero", "hash_tensor", "bitwise_and", "bitwise_or",
    "bitwise_xor", "isfinite", "isinf", "isnan", "isposinf", "isneginf", "isreal", "scatter_add", "nonzero_static", "randint", "randint_like", "linspace", "logspace",
    "item", "_local_scalar_dense",
};
// clang-format on
// Here only the order of numbers counts.
constexpr const char* kOrdered[] = {
    "max",        "min",     "maximum", "minimum", "fmax",      "fmin",      "aminmax",  "amax",   "amin",
    "sort",       "argsort", "msort",   "cummax",  "cummin",    "mode",      "_unique2", "unique", "unique_consecutive",
    "unique_dim", "isin",    "clamp",   "clip",    "clamp_min", "clamp_max",
};
// Of 64 bits, these see floating-point numbers although they give booleans.
constexpr const char* kMeasured[] = {"isclose", "signbit"};
// With a result of 64 bits these compare with numbers of their own, which are not turned.
constexpr const char* kNarrow[] = {"hardtanh", "relu6"};

Val widened_type(Val bits) { return apply(ScalarOp::bit_xor, bits, Val(bits.e->pool->constant_int(INT64_MIN, DType::i64))); }

// The numbers as int64; of 64 bits their bits.
View as_integers(const View& v) {
  if (!is_wide_unsigned(v.dtype)) return v;
  const Val wide = as(v.body, DType::i64);
  if (v.dtype == DType::u64) return {DType::i64, v.sizes, wide.e};
  return {DType::i64, v.sizes, apply(ScalarOp::bit_and, wide, wide.like(v.dtype == DType::u16 ? 0xffff : 0xffffffff)).e};
}

// As numbers of f32 or f64, rounded once. Those of 64 bits from 2^63 on are halved before, the last digit kept for the rounding.
View as_floats(const View& v, DType type) {
  const View integers = as_integers(v);
  const Val x = integers.body;
  if (v.dtype != DType::u64) return {type, v.sizes, as(x.e, type)};
  const Val shifted = apply(ScalarOp::bit_and, apply(ScalarOp::shr, x, x.like(1)), Val(x.e->pool->constant_int(INT64_MAX, DType::i64)));
  const Val half = apply(ScalarOp::bit_or, shifted, apply(ScalarOp::bit_and, x, x.like(1)));
  return {type, v.sizes, select(x < 0.0, Val(as(half.e, type)) * 2.0, as(x.e, type)).e};
}

View as_turned(const View& v) {
  const View integers = as_integers(v);
  return v.dtype == DType::u64 ? View{DType::i64, v.sizes, widened_type(integers.body).e} : integers;
}

Views unsigned_conversion(Op& op, const View& v) {
  const DType to = op.out().dtype;
  if (v.dtype == to) return {v};
  if (is_wide_unsigned(to)) return {op.rec.pointwise("to", to, v.sizes, [&](Coordinates c) { return op.rec.at(as_unsigned(v, to), c); })};
  const bool floats = is_float(to) || is_complex(to);
  return {converted(op, floats ? as_floats(v, byte_size(part_type(to)) == 8 ? DType::f64 : DType::f32) : as_integers(v), to)};
}

bool is_wide_value(const Graph& graph, ValueId id, DType* type = nullptr) {
  if (!id.valid() || !graph.value(id).is_tensor() || !is_wide_unsigned(graph.value(id).tensor().dtype)) return false;
  if (type) *type = graph.value(id).tensor().dtype;
  return true;
}

bool is_search(const Node& node) { return packet(node.target) == "bucketize" || packet(node.target) == "searchsorted"; }

bool has_tensor_of(const Graph& graph, const Node& node, FunctionRef<bool(DType)> wanted) {
  return std::any_of(node.args.begin(), node.args.end(), [&](const Argument& a) {
    const ValueId* id = std::get_if<ValueId>(&a);
    return id && id->valid() && graph.value(*id).is_tensor() && wanted(graph.value(*id).tensor().dtype);
  });
}

// Whether a tensor among the node's arguments is of floats, and so what it compares or computes with.
bool meets_floats(const Op& op) {
  return std::any_of(op.node.args.begin(), op.node.args.end(), [&](const Argument& a) {
    if (std::holds_alternative<double>(a)) return true;
    const ValueId* id = std::get_if<ValueId>(&a);
    return id && id->valid() && op.graph.value(*id).is_tensor() && is_float(op.graph.value(*id).tensor().dtype);
  });
}

// The type of 16 bits that a search compares in: that of its tensors of floats, if they have one.
std::optional<DType> half_beside(const Op& op) {
  const auto has = [&](DType type) { return has_tensor_of(op.graph, op.node, [type](DType d) { return d == type; }); };
  if (has(DType::f32) || has(DType::f64)) return std::nullopt;
  return has(DType::f16) ? std::optional(DType::f16) : has(DType::bf16) ? std::optional(DType::bf16) : std::nullopt;
}

// A row for other numbers, run for these.
Views as_numbers(Op& op, const Lowering& row) {
  const std::string_view name = packet(op.node.target);
  std::vector<TensorType> outs;
  bool wide = false, floats = false;
  for (size_t i = 0; i < op.node.outputs.size() && op.graph.value(op.node.outputs[i]).is_tensor(); ++i) {
    outs.push_back(op.out(i));
    wide = wide || is_wide_unsigned(outs.back().dtype);
    floats = floats || is_float(outs.back().dtype) || is_complex(outs.back().dtype);
    if (is_wide_unsigned(outs.back().dtype)) outs.back().dtype = DType::i64;
  }
  const std::vector<TensorType> given = outs;
  const bool in_order = !floats && listed(kOrdered, name);
  if (floats || listed(kMeasured, name) || (!wide && meets_floats(op))) {
    const bool both_words = is_search(op.node) ? has_tensor_of(op.graph, op.node, [](DType d) { return d == DType::f64; })
                                               : std::any_of(outs.begin(), outs.end(), [](const TensorType& t) { return byte_size(part_type(t.dtype)) == 8; });
    const std::optional<DType> half = is_search(op.node) ? half_beside(op) : std::nullopt;
    op.see([both_words, half](const View& v) {
      if (v.dtype != DType::u64) return as_integers(v);
      View seen = as_floats(v, both_words ? DType::f64 : DType::f32);
      return half ? View{*half, seen.sizes, as(rounded_to_half(Val(seen.body), *half).e, *half)} : seen;
    });
  } else if (in_order) {
    bool long_numbers = false;
    for (const Argument& a : op.node.args) {
      DType type = DType::u16;
      if (const ValueId* id = std::get_if<ValueId>(&a); id && is_wide_value(op.graph, *id, &type)) long_numbers = long_numbers || type == DType::u64;
    }
    op.see(as_turned, [long_numbers](const View& v) { return long_numbers && v.dtype == DType::i64 ? View{v.dtype, v.sizes, widened_type(v.body).e} : v; });
  } else {
    op.see(as_integers);
  }
  op.replace_outs(std::move(outs));
  Views results = row(op);
  op.replace_outs({});
  for (size_t i = 0; i < results.size() && i < given.size(); ++i) {
    const DType type = op.out(i).dtype;
    if (!is_wide_unsigned(type) || results[i].body == Expr()) continue;
    const Expr bits = in_order && type == DType::u64 ? widened_type(results[i].body).e : results[i].body;
    results[i] = {type, results[i].sizes, as(bits, type)};
  }
  return results;
}

// What a node's row is, or none: by what PyTorch has.
bool has_numbers(const Graph& graph, const Node& node) {
  const std::string_view name = packet(node.target);
  const bool floats = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
    return id.valid() && graph.value(id).is_tensor() && (is_float(graph.value(id).tensor().dtype) || is_complex(graph.value(id).tensor().dtype));
  });
  if (floats || listed(kModular, name) || listed(kOrdered, name) || listed(kMeasured, name)) return true;
  // Searches promote to floating-point numbers, and to nothing else.
  if (is_search(node)) {
    const Argument* number = node.find("self");
    return has_tensor_of(graph, node, [](DType d) { return is_float(d); }) || (number && std::holds_alternative<double>(*number));
  }
  const bool longest = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId id) { return id.valid() && graph.value(id).is_tensor() && graph.value(id).tensor().dtype == DType::u64; });
  return !longest && listed(kNarrow, name);
}

// Rows of their own and those that move data.
Table make_unsigned_table(const Table& rows) {
  Table t;
  add_moving_rows(t, rows, moving_rows());
  add_moving_rows(t, rows, kUnsignedMovement);
  for (const char* target :
       {"aten.to.device", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.other", "aten._to_copy.default", "aten.type_as.default", "aten.chalf.default"}) {
    t[target] = [](Op& op) { return unsigned_conversion(op, op.tensor("self")); };
  }
  t["prims.convert_element_type.default"] = [](Op& op) { return unsigned_conversion(op, op.tensor("a")); };
  t["aten.copy.default"] = [](Op& op) { return Views{broadcast(op, unsigned_conversion(op, op.tensor("src"))[0], op.out().sizes)}; };
  t["aten.relu.default"] = [](Op& op) { return Views{op.tensor("self")}; };
  // The bits stay; rows for other types see integers of the same size.
  for (const char* target : {"aten.view.dtype", "aten.view_copy.dtype"}) {
    t[target] = [row = rows.at(target)](Op& op) {
      TensorType out = op.out();
      const DType type = out.dtype;
      out.dtype = is_wide_unsigned(type) ? part_type(type) : type;
      op.see([](const View& v) { return is_wide_unsigned(v.dtype) ? View{part_type(v.dtype), v.sizes, v.body} : v; });
      op.replace_outs({out});
      Views results = row(op);
      op.replace_outs({});
      results[0].dtype = type;
      return results;
    };
  }
  return t;
}

}  // namespace

View as_unsigned(const View& v, DType type) {
  if (v.dtype == type) return v;
  const View x = is_wide_unsigned(v.dtype) ? as_integers(v) : is_complex(v.dtype) ? View{part_type(v.dtype), v.sizes, parts_of(v.body).re} : v;
  if (!is_float(x.body->dtype)) return {type, v.sizes, as(as(x.body, DType::i64), type)};
  // As PyTorch on x86: of what does not fit, the low bits of the next wider integer.
  const Val number = x.body;
  if (type == DType::u16) return {type, v.sizes, as(as(number.e, DType::i32), type)};
  if (type == DType::u32) return {type, v.sizes, as(as(number.e, DType::i64), type)};
  const Val half = number.like(0x1p63);
  return {type, v.sizes, select(number >= 0x1p63, widened_type(as((number - half).e, DType::i64)), Val(as(number.e, DType::i64))).e};
}

bool is_unsigned_node(const Graph& graph, const Node& node) {
  const auto wide = [&](ValueId id) { return is_wide_value(graph, id); };
  for (const Argument& a : node.args) {
    if (const ValueId* id = std::get_if<ValueId>(&a); id && wide(*id)) return true;
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&a); ids && std::any_of(ids->begin(), ids->end(), wide)) return true;
  }
  return std::any_of(node.outputs.begin(), node.outputs.end(), wide);
}

std::optional<Lowering> unsigned_row(const Graph& graph, const Node& node) {
  static const Table own = make_unsigned_table(table());
  if (const auto found = own.find(node.target); found != own.end()) return found->second;
  const Table& rows = is_complex_node(graph, node) ? complex_table() : table();
  const auto found = rows.find(node.target);
  if (found == rows.end() || !has_numbers(graph, node)) return std::nullopt;
  return [row = found->second](Op& op) { return as_numbers(op, row); };
}

}  // namespace coil::lowering
