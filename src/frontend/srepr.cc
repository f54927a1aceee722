// The meaning of a sympy expression (srepr_tree.h) as exact fractions of index expressions.
#include "frontend/srepr.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "frontend/srepr_tree.h"

namespace coil {
namespace {

// Files are hostile: these bound the work that one expression may cause. Real sizes have a few dozen nodes.
constexpr double kMaxTerms = 256;         // of the expanded sum of products
constexpr double kMaxCoefficient = 1e15;  // so that folding constants cannot overflow

// num / den, with den > 0. `terms` and `weight` bound the expanded numerator: how many products, and the sum of |coefficients|.
struct Fraction {
  Expr num;
  int64_t den = 1;
  double terms = 1;
  double weight = 1;
};

class Meaning {
 public:
  Meaning(const SreprContext& context, std::string_view text) : context_(context), text_(text) {}

  Result<Expr> integer(const SympyTree& t) {
    TRY(Fraction f, whole(t));
    return f.num;
  }

  Result<Condition> condition(const SympyTree& t) {
    using Kind = Condition::Kind;
    if (t.head == "true" || t.head == "false") return Condition::constant(t.head == "true");
    if (t.head == "Not" && t.args.size() == 1) {
      TRY(Condition inner, condition(t.args[0]));
      return negated(inner);
    }
    if (t.head == "And" || t.head == "Or") return junction(t);
    if (t.args.size() != 2) return unsupported(t.head);
    TRY(Expr a, integer(t.args[0]));
    TRY(Expr b, integer(t.args[1]));
    if (t.head == "StrictLessThan") return Condition::compare(Kind::less, a, b);
    if (t.head == "StrictGreaterThan") return Condition::compare(Kind::less, b, a);
    if (t.head == "LessThan") return Condition::compare(Kind::less_equal, a, b);
    if (t.head == "GreaterThan") return Condition::compare(Kind::less_equal, b, a);
    if (t.head == "Equality") return Condition::compare(Kind::equal, a, b);
    if (t.head == "Unequality") return Condition::compare(Kind::not_equal, a, b);
    return unsupported(t.head);
  }

 private:
  ExprPool& pool() { return context_.pool; }

  Error unsupported(std::string_view head) {
    return Error{ErrorCode::unsupported_feature, fmt::format("a size uses '{}', which is not supported: {}", head, text_), {}, {}};
  }
  Error too_large() { return Error{ErrorCode::unsupported_feature, fmt::format("a size expression is too large: {}", text_), {}, {}}; }

  Result<Condition> junction(const SympyTree& t) {
    std::vector<Condition> parts;
    for (const SympyTree& arg : t.args) {
      TRY(Condition part, condition(arg));
      parts.push_back(std::move(part));
    }
    return Condition::join(t.head == "And" ? Condition::Kind::all : Condition::Kind::any, std::move(parts));
  }

  Result<Fraction> whole(const SympyTree& t) {
    TRY(Fraction f, fraction(t));
    if (f.den == 1) return f;
    Expr quotient = floor_div(f.num, pool().index(f.den));
    if (quotient * f.den != f.num) return unsupported(t.head);
    return Fraction{quotient, 1, f.terms, f.weight};
  }

  Result<Fraction> checked(Fraction f) {
    if (f.terms > kMaxTerms || f.weight > kMaxCoefficient || f.den > (int64_t{1} << 31)) return too_large();
    if (context_.budget && (context_.budget->terms -= f.terms) < 0) {
      return Error{
          ErrorCode::archive_limit, fmt::format("the program's size expressions have too many terms together; the limit was reached at {}", text_), {}, {}};
    }
    if (f.den > 1 && f.num->is_constant() && f.num->as_int() % f.den == 0) return Fraction{pool().index(f.num->as_int() / f.den), 1, 1, f.weight};
    return f;
  }

  Result<Fraction> fraction(const SympyTree& t) {
    if (t.head == "Integer" || t.head == "Rational" || t.head == "Float") return literal(t);
    if (t.head == "Symbol") {
      TRY(Expr e, context_.symbol(t.text));
      return Fraction{e, 1, 1, 1};
    }
    if (t.head == "Add" || t.head == "Mul") return sum_or_product(t);
    if (t.head == "Pow" || t.head == "PowByNatural") return power(t);
    if (t.head == "Max" || t.head == "Min") return extremum(t);
    if ((t.head == "Identity" || t.head == "ToFloat") && t.args.size() == 1) return fraction(t.args[0]);
    if ((t.head == "IntTrueDiv" || t.head == "FloatTrueDiv") && t.args.size() == 2) return quotient(t);
    if (t.args.size() == 1) return rounding(t);
    return division(t);
  }

