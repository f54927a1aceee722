// ExprPool::op and ::cast: type checks, constant folding and the identities that hold for every input. On floating types that
// means for NaN, infinities and both zeros as well: x + 0.0 is not x for x = -0.0, x + -0.0 is.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/result.h"
#include "expr/expr.h"
#include "expr/operand_error.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

Value value_of(Expr c) { return is_float(c->dtype) ? Value{.f = c->as_double()} : Value{.i = c->bits}; }

Expr make_constant(ExprPool& pool, Value v, DType dtype) { return is_float(dtype) ? pool.constant(v.f, dtype) : pool.constant_int(v.i, dtype); }

Expr make_op(ExprPool& pool, ScalarOp op, DType dtype, std::vector<Expr> args) {
  ExprNode node{};
  node.kind = ExprKind::op;
  node.op = op;
  node.dtype = dtype;
  node.args = std::move(args);
  return pool.make(std::move(node));
}

bool is_value(Expr e, double x) {
  if (!e->is_constant()) return false;
  if (is_float(e->dtype)) return e->bits == std::bit_cast<int64_t>(x);  // tells the zeros apart
  return static_cast<double>(e->bits) == x;
}

// Every bit set: -1, 255 of u8, true.
bool is_all_ones(Expr e) { return e->is_constant() && !is_float(e->dtype) && e->bits == convert({.i = -1}, DType::i64, e->dtype).i; }

bool is_commutative(ScalarOp op) {
  using enum ScalarOp;
  return op == add || op == mul || op == eq || op == ne || op == logical_and || op == logical_or || op == logical_xor || op == bit_and || op == bit_or ||
         op == bit_xor;
}

// The integer of a float's size, and the other way round.
DType same_bits(DType d) {
  if (is_float(d)) return d == DType::f64 ? DType::i64 : DType::i32;
  return d == DType::i64 ? DType::f64 : DType::f32;
}

bool needs_float(ScalarOp op) {
  using enum ScalarOp;
  return op == div || op == fma || (op >= sqrt && op <= hypot && op != pow);
}

bool needs_integer(ScalarOp op) {
  using enum ScalarOp;
  return (op >= bit_and && op <= shr) || op == gcd;
}

// Index operands: the operators of index_math. Null if the operation is none of theirs.
Expr index_form(ScalarOp op, const std::vector<Expr>& args) {
  using enum ScalarOp;
  switch (op) {
    case iadd:
    case imul: {
      Expr r = args[0];
      for (size_t i = 1; i < args.size(); ++i) r = op == iadd ? r + args[i] : r * args[i];
      return r;
    }
    case add: return args[0] + args[1];
    case sub: return args[0] - args[1];
    case mul: return args[0] * args[1];
    case neg: return args[0] * -1;
    case idiv:
    case floor_div: return coil::floor_div(args[0], args[1]);
    case imod:
    case remainder: return floor_mod(args[0], args[1]);
    case imin:
    case minimum: return index_min(args[0], args[1]);
    case imax:
    case maximum: return index_max(args[0], args[1]);
    default: return Expr();
  }
}

// Comparisons of indices whose difference is a constant.
Expr compare_indices(ExprPool& pool, ScalarOp op, Expr a, Expr b) {
  const expr::Polynomial d = expr::Polynomial(a) - expr::Polynomial(b);
  if (d.overflow() || !d.is_constant()) return Expr();
  const Value args[] = {{.i = d.constant_part()}, {.i = 0}};
  return pool.boolean(apply_scalar(op, DType::index, args).i != 0);
}

Expr fold_choice(ScalarOp op, Expr c, Expr a, Expr b) {
  using enum ScalarOp;
  if (c->is_constant()) return c->bits != 0 ? a : b;
  if (a == b) return a;
  // Only where both sides are evaluated anyway: swapping masked would drop the mask.
  if (op == select && c->is_op(logical_not)) return c->pool->select(c->args[0], b, a);
  if (op == select && is_bool(a->dtype) && is_value(a, 1) && is_value(b, 0)) return c;
  return Expr();
}

