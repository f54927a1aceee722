// Assertions about data. Each becomes a loop of its own over one point, whose checked index fails where the assertion does: the
// kernel reports it as it reports an index out of range, and the host words it with the assertion's message.
#include "lower/lowering.h"

#include "base/text.h"

namespace coil::lowering {
namespace {

constexpr size_t kMaxMessage = 300;

std::string message_of(const Op& op) {
  std::string text = op.node.find("assert_msg") ? op.text("assert_msg") : "";
  if (text.empty()) text = "the program's assertion does not hold";
  if (text.size() > kMaxMessage) text = std::string(clipped(text, kMaxMessage)) + "...";
  const std::string place = where(op.node);
  return "assertion failed: " + text + (place.empty() ? "" : " (" + place + ")");
}

Views assertion(Op& op) {
  View v = op.operand("self");
  if (v.rank() > 0) {
    if (!is_const(count(op.pool, v.sizes), 1)) fail(ErrorCode::bad_program, op.node.target + ": the condition has not exactly one element");
    v = reshaped(op, v, {});
  }
  // What a branch asserts counts where the branch is taken.
  Expr holds = as(v.body, DType::boolean);
  for (Expr taken : op.session.taken) holds = op.pool.op(ScalarOp::logical_or, {op.pool.op(ScalarOp::logical_not, {taken}), holds});
  holds = simplify_body(holds, {});
  if (holds->is_constant() && holds->as_int() != 0) return {};
  op.rec.check("assert", message_of(op), holds);
  return {};
}

}  // namespace

void add_assertions(Table& table) {
  for (const char* target : {"aten._assert_async.msg", "aten._assert_async.default", "aten._assert_scalar.default"}) {
    table[target] = assertion;
  }
}

}  // namespace coil::lowering
