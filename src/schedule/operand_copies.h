// Copies of what a definition reads and its kernels cannot read where it lies, in front of it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loop/loop.h"
#include "schedule/target.h"

namespace coil {

class OperandCopies {
 public:
  // Both outlive it. A copy is a new buffer and a new loop at the end of the program, in front of the loop that is added next.
  OperandCopies(LoopProgram& program, const TargetTraits& target) : program_(program), target_(target) {}

  ExprPool& pool() const { return *program_.pool; }
  const TargetTraits& target() const { return target_; }
  BufferInfo& buffer(BufferId id) { return program_.buffer(id); }

  // An operand's linear offset over the variables of the definition that reads it.
  Expr offset_of(const Operand& operand, const LoopDef& user) const;
  // Whether what the operand reads lies in one stride for each of the first `count` variables.
  bool has_strides(Expr offset, int count) const;
  // Turns the operand into a stored copy over dimensions `sizes` (the template's variables `vars`), dense in their order. One copy serves all who ask for the
  // same. True: it was made now.
  bool copy(Operand& operand, const std::vector<int>& vars, const std::vector<Expr>& sizes, const Loop& user, const char* reason, bool channels_last = false);
  // `id` as a dense buffer, row by row.
  void make_dense(BufferId& id, const Loop& user);

 private:
  LoopProgram& program_;
  const TargetTraits& target_;
  std::map<std::pair<const ExprNode*, bool>, BufferId> copied_;  // by the value that was copied, and whether channels are last
  int count_ = 0;
};

}  // namespace coil
