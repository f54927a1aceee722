// Kernel plans as text, for dumps and goldens.
#include <fmt/format.h>

#include "schedule/kernel_plan.h"

namespace coil {
namespace {

class PlanPrinter {
 public:
  explicit PlanPrinter(const KernelPlan& plan) : plan_(plan) {
    names_.buffer = [this](BufferId id) {
      if (id.index >= kScratchBase) return fmt::format("scratch{}", id.index - kScratchBase);
      return plan_.buffer(id).info.name;
    };
  }

  std::string run() {
    std::string text;
    for (const Kernel& k : plan_.kernels) {
      text += "kernel " + k.name + (k.beside ? ", beside the one before\n" : k.joins ? ", joined with the one before\n" : "\n");
      std::visit([&](const auto& def) { text += print(def); }, k.def);
    }
    text += "arena " + to_string(plan_.arena_bytes) + " bytes\n";
    for (const PlanBuffer& b : plan_.buffers) {
      if (b.placement.kind == Placement::Kind::arena) text += fmt::format("  {} at {}\n", b.info.name, to_string(b.placement.offset));
      if (b.placement.kind == Placement::Kind::part) text += fmt::format("  {} of an image at {}\n", b.info.name, to_string(b.placement.offset));
    }
    for (size_t i = 0; i < plan_.late_memory.size(); ++i) {
      text += fmt::format("after {}: {} bytes\n", plan_.pool->symbol_info(plan_.late_memory[i].after).label, to_string(plan_.late_memory[i].bytes));
      for (const PlanBuffer& b : plan_.buffers) {
        const bool here = b.placement.kind == Placement::Kind::late && b.placement.index == static_cast<int>(i);
        if (here) text += fmt::format("  {} at {}\n", b.info.name, to_string(b.placement.offset));
      }
    }
    for (const FusionNote& n : plan_.not_fused) text += fmt::format("not fused: {} -> {}: {}\n", n.producer, n.consumer, n.reason);
    return text;
  }

 private:
  std::string expr(Expr e) const { return to_string(e, names_); }

  std::string print(const Stmt& s) const {
    const std::string lead = fmt::format("  {}{} ", s.phase, s.inner ? "*" : " ");
    switch (s.kind) {
      case Stmt::Kind::let: return fmt::format("{}t{} = {}\n", lead, s.temp.index, expr(s.value));
      case Stmt::Kind::reduce: return fmt::format("{}t{} = reduce<{}>({})\n", lead, s.temp.index, static_cast<int>(s.op), expr(s.value));
      case Stmt::Kind::scan: return fmt::format("{}t{} = scan<{}>({})\n", lead, s.temp.index, static_cast<int>(s.op), expr(s.value));
      case Stmt::Kind::store: break;
    }
    const std::string to = s.scratch >= 0 ? fmt::format("scratch{}", s.scratch) : names_.buffer(s.buffer);
    const std::string condition = s.condition ? " where " + expr(s.condition) : "";
    return fmt::format("{}{}[{}] = {}{}\n", lead, to, expr(s.offset), expr(s.value), condition);
  }

  std::string print(const LoopKernel& k) const {
    std::string text = "  for";
    for (size_t a = 0; a < k.axes.size(); ++a) {
      text += fmt::format("{} {}<{}", static_cast<int>(a) == k.num_outer ? " |" : "", k.axes[a].name, expr(k.axes[a].size));
    }
    text += "\n";
    for (const Stmt& s : k.stmts) text += print(s);
    return text;
  }

  std::string print(const TemplateKernel& k) const {
    std::string text = fmt::format("  template {}", template_name(k.def));
    for (const PlanOperand& o : k.operands) text += fmt::format(" {}[{}]", names_.buffer(o.buffer), expr(o.offset));
    if (k.past) {
      text += fmt::format(", {} rows before them {}[{}]{} {}[{}]{}", expr(k.past->rows), names_.buffer(k.past->k.buffer), expr(k.past->k.offset),
                          k.past->keep_k ? " kept" : "", names_.buffer(k.past->v.buffer), expr(k.past->v.offset), k.past->keep_v ? " kept" : "");
    }
    for (const PlanOperand& o : k.weights) text += fmt::format(" or {}", names_.buffer(o.buffer));
    text += k.epilogue.empty() ? " -> " + names_.buffer(k.result) + "\n" : "\n";
    for (const Stmt& s : k.epilogue) text += print(s);
    return text;
  }

  std::string print(const SortKernel& k) const { return fmt::format("  sort dim {} of {}\n", k.def.dim, expr(k.body)); }
  std::string print(const LibraryKernel& k) const {
    std::string text = "  library " + k.def.routine;
    for (BufferId id : k.def.inputs) text += " " + names_.buffer(id);
    text += " ->";
    for (BufferId id : k.results) text += " " + names_.buffer(id);
    return text + "\n";
  }
  std::string print(const UserCallKernel& k) const {
    std::string text = "  user " + k.def.kernel->name;
    for (const PlanOperand& o : k.operands) {
      if (o.buffer.valid()) text += fmt::format(" {}[{}]", names_.buffer(o.buffer), expr(o.offset));
    }
    text += " ->";
    for (BufferId id : k.results) text += " " + names_.buffer(id);
    return text + "\n";
  }
  std::string print(const CopyKernel& k) const {
    const std::string at = k.to_element ? fmt::format(" at {}", expr(k.to_element)) : "";
    return fmt::format("  copy {} -> {}{}\n", names_.buffer(k.from), names_.buffer(k.to), at);
  }
  std::string print(const ControlMark& k) const {
    switch (k.kind) {
      case ControlMark::Kind::branch: return fmt::format("  if {}\n", names_.buffer(k.predicate));
      case ControlMark::Kind::otherwise: return "  else\n";
      case ControlMark::Kind::loop: return fmt::format("  for {}{}\n", plan_.pool->symbol_info(k.step).label, k.steps ? " < " + expr(k.steps) : "");
      case ControlMark::Kind::images: return fmt::format("  for each of {} images, in {}\n", expr(k.steps), names_.buffer(k.scratch));
      case ControlMark::Kind::stop_unless: return fmt::format("  stop unless {}\n", names_.buffer(k.predicate));
      case ControlMark::Kind::end: break;
    }
    return "  end\n";
  }
  std::string print(const ReadKernel& k) const {
    const std::string limit = k.limit ? ", at most " + expr(k.limit) : "";
    return fmt::format("  read {} from {}{}\n", plan_.pool->symbol_info(k.symbol).label, names_.buffer(k.source), limit);
  }

  const KernelPlan& plan_;
  PrintNames names_;
};

}  // namespace

std::string to_string(const KernelPlan& plan) { return PlanPrinter(plan).run(); }

}  // namespace coil
