// The temps of a kernel as what they stand for.
#pragma once

#include <map>
#include <optional>

#include "schedule/kernel_plan.h"

namespace coil {

class Lets {
 public:
  void add(const Stmt& s) {
    if (s.kind == Stmt::Kind::let) values_[s.temp.index] = s.value;
  }

  // The value that a temp stands for, once; the expression itself if it is none of these.
  Expr behind(Expr e) const {
    for (; e->kind == ExprKind::temp; e = values_.at(e->id)) {
      if (!values_.contains(e->id)) break;
    }
    return e;
  }

  // Without temps of lets. Nothing where more than some dozens would have to be written out: kernels may chain thousands.
  std::optional<Expr> expand(Expr e) {
    left_ = kMost;
    const Expr all = expanded(e);
    return left_ > 0 ? std::optional(all) : std::nullopt;
  }

 private:
  static constexpr int kMost = 64;

  Expr expanded(Expr e) {
    return rewrite(e, [&](Expr leaf) {
      if (leaf->kind != ExprKind::temp || left_ <= 0) return Expr();
      const auto value = values_.find(leaf->id);
      if (value == values_.end()) return Expr();
      const auto known = expanded_.find(leaf->id);
      if (known != expanded_.end()) return known->second;
      if (--left_ <= 0) return Expr();
      const Expr whole = expanded(value->second);
      if (left_ > 0) expanded_.emplace(leaf->id, whole);
      return whole;
    });
  }

  std::map<int32_t, Expr> values_, expanded_;
  int left_ = 0;
};

}  // namespace coil
