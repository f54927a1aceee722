#include "lower/attention_mask.h"

#include <algorithm>

#include "loop/simplify_body.h"
#include "lower/find_attention.h"

namespace coil {
namespace {

// Added to a score, it weighs nothing beside one that is not hidden: what PyTorch makes of booleans for cuDNN, and float16's lowest number.
constexpr double kHides = -65504;

// Between 0 and a number that hides.
bool is_choice(Expr e) { return e->is_op(ScalarOp::select) && is_number(e->args[1], 0) && e->args[2]->is_constant() && e->args[2]->as_double() <= kHides; }

bool is_on_positions(Expr e) { return e->kind == ExprKind::op && e->args.size() == 2 && e->args[0]->dtype == DType::index; }

}  // namespace

bool is_number(Expr e, double v) { return e && e->is_constant() && is_float(e->dtype) && e->as_double() == v; }
bool is_minus_infinity(Expr e) { return e && e->is_constant() && is_float(e->dtype) && e->as_double() < 0 && e->as_double() * 0 != 0; }
bool is_lowest(double number) { return number <= -1e9; }

// What elementwise loops compute, down to what they read; so many reads at most.
Expr AttentionMasks::expanded(Expr e, int& reads) const {
  return rewrite(e, [&](Expr leaf) {
    if (leaf->kind != ExprKind::load) return Expr();
    const Expr body = stored_(BufferId(leaf->id));
    return body && --reads >= 0 ? expanded(substitute_vars(body, leaf->args), reads) : Expr();
  });
}

Expr AttentionMasks::expanded(Expr e) const {
  int reads = 64;
  return expanded(e, reads);
}

// A comparison of one of two numbers with a third (tril(ones) == 0), or its truth, is their condition, or its opposite.
Expr AttentionMasks::without_choice(Expr e) const {
  if (e->is_op(ScalarOp::logical_not)) return opposite(without_choice(e->args[0]));
  if (e->is_op(ScalarOp::logical_and)) {
    const Expr a = without_choice(e->args[0]), b = without_choice(e->args[1]), always = pool_.boolean(true);
    return a == always ? b : b == always ? a : pool_.op(ScalarOp::logical_and, {a, b});
  }
  const bool equal = e->is_op(ScalarOp::eq), converted = e->is_op(ScalarOp::cast) && is_bool(e->dtype);
  if (converted && is_bool(e->args[0]->dtype)) return without_choice(e->args[0]);
  if (!equal && !converted && !e->is_op(ScalarOp::ne)) return e;
  Expr choice = e->args[0];
  while (choice->is_op(ScalarOp::cast)) choice = choice->args[0];
  if (!choice->is_op(ScalarOp::select) || !choice->args[1]->is_constant() || !choice->args[2]->is_constant() || (!converted && !e->args[1]->is_constant()))
    return e;
  const double to = converted ? 0 : e->args[1]->as_double();
  // Conversions between leave small counts as they are.
  const auto is_count = [](Expr c) { return c->as_double() >= 0 && c->as_double() <= 127; };
  if (choice != e->args[0] && (!is_count(choice->args[1]) || !is_count(choice->args[2]))) return e;
  const bool first = (choice->args[1]->as_double() == to) == equal, second = (choice->args[2]->as_double() == to) == equal;
  if (first == second) return e;
  const Expr chosen = without_choice(choice->args[0]);
  return first ? chosen : opposite(chosen);
}

Expr AttentionMasks::opposite(Expr e) const {
  if (e->is_op(ScalarOp::logical_not)) return e->args[0];
  if (is_on_positions(e)) {
    const Expr a = e->args[0], b = e->args[1];
    switch (e->op) {
      case ScalarOp::lt: return index_at_least(a, b);
      case ScalarOp::ge: return index_less(a, b);
      case ScalarOp::gt: return index_at_least(b, a);
      case ScalarOp::le: return index_less(b, a);
      default: break;
    }
  }
  return pool_.op(ScalarOp::logical_not, {e});
}

Expr AttentionMasks::condition(Expr e, bool holds) const {
  const Expr positions = without_choice(expanded(e));
  if (is_on_positions(positions)) return holds ? positions : opposite(positions);
  return holds ? e : opposite(e);
}

// Whether rows or columns of a mask, or copies of a single one, stand side by side in memory.
bool AttentionMasks::is_dense(std::span<const Expr> at) const {
  if (at.empty()) return true;
  for (int32_t v : {2, 3}) {
    if (at.back() == pool_.var(v)) return std::none_of(at.begin(), at.end() - 1, [&](Expr c) { return depends_on_var(c, v); });
  }
  return std::none_of(at.begin(), at.end(), [&](Expr c) { return depends_on_var(c, 3); });
}

bool AttentionMasks::is_readable(const Attention& a, Expr mask) const {
  if (mask->kind != ExprKind::load) return false;
  if (is_bool(mask->dtype)) return true;
  const DType type = program_.buffer(BufferId(mask->id)).dtype;
  return (type == DType::f32 || type == program_.buffer(a.q.buffer).dtype) && is_dense(mask->args);
}

bool AttentionMasks::is_flag(Attention& a, Expr mask) const {
  const std::vector<Expr> sizes{a.batch, a.heads, a.q_len, a.kv_len};
  const Expr value = simplify_body(expanded(mask), sizes);
  if (is_number(value, 0)) return true;
  Expr seen;
  if (is_bool(value->dtype)) seen = without_choice(value);
  else if (is_choice(value)) seen = without_choice(value->args[0]);
  else if (value->is_op(ScalarOp::select) && is_choice(pool_.select(value->args[0], value->args[2], value->args[1])))
    seen = opposite(without_choice(value->args[0]));
  else return false;
  if (seen == pool_.boolean(true)) return true;
  if (!is_causal(seen)) return false;
  a.causal = true;  // every row sees the first key, beside which a number that hides weighs nothing
  return true;
}

void AttentionMasks::set(Attention& a, Expr mask, std::vector<Loop>& loops) const {
  if (is_flag(a, mask)) {
    a.highest_fill.reset();  // nothing is left that fills
    return;
  }
  const Expr stored = mask->kind == ExprKind::load ? stored_(BufferId(mask->id)) : Expr();
  const Expr value = stored ? substitute_vars(stored, mask->args) : mask;
  if (is_choice(value) && value->args[0]->kind == ExprKind::load && is_minus_infinity(value->args[2])) mask = value->args[0];  // a condition
  if (is_readable(a, mask)) {
    a.mask = Operand{BufferId(mask->id), mask->args};
    return;
  }
  const std::vector<Expr> full{a.batch, a.heads, a.q_len, a.kv_len};
  BufferInfo info;
  info.name = "attention.mask_" + std::to_string(program_.buffers.size());
  info.dtype = DType::f32;
  std::vector<Expr> at;
  for (int32_t d = 0; d < 4; ++d) {
    const bool used = depends_on_var(mask, d);
    info.sizes.push_back(used ? full[static_cast<size_t>(d)] : pool_.index(1));
    at.push_back(used ? pool_.var(d) : pool_.index(0));
  }
  Expr body = simplify_body(pool_.cast(mask, DType::f32), info.sizes);
  program_.buffers.push_back(std::move(info));
  const BufferId id(program_.buffers.size() - 1);
  loops.push_back({Pointwise{body}, {id}, "attention.mask", {}});
  a.mask = Operand{id, at};
}

bool is_causal(Expr e) {
  if (e->kind != ExprKind::op || e->args.size() != 2 || e->args[0]->dtype != DType::index) return false;
  Expr distance = e->pool->var(2) - e->pool->var(3), a = e->args[0], b = e->args[1];
  switch (e->op) {  // the condition is: some index >= 0
    case ScalarOp::ge: return provably_equal(a - b, distance);
    case ScalarOp::le: return provably_equal(b - a, distance);
    case ScalarOp::lt: return provably_equal(b - a - 1, distance);
    case ScalarOp::gt: return provably_equal(a - b - 1, distance);
    default: return false;
  }
}

}  // namespace coil
