#include "loop/bounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "loop/templates/template.h"

namespace coil {
namespace {

using Known = std::optional<int64_t>;
using SymbolValues = std::vector<int64_t>;

// The conditions that all hold where `condition` does.
void add_conditions(Expr condition, std::vector<Expr>& out) {
  if (condition->is_op(ScalarOp::logical_and)) {
    for (Expr a : condition->args) add_conditions(a, out);
  } else {
    out.push_back(condition);
  }
}

bool holds_one(const std::vector<Expr>& conditions, ScalarOp op, Expr a, Expr b) {
  return std::any_of(conditions.begin(), conditions.end(), [&](Expr c) { return c->is_op(op) && c->args[0] == a && c->args[1] == b; });
}

// One point of a domain: indices and conditions, as far as no data decides them, and the first load outside of its buffer.
class Point {
 public:
  Point(const LoopProgram& program, const SymbolValues& symbols, std::vector<int64_t> vars, int64_t& steps)
      : program_(program), symbols_(symbols), vars_(std::move(vars)), steps_(steps) {}

  Known value(Expr e) {
    if (!wrong.empty() || steps_ <= 0) return std::nullopt;
    if (const auto found = seen_.find(e.node()); found != seen_.end()) return found->second;
    --steps_;
    const Known v = compute(e);
    seen_[e.node()] = v;
    return v;
  }

  std::string wrong;

 private:
  Known compute(Expr e) {
    switch (e->kind) {
      case ExprKind::constant: return is_float(e->dtype) ? std::nullopt : Known(e->bits);
      case ExprKind::symbol:
        return static_cast<size_t>(e->id) < symbols_.size() && symbols_[static_cast<size_t>(e->id)] >= 0 ? Known(symbols_[static_cast<size_t>(e->id)])
                                                                                                         : std::nullopt;
      case ExprKind::var: return static_cast<size_t>(e->id) < vars_.size() ? Known(vars_[static_cast<size_t>(e->id)]) : std::nullopt;
      case ExprKind::load: look_at(e); return std::nullopt;
      case ExprKind::temp: return std::nullopt;
      case ExprKind::op: return compute_op(e);
    }
    return std::nullopt;
  }

  Known compute_op(Expr e) {
    if (e->is_op(ScalarOp::masked)) {
      const Known condition = value(e->args[0]);
      if (condition) return value(e->args[*condition ? 1 : 2]);
      // Who knows which loads data asks for; but a row that is not there is wrong to ask for.
      visit(e->args[1], [this](Expr x) {
        if (x->kind == ExprKind::load && std::any_of(x->args.begin(), x->args.end(), [](Expr c) { return c->is_constant(); })) look_at_constants(x);
      });
      return std::nullopt;
    }
    std::vector<Value> args;
    bool known = true;
    for (Expr a : e->args) {
      const Known v = value(a);
      known = known && v;
      args.push_back({.i = v.value_or(0)});
    }
    const bool whole = std::none_of(e->args.begin(), e->args.end(), [](Expr a) { return is_float(a->dtype); }) && !is_float(e->dtype);
    if (!known || !whole || e->is_op(ScalarOp::checked_index)) return std::nullopt;
    const bool divides =
        e->is_op(ScalarOp::div) || e->is_op(ScalarOp::floor_div) || e->is_op(ScalarOp::trunc_div) || e->is_op(ScalarOp::remainder) || e->is_op(ScalarOp::fmod);
    if (divides && args[1].i == 0) return std::nullopt;
    if ((e->is_op(ScalarOp::idiv) || e->is_op(ScalarOp::imod)) && args[1].i <= 0) return std::nullopt;
    if (e->is_op(ScalarOp::cast)) return convert(args[0], e->args[0]->dtype, e->dtype).i;
    return apply_scalar(e->op, e->args[e->is_op(ScalarOp::select) ? 1 : 0]->dtype, args).i;
  }

  void look_at_constants(Expr load) {
    const BufferInfo& b = program_.buffer(BufferId(load->id));
    for (size_t d = 0; d < load->args.size(); ++d) {
      Expr c = load->args[d];
      const bool known = c->is_constant() && b.sizes[d]->is_constant() && b.sizes[d]->as_int() > 0;  // where there is nothing, nothing may be asked for either
      if (!known || (c->as_int() >= 0 && c->as_int() < b.sizes[d]->as_int())) continue;
      wrong = fmt::format("'{}' is read at {} in dimension {}, which has {}", b.name, c->as_int(), d, b.sizes[d]->as_int());
    }
  }

