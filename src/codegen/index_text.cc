#include "codegen/index_text.h"

#include <fmt/format.h>

#include "base/result.h"

namespace coil {

std::string host_index(Expr e, const char* symbols) {
  switch (e->kind) {
    case ExprKind::constant: return e->as_int() == INT64_MIN ? "INT64_MIN" : fmt::format("{}L", e->as_int());
    case ExprKind::symbol: return fmt::format("{}[{}]", symbols, e->id);
    default: break;
  }
  CHECK(e->kind == ExprKind::op && is_index_op(e->op), "a size that is not an expression of symbols");
  if (e->op == ScalarOp::iadd || e->op == ScalarOp::imul) {
    std::string text = "(";
    for (size_t i = 0; i < e->args.size(); ++i) text += (i ? (e->op == ScalarOp::iadd ? " + " : " * ") : "") + host_index(e->args[i], symbols);
    return text + ")";
  }
  const char* f = e->op == ScalarOp::idiv ? "floor_div" : e->op == ScalarOp::imod ? "floor_mod" : e->op == ScalarOp::imin ? "least" : "greatest";
  return fmt::format("{}({}, {})", f, host_index(e->args[0], symbols), host_index(e->args[1], symbols));
}

std::string size_text(Expr e) { return to_string(e); }

}  // namespace coil