// x op constant, for all types.
Expr fold_with_constant(ScalarOp op, Expr x, Expr c) {
  using enum ScalarOp;
  ExprPool& pool = *x->pool;
  const DType type = x->dtype;
  const bool exact = !is_float(type) && !is_bool(type);
  switch (op) {
    case add: return is_value(c, is_float(type) ? -0.0 : 0) ? x : Expr();
    case sub: return is_value(c, 0.0) ? x : Expr();
    case mul:
      if (is_value(c, 1)) return x;
      return exact && is_value(c, 0) ? c : Expr();
    case div: return is_value(c, 1) ? x : Expr();
    case floor_div:
    case trunc_div: return exact && is_value(c, 1) ? x : Expr();
    case remainder:
    case fmod: return exact && is_value(c, 1) ? pool.constant_int(0, type) : Expr();
    case logical_and: return !is_bool(type) ? Expr() : c->bits != 0 ? x : c;
    case logical_or: return !is_bool(type) ? Expr() : c->bits != 0 ? c : x;
    case logical_xor: return !is_bool(type) ? Expr() : c->bits != 0 ? pool.op(logical_not, {x}) : x;
    case bit_and: return is_value(c, 0) ? c : is_all_ones(c) ? x : Expr();
    case bit_or: return is_value(c, 0) ? x : is_all_ones(c) ? c : Expr();
    case bit_xor: return is_value(c, 0) ? x : is_all_ones(c) ? pool.op(bit_not, {x}) : Expr();
    case shl:
    case shr: return is_value(c, 0) ? x : Expr();
    case eq:
    case ne:
      if (!is_bool(type)) return Expr();
      return (c->bits != 0) == (op == eq) ? x : pool.op(logical_not, {x});
    case pow:
      if (is_value(c, 1)) return x;
      return is_value(c, 2) ? pool.op(mul, {x, x}) : Expr();
    default: return Expr();
  }
}

// x op x
Expr fold_same(ScalarOp op, Expr x) {
  using enum ScalarOp;
  ExprPool& pool = *x->pool;
  const bool floating = is_float(x->dtype);
  switch (op) {
    case maximum:
    case minimum:
    case fmax:
    case fmin:
    case bit_and:
    case bit_or: return x;
    case logical_and:
    case logical_or: return is_bool(x->dtype) ? x : Expr();
    case sub:
    case bit_xor: return floating ? Expr() : pool.constant_int(0, x->dtype);
    case lt:
    case gt: return pool.boolean(false);
    case ne: return floating ? Expr() : pool.boolean(false);
    case eq:
    case le:
    case ge: return floating ? Expr() : pool.boolean(true);
    default: return Expr();
  }
}

Expr fold_unary(ScalarOp op, Expr x) {
  using enum ScalarOp;
  ExprPool& pool = *x->pool;
  switch (op) {
    case neg: return x->is_op(neg) ? x->args[0] : Expr();
    case abs: return x->is_op(abs) ? x : x->is_op(neg) ? pool.op(abs, {x->args[0]}) : Expr();
    case bit_not: return x->is_op(bit_not) ? x->args[0] : is_bool(x->dtype) ? pool.op(logical_not, {x}) : Expr();
    case logical_not: return is_bool(x->dtype) && x->is_op(logical_not) ? x->args[0] : Expr();
    case floor:
    case ceil:
    case trunc:
    case round:
      if (!is_float(x->dtype)) return x;
      return x->is_op(floor) || x->is_op(ceil) || x->is_op(trunc) || x->is_op(round) ? x : Expr();
    case isnan:
    case isinf: return is_float(x->dtype) ? Expr() : pool.boolean(false);
    default: return Expr();
  }
}

Expr fold_binary(ScalarOp op, Expr a, Expr b) {
  if (b->is_constant()) {
    if (Expr e = fold_with_constant(op, a, b)) return e;
  }
  if (a == b) return fold_same(op, a);
  return Expr();
}

// Every value of `from` is one of `to`, so a second conversion may start from `from`.
bool is_lossless(DType from, DType to) {
  if (from == to || is_bool(from)) return true;
  if (is_float(from)) return to == DType::f64 && from != DType::f64;
  const auto wide = [](DType d) { return d == DType::i64 || d == DType::index; };
  if (wide(from)) return wide(to);
  if (to == DType::f64) return true;
  if (to == DType::f32) return byte_size(from) <= 2;
  if (is_float(to) || is_bool(to) || to == DType::u8) return false;
  return byte_size(to) > byte_size(from);
}

}  // namespace

