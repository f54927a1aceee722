// What masks of attention say, in loops that programs write by hand.
#pragma once

#include <functional>

#include "loop/loop.h"

namespace coil {

bool is_number(Expr e, double v);
bool is_minus_infinity(Expr e);
// So low a number that adding what masks hold beside it gives the number itself (float32's steps are 64 there).
bool is_lowest(double number);

class AttentionMasks {
 public:
  // stored: the body of an elementwise definition of a buffer, or null.
  AttentionMasks(LoopProgram& program, std::function<Expr(BufferId)> stored) : program_(program), pool_(*program.pool), stored_(std::move(stored)) {}

  // The condition `e`, or its opposite (`holds` false), over the scores' coordinates; one on positions if that is what was stored.
  Expr condition(Expr e, bool holds) const;

  // Whether a mask, bool or to be added, hides nothing or no more than the causal flag, which is set then.
  bool is_flag(Attention& a, Expr mask) const;

  // The mask of `a`, which is added to its scores: an operand, which `loops` may have to define, or the causal flag, or nothing.
  void set(Attention& a, Expr mask, std::vector<Loop>& loops) const;

 private:
  Expr expanded(Expr e) const;
  Expr expanded(Expr e, int& reads) const;
  Expr without_choice(Expr e) const;
  Expr opposite(Expr e) const;
  bool is_dense(std::span<const Expr> at) const;
  bool is_readable(const Attention& a, Expr mask) const;

  LoopProgram& program_;
  ExprPool& pool_;
  std::function<Expr(BufferId)> stored_;
};

}  // namespace coil
