// Parts of a loop program as text: what definitions print themselves with.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "expr/name_text.h"
#include "loop/loop.h"

namespace coil {

// The name of the symbol that stands for the number of workers in plans (schedule/plan.cc).
inline constexpr const char* kWorkersSymbol = "coil.workers";

inline constexpr const char* kReduceNames[] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "log_sum"};  // in ReduceOp's order
inline const char* reduce_name(ReduceOp op) { return kReduceNames[static_cast<size_t>(op)]; }

// What a definition is called by its reader unless its text says otherwise: "relu" where it defines "relu_3".
inline std::string usual_op(std::string_view buffer) {
  const size_t end = buffer.find_last_not_of("0123456789");
  const bool numbered = end != std::string_view::npos && end > 0 && end + 1 < buffer.size() && buffer[end] == '_';
  return std::string(numbered ? buffer.substr(0, end) : buffer);
}

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
  std::string name(BufferId id) const { return id.valid() ? name_text(program_.buffer(id).name) : "-"; }
  std::string names(const std::vector<BufferId>& ids) const {
    std::string s;
    for (BufferId id : ids) s += (s.empty() ? "" : ", ") + name(id);
    return s;
  }
  // "x: f32[4, s0]", and what more there is to say.
  std::string declaration(BufferId id) const {
    const BufferInfo& b = program_.buffer(id);
    std::string s = fmt::format("{}: {}{}", name(id), coil::name(b.dtype), list(b.sizes));
    if (!b.strides.empty() && b.strides != contiguous_strides(*program_.pool, b.sizes)) s += " strides " + list(b.strides);
    if (b.pairs) s += " pairs";
    if (b.meant) s += fmt::format(" meant {}", coil::name(*b.meant));
    return s;
  }
  // "x[i0, i2]".
  std::string operand(const Operand& o) const { return name(o.buffer) + list(o.coordinates); }

 protected:
  const LoopProgram& program_;

 private:
  PrintNames names_;
};

}  // namespace coil