std::string_view operand_error(ScalarOp op, std::span<const Expr> args) {
  using enum ScalarOp;
  const ScalarOpInfo& row = info(op);
  if (op == cast || op == checked_index) return "casts and checked indices have functions of their own";
  if (row.arity < 0 ? args.empty() : args.size() != static_cast<size_t>(row.arity)) return "wrong number of operands";
  if (!std::all_of(args.begin(), args.end(), [](Expr a) { return static_cast<bool>(a); })) return "null operand";
  const bool chooses = row.result == ResultRule::first_of_two;
  if (chooses && !is_bool(args[0]->dtype)) return "the condition is not boolean";
  const DType dtype = args[chooses ? 1 : 0]->dtype;
  for (Expr a : args.subspan(chooses ? 1 : 0)) {
    if (a->dtype != dtype) return "operands of different types";
  }
  if (dtype != compute_type(dtype)) return "a storage type in arithmetic";
  if ((needs_float(op) || op == bits) && !is_float(dtype)) return "needs floating-point operands";
  if (op == from_bits && dtype != DType::i32 && dtype != DType::i64) return "needs i32 or i64";
  if (needs_integer(op) && is_float(dtype)) return "needs integer operands";
  if (is_index_op(op) && dtype != DType::index) return "needs index operands";
  return {};
}

Expr ExprPool::op(ScalarOp op, std::initializer_list<Expr> args) { return this->op(op, std::vector<Expr>(args)); }

Expr ExprPool::op(ScalarOp op, std::vector<Expr> args) {
  if (std::string_view error = operand_error(op, args); !error.empty()) {
    throw OperandError(__FILE__, __LINE__, std::string(info(op).name), std::string(error));
  }
  for (Expr a : args) CHECK(a->pool == this, "an operand of another pool");
  const DType result = info(op).result == ResultRule::boolean        ? DType::boolean
                       : info(op).result == ResultRule::first_of_two ? args[1]->dtype
                       : info(op).result == ResultRule::bits         ? same_bits(args[0]->dtype)
                                                                     : args[0]->dtype;
  if (result == DType::index && !args.empty() && args[0]->dtype == DType::index) {
    if (Expr e = index_form(op, args)) return e;
  }
  if (info(op).result == ResultRule::first_of_two) {
    if (Expr e = fold_choice(op, args[0], args[1], args[2])) return e;
    return make_op(*this, op, result, std::move(args));
  }
  bool constant_operands = true;
  for (Expr a : args) constant_operands &= a->is_constant();
  if (constant_operands) {
    std::vector<Value> values;
    for (Expr a : args) values.push_back(value_of(a));
    return make_constant(*this, apply_scalar(op, args[0]->dtype, values), result);
  }
  // Constants go to the right, where the patterns look for them.
  if (is_commutative(op) && args[0]->is_constant()) std::swap(args[0], args[1]);
  if (args.size() == 2 && info(op).result == ResultRule::boolean && args[0]->dtype == DType::index) {
    if (Expr e = compare_indices(*this, op, args[0], args[1])) return e;
  }
  if (Expr e = args.size() == 1 ? fold_unary(op, args[0]) : fold_binary(op, args[0], args[1])) return e;
  return make_op(*this, op, result, std::move(args));
}

Expr ExprPool::cast(Expr value, DType to) {
  CHECK(value && value->pool == this, "null, or of another pool");
  CHECK(to == compute_type(to), "values are computed in f32; stores round");
  if (value->dtype == to) return value;
  if (value->is_constant()) return make_constant(*this, convert(value_of(value), value->dtype, to), to);
  if (value->is_op(ScalarOp::cast)) {
    Expr inner = value->args[0];
    if (is_lossless(inner->dtype, value->dtype)) return cast(inner, to);
  }
  return make_op(*this, ScalarOp::cast, to, {value});
}

Expr ExprPool::checked_index(Expr value, Expr bound) {
  CHECK(value && bound && value->pool == this && bound->pool == this, "null, or of another pool");
  CHECK(value->dtype == DType::i64 && bound->dtype == DType::index, "an i64 value and an index bound");
  const bool decided = value->is_constant() && bound->is_constant() && value->bits >= 0 && value->bits < bound->bits;
  if (decided) return index(value->bits);  // an index out of range stays: the call must fail
  return make_op(*this, ScalarOp::checked_index, DType::index, {value, bound});
}

}  // namespace coil
