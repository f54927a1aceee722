#include "codegen/host/read_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/foreign_text.h"
#include "codegen/host/host_program.h"
#include "codegen/host/index_text.h"
#include "codegen/host/limits.h"

namespace coil {
namespace {

constexpr int kAssert = static_cast<int>(ErrorCode::runtime_assert);

void collect(const Condition& c, std::vector<Expr>& out) {
  if (c.a) out.push_back(c.a);
  if (c.b) out.push_back(c.b);
  for (const Condition& part : c.parts) collect(part, out);
}

class ReadWriter {
 public:
  ReadWriter(const KernelPlan& plan, const ReadKernel& read, const Kernel& kernel) : plan_(plan), read_(read), kernel_(kernel) {}

  std::string run() {
    conditions();
    range();
    sizes();
    amounts();
    memory();
    return std::move(text_);
  }

 private:
  bool due(const std::vector<Expr>& exprs) const { return last_data_symbol(plan_, exprs) == read_.symbol; }

  // The program's own words come first.
  void conditions() {
    for (const SizeCheck& c : plan_.checks) {
      std::vector<Expr> exprs;
      collect(c.condition, exprs);
      if (!due(exprs)) continue;
      const std::string message = (c.message.empty() ? "sizes that the program reads from data must satisfy " : "assertion failed: " + c.message + (c.where.empty() ? "" : " (" + c.where + ")") + ": ") +
                                  to_string(c.condition);
      text_ += fmt::format("    if (!({})) return cd::fail(error, {}, \"%s%s%ld\", {}, {}, s[{}]);\n", host_index(holds(*plan_.pool, c.condition)), kAssert,
                           message_literal(message), message_literal(fmt::format(", '{}' is ", label())), read_.symbol.index);
    }
  }

  std::string label() const { return plan_.pool->symbol_info(read_.symbol).label; }

  void range() {
    const Symbol& s = plan_.pool->symbol_info(read_.symbol);
    const std::string at = kernel_.origins.empty() || kernel_.origins[0].source.empty() ? "" : " (" + kernel_.origins[0].source + ")";
    const std::string value = fmt::format("s[{}]", read_.symbol.index);
    std::string most = std::to_string(s.max) + "L";
    if (read_.limit) most = fmt::format("least({}, {})", most, host_index(read_.limit));
    text_ += fmt::format("    if ({0} < {1}L || {0} > {2}) return cd::fail(error, {3}, \"%s is %ld, not in %ld..%ld\", {4}, {0}, {1}L, {2});\n", value, s.min, most, kAssert,
                         message_literal("the size '" + label() + "' that the program reads from data" + at));
  }

  void sizes() {
    std::set<const ExprNode*> seen;
    for (const PlanBuffer& b : plan_.buffers) {
      for (Expr e : b.info.sizes) {
        if (!depends_on_data(e) || provably_nonnegative(e) || !due({e}) || !seen.insert(e.node()).second) continue;
        text_ += fmt::format("    if ({0} < 0) return cd::fail(error, {1}, \"a size that depends on data, '%s', is %ld\", {2}, (long){0});\n", host_index(e), kAssert,
                             message_literal(size_text(e)));
      }
    }
  }

  void amounts() {
    for (const SizeLimit& limit : size_limits(plan_, false)) {
      if (!depends_on_data(limit.amount) || !due({limit.amount})) continue;
      text_ += fmt::format("    if ({} >= cd::kMostAmount) return cd::fail(error, {}, \"%s\", {});\n", measure_text(plan_, limit.amount),
                           static_cast<int>(ErrorCode::out_of_memory), message_literal("the data asks for more than there are numbers for: " + limit.what + " is " + size_text(limit.amount)));
    }
  }

  void memory() {
    int output = 0;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind != LoopOutput::Kind::user) continue;
      if (due(plan_.buffer(o.source).info.sizes))
        text_ += fmt::format("    if (call->allocate(call->owner, {0}, 0, s, &made[{0}], error)) return 1;\n", output);
      ++output;
    }
    for (size_t i = 0; i < plan_.late_memory.size(); ++i) {
      if (plan_.late_memory[i].after != read_.symbol) continue;
      text_ += fmt::format("    if (call->allocate(call->owner, -1, {}, s, (void**)&late[{}], error)) return 1;\n", host_index(plan_.late_memory[i].bytes), i);
    }
  }

  const KernelPlan& plan_;
  const ReadKernel& read_;
  const Kernel& kernel_;
  std::string text_;
};

}  // namespace

bool reads_sizes(const KernelPlan& plan) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) { return std::holds_alternative<ReadKernel>(k.def); });
}

bool has_late_outputs(const KernelPlan& plan) {
  return std::any_of(plan.outputs.begin(), plan.outputs.end(), [&](const LoopOutput& o) {
    return o.kind == LoopOutput::Kind::user && last_data_symbol(plan, plan.buffer(o.source).info.sizes).valid();
  });
}

std::string late_declarations(const KernelPlan& plan) {
  std::string text;
  const auto outputs = std::count_if(plan.outputs.begin(), plan.outputs.end(), [](const LoopOutput& o) { return o.kind == LoopOutput::Kind::user; });
  if (has_late_outputs(plan)) text += fmt::format("  void* made[{}] = {{}};\n", outputs);
  if (!plan.late_memory.empty()) text += fmt::format("  uint8_t* late[{}] = {{}};\n", plan.late_memory.size());
  return text;
}

std::string after_read_text(const KernelPlan& plan, const ReadKernel& read, const Kernel& kernel) { return ReadWriter(plan, read, kernel).run(); }

}  // namespace coil
