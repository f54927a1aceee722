#include "codegen/cpu/emit_expr.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "codegen/cpu/loop_form.h"
#include "loop/guard_positions.h"

namespace coil::cpu {
namespace {

Expr zero_of(Expr e) { return e->pool->cast(e->pool->constant_int(0, DType::i64), e->dtype); }

// By operation, which of device/math_*.h has its function; "core": what every kernel includes.
constexpr std::string_view kHeaders[] = {
#define OP(name, arity, result, cost, infix, header, ...) #header,
#include "ops/scalar_ops.def"
#undef OP
};

}  // namespace

bool ExprEmitter::vector_temps(Expr e) const {
  return any_of(e, [&](Expr n) {
    if (n->kind != ExprKind::temp) return false;
    const auto it = context_.temps.find(n->id);
    return it != context_.temps.end() && it->second.second;
  });
}

ExprEmitter::Text ExprEmitter::name(Text t, const char* prefix) {
  const std::string n = prefix + std::to_string(next_name_++);
  out_ += fmt::format("{}const auto {} = {};\n", indent_, n, t.text);
  return {n, t.vector};
}

ExprEmitter::Text ExprEmitter::value(Expr e) {
  const auto it = memo_.find(e.node());
  if (it != memo_.end()) return it->second;
  Text t = make(e);
  if (e->kind == ExprKind::op || e->kind == ExprKind::load) t = name(t, e->kind == ExprKind::load ? "x" : "v");
  memo_.emplace(e.node(), t);
  return t;
}

std::string ExprEmitter::vector_value(Expr e) {
  const Text t = value(e);
  return context_.lane_var >= 0 ? vec(t) : t.text;
}

ExprEmitter::Text ExprEmitter::make(Expr e) {
  if (e->dtype == DType::index) return index_value(e);
  switch (e->kind) {
    case ExprKind::constant: return {scalar_literal(e), false};
    case ExprKind::load: return load(e);
    case ExprKind::temp: {
      const auto& t = context_.temps.at(e->id);
      return {t.first, t.second};
    }
    case ExprKind::op: break;
    default: CHECK(false, "not a value expression");
  }
  if (e->op == ScalarOp::masked) return masked(e);
  if (const Expr x = erf_beside_one(e)) {
    names_.need_header("math_erf.h");
    const Text t = value(x);
    return {fmt::format("cd::one_plus_erf({})", t.text), t.vector};
  }
  if (const std::optional<std::string> small = of_small_indices(e)) return {*small, true};
  if (const std::string_view header = kHeaders[static_cast<size_t>(e->op)]; header != "core") names_.need_header(fmt::format("math_{}.h", header));
  std::vector<Text> args;
  bool vector = false;
  for (Expr a : e->args) {
    args.push_back(value(a));
    vector |= args.back().vector;
  }
  if (e->op == ScalarOp::cast) return {fmt::format("cd::cast<{}>({})", register_type(e->dtype), args[0].text), vector};
  std::string text = fmt::format("cd::{}(", info(e->op).name);
  for (size_t i = 0; i < args.size(); ++i) {
    const bool condition = e->op == ScalarOp::select && i == 0;  // a scalar condition chooses whole vectors
    text += (i ? ", " : "") + (vector && !condition ? vec(args[i]) : args[i].text);
  }
  return {text + ")", vector};
}

// A load's way depends on how its offset moves with the lanes: not at all, by one, by a stride, or freely.
ExprEmitter::Text ExprEmitter::load(Expr e) {
  if (const auto known = context_.known.find(e.node()); known != context_.known.end()) return {known->second, true};
  const Expr offset = e->args[0];
  std::string p;
  if (e->id >= kScratchBase) {
    p = context_.scratch.at(e->id - kScratchBase);
  } else {
    p = names_.pointer(BufferId(e->id));
    if (!lane_mask_.empty()) p = some_element(BufferId(e->id), p);
  }
  if (!lanes(offset)) {
    // Where no lane counts, the element need not exist.
    const std::string at = mixed_mask_ ? fmt::format("(cd::any_lane({}) ? {} : 0)", counted_lanes(), index(offset)) : index(offset);
    return {fmt::format("cd::load1({} + {})", p, at), false};
  }
  const std::string tail = context_.tail.empty() ? "" : "_tail", count = context_.tail.empty() ? "" : ", " + context_.tail;
  const auto affine = vector_temps(offset) ? std::nullopt : as_affine(offset, context_.lane_var);
  if (affine && lane_mask_.empty()) {
    const Expr step = affine->coefficient;
    if (step == step->pool->index(1)) return {fmt::format("cd::load{}({} + {}{})", tail, p, index(offset), count), true};
    return {fmt::format("cd::load_strided{}({} + {}, {}{})", tail, p, index(offset), index(step), count), true};
  }
  if (affine && affine->coefficient == offset->pool->index(1)) return {fmt::format("cd::load_masked({} + {}, {})", p, index(offset), counted_lanes()), true};
  const bool small = fits_32(offset);
  std::string at = lane_index(offset, small ? Bits::i32 : Bits::i64);
  if (!lane_mask_.empty()) at = fmt::format("cd::select({}, {}, cd::vec(({})0))", lane_mask_, at, small ? "cd::i32" : "cd::i64");
  return {fmt::format("cd::gather{}({}, {}{})", tail, p, at, count), true};
}

// Lanes that do not count load element 0. Of an empty buffer there is none, and its address may be null.
std::string ExprEmitter::some_element(BufferId buffer, const std::string& pointer) {
  const BufferInfo& info = names_.plan().buffer(buffer).info;
  std::vector<Expr> unsure;
  for (Expr size : info.sizes) {
    if (!provably_nonnegative(size - 1)) unsure.push_back(size);
  }
  if (unsure.empty()) return pointer;
  return fmt::format("({} ? {} : (const {}*)cd::nothing)", index(product(*unsure[0]->pool, unsure)), pointer, memory_type(info.dtype));
}

ExprEmitter::Text ExprEmitter::index_value(Expr e) {
  if (lanes(e)) return {lane_index(e), true};
  return {fmt::format("(cd::i64)({})", index(e)), false};
}

// The second operand is evaluated only where the first holds: a branch, or lanes whose loads are redirected.
ExprEmitter::Text ExprEmitter::masked(Expr e) {
  const std::optional<std::string> whole = of_whole_vector(e->args[0]);
  const Text condition = whole ? Text{*whole, false} : value(e->args[0]);
  if (condition.vector) return masked_lanes(e, condition.text);
  const bool vector = lanes(e), either_side = checks_on_both_sides(e);
  const auto text = [&](const Text& t) { return vector ? vec(t) : t.text; };
  const std::string n = "m" + std::to_string(next_name_++);
  const auto branch = [&](Expr side) {
    const auto saved = memo_;
    const std::string saved_indent = indent_;
    indent_ += "  ";
    const Text result = value(side);
    out_ += fmt::format("{}{} = {};\n{}}}", indent_, n, text(result), saved_indent);
    indent_ = saved_indent;
    memo_ = saved;
  };
  const Text first = either_side ? Text{scalar_literal(zero_of(e)), false} : value(e->args[2]);
  out_ += fmt::format("{}auto {} = {};\n{}if ({}) {{\n", indent_, n, text(first), indent_, condition.text);
  branch(e->args[1]);
  if (either_side) {
    out_ += " else {\n";
    branch(e->args[2]);
  }
  out_ += "\n";
  return {n, vector};
}

ExprEmitter::Text ExprEmitter::masked_lanes(Expr e, const std::string& condition) {
  const Text other = value(e->args[2]);
  const std::string outer = lane_mask_;
  const bool outer_mixed = mixed_mask_;
  const auto saved = memo_;
  lane_mask_ = outer.empty() ? condition : fmt::format("cd::logical_and({}, {})", outer, condition);
  mixed_mask_ = outer_mixed || !of_lanes_alone(e->args[0]);
  // Values that the text has for more lanes are good for fewer; masked loads must not leak out.
  const Text inside = value(e->args[1]);
  memo_ = saved;
  lane_mask_ = outer;
  mixed_mask_ = outer_mixed;
  return {fmt::format("cd::select({}, {}, {})", condition, vec(inside), vec(other)), true};
}

std::optional<std::string> ExprEmitter::of_whole_vector(Expr e) {
  if (!context_.whole_steps || context_.lane_var < 0 || !lane_mask_.empty() || e->kind != ExprKind::op || e->args.size() != 2) return std::nullopt;
  if (e->op == ScalarOp::logical_and) {
    const std::optional<std::string> a = of_whole_vector(e->args[0]), b = of_whole_vector(e->args[1]);
    return a && b ? std::optional(fmt::format("({} && {})", *a, *b)) : std::nullopt;
  }
  if ((e->op != ScalarOp::lt && e->op != ScalarOp::ge) || e->args[0]->dtype != DType::index) return std::nullopt;
  const Expr bound = e->pool->var(context_.lane_var) - (e->args[0] - e->args[1]);  // lane < bound, lane >= bound
  if (!bound->is_constant() || bound->as_int() % kMaxLanes != 0) return std::nullopt;
  return fmt::format("{} {} {}", context_.vars.at(static_cast<size_t>(context_.lane_var)), e->op == ScalarOp::lt ? "<" : ">=", bound->as_int());
}

std::string ExprEmitter::counted_lanes() const {
  return context_.tail.empty() ? lane_mask_ : fmt::format("cd::logical_and(cd::tail({}), {})", context_.tail, lane_mask_);
}

// Whether a condition tells lanes apart by their number alone. Then what all lanes share is as good for no lane as for some.
bool ExprEmitter::of_lanes_alone(Expr condition) const {
  return !any_of(condition, [&](Expr n) {
    return n->kind == ExprKind::load || n->kind == ExprKind::temp || n->is_op(ScalarOp::checked_index) ||
           (n->kind == ExprKind::var && n->id != context_.lane_var);
  });
}

std::string ExprEmitter::index(Expr e) {
  switch (e->kind) {
    case ExprKind::constant: return std::to_string(e->as_int()) + (std::abs(e->as_int()) > INT32_MAX ? "L" : "");
    case ExprKind::symbol: return fmt::format("s[{}]", names_.symbol_number(e->id));
    case ExprKind::var: return context_.vars.at(static_cast<size_t>(e->id));
    default: break;
  }
  CHECK(e->kind == ExprKind::op, "not an index expression");
  if (const auto row = context_.rows.find(e.node()); row != context_.rows.end()) return row->second;
  if (e->op == ScalarOp::checked_index) {
    const std::string counted = lane_mask_.empty() ? "" : ", " + counted_lanes();
    return fmt::format("cd::checked_index({}, {}, a.flag{})", value(e->args[0]).text, index(e->args[1]), counted);
  }
  if (e->op == ScalarOp::cast) return value(e->args[0]).text;
  std::string text = "(";
  if (e->op == ScalarOp::iadd || e->op == ScalarOp::imul) {
    for (size_t i = 0; i < e->args.size(); ++i) text += (i ? (e->op == ScalarOp::iadd ? " + " : " * ") : "") + index(e->args[i]);
    return text + ")";
  }
  const std::string x = index(e->args[0]), y = index(e->args[1]);
  const bool plain = provably_nonnegative(e->args[0], {context_.sizes});
  switch (e->op) {
    case ScalarOp::idiv: return plain ? fmt::format("({} / {})", x, y) : fmt::format("cd::floor_div((cd::i64)({}), (cd::i64)({}))", x, y);
    case ScalarOp::imod: return plain ? fmt::format("({} % {})", x, y) : fmt::format("cd::remainder((cd::i64)({}), (cd::i64)({}))", x, y);
    case ScalarOp::imin: return fmt::format("cd::minimum((cd::i64)({}), (cd::i64)({}))", x, y);
    case ScalarOp::imax: return fmt::format("cd::maximum((cd::i64)({}), (cd::i64)({}))", x, y);
    default: CHECK(false, "unexpected index operation");
  }
  return text;
}

// Whether an index and all that it is computed from fit 32 bits. Data that serves as an index does where it is checked against a size that does.
bool ExprEmitter::fits_32(Expr e) const {
  const auto upper = upper_bound(e, {context_.sizes}), lower = lower_bound(e, {context_.sizes});
  if (!upper || !lower || *upper > INT32_MAX || *lower < INT32_MIN || vector_temps(e)) return false;
  if (!lanes(e)) return true;
  if (e->kind != ExprKind::op) return e->kind == ExprKind::var;
  if (e->op == ScalarOp::checked_index) return true;
  if (e->op == ScalarOp::cast) return false;
  return std::all_of(e->args.begin(), e->args.end(), [&](Expr a) { return fits_32(a); });
}

Expr ExprEmitter::small_index(Expr value) const {
  if (value->kind == ExprKind::constant && value->dtype == DType::i64) value = value->pool->index(value->as_int());
  if (value->is_op(ScalarOp::cast) && value->dtype == DType::i64 && value->args[0]->dtype == DType::index) value = value->args[0];
  return value->dtype == DType::index && fits_32(value) ? value : Expr();
}

// Comparisons and floats of indices: in 32 bits they take half the registers, and x86 has instructions for them.
std::optional<std::string> ExprEmitter::of_small_indices(Expr e) {
  if (context_.lane_var < 0 || !lanes(e)) return std::nullopt;
  if (e->op == ScalarOp::cast) {
    const Expr index = is_float(e->dtype) || e->dtype == DType::i32 ? small_index(e->args[0]) : Expr();
    if (!index || !lanes(index)) return std::nullopt;
    return fmt::format("cd::cast<{}>({})", register_type(e->dtype), lane_index(index, Bits::i32));
  }
  switch (e->op) {
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge: break;
    default: return std::nullopt;
  }
  const Expr a = small_index(e->args[0]), b = small_index(e->args[1]);
  if (!a || !b) return std::nullopt;
  const std::string x = lane_index(a, Bits::i32), y = lane_index(b, Bits::i32);
  return fmt::format("cd::{}({}, {})", info(e->op).name, x, y);
}

// An index that differs from lane to lane.
std::string ExprEmitter::lane_index(Expr e, Bits bits) {
  const char* type = bits == Bits::i32 ? "cd::i32" : "cd::i64";
  if (!lanes(e)) return fmt::format("cd::vec(({})({}))", type, index(e));
  if (e->kind == ExprKind::var) return fmt::format("cd::add(cd::vec(({}){}), cd::iota{}())", type, index(e), bits == Bits::i32 ? "32" : "");
  CHECK(e->kind == ExprKind::op, "not an index expression");
  if (e->op == ScalarOp::checked_index) {
    const std::string at = checked_lanes(e);
    return bits == Bits::i32 ? fmt::format("cd::cast<cd::i32>({})", at) : at;
  }
  if (e->op == ScalarOp::cast) return vec(value(e->args[0]));
  if (e->op == ScalarOp::idiv || e->op == ScalarOp::imod) return lane_division(e, bits);
  const char* f = e->op == ScalarOp::iadd ? "add" : e->op == ScalarOp::imul ? "mul" : e->op == ScalarOp::imin ? "minimum" : "maximum";
  std::string text = lane_index(e->args[0], bits);
  for (size_t i = 1; i < e->args.size(); ++i) text = fmt::format("cd::{}({}, {})", f, text, lane_index(e->args[i], bits));
  return name({text, true}, "n").text;
}

// Data as an index, 64 bits. Only lanes that count may raise the flag.
std::string ExprEmitter::checked_lanes(Expr e) {
  std::string v = vec(value(e->args[0]));
  if (!lane_mask_.empty()) return fmt::format("cd::checked_index({}, (cd::i64)({}), a.flag, {})", v, index(e->args[1]), counted_lanes());
  if (!context_.tail.empty()) v = fmt::format("cd::select(cd::tail({}), {}, cd::vec((cd::i64)0))", context_.tail, v);
  return fmt::format("cd::checked_index({}, (cd::i64)({}), a.flag)", v, index(e->args[1]));
}

// There is no vector instruction for it: powers of two shift, what fits 31 bits goes through double.
std::string ExprEmitter::lane_division(Expr e, Bits bits) {
  const bool quotient = e->op == ScalarOp::idiv;
  const Expr a = e->args[0], b = e->args[1];
  const std::string x = lane_index(a, bits);
  if (b->is_constant() && std::has_single_bit(static_cast<uint64_t>(b->as_int()))) {
    const int64_t n = b->as_int();
    return name({quotient ? fmt::format("cd::shift_div({}, {})", x, std::countr_zero(static_cast<uint64_t>(n))) : fmt::format("cd::mask_rem({}, {})", x, n - 1),
                 true},
                "n")
        .text;
  }
  const auto fits = [&](Expr part) { return upper_bound(part, {context_.sizes}).value_or(INT64_MAX) <= INT32_MAX; };
  const bool small = provably_nonnegative(a, {context_.sizes}) && fits(a) && fits(b);
  if (small && bits == Bits::i32 && b->is_constant() && b->as_int() > 0) {
    const bool single = *upper_bound(a, {context_.sizes}) < (1 << 21);
    const std::string whole = fmt::format("cd::quotient({}, {:a}{})", x, 1.0 / static_cast<double>(b->as_int()), single ? "f" : "");
    return name({quotient ? whole : fmt::format("cd::sub({}, cd::mul({}, cd::vec((cd::i32)({}))))", x, whole, b->as_int()), true}, "n").text;
  }
  const char* f = small ? (quotient ? "small_div" : "small_rem") : (quotient ? "floor_div" : "remainder");
  return name({fmt::format("cd::{}({}, {})", f, x, lane_index(b, bits)), true}, "n").text;
}

void ExprEmitter::store(const std::string& p, Expr offset, Expr v, Expr condition, bool streams) {
  if (condition) {
    const Text holds = value(condition);
    CHECK(!holds.vector, "a store of some lanes only");
    out_ += fmt::format("{}if ({}) {{\n", indent_, holds.text);
    const auto saved = memo_;
    indent_ += "  ";
    store(p, offset, v);
    indent_.resize(indent_.size() - 2);
    memo_ = saved;
    out_ += indent_ + "}\n";
    return;
  }
  const bool vector = context_.lane_var >= 0;
  const Text t = value(v);
  if (!vector) {
    out_ += fmt::format("{}cd::store1({} + {}, {});\n", indent_, p, index(offset), t.text);
    return;
  }
  const std::string tail = context_.tail.empty() ? "" : "_tail", count = context_.tail.empty() ? "" : ", " + context_.tail;
  const auto affine = as_affine(offset, context_.lane_var);
  if (!affine) {
    const std::string at = lane_index(offset, fits_32(offset) ? Bits::i32 : Bits::i64);
    out_ += fmt::format("{}cd::scatter{}({}, {}, {}{});\n", indent_, tail, p, at, vec(t), count);
  } else if (affine->coefficient == offset->pool->index(1)) {
    out_ += fmt::format("{}cd::{}{}({} + {}, {}{});\n", indent_, streams && tail.empty() ? "stream" : "store", tail, p, index(offset), vec(t), count);
  } else {
    const std::string at = index(offset), step = index(affine->coefficient);
    out_ += fmt::format("{}cd::store_strided{}({} + {}, {}, {}{});\n", indent_, tail, p, at, vec(t), step, count);
  }
}

void ExprEmitter::store_lanes(const std::string& address, Expr v) {
  const std::string text = vector_value(v);
  out_ += fmt::format("{}cd::store({}, {});\n", indent_, address, text);
}

}  // namespace coil::cpu