  void look_at(Expr load) {
    const BufferInfo& b = program_.buffer(BufferId(load->id));
    std::string at;
    bool outside = false;
    for (size_t d = 0; d < load->args.size(); ++d) {
      Expr c = load->args[d];
      const Known size = value(b.sizes[d]);
      // Of a position from data, the last one that is allowed.
      const Known index = c->is_op(ScalarOp::checked_index) ? last_of(value(c->args[1])) : value(c);
      if (size && index && (*index < 0 || *index >= *size)) outside = true;
      at += fmt::format("{}{}", d ? ", " : "", index ? std::to_string(*index) : "?");
    }
    if (!outside || !wrong.empty()) return;
    std::string sizes;
    for (Expr s : b.sizes) sizes += (sizes.empty() ? "" : ", ") + to_string(s);
    wrong = fmt::format("'{}' of sizes [{}] is read at [{}]", b.name, sizes, at);
  }

  // An empty dimension has no position; guard_positions leaves such loads out.
  static Known last_of(Known bound) { return bound && *bound > 0 ? Known(*bound - 1) : std::nullopt; }

  const LoopProgram& program_;
  const SymbolValues& symbols_;
  const std::vector<int64_t> vars_;
  int64_t& steps_;
  std::unordered_map<const ExprNode*, Known> seen_;
};

// Examples of the values of symbols: different ones, and equal ones as far as the ranges allow; integers that are no sizes (paddings, shifts) are small ones
// as well. Unknown (-1) are those that no input gives.
std::vector<SymbolValues> examples(const LoopProgram& program, const std::vector<SizeCheck>& checks) {
  const ExprPool& pool = *program.pool;
  std::vector<bool> given(pool.num_symbols(), false);
  const auto give = [&](Expr size) {
    visit(size, [&](Expr e) {
      if (e->kind == ExprKind::symbol && !pool.symbol_info(SymbolId(e->id)).from_data) given[static_cast<size_t>(e->id)] = true;
    });
  };
  for (const BufferInfo& b : program.buffers) {
    if (b.kind == BufferInfo::Kind::input) std::for_each(b.sizes.begin(), b.sizes.end(), give);
  }
  const std::vector<bool> sizes = given;
  for (const LoopInput& in : program.inputs) {
    if (in.symint) give(in.symint);
  }
  std::vector<SymbolValues> out;
  constexpr int64_t kLikeSizes = -1;
  for (const auto& [step, integer] : {std::pair<int64_t, int64_t>{2, kLikeSizes}, {0, kLikeSizes}, {2, 1}, {2, 0}}) {
    SymbolValues values;
    for (size_t s = 0; s < pool.num_symbols(); ++s) {
      const Symbol& info = pool.symbol_info(SymbolId(s));
      const int64_t any = sizes[s] || integer == kLikeSizes ? 5 + step * static_cast<int64_t>(s) : integer, wanted = std::max<int64_t>(info.min, any);
      values.push_back(given[s] ? std::min(wanted, info.max) : -1);
    }
    const auto known = [&](Expr e) { return !any_of(e, [&](Expr x) { return x->kind == ExprKind::symbol && !given[static_cast<size_t>(x->id)]; }); };
    const bool possible = std::all_of(checks.begin(), checks.end(), [&](const SizeCheck& c) {
      Expr condition = holds(*program.pool, c.condition);
      return !known(condition) || evaluate_index(condition, [&](SymbolId s) { return values[static_cast<size_t>(s.index)]; }) != 0;
    });
    if (possible) out.push_back(std::move(values));
    if (pool.num_symbols() == 0) break;
  }
  return out;
}

// The ends of the domain in each of its dimensions, and some points between, always the same ones.
std::vector<std::vector<int64_t>> points_of(const std::vector<int64_t>& sizes) {
  std::vector<std::vector<int64_t>> out{std::vector<int64_t>(sizes.size(), 0)};
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s <= 0; })) return {};
  constexpr size_t kMostEnds = 64;
  for (size_t d = 0; d < sizes.size() && out.size() <= kMostEnds; ++d) {
    if (sizes[d] == 1) continue;
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      out.push_back(out[i]);
      out.back()[d] = sizes[d] - 1;
    }
  }
  std::vector<int64_t> last;
  for (int64_t s : sizes) last.push_back(s - 1);
  out.push_back(std::move(last));
  uint64_t random = 1;
  constexpr int kBetween = 24;
  for (int i = 0; i < kBetween; ++i) {
    out.emplace_back();
    for (int64_t s : sizes) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      out.back().push_back(static_cast<int64_t>((random >> 33) % static_cast<uint64_t>(s)));
    }
  }
  return out;
}

}  // namespace