  Result<Fraction> literal(const SympyTree& t) {
    auto number = [](std::string_view s) -> std::optional<int64_t> {
      int64_t v = 0;
      auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
      if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
      return v;
    };
    if (t.head == "Float") {
      // Exact only for short binary fractions (2.0, 0.5, 1.25), which is what scale factors are.
      double v = std::strtod(std::string(t.text).c_str(), nullptr) * 1024;
      if (!(std::abs(v) < 1e12) || v != std::floor(v)) return unsupported("Float");
      int64_t num = static_cast<int64_t>(v), den = 1024;
      while (den > 1 && num % 2 == 0) num /= 2, den /= 2;
      return Fraction{pool().index(num), den, 1, std::abs(v)};
    }
    size_t count = t.head == "Integer" ? 1 : 2;
    if (t.args.size() != count) return unsupported(t.head);
    std::optional<int64_t> num = number(t.args[0].text), den = count == 2 ? number(t.args[1].text) : 1;
    if (!num || !den || *den <= 0) return unsupported(t.head);
    if (std::abs(static_cast<double>(*num)) > kMaxCoefficient) return too_large();
    return checked({pool().index(*num), *den, 1, std::abs(static_cast<double>(*num))});
  }

  Result<Fraction> sum_or_product(const SympyTree& t) {
    bool is_sum = t.head == "Add";
    Fraction total{pool().index(is_sum ? 0 : 1), 1, is_sum ? 0.0 : 1.0, is_sum ? 0.0 : 1.0};
    for (const SympyTree& arg : t.args) {
      TRY(Fraction f, fraction(arg));
      // Bounds first: the expressions are built only when they are known to stay small.
      double scale_a = is_sum ? static_cast<double>(f.den) : 1, scale_b = is_sum ? static_cast<double>(total.den) : 1;
      Fraction next;
      next.terms = is_sum ? total.terms + f.terms : total.terms * f.terms;
      next.weight = is_sum ? total.weight * scale_a + f.weight * scale_b : total.weight * f.weight;
      if (next.terms > kMaxTerms || next.weight > kMaxCoefficient || static_cast<double>(total.den) * static_cast<double>(f.den) > 1e9) return too_large();
      if (is_sum && total.den == f.den) {
        next.num = total.num + f.num;
        next.den = f.den;
      } else {
        next.num = is_sum ? total.num * f.den + f.num * total.den : total.num * f.num;
        next.den = total.den * f.den;
      }
      TRY(total, checked(next));
    }
    return total;
  }

  Result<Fraction> power(const SympyTree& t) {
    if (t.args.size() != 2) return unsupported(t.head);
    TRY(Fraction base, fraction(t.args[0]));
    TRY(Fraction exponent, fraction(t.args[1]));
    if (!exponent.num->is_constant() || exponent.den != 1) return unsupported(t.head);
    int64_t n = exponent.num->as_int();
    if (n < 0 || n > 8 || std::pow(base.terms, n) > kMaxTerms || std::pow(base.weight, n) > kMaxCoefficient ||
        std::pow(static_cast<double>(base.den), n) > 1e9) {
      return unsupported(t.head);
    }
    Fraction result{pool().index(1), 1, 1, 1};
    for (int64_t i = 0; i < n; ++i) {
      result = {result.num * base.num, result.den * base.den, result.terms * base.terms, result.weight * base.weight};
    }
    return checked(result);
  }

  Result<Fraction> extremum(const SympyTree& t) {
    if (t.args.empty()) return unsupported(t.head);
    TRY(Fraction best, whole(t.args[0]));
    for (size_t i = 1; i < t.args.size(); ++i) {
      TRY(Fraction f, whole(t.args[i]));
      best.num = t.head == "Max" ? index_max(best.num, f.num) : index_min(best.num, f.num);
      best.weight += f.weight;
    }
    return checked({best.num, 1, 1, best.weight});
  }

