// A reduction in progress, of numbers with bounds.
#pragma once

#include "loop/loop.h"
#include "reference/number.h"

namespace coil::reference {

class Accumulator {
 public:
  Accumulator(ReduceOp op, DType type);
  void add(const Num& x);
  int64_t count() const { return count_; }
  Num result() const;

 private:
  void add_extreme(const Num& x);
  void add_place(const Num& x);
  void add_logarithm(const Num& x);

  ReduceOp op_;
  DType type_;
  Num value_;
  double sizes_ = 0;     // sum of magnitudes
  double reach_ = 0;     // argmax, argmin: the best value, its error taken from it
  bool unsure_ = false;  // argmax, argmin: another element may be the extreme one
  double others_ = 0;    // argmax, argmin: the furthest that an element before reaches
  int64_t count_ = 0;
};

}  // namespace coil::reference
