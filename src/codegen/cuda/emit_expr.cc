#include "codegen/cuda/emit_expr.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/index_text.h"
#include "device/alignment.h"
#include "loop/guard_positions.h"

namespace coil::cuda {
namespace {

// What is only due where the condition does not hold: b of masked(x < y, a, masked(x >= y, b, ...)), checks that stand on both sides; else nothing.
Expr where_not(Expr e) {
  const Expr c = e->args[0], other = e->args[2];
  if (checks_on_both_sides(e)) return other;
  if (!other->is_op(ScalarOp::masked)) return {};
  const Expr d = other->args[0];
  const bool opposite = (c->is_op(ScalarOp::lt) && d->is_op(ScalarOp::ge)) || (c->is_op(ScalarOp::ge) && d->is_op(ScalarOp::lt));
  return opposite && c->args[0]->dtype == DType::index && c->args == d->args ? other->args[1] : Expr();
}

}  // namespace

AccessKind access_kind(KernelContext& c, BufferId buffer, Expr offset, int lane_axis, int width, bool note) {
  if (lane_axis < 0 || !depends_on_var(offset, lane_axis)) return AccessKind::same;
  const auto affine = as_affine(offset, lane_axis);
  if (width == 1 || !affine || !(affine->coefficient == offset->pool->index(1))) return AccessKind::single;
  // An index from data under the base is fine as long as its factor is a multiple of the width.
  std::set<std::string> conditions;
  if (c.skew ? affine->base != c.skew : !multiple_of(affine->base, width, &conditions)) return AccessKind::single;
  if (!note) return AccessKind::wide;
  const PlanBuffer& b = c.plan->buffer(buffer);
  const int bytes = std::min(16, byte_size(b.info.dtype) * width);
  const bool placed = b.placement.kind == Placement::Kind::arena || b.placement.kind == Placement::Kind::constant || b.placement.kind == Placement::Kind::state;
  static_assert(cd::kPlacedAlignment >= 16);
  if (!placed) c.aligned[buffer.index] = std::max(c.aligned[buffer.index], bytes);
  c.divisible.insert(conditions.begin(), conditions.end());
  return AccessKind::wide;
}

std::optional<int> ReadAhead::place(BufferId buffer, int size) {
  const int room = (size + 15) / 16 * 16;
  if (size < 8 || bytes + room > most || std::find(written.begin(), written.end(), buffer) != written.end()) return std::nullopt;
  bytes += room;
  return bytes - room;
}

bool Emitter::lanes(Expr e) const {
  if (place_.width == 1) return false;
  const auto differs = [&](Expr n) {
    if (n->kind == ExprKind::var) return n->id == place_.lane_axis;
    if (n->kind == ExprKind::temp) return temps_.at(n->id).lanes;
    if (n->kind == ExprKind::load) {
      const auto it = memo_.find(n.node());
      return it != memo_.end() && it->second.lanes;
    }
    return false;
  };
  if (!any_of(e, differs)) return false;
  const auto is_shared = [&](Expr n) { return lane_quotient(n) == LaneQuotient::shared && n->op == ScalarOp::idiv; };
  return !any_of(e, is_shared) || any_outside(e, differs, is_shared);
}

LaneQuotient Emitter::lane_quotient(Expr e) const { return c_.skew ? LaneQuotient::other : quotient_in_lanes(e, place_.lane_axis, place_.width); }

TempText Emitter::named(const std::string& text, bool lane, const char* prefix) {
  const std::string n = prefix + std::to_string(c_.next_name++);
  const bool in_body = lane || inside_mask_;
  (in_body ? *place_.body : *place_.before) += fmt::format("{}const auto {} = {};\n", in_body ? place_.body_indent : place_.before_indent, n, text);
  return {n, lane};
}

TempText Emitter::value(Expr e) {
  const auto it = memo_.find(e.node());
  if (it != memo_.end()) return it->second;
  const TempText t = make(e);
  memo_.emplace(e.node(), t);
  return t;
}

TempText Emitter::make(Expr e) {
  if (e->dtype == DType::index) return {fmt::format("(cd::i64)({})", index(e)), lanes(e)};
  switch (e->kind) {
    case ExprKind::constant: return {scalar_literal(e), false};
    case ExprKind::load: return load(e);
    case ExprKind::temp: return temps_.at(e->id);
    case ExprKind::op: break;
    default: CHECK(false, "not a value expression");
  }
  if (e->op == ScalarOp::masked) return masked(e);
  if (const Expr x = erf_beside_one(e)) {
    const TempText t = value(x);
    return named(fmt::format("cd::one_plus_erf({})", t.text), t.lanes, "v");
  }
  bool lane = false;
  std::vector<std::string> args;
  for (Expr a : e->args) {
    const TempText t = value(a);
    args.push_back(t.text);
    lane |= t.lanes;
  }
  if (e->op == ScalarOp::cast) return named(fmt::format("cd::cast<{}>({})", register_type(e->dtype), args[0]), lane, "v");
  // Points divided by what all of them share: its reciprocal is taken once.
  if (e->op == ScalarOp::div && e->dtype == DType::f32 && lane && e->args[1]->kind == ExprKind::temp && !temps_.at(e->args[1]->id).lanes && !inside_mask_) {
    args[1] = value(e->args[1]).text;
    args[1] = named(fmt::format("cd::divisor({})", args[1]), false, "by").text;
  }
  const bool quick = c_.half_results && e->dtype == DType::f32 && (e->op == ScalarOp::exp || e->op == ScalarOp::sigmoid);
  std::string text = fmt::format("cd::{}{}(", quick ? "quick_" : "", info(e->op).name);
  for (size_t i = 0; i < args.size(); ++i) text += (i ? ", " : "") + args[i];
  return named(text + ")", lane, "v");
}

TempText Emitter::load(Expr e) {
  const Expr offset = e->args[0];
  const BufferId id(e->id);
  const std::string p = pointer(id), f = c_.read_only.contains(id) ? "cd::read" : "cd::load";
  const bool lane = lanes(offset);
  if (!lane) return named(fmt::format("{}1({} + {})", f, p, index(offset)), false, "x");
  const bool data = any_of(offset, [&](Expr n) { return n->kind == ExprKind::load || n->kind == ExprKind::temp; });
  // A row chosen by data may still be read wide along it; but the data itself must not differ from lane to lane.
  bool wide = !inside_mask_ && access_kind(c_, id, offset, place_.lane_axis, place_.width, false) == AccessKind::wide;
  if (wide && data) wide = !lanes(as_affine(offset, place_.lane_axis)->base);
  if (!wide) return named(fmt::format("{}1({} + {})", f, p, index(offset)), true, "x");
  access_kind(c_, id, offset, place_.lane_axis, place_.width, true);
  const std::string n = "x" + std::to_string(c_.next_name++);
  const std::string at = index(offset, true);
  const std::string ahead = place_.ahead && !data ? read_ahead(e, at) : "";
  const std::string source = ahead.empty() ? fmt::format("{}({}, {} + {})", f, n, p, at)
                                           : fmt::format("cd::load({}, (const {}*)({}))", n, memory_type(c_.plan->buffer(id).info.dtype), ahead);
  *place_.before += fmt::format("{}{} {}[{}];\n{}{};\n", place_.before_indent, register_type(e->dtype), n, place_.width, place_.before_indent, source);
  return {n + "[v]", true};
}

// What is the same for all rows, a bias, comes from a cache.
std::string Emitter::read_ahead(Expr load, const std::string& at) {
  const BufferId id(load->id);
  const int size = byte_size(c_.plan->buffer(id).info.dtype), bytes = size * place_.width, step = std::min(bytes, 16);
  const bool own = any_of(load->args[0], [&](Expr n) { return n->kind == ExprKind::var && n->id != place_.lane_axis; });
  const std::optional<int> place = own ? place_.ahead->place(id, bytes) : std::nullopt;
  if (!place) return "";
  for (int done = 0; done < bytes; done += step) {
    place_.ahead->copies +=
        fmt::format("{0}cd::copy_async<{1}>(to + {2}, {3} + {4} + {5}, {1});\n", place_.before_indent, step, *place + done, pointer(id), at, done / size);
  }
  return fmt::format("from + {}", *place);
}

// The second operand is evaluated only where the first holds.
TempText Emitter::masked(Expr e) {
  if (can_mask_vectors(e)) return masked_vector(e);
  const TempText condition = value(e->args[0]);
  const Expr otherwise = where_not(e);
  const std::string other = otherwise ? "" : " = " + value(e->args[2]).text;
  const bool lane = lanes(e);
  const bool in_body = lane || inside_mask_;
  std::string& out = in_body ? *place_.body : *place_.before;
  std::string& indent = in_body ? place_.body_indent : place_.before_indent;
  const std::string n = "m" + std::to_string(c_.next_name++);
  out += fmt::format("{}{} {}{};\n{}if ({}) {{\n", indent, register_type(e->dtype), n, other, indent, condition.text);
  branch(e->args[1], n, out, indent);
  if (otherwise) {
    out += indent + "} else {\n";
    branch(otherwise, n, out, indent);
  }
  out += indent + "}\n";
  return {n, lane};
}

void Emitter::branch(Expr e, const std::string& result, std::string& out, std::string& indent) {
  const auto saved = memo_;
  const std::string saved_indent = indent;
  const Place saved_place = place_;
  const bool saved_inside = inside_mask_;
  indent += "  ";
  const std::string inner = indent;
  place_.body = &out;
  place_.body_indent = inner;
  inside_mask_ = true;
  const TempText inside = value(e);
  place_ = saved_place;
  inside_mask_ = saved_inside;
  indent = saved_indent;
  memo_ = saved;
  out += fmt::format("{}{} = {};\n", inner, result, inside.text);
}

// Comparisons as "less than 0" of something that grows by one from lane to lane, and begins at a multiple of the width; or shrinks, and ends
// at one.
bool Emitter::same_for_lanes(Expr e) const {
  if (!lanes(e)) return true;
  if (e->kind != ExprKind::op || c_.skew) return false;
  if (e->op == ScalarOp::logical_and || e->op == ScalarOp::logical_or || e->op == ScalarOp::logical_not)
    return std::all_of(e->args.begin(), e->args.end(), [&](Expr a) { return same_for_lanes(a); });
  const bool compares = e->op == ScalarOp::lt || e->op == ScalarOp::le || e->op == ScalarOp::gt || e->op == ScalarOp::ge;
  if (!compares || e->args[0]->dtype != DType::index) return false;
  const bool swapped = e->op == ScalarOp::gt || e->op == ScalarOp::le;  // a <= b is not b < a
  const auto difference = as_affine(swapped ? e->args[1] - e->args[0] : e->args[0] - e->args[1], place_.lane_axis);
  if (!difference || !difference->coefficient->is_constant()) return false;
  std::set<std::string> conditions;
  const int64_t step = difference->coefficient->as_int();
  const bool right =
      (step == 1 && multiple_of(difference->base, place_.width, &conditions)) || (step == -1 && multiple_of(difference->base + 1, place_.width, &conditions));
  return right && conditions.empty();
}

// Whether an expression has few nodes even if those with several readers are written for each of them.
static bool short_as_tree(Expr e, int& left) {
  return --left >= 0 && std::all_of(e->args.begin(), e->args.end(), [&](Expr a) { return short_as_tree(a, left); });
}

bool Emitter::can_mask_vectors(Expr e) const {
  int left = 100;
  if (place_.width == 1 || inside_mask_ || !lanes(e) || !short_as_tree(e->args[0], left) || !same_for_lanes(e->args[0])) return false;
  const auto reports = [](Expr n) { return n->is_op(ScalarOp::checked_index); };
  if (any_of(e->args[0], reports) || (any_of(e->args[2], reports) && !checks_on_both_sides(e))) return false;  // these are always computed
  return !any_of(e, [&](Expr n) { return (n->kind == ExprKind::temp && temps_.at(n->id).lanes) || known_lanes_.contains(n.node()); });
}

std::string Emitter::first_lane_condition(Expr e) {
  if (e->dtype == DType::index) return fmt::format("(cd::i64)({})", index(e, true));
  if (!lanes(e)) return value(e).text;
  std::string text;
  for (Expr a : e->args) text += (text.empty() ? "" : ", ") + first_lane_condition(a);
  return fmt::format("cd::{}({})", info(e->op).name, text);
}

TempText Emitter::masked_vector(Expr e) {
  const Expr otherwise = where_not(e);
  const std::string n = "m" + std::to_string(c_.next_name++), condition = first_lane_condition(e->args[0]), indent = place_.before_indent;
  std::string text = fmt::format("{}{} {}[{}];\n{}if ({}) {{\n", indent, register_type(e->dtype), n, place_.width, indent, condition);
  vector_branch(e->args[1], n, text, indent);
  text += indent + "} else {\n";
  vector_branch(otherwise ? otherwise : e->args[2], n, text, indent);
  *place_.before += text + indent + "}\n";
  return {n + "[v]", true};
}

void Emitter::vector_branch(Expr e, const std::string& result, std::string& out, const std::string& indent) {
  const auto saved = memo_;
  const Place saved_place = place_;
  // What is named within the loop over the lanes is not there yet.
  std::erase_if(memo_, [](const auto& known) { return known.second.lanes && !known.second.text.ends_with("[v]"); });
  std::string before, body;
  place_.before = &before, place_.body = &body, place_.ahead = nullptr;
  place_.before_indent = indent + "  ", place_.body_indent = indent + "    ";
  const TempText inside = value(e);
  place_ = saved_place;
  memo_ = saved;
  out += fmt::format("{0}#pragma unroll\n{1}  for (int v = 0; v < {2}; ++v) {{\n{3}{1}    {4}[v] = {5};\n{1}  }}\n", before, indent, place_.width, body, result,
                     inside.text);
}

std::string index_text(KernelContext& c, Expr e) {
  std::string ignored;
  std::map<int, TempText> none;
  return Emitter(c, {&ignored, &ignored, "", "", -1, 1}, none).index(e);
}

namespace {

bool is_product_of_sizes(Expr e) {
  return e->is_op(ScalarOp::imul) && std::all_of(e->args.begin(), e->args.end(), [](Expr n) { return n->is_constant() || n->kind == ExprKind::symbol; });
}

// As a term of an index: what cd::low_word is for. By itself (a loop's end) it stays what LLVM can count.
std::string product_of_sizes(const KernelContext& c, Expr e) {
  std::string text;
  for (const Expr n : e->args) {
    text += text.empty() ? "(" : " * ";
    text += n->is_constant() ? std::to_string(n->as_int()) : fmt::format("{}(a.s[{}])", c.index_of_data(), n->id);
  }
  return text + ")";
}

}  // namespace

std::string Emitter::index(Expr e, bool first_lane) {
  switch (e->kind) {
    case ExprKind::constant: return std::to_string(e->as_int()) + (std::abs(e->as_int()) > INT32_MAX ? "ll" : "");
    case ExprKind::symbol: return fmt::format("({})a.s[{}]", c_.index_type(), e->id);
    case ExprKind::var: {
      const std::string& v = c_.vars.at(static_cast<size_t>(e->id));
      return e->id == place_.lane_axis && place_.width > 1 && !first_lane ? "(" + v + " + v)" : v;
    }
    default: break;
  }
  CHECK(e->kind == ExprKind::op, "not an index expression");
  if (e->op == ScalarOp::checked_index) {
    return fmt::format("{}(cd::checked_index({}, {}, a.flag, a.kernel))", c_.index_of_data(), value(e->args[0]).text, index(e->args[1], first_lane));
  }
  if (e->op == ScalarOp::cast) return fmt::format("{}({})", c_.index_of_data(), value(e->args[0]).text);
  std::string text = "(";
  if (e->op == ScalarOp::iadd || e->op == ScalarOp::imul) {
    for (size_t i = 0; i < e->args.size(); ++i) {
      const bool term = e->op == ScalarOp::iadd;
      text += (i ? (term ? " + " : " * ") : "") + (term && is_product_of_sizes(e->args[i]) ? product_of_sizes(c_, e->args[i]) : index(e->args[i], first_lane));
    }
    return text + ")";
  }
  const LaneQuotient quotient = first_lane ? LaneQuotient::other : lane_quotient(e);
  if (quotient == LaneQuotient::within) {
    if (e->op == ScalarOp::imod) return fmt::format("(v % {})", e->args[1]->as_int());
    return fmt::format("({} + v / {})", index(e, true), e->args[1]->as_int());
  }
  if (quotient == LaneQuotient::shared) return e->op == ScalarOp::imod ? fmt::format("({} + v)", index(e, true)) : index(e, true);
  const std::string x = index(e->args[0], first_lane), y = index(e->args[1], first_lane), type = c_.index_type();
  const bool plain = provably_nonnegative(e->args[0], {c_.sizes});
  const char* unsigned_type = c_.wide_index ? "cd::u64" : "cd::u32";
  switch (e->op) {
    case ScalarOp::idiv:
      return plain ? fmt::format("({0})(({1})({2}) / ({1})({3}))", type, unsigned_type, x, y)
                   : fmt::format("cd::floor_div(({0})({1}), ({0})({2}))", type, x, y);
    case ScalarOp::imod:
      return plain ? fmt::format("({0})(({1})({2}) % ({1})({3}))", type, unsigned_type, x, y)
                   : fmt::format("cd::remainder(({0})({1}), ({0})({2}))", type, x, y);
    case ScalarOp::imin: return fmt::format("cd::minimum(({0})({1}), ({0})({2}))", type, x, y);
    case ScalarOp::imax: return fmt::format("cd::maximum(({0})({1}), ({0})({2}))", type, x, y);
    default: CHECK(false, "unexpected index operation");
  }
  return text;
}

// The offset is looked at only where the store happens.
void Emitter::checked_store(const std::string& to, Expr offset, const std::string& v, const std::string& condition) {
  const auto saved = memo_;
  const Place saved_place = place_;
  const bool saved_inside = inside_mask_;
  const std::string indent = place_.width > 1 ? place_.body_indent : place_.before_indent;
  std::string& out = place_.width > 1 ? *place_.body : *place_.before;
  out += fmt::format("{}if ({}) {{\n", indent, condition);
  place_.body = &out;
  place_.body_indent = indent + "  ";
  inside_mask_ = true;
  const std::string at = index(offset);
  place_ = saved_place;
  inside_mask_ = saved_inside;
  memo_ = saved;
  out += fmt::format("{0}  cd::store1({1} + {2}, {3});\n{0}}}\n", indent, to, at, v);
}

void Emitter::store(BufferId buffer, Expr offset, Expr v, Expr condition, std::string& after, const std::string& after_indent) {
  if (condition) v = v->pool->op(ScalarOp::masked, {condition, v, v->pool->cast(v->pool->constant_int(0, DType::i64), v->dtype)});
  const TempText t = value(v), holds = condition ? value(condition) : TempText{};
  const std::string p = pointer(buffer), only = condition ? fmt::format("if ({}) ", holds.text) : std::string();
  const bool wide = place_.width > 1 && !holds.lanes && access_kind(c_, buffer, offset, place_.lane_axis, place_.width, false) == AccessKind::wide &&
                    !lanes(as_affine(offset, place_.lane_axis)->base);
  if (!wide && condition && any_of(offset, [](Expr n) { return n->is_op(ScalarOp::checked_index); })) return checked_store(p, offset, t.text, holds.text);
  if (!wide) {
    std::string& out = place_.width > 1 ? *place_.body : *place_.before;
    out += fmt::format("{}{}cd::store1({} + {}, {});\n", place_.width > 1 ? place_.body_indent : place_.before_indent, only, p, index(offset), t.text);
    return;
  }
  access_kind(c_, buffer, offset, place_.lane_axis, place_.width, true);
  const std::string n = "y" + std::to_string(c_.next_name++);
  *place_.before += fmt::format("{}{} {}[{}];\n", place_.before_indent, register_type(c_.plan->buffer(buffer).info.dtype), n, place_.width);
  *place_.body += fmt::format("{}{}[v] = {};\n", place_.body_indent, n, t.text);
  after += fmt::format("{}{}cd::store({} + {}, {});\n", after_indent, only, p, index(offset, true), n);
}

}  // namespace coil::cuda