  // a / b as a fraction: b must be a constant, or divide a.
  Result<Fraction> quotient(const SympyTree& t) {
    TRY(Fraction a, fraction(t.args[0]));
    TRY(Fraction b, fraction(t.args[1]));
    if (b.num->is_constant() && b.num->as_int() > 0 && static_cast<double>(a.den) * static_cast<double>(b.num->as_int()) < 1e9 &&
        a.weight * static_cast<double>(b.den) < kMaxCoefficient) {
      return checked({a.num * b.den, a.den * b.num->as_int(), a.terms, a.weight * static_cast<double>(b.den)});
    }
    if (a.den != 1 || b.den != 1 || b.num->is_constant()) return unsupported(t.head);
    Expr exact = floor_div(a.num, positive(b.num));
    if (exact * b.num != a.num) return unsupported(t.head);
    return Fraction{exact, 1, a.terms, a.weight};
  }

  Result<Fraction> rounding(const SympyTree& t) {
    TRY(Fraction f, fraction(t.args[0]));
    if (f.den == 1) {
      if (t.head == "TruncToInt" || t.head == "FloorToInt" || t.head == "CeilToInt" || t.head == "RoundToInt") return f;
      return unsupported(t.head);
    }
    Expr den = pool().index(f.den);
    bool floor = t.head == "FloorToInt" || (t.head == "TruncToInt" && provably_nonnegative(f.num));
    if (floor) return Fraction{floor_div(f.num, den), 1, 1, f.weight};
    if (t.head == "CeilToInt") return Fraction{ceil_div(f.num, den), 1, 1, f.weight};
    return unsupported(t.head);
  }

  // Divisors are positive in every valid call; for a dimension whose range starts at 0 the quotient must not trap.
  Expr positive(Expr e) { return lower_bound(e).value_or(0) >= 1 ? e : index_max(e, pool().index(1)); }

  Result<Fraction> division(const SympyTree& t) {
    size_t arity = t.head == "ModularIndexing" ? 3 : 2;
    if (t.args.size() != arity) return unsupported(t.head);
    TRY(Fraction numerator, fraction(t.args[0]));
    TRY(Expr b, integer(t.args[1]));
    if (b->is_constant() && b->as_int() <= 0) return unsupported(t.head);
    // floor(n / d / b) = floor(n / (d * b)) for constants.
    Expr a = numerator.num;
    if (numerator.den > 1) {
      if (!b->is_constant() || static_cast<double>(b->as_int()) * static_cast<double>(numerator.den) > 1e9 || t.head != "FloorDiv") return unsupported(t.head);
      return Fraction{floor_div(a, pool().index(b->as_int() * numerator.den)), 1, 1, numerator.weight};
    }
    auto atom = [&](Expr e) { return Fraction{e, 1, numerator.terms, numerator.weight}; };
    b = positive(b);
    if (t.head == "FloorDiv" || t.head == "CleanDiv") return atom(floor_div(a, b));
    if (t.head == "Mod" || t.head == "PythonMod") return atom(floor_mod(a, b));
    if (t.head == "CeilDiv") return atom(ceil_div(a, b));
    if (t.head == "ModularIndexing") {
      TRY(Expr m, integer(t.args[2]));
      if (m->is_constant() && m->as_int() <= 0) return unsupported(t.head);
      return atom(floor_mod(floor_div(a, b), positive(m)));
    }
    if (t.head == "RShift" || t.head == "LShift") {
      TRY(Expr shift, integer(t.args[1]));
      if (!shift->is_constant() || shift->as_int() < 0 || shift->as_int() > 20) return unsupported(t.head);
      int64_t factor = int64_t{1} << shift->as_int();
      if (t.head == "RShift") return atom(floor_div(a, pool().index(factor)));
      return checked({a * factor, 1, numerator.terms, numerator.weight * static_cast<double>(factor)});
    }
    return unsupported(t.head);
  }

  const SreprContext& context_;
  std::string_view text_;
};

}  // namespace

Result<Expr> parse_srepr(const SreprContext& context, std::string_view text) {
  TRY(SympyTree tree, parse_sympy(text));
  if (context.budget) context.budget->terms += static_cast<double>(text.size()) / 8;  // one for each few characters is what real ones have
  TRY(Expr e, Meaning(context, text.substr(0, 400)).integer(tree));
  return simplify_index(e, {});  // what the ranges decide
}

Result<Condition> parse_condition_srepr(const SreprContext& context, std::string_view text) {
  TRY(SympyTree tree, parse_sympy(text));
  if (context.budget) context.budget->terms += static_cast<double>(text.size()) / 8;
  return Meaning(context, text.substr(0, 400)).condition(tree);
}

}  // namespace coil
