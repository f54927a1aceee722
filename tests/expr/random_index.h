// Random index expressions beside an independent meaning: each is built twice, as an Expr through the public operators and as a
// tree that plain int64 arithmetic evaluates. Seeded; small numbers, so that every point of the ranges can be tried.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "expr/expr.h"

namespace coil {

// Floor semantics, written apart from the library's.
inline int64_t plain_floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  while (q * b > a) --q;
  while ((q + 1) * b <= a) ++q;
  return q;
}

struct PlainTree {
  char op;  // 'c'onstant, 's'ymbol, 'v'ariable, + - * / % m(in) M(ax)
  int64_t value = 0;
  std::shared_ptr<PlainTree> a, b;

  int64_t evaluate(const std::vector<int64_t>& symbols, const std::vector<int64_t>& vars) const {
    switch (op) {
      case 'c': return value;
      case 's': return symbols[static_cast<size_t>(value)];
      case 'v': return vars[static_cast<size_t>(value)];
      default: break;
    }
    const int64_t x = a->evaluate(symbols, vars), y = b->evaluate(symbols, vars);
    switch (op) {
      case '+': return x + y;
      case '-': return x - y;
      case '*': return x * y;
      case '/': return plain_floor_div(x, y);
      case '%': return x - plain_floor_div(x, y) * y;
      case 'm': return x < y ? x : y;
      default: return x < y ? y : x;
    }
  }
};

struct RandomPair {
  Expr expr;
  std::shared_ptr<PlainTree> plain;
};

// Symbols s0..s2 with small ranges (all at least 1: they divide) and s3 that may be 0; variables i0..i2 with sizes of symbols
// and constants.
class RandomIndex {
 public:
  explicit RandomIndex(uint32_t seed) : random_(seed) {
    for (int k = 0; k < 3; ++k) {
      const int64_t min = pick(1, 3);
      symbols_.push_back(pool.add_symbol({"s" + std::to_string(k), "", min, min + pick(0, 3)}));
    }
    symbols_.push_back(pool.add_symbol({"s3", "", 0, pick(0, 3)}));
    for (int k = 0; k < 3; ++k) {
      RandomPair size = pick(0, 2) == 0 ? leaf('c', pick(1, 5)) : leaf('s', pick(0, 3));
      if (pick(0, 3) == 0) size = combine(pick(0, 1) ? '*' : '+', size, leaf('c', pick(1, 3)));
      if (pick(0, 5) == 0) size = combine('*', size, leaf('s', pick(0, 2)));
      plain_sizes_.push_back(size.plain);
      sizes.push_back(size.expr);
    }
  }

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  RandomPair leaf(char op, int64_t value) {
    auto plain = std::make_shared<PlainTree>(PlainTree{op, value, nullptr, nullptr});
    if (op == 'c') return {pool.index(value), plain};
    return {op == 's' ? pool.symbol(symbols_[static_cast<size_t>(value)]) : pool.var(static_cast<int32_t>(value)), plain};
  }

  RandomPair combine(char op, RandomPair a, RandomPair b) {
    const auto build = [&] {
      switch (op) {
        case '+': return a.expr + b.expr;
        case '-': return a.expr - b.expr;
        case '*': return a.expr * b.expr;
        case '/': return floor_div(a.expr, b.expr);
        case '%': return floor_mod(a.expr, b.expr);
        case 'm': return index_min(a.expr, b.expr);
        default: return index_max(a.expr, b.expr);
      }
    };
    return {build(), std::make_shared<PlainTree>(PlainTree{op, 0, a.plain, b.plain})};
  }

  // A positive expression of symbols and constants.
  RandomPair divisor() {
    const int64_t kind = pick(0, 5);
    if (kind <= 2) return leaf('c', pick(1, 8));
    if (kind == 3) return leaf('s', pick(0, 2));
    return combine(kind == 4 ? '*' : '+', leaf('s', pick(0, 2)), kind == 4 && pick(0, 1) ? leaf('s', pick(0, 2)) : leaf('c', pick(1, 4)));
  }

  RandomPair any(int depth) {
    if (depth == 0) {
      const int64_t kind = pick(0, 5);
      return kind == 0 ? leaf('c', pick(-6, 12)) : kind == 1 ? leaf('s', pick(0, 3)) : leaf('v', pick(0, 2));
    }
    switch (pick(0, 9)) {
      case 0:
      case 1:
      case 2: return combine('+', any(depth - 1), any(depth - 1));
      case 3: return combine('-', any(depth - 1), any(depth - 1));
      case 4: return combine('*', any(depth - 1), divisor());
      case 5:
      case 6: return combine('/', any(depth - 1), divisor());
      case 7:
      case 8: return combine('%', any(depth - 1), divisor());
      default: return combine(pick(0, 1) ? 'm' : 'M', any(depth - 1), any(depth - 1));
    }
  }

  // What views give: a linear index over the variables, split by their sizes and put together again.
  RandomPair view_like() {
    RandomPair linear = leaf('v', 0);
    std::vector<RandomPair> size_of;
    for (size_t k = 0; k < 3; ++k) size_of.push_back({sizes[k], plain_sizes_[k]});
    for (int64_t k = 1; k < 3; ++k) linear = combine('+', combine('*', linear, size_of[static_cast<size_t>(k)]), leaf('v', k));
    RandomPair d = pick(0, 2) == 0 ? divisor() : pick(0, 1) ? size_of[2] : combine('*', size_of[1], size_of[2]);
    if (lower_bound(d.expr).value_or(0) < 1) d = divisor();
    RandomPair high = combine('/', linear, d), low = combine('%', linear, d);
    switch (pick(0, 4)) {
      case 0: return high;
      case 1: return low;
      case 2: return combine('+', combine('*', high, d), low);
      case 3: {
        RandomPair e = divisor();
        return combine('+', combine('*', combine('%', high, e), d), low);
      }
      default: return combine('%', high, divisor());
    }
  }

  // Calls f(symbol values, variable values) at `count` random points of the ranges; not where a variable of `of` has no values.
  template <class F>
  void for_points(int count, const std::vector<Expr>& of, F f) {
    bool used[3];
    for (int32_t k = 0; k < 3; ++k) {
      used[k] = std::any_of(of.begin(), of.end(), [k](Expr e) { return depends_on_var(e, k); });
    }
    std::vector<int64_t> symbols(4), vars(3);
    for (int n = 0; n < count; ++n) {
      for (size_t k = 0; k < 4; ++k) {
        const Symbol& s = pool.symbol_info(symbols_[k]);
        symbols[k] = edge(s.min, s.max);
      }
      bool inside = true;
      for (size_t k = 0; k < 3; ++k) {
        const int64_t size = plain_sizes_[k]->evaluate(symbols, vars);
        vars[k] = size > 0 ? edge(0, size - 1) : 0;
        inside &= size > 0 || !used[k];
      }
      if (inside) f(symbols, vars);
    }
  }

  ExprPool pool;
  std::vector<Expr> sizes;

 private:
  // The ends more often than the rest.
  int64_t edge(int64_t low, int64_t high) {
    const int64_t kind = pick(0, 3);
    return kind == 0 ? low : kind == 1 ? high : pick(low, high);
  }

  std::mt19937 random_;
  std::vector<SymbolId> symbols_;
  std::vector<std::shared_ptr<PlainTree>> plain_sizes_;
};

inline int64_t evaluate_at(Expr e, const std::vector<int64_t>& symbols, const std::vector<int64_t>& vars) {
  return evaluate_index(e, [&](SymbolId id) { return symbols[static_cast<size_t>(id.index)]; }, vars);
}

}  // namespace coil
