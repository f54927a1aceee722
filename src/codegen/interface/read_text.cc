#include "codegen/interface/read_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "codegen/foreign_text.h"
#include "codegen/index_text.h"

namespace coil {
namespace {

constexpr int kAssert = static_cast<int>(ErrorCode::runtime_assert);

void collect(const Condition& c, std::vector<Expr>& out) {
  if (c.a) out.push_back(c.a);
  if (c.b) out.push_back(c.b);
  for (const Condition& part : c.parts) collect(part, out);
}

}  // namespace

AfterReads::AfterReads(const KernelPlan& plan, std::vector<SizeLimit> limits) : plan_(plan), limits_(std::move(limits)) {
  const ReadOrder order(plan);
  const auto add = [&](std::span<const Expr> exprs, auto member, auto what) {
    if (const SymbolId last = order.last(exprs); last.valid()) (due_[last.index].*member).push_back(what);
  };
  for (const SizeCheck& c : plan.checks) {
    std::vector<Expr> exprs;
    collect(c.condition, exprs);
    add(exprs, &Due::checks, &c);
  }
  std::set<const ExprNode*> seen;
  for (const PlanBuffer& b : plan.buffers) {
    for (Expr e : b.info.sizes) {
      if (depends_on_data(e) && seen.insert(e.node()).second && !provably_nonnegative(e)) add(std::span(&e, 1), &Due::sizes, e);
    }
  }
  for (const SizeLimit& limit : limits_) {
    if (depends_on_data(limit.amount)) add(std::span(&limit.amount, 1), &Due::limits, &limit);
  }
  int output = 0;
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind == LoopOutput::Kind::user) add(plan.buffer(o.source).info.sizes, &Due::outputs, output++);
  }
  for (size_t i = 0; i < plan.late_memory.size(); ++i) due_[plan.late_memory[i].after.index].late.push_back(i);
}

std::string AfterReads::text(const ReadKernel& read, const Kernel& kernel) const {
  static const Due kNothing;
  const auto found = due_.find(read.symbol.index);
  const Due& due = found == due_.end() ? kNothing : found->second;
  std::string text = conditions(due, read) + range(read, kernel);
  for (Expr e : due.sizes) {
    text += fmt::format("    if ({0} < 0) return cd::fail(error, {1}, \"a size that depends on data, '%s', is %ld\", {2}, (long){0});\n", host_index(e),
                        kAssert, message_literal(size_text(e)));
  }
  for (const SizeLimit* limit : due.limits) text += limit_check(*limit);
  for (const int output : due.outputs) text += fmt::format("    if (call->allocate(call->owner, {0}, 0, s, &made[{0}], error)) return 1;\n", output);
  for (const size_t i : due.late) {
    text += fmt::format("    if (call->allocate(call->owner, -1, {}, s, (void**)&late[{}], error)) return 1;\n", host_index(plan_.late_memory[i].bytes), i);
  }
  return text;
}

std::string AfterReads::limit_check(const SizeLimit& limit) const {
  const std::string only = limit.condition.empty() ? "" : "(" + limit.condition + ") && ", amount = measure_text(plan_, limit.amount);
  const std::string what = limit.what + (limit.counted ? " are " : " is ") + size_text(limit.amount);
  if (limit.counted)
    return fmt::format("    if ({}{} >= {:.1f}) return cd::fail(error, {}, \"%s\", {});\n", only, amount, limit.most, static_cast<int>(ErrorCode::input_size),
                       message_literal(fmt::format("the data asks for more than the device counts, {:.0f} and more: {}", limit.most, what)));
  return fmt::format("    if ({}{} >= cd::kMostAmount) return cd::fail(error, {}, \"%s\", {});\n", only, amount, static_cast<int>(ErrorCode::out_of_memory),
                     message_literal("the data asks for more than there are numbers for: " + what));
}

// The program's own words come first.
std::string AfterReads::conditions(const Due& due, const ReadKernel& read) const {
  std::string text;
  for (const SizeCheck* c : due.checks) {
    const std::string message = (c->message.empty() ? "sizes that the program reads from data must satisfy "
                                                    : "assertion failed: " + c->message + (c->where.empty() ? "" : " (" + c->where + ")") + ": ") +
                                to_string(c->condition);
    text += fmt::format("    if (!({})) return cd::fail(error, {}, \"%s%s%ld\", {}, {}, s[{}]);\n", host_index(holds(*plan_.pool, c->condition)), kAssert,
                        message_literal(message), message_literal(fmt::format(", '{}' is ", plan_.pool->symbol_info(read.symbol).label)), read.symbol.index);
  }
  return text;
}

std::string AfterReads::range(const ReadKernel& read, const Kernel& kernel) const {
  const Symbol& s = plan_.pool->symbol_info(read.symbol);
  const std::string at = kernel.origins.empty() || kernel.origins[0].source.empty() ? "" : " (" + kernel.origins[0].source + ")";
  const std::string value = fmt::format("s[{}]", read.symbol.index);
  std::string most = std::to_string(s.max) + "L";
  if (read.limit) most = fmt::format("least({}, {})", most, host_index(read.limit));
  return fmt::format("    if ({0} < {1}L || {0} > {2}) return cd::fail(error, {3}, \"%s is %ld, not in %ld..%ld\", {4}, {0}, {1}L, {2});\n", value, s.min, most,
                     kAssert, message_literal("the size '" + s.label + "' that the program reads from data" + at));
}

bool reads_sizes(const KernelPlan& plan) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) { return std::holds_alternative<ReadKernel>(k.def); });
}

bool has_late_outputs(const KernelPlan& plan) {
  return std::any_of(plan.outputs.begin(), plan.outputs.end(),
                     [&](const LoopOutput& o) { return o.kind == LoopOutput::Kind::user && last_data_symbol(plan, plan.buffer(o.source).info.sizes).valid(); });
}

std::string late_declarations(const KernelPlan& plan) {
  std::string text;
  const auto outputs = std::count_if(plan.outputs.begin(), plan.outputs.end(), [](const LoopOutput& o) { return o.kind == LoopOutput::Kind::user; });
  if (has_late_outputs(plan)) text += fmt::format("  void* made[{}] = {{}};\n", outputs);
  if (!plan.late_memory.empty()) text += fmt::format("  uint8_t* late[{}] = {{}};\n", plan.late_memory.size());
  return text;
}

}  // namespace coil
