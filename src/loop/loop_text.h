// Parts of a loop program as text: what definitions print themselves with.
#pragma once

#include <string>
#include <vector>

#include "loop/loop.h"

namespace coil {

class LoopText {
 public:
  explicit LoopText(const LoopProgram& program) : program_(program) {
    names_.buffer = [this](BufferId id) { return name(id); };
  }
  LoopText(const LoopText&) = delete;
  LoopText& operator=(const LoopText&) = delete;

  std::string text(Expr e) const { return to_string(e, names_); }
  // "[4, s0]".
  std::string list(const std::vector<Expr>& exprs) const {
    std::string s;
    for (Expr e : exprs) s += (s.empty() ? "" : ", ") + text(e);
    return "[" + s + "]";
  }
  // "-" for one that is not there.
  std::string name(BufferId id) const { return id.valid() ? program_.buffer(id).name : "-"; }
  // "x[i0, i2]".
  std::string operand(const Operand& o) const { return name(o.buffer) + list(o.coordinates); }

 protected:
  const LoopProgram& program_;

 private:
  PrintNames names_;
};

}  // namespace coil