bool Bounds::inside(Expr load, const std::vector<Expr>& domain, const std::vector<Expr>& conditions) const {
  const std::vector<Expr>& sizes = program_.buffer(BufferId(load->id)).sizes;
  const VarRanges ranges{domain};
  for (size_t d = 0; d < load->args.size(); ++d) {
    Expr c = load->args[d];
    if (c->kind == ExprKind::var && (static_cast<size_t>(c->id) >= domain.size() || domain[static_cast<size_t>(c->id)] == sizes[d]))
      continue;  // of a complex number: which part
    if (c->is_op(ScalarOp::checked_index) && c->args[1] == sizes[d]) continue;
    const bool low = holds_one(conditions, ScalarOp::ge, c, c->pool->index(0)) || provably_nonnegative(c, ranges);
    if (!low || (!holds_one(conditions, ScalarOp::lt, c, sizes[d]) && !provably_less(c, sizes[d], ranges))) return false;
  }
  return true;
}

bool Bounds::all_inside(Expr body, const std::vector<Expr>& domain) const {
  constexpr size_t kMost = 4096;  // nodes under conditions; more are looked at point by point
  std::vector<std::vector<Expr>> conditions{{}};
  std::map<std::pair<size_t, const ExprNode*>, size_t> under;  // the conditions that hold within a masked operand
  std::set<std::pair<size_t, const ExprNode*>> seen;
  std::vector<std::pair<Expr, size_t>> open{{body, 0}};
  while (!open.empty()) {
    const auto [e, here] = open.back();
    open.pop_back();
    if (!seen.insert({here, e.node()}).second) continue;
    if (seen.size() > kMost) return false;
    if (e->kind == ExprKind::load && !inside(e, domain, conditions[here])) return false;
    for (size_t i = 0; i < e->args.size(); ++i) {
      size_t there = here;
      if (e->is_op(ScalarOp::masked) && i == 1) {
        const auto [found, fresh] = under.try_emplace({here, e->args[0].node()}, conditions.size());
        there = found->second;
        if (fresh) {
          conditions.push_back(conditions[here]);
          add_conditions(e->args[0], conditions.back());
        }
      }
      open.emplace_back(e->args[i], there);
    }
  }
  return true;
}

std::optional<std::string> Bounds::outside(Expr body, const std::vector<Expr>& domain) {
  // The prover takes a size for at least one where something is computed: of nothing, nothing is read.
  if (std::any_of(domain.begin(), domain.end(), [](Expr s) { return s->is_constant() && s->as_int() <= 0; })) return std::nullopt;
  if (all_inside(body, domain)) return std::nullopt;
  return tried(body, domain);
}

std::optional<std::string> Bounds::tried(Expr body, const std::vector<Expr>& domain) {
  std::optional<std::string> wrong;
  for (const SymbolValues& symbols : examples(program_, checks_)) {
    std::vector<int64_t> sizes;
    for (Expr s : domain) {
      Point size(program_, symbols, {}, steps_);
      sizes.push_back(size.value(s).value_or(-1));
    }
    wrong.reset();
    for (std::vector<int64_t>& vars : points_of(sizes)) {
      Point point(program_, symbols, std::move(vars), steps_);
      point.value(body);
      if (point.wrong.empty()) continue;
      wrong = point.wrong;
      break;
    }
    if (!wrong) return std::nullopt;  // there are calls that it is right for
  }
  return wrong;
}

std::optional<std::string> Bounds::outside(const Operand& operand, const std::vector<Expr>& domain) {
  if (!operand.buffer.valid()) return std::nullopt;
  const BufferInfo& b = program_.buffer(operand.buffer);
  return outside(program_.pool->load(operand.buffer, b.dtype, operand.coordinates), domain);
}

std::optional<std::string> Bounds::outside_template(const Loop& loop) {
  for (const TemplateParts::Read& read : parts_of(loop.def).operands) {
    if (auto wrong = outside(*read.operand, read.domain)) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Bounds::outside(const Loop& loop) {
  for (const BodyRef& ref : bodies(program_, loop)) {
    if (auto wrong = outside(ref.body, ref.domain)) return wrong;
  }
  return outside_template(loop);
}

}  // namespace coil
