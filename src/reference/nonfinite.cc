#include "reference/nonfinite.h"

#include <cmath>

#include <fmt/format.h>

#include "expr/infix.h"
#include "loop/templates/template.h"
#include "ops/element_count.h"

namespace coil::reference {
namespace {

constexpr int kMostDepth = 200;           // loops that are followed
constexpr int64_t kMostPoints = 1 << 22;  // of a reduction that is searched

class Search {
 public:
  Search(Interpreter& interpreter, bool nan) : interpreter_(interpreter), program_(interpreter.program()), nan_(nan) {}

  // Whether it was found to be made here.
  Origin at(BufferId buffer, std::vector<int64_t> index) {
    for (int depth = 0; depth < kMostDepth; ++depth) {
      const Loop* loop = definition(buffer);
      if (!loop || (depth > 0 && !computed_between(buffer))) return {};
      next_ = BufferId();
      Origin found = in_loop(*loop, index);
      if (found.here) {
        found.text += " in " + loop->op;
        if (!loop->origins.empty()) found.where = loop->origins[0].source;
        return found;
      }
      if (!next_.valid()) return {};
      buffer = next_;
      index = next_index_;
    }
    return {};
  }

 private:
  bool is_it(double v) const { return nan_ ? std::isnan(v) : std::isinf(v); }

  const Loop* definition(BufferId buffer) const {
    for (const Loop& loop : program_.loops) {
      for (BufferId id : loop.outputs) {
        if (id == buffer) return &loop;
      }
    }
    return nullptr;
  }

  bool computed_between(BufferId buffer) const { return !interpreter_.knows(buffer); }

  Origin in_loop(const Loop& loop, const std::vector<int64_t>& index) {
    if (const auto* p = std::get_if<Pointwise>(&loop.def)) return in_body(p->body, index);
    if (const auto* r = std::get_if<Reduction>(&loop.def)) return in_reduction(*r, index);
    if (const auto* s = std::get_if<Scan>(&loop.def)) return in_body(s->body, index);
    if (const auto* c = std::get_if<Concat>(&loop.def)) return in_concat(*c, index);
    if (is_template(loop.def)) {
      for (BufferId read : reads(program_, loop)) {
        if (has_nonfinite(read)) return {};
      }
      return {true, nan_ ? "a sum of products" : "a sum of products that is too large", ""};
    }
    return {};
  }

  // In templates' operands.
  bool has_nonfinite(BufferId id) const {
    if (!interpreter_.has(id)) return false;
    const Tensor& t = interpreter_.get(id);
    if (!is_float(t.dtype)) return false;
    for (int64_t i = 0, n = element_count(t.sizes); i < n; ++i) {
      int64_t rest = i, offset = 0;
      for (size_t d = t.sizes.size(); d-- > 0; rest /= t.sizes[d]) offset += rest % t.sizes[d] * t.strides[d];
      if (is_it(t.at(offset).f)) return true;
    }
    return false;
  }

  Origin in_concat(const Concat& c, std::vector<int64_t> index) {
    for (const Concat::Piece& piece : c.pieces) {
      const std::vector<int64_t> range = interpreter_.sizes({piece.begin, piece.size});
      int64_t& at = index[static_cast<size_t>(c.dim)];
      if (at < range[0] || at >= range[0] + range[1]) continue;
      at -= range[0];
      return in_body(piece.body, index);
    }
    return {};
  }

  Origin in_reduction(const Reduction& r, const std::vector<int64_t>& index) {
    const std::vector<int64_t> domain = interpreter_.sizes(r.domain);
    int64_t points = 1;
    for (int64_t s : domain) points *= s;
    double sum = 0;
    for (int64_t n = 0; n < std::min(points, kMostPoints); ++n) {
      std::vector<int64_t> vars = index;
      vars.resize(index.size() + domain.size());
      int64_t rest = n;
      for (size_t d = domain.size(); d-- > 0; rest /= domain[d]) vars[index.size() + d] = rest % domain[d];
      const double v = value(r.body, vars);
      if (is_it(v)) return in_body(r.body, vars);
      if (std::isnan(sum + v) && std::isinf(sum)) return {true, fmt::format("{} + {}", sum, v), ""};
      sum += v;
    }
    return {true, "a sum that is too large", ""};
  }

  EvalContext context(const std::vector<int64_t>& vars) {
    EvalContext c;
    c.symbol = interpreter_.symbols();
    c.vars = vars;
    c.load = [this](BufferId id, std::span<const int64_t> at) -> Value {
      if (!interpreter_.has(id) && !interpreter_.compute(id).ok()) return {};
      const Tensor& t = interpreter_.get(id);
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * t.strides[d];
      const Num v = t.at(offset);
      return {v.f, v.i};
    };
    return c;
  }

  double value(Expr e, const std::vector<int64_t>& vars) { return is_float(e->dtype) ? evaluate(e, context(vars)).f : 0; }

  // From the result down to the operation whose operands are not like it.
  Origin in_body(Expr e, const std::vector<int64_t>& vars) {
    const EvalContext c = context(vars);
    while (true) {
      if (e->kind == ExprKind::load) {
        next_ = BufferId(e->id);
        next_index_.clear();
        for (Expr a : e->args) next_index_.push_back(evaluate(a, c).i);
        return {};
      }
      if (e->kind == ExprKind::constant) return {true, "a constant", ""};
      if (e->kind != ExprKind::op) return {};
      if (e->is_op(ScalarOp::select) || e->is_op(ScalarOp::masked)) {
        e = e->args[evaluate(e->args[0], c).i != 0 ? 1 : 2];
        continue;
      }
      Expr cause;
      for (Expr a : e->args) {
        if (is_float(a->dtype) && is_it(evaluate(a, c).f)) cause = a;
      }
      if (cause) {
        e = cause;
        continue;
      }
      return {true, text(e, c), ""};
    }
  }

  // "-inf - -inf", "log(-1)".
  std::string text(Expr e, const EvalContext& c) {
    std::vector<std::string> args;
    for (Expr a : e->args) args.push_back(is_float(a->dtype) ? fmt::format("{:.6g}", evaluate(a, c).f) : fmt::format("{}", evaluate(a, c).i));
    if (const std::string_view sign = infix_of(e->op); !sign.empty()) return fmt::format("{} {} {}", args[0], sign, args[1]);
    std::string list;
    for (const std::string& a : args) list += (list.empty() ? "" : ", ") + a;
    return fmt::format("{}({})", info(e->op).name, list);
  }

  Interpreter& interpreter_;
  const LoopProgram& program_;
  const bool nan_;
  BufferId next_;
  std::vector<int64_t> next_index_;
};

}  // namespace

Origin origin_of_nonfinite(Interpreter& interpreter, BufferId buffer, const std::vector<int64_t>& index, bool nan) {
  return Search(interpreter, nan).at(buffer, index);
}

}  // namespace coil::reference
