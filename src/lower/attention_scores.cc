#include "lower/attention_scores.h"

#include <algorithm>

#include "loop/simplify_body.h"

namespace coil {

Expr AttentionScores::at_point(Expr e) const { return simplify_body(e, sizes_); }

// The value that an elementwise definition gives to what is read; null if it has another one. It is part of the pattern then.
Expr AttentionScores::inlined(Expr load) {
  if (!load || load->kind != ExprKind::load) return Expr();
  const BufferId id(load->id);
  const auto* def = defined_as<Pointwise>(id);
  if (!def) return Expr();
  met_.insert(id);
  return at_point(substitute_vars(def->body, load->args));
}

// The same through copies, views and conversions: weights that are rounded behind a softmax in float32 are those before.
Expr AttentionScores::followed(Expr e) {
  while (e) {
    const Expr source = without_cast(e), value = inlined(source);
    if (!value) return e;
    e = value;
  }
  return e;
}

bool AttentionScores::is_of_row(Expr e) const {
  return e && e->kind == ExprKind::load && std::none_of(e->args.begin(), e->args.end(), [](Expr c) { return depends_on_var(c, 3); });
}

// What a reduction over the columns reduces, at the point's own column.
Expr AttentionScores::row_reduction(Expr load, ReduceOp op) {
  if (!is_of_row(load)) return Expr();
  const BufferId id(load->id);
  const auto* def = defined_as<Reduction>(id);
  if (!def || def->op != op || def->domain.size() != 1 || !provably_equal(def->domain[0], sizes_[3])) return Expr();
  met_.insert(id);
  std::vector<Expr> vars = load->args;
  vars.push_back(pool_.var(3));
  return at_point(substitute_vars(def->body, vars));
}

// The row's largest number as it is subtracted: itself, or 0 for -inf.
Expr AttentionScores::top_of(Expr e) const {
  if (!e->is_op(ScalarOp::select)) return is_of_row(e) ? e : Expr();
  const bool safe = is_number(e->args[1], 0) && e->args[0]->is_op(ScalarOp::eq) && e->args[0]->args[0] == e->args[2] && is_minus_infinity(e->args[0]->args[1]);
  return safe && is_of_row(e->args[2]) ? e->args[2] : Expr();
}

bool AttentionScores::is_exponential(Expr e, Expr scores, Expr top) const {
  if (!e || !e->is_op(ScalarOp::exp) || !e->args[0]->is_op(ScalarOp::sub)) return false;
  return e->args[0]->args[0] == scores && top_of(e->args[0]->args[1]) == top;
}

// Of exp(x - max) / sum the x.
Expr AttentionScores::softmax_source(Expr e) {
  if (!e || !e->is_op(ScalarOp::div) || !e->args[0]->is_op(ScalarOp::exp) || !e->args[0]->args[0]->is_op(ScalarOp::sub)) return Expr();
  const Expr scores = e->args[0]->args[0]->args[0], top = top_of(e->args[0]->args[0]->args[1]);
  if (scores->kind != ExprKind::load || !top) return Expr();
  if (row_reduction(top, ReduceOp::max) != scores || !is_exponential(row_reduction(e->args[1], ReduceOp::sum), scores, top)) return Expr();
  return scores;
}

// Whether nothing of the row counts: not any(not (x == -inf)), or that its exponentials, which `quotient` is divided by, have the sum 0.
bool AttentionScores::is_empty_row(Expr e, Expr scores, Expr quotient) {
  if (e->is_op(ScalarOp::eq)) return e->args[0] == quotient->args[1] && is_number(e->args[1], 0);
  const Expr inverse = inlined(e);
  if (!inverse || !inverse->is_op(ScalarOp::logical_not)) return false;
  Expr some = row_reduction(inverse->args[0], ReduceOp::any);
  if (some && some->kind == ExprKind::load) some = inlined(some);
  if (!some || !some->is_op(ScalarOp::logical_not)) return false;
  Expr none = some->args[0];
  if (none->kind == ExprKind::load) none = inlined(none);
  if (!none || !none->is_op(ScalarOp::eq)) return false;
  const size_t infinite = is_minus_infinity(none->args[0]) ? 0 : 1;
  return is_minus_infinity(none->args[infinite]) && at_point(none->args[1 - infinite]) == scores;
}

std::optional<AttentionScores::Weights> AttentionScores::weights(Expr weights, const std::vector<Expr>& sizes) {
  sizes_ = sizes;
  met_.clear();
  Expr body = followed(at_point(weights)), empty;
  if (!body) return std::nullopt;
  body = without_cast(body);
  if (body->is_op(ScalarOp::select) && is_number(body->args[1], 0)) {
    empty = body->args[0];
    body = without_cast(followed(body->args[2]));
  }
  const Expr source = softmax_source(body);
  if (!source || (empty && !is_empty_row(empty, source, body))) return std::nullopt;
  return Weights{source, static_cast<bool>(empty)};
}

std::optional<AttentionScores::Scores> AttentionScores::scores(Expr e) {
  if (e->kind == ExprKind::load) {
    const BufferId id(e->id);
    if (const auto* g = defined_as<Gemm>(id)) {
      met_.insert(id);
      Scores s;
      s.product = g, s.at = e->args;
      return s;
    }
    const Expr value = inlined(e);
    return value ? scores(value) : std::nullopt;
  }
  if (e->is_op(ScalarOp::add)) return sum(e);
  if (e->is_op(ScalarOp::select)) return filled(e);
  return e->is_op(ScalarOp::mul) || e->is_op(ScalarOp::div) ? scaled(e) : std::nullopt;
}

std::optional<AttentionScores::Scores> AttentionScores::sum(Expr e) {
  const std::set<BufferId> before = met_;
  for (size_t side : {0u, 1u}) {
    std::optional<Scores> s = scores(e->args[side]);
    const bool apart = s && (!s->highest_fill || is_lowest(*s->highest_fill));  // what is added leaves a fill where it is
    if (apart && (!s->mask || e->args[1 - side]->dtype == s->mask->dtype)) {
      s->adds = true;
      s->mask = s->mask ? pool_.op(ScalarOp::add, {s->mask, e->args[1 - side]}) : e->args[1 - side];
      return s;
    }
    met_ = before;
  }
  return std::nullopt;
}

std::optional<AttentionScores::Scores> AttentionScores::scaled(Expr e) {
  const size_t constant = e->args[0]->is_constant() && e->is_op(ScalarOp::mul) ? 0 : 1;
  if (!e->args[constant]->is_constant()) return std::nullopt;
  std::optional<Scores> s = scores(e->args[1 - constant]);
  if (!s || s->mask) return std::nullopt;
  const double factor = e->args[constant]->as_double();
  s->scale *= e->is_op(ScalarOp::mul) ? factor : 1 / factor;
  return s;
}

// Scores some of which are replaced by a number: a negative one, lower than what is added to scores.
std::optional<AttentionScores::Scores> AttentionScores::filled(Expr e) {
  const size_t filler = e->args[1]->is_constant() ? 1 : 2;
  if (!e->args[filler]->is_constant() || !is_float(e->dtype)) return std::nullopt;
  const double number = static_cast<float>(e->args[filler]->as_double());
  std::optional<Scores> s = number < 0 ? scores(e->args[3 - filler]) : std::nullopt;
  if (!s || (s->adds && !is_lowest(number))) return std::nullopt;
  const Expr before = s->mask ? s->mask : pool_.constant(0, DType::f32);
  s->highest_fill = std::max(number, s->highest_fill.value_or(number));
  s->mask = pool_.select(masks_.condition(e->args[0], filler == 2), before, pool_.constant(number, before->dtype));
  return s;
}

}  // namespace coil
