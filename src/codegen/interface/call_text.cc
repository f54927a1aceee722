#include "codegen/interface/call_text.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "loop/templates/template.h"
#include "schedule/kernel_buffers.h"

namespace coil {

std::vector<BufferId> written_buffers(const Kernel& kernel) {
  std::vector<BufferId> out;
  const auto add = [&](BufferId id) {
    if (id.valid() && std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  };
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
    for (const Stmt& s : loop->stmts) {
      if (s.kind == Stmt::Kind::store && s.scratch < 0) add(s.buffer);
    }
  } else if (const auto* t = std::get_if<TemplateKernel>(&kernel.def)) {
    for (const Stmt& s : t->epilogue) add(s.buffer);
    if (t->epilogue.empty()) add(t->result);
    if (t->past && t->past->keep_k) add(t->operands[1].buffer);
    if (t->past && t->past->keep_v) add(t->operands[2].buffer);
  } else if (const auto* user = std::get_if<UserCallKernel>(&kernel.def)) {
    for (BufferId id : user->results) add(id);
  }
  return out;
}

bool checks_index(const Kernel& k) {
  bool found = false;
  const auto look = [&](Expr e) {
    if (e) found = found || any_of(e, [](Expr n) { return n->is_op(ScalarOp::checked_index); });
  };
  if (const auto* loop = std::get_if<LoopKernel>(&k.def)) {
    for (const Stmt& s : loop->stmts) look(s.value), look(s.offset), look(s.condition);
  } else if (const auto* call = std::get_if<TemplateKernel>(&k.def)) {
    found = checks_data(call->def);
    for (const Stmt& s : call->epilogue) look(s.value), look(s.offset);
  } else if (const auto* sort = std::get_if<SortKernel>(&k.def)) {
    look(sort->body);
  }
  return found;
}

std::string call_comment(const Kernel& k) {
  std::string text = "  {  // " + comment_text(k.name);
  if (!k.origins.empty() && !k.origins[0].source.empty()) text += ": " + comment_text(k.origins[0].source);
  return text + "\n";
}

std::string trace_begin_text(size_t kernel, const std::string& worker) { return fmt::format("    COIL_BEGIN({}, {});\n", kernel, worker); }

std::string trace_end_text(size_t kernel, const std::string& worker) { return fmt::format("    COIL_END({}, {});\n", kernel, worker); }

// Formulas up to this length are written where they are used.
static constexpr size_t kShortFormula = 64;

// The function of a long formula has the number of the first buffer there.
static std::string arena_address(const Placement& p) {
  const std::string formula = host_index(p.offset);
  return "call->arena + " + (formula.size() <= kShortFormula ? formula : fmt::format("offset_{}(s)", p.index));
}

std::set<int> offsets_of(const KernelPlan& plan, const Kernel& kernel) {
  std::set<int> numbers;
  const KernelBuffers buffers = buffers_of(kernel);
  for (const std::vector<BufferId>* list : {&buffers.reads, &buffers.writes, &buffers.own}) {
    for (const BufferId id : *list) {
      const Placement& p = plan.buffer(whole_buffer(plan, id)).placement;
      if (p.kind == Placement::Kind::arena) numbers.insert(p.index);
    }
  }
  return numbers;
}

std::string offset_functions(const KernelPlan& plan, const std::set<int>* called) {
  std::string text;
  std::unordered_set<const ExprNode*> seen;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Placement& p = plan.buffers[i].placement;
    if (p.kind != Placement::Kind::arena || !seen.insert(p.offset.node()).second) continue;
    if (called && !called->contains(static_cast<int>(i))) continue;
    const std::string formula = host_index(p.offset);
    if (formula.size() > kShortFormula) text += fmt::format("__attribute__((noinline)) static int64_t offset_{}(const long* s) {{ return {}; }}\n", i, formula);
  }
  return text;
}

std::string buffer_address(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  switch (b.placement.kind) {
    case Placement::Kind::input: return fmt::format("call->inputs[{}]", b.placement.index);
    case Placement::Kind::output: return fmt::format("{}[{}]", last_data_symbol(plan, b.info.sizes).valid() ? "made" : "call->outputs", b.placement.index);
    case Placement::Kind::constant: return fmt::format("(void*)(call->constants + {}L)", plan.constants[static_cast<size_t>(b.placement.index)].offset);
    case Placement::Kind::state: return fmt::format("call->state + {}", host_index(b.placement.offset));
    case Placement::Kind::arena: return arena_address(b.placement);
    case Placement::Kind::late: return fmt::format("late[{}] + {}", b.placement.index, host_index(b.placement.offset));
    case Placement::Kind::row:
      return fmt::format("(char*)({}) + image * {}", buffer_address(plan, BufferId(b.placement.index)), host_index(b.placement.offset));
    case Placement::Kind::part: return fmt::format("part + {}", host_index(b.placement.offset, "own"));
    case Placement::Kind::none: break;
  }
  CHECK(false, "buffer " + b.info.name + " has no place");
  return "";
}

std::string element_address(const KernelPlan& plan, const PlanOperand& operand, int vars) {
  const Expr first = plan.pool->index(0), base = substitute_vars(operand.offset, std::vector<Expr>(static_cast<size_t>(vars), first));
  const std::string start = buffer_address(plan, operand.buffer);
  if (base == first) return start;
  return fmt::format("(void*)((char*)({}) + {} * {})", start, host_index(base), byte_size(plan.buffer(operand.buffer).info.dtype));
}

}  // namespace coil
