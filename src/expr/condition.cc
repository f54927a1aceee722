#include "expr/condition.h"

#include <algorithm>

#include "base/result.h"

namespace coil {
namespace {

using Kind = Condition::Kind;

bool joins(const Condition& c) { return c.kind == Kind::all || c.kind == Kind::any; }

Truth opposite(Truth t) { return t == Truth::depends ? t : t == Truth::yes ? Truth::no : Truth::yes; }

Truth less(Expr a, Expr b) {
  if (provably_less(a, b)) return Truth::yes;
  if (a == b || provably_nonnegative(a - b)) return Truth::no;
  return Truth::depends;
}

Truth equal(Expr a, Expr b) {
  if (a == b || provably_equal(a, b)) return Truth::yes;
  return provably_less(a, b) || provably_less(b, a) ? Truth::no : Truth::depends;
}

}  // namespace

Condition Condition::join(Kind kind, std::vector<Condition> parts) {
  CHECK(kind == Kind::all || kind == Kind::any);
  std::erase_if(parts, [&](const Condition& part) { return part.kind == kind && part.parts.empty(); });
  if (parts.size() == 1) return std::move(parts[0]);
  return {kind, {}, {}, std::move(parts)};
}

Condition negated(const Condition& c) {
  switch (c.kind) {
    case Kind::less: return Condition::compare(Kind::less_equal, c.b, c.a);
    case Kind::less_equal: return Condition::compare(Kind::less, c.b, c.a);
    case Kind::equal: return Condition::compare(Kind::not_equal, c.a, c.b);
    case Kind::not_equal: return Condition::compare(Kind::equal, c.a, c.b);
    case Kind::all:
    case Kind::any: break;
  }
  std::vector<Condition> parts;
  for (const Condition& part : c.parts) parts.push_back(negated(part));
  return Condition::join(c.kind == Kind::all ? Kind::any : Kind::all, std::move(parts));
}

bool depends_on_data(const Condition& c) {
  return (c.a && depends_on_data(c.a)) || (c.b && depends_on_data(c.b)) ||
         std::any_of(c.parts.begin(), c.parts.end(), [](const Condition& part) { return depends_on_data(part); });
}

void assume_ones(ExprPool& pool, const Condition& c) {
  if (c.kind == Kind::all) {
    for (const Condition& part : c.parts) assume_ones(pool, part);
  } else if (c.kind == Kind::equal) {
    pool.assume_one(c.a - c.b + pool.index(1));
    pool.assume_one(c.b - c.a + pool.index(1));
  }
}

Truth truth(const Condition& c) {
  switch (c.kind) {
    case Kind::less: return less(c.a, c.b);
    case Kind::less_equal: return opposite(less(c.b, c.a));
    case Kind::equal: return equal(c.a, c.b);
    case Kind::not_equal: return opposite(equal(c.a, c.b));
    case Kind::all:
    case Kind::any: break;
  }
  const Truth absorbing = c.kind == Kind::any ? Truth::yes : Truth::no;
  Truth whole = opposite(absorbing);
  for (const Condition& part : c.parts) {
    const Truth t = truth(part);
    if (t == absorbing) return t;
    if (t == Truth::depends) whole = t;
  }
  return whole;
}

Expr holds(ExprPool& pool, const Condition& c) {
  // Sizes are far below 2^62: the differences do not overflow.
  const auto at_least = [&](Expr difference) {  // difference >= 0
    return index_min(index_max(difference + 1, pool.index(0)), pool.index(1));
  };
  switch (c.kind) {
    case Kind::less: return at_least(c.b - c.a - 1);
    case Kind::less_equal: return at_least(c.b - c.a);
    case Kind::equal: return index_min(at_least(c.b - c.a), at_least(c.a - c.b));
    case Kind::not_equal: return index_max(at_least(c.b - c.a - 1), at_least(c.a - c.b - 1));
    case Kind::all:
    case Kind::any: break;
  }
  Expr whole = pool.index(c.kind == Kind::all ? 1 : 0);
  for (const Condition& part : c.parts) {
    const Expr e = holds(pool, part);
    whole = c.kind == Kind::all ? index_min(whole, e) : index_max(whole, e);
  }
  return whole;
}

std::string to_string(const Condition& c) {
  if (!joins(c)) {
    static constexpr const char* kSigns[] = {" < ", " <= ", " == ", " != "};
    return to_string(c.a) + kSigns[static_cast<size_t>(c.kind)] + to_string(c.b);
  }
  if (c.parts.empty()) return c.kind == Kind::all ? "true" : "false";
  std::string text;
  for (const Condition& part : c.parts) {
    if (!text.empty()) text += c.kind == Kind::all ? " and " : " or ";
    const bool nested = joins(part) && part.parts.size() > 1;
    text += nested ? "(" + to_string(part) + ")" : to_string(part);
  }
  return text;
}

}  // namespace coil
