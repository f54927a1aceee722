// Kernel plans as text, for dumps and goldens; parse_plan.cc reads it back.
#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "expr/constant_text.h"
#include "loop/loop_text.h"
#include "loop/program_lines.h"
#include "loop/templates/template.h"
#include "schedule/plan_text.h"

namespace coil {
namespace {

// The buffers as those of a loop program, which words of loops are printed with. Plans may have several buffers of one name: the second is "x$2".
LoopProgram as_program(const KernelPlan& plan) {
  LoopProgram program;
  program.pool = plan.pool;
  std::unordered_set<std::string> used;
  for (const PlanBuffer& b : plan.buffers) {
    BufferInfo& info = program.buffers.emplace_back(b.info);
    int count = is_scratch_name(info.name) ? 2 : 1;
    while (count > 1 ? !used.insert(info.name = fmt::format("{}${}", b.info.name, count)).second : !used.insert(info.name).second) ++count;
  }
  return program;
}

struct Named {
  LoopProgram named;
};

class PlanPrinter : Named, LoopText {
 public:
  explicit PlanPrinter(const KernelPlan& plan) : Named{as_program(plan)}, LoopText(named), plan_(plan) {
    names_.buffer = [this](BufferId id) { return id.index >= kScratchBase ? scratch_name(id.index - kScratchBase) : name(id); };
  }

  std::string run() {
    out_ = fmt::format("{}\n", kPlanHead) + sizes_text(program_, *this, true);
    for (size_t b = 0; b < plan_.buffers.size(); ++b) print(BufferId(b));
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const bool stored = plan_.buffers[b].placement.kind != Placement::Kind::none;
      if (stored && !plan_.buffers[b].info.why.empty()) line("why {}: {}", name(BufferId(b)), quoted_unless_plain(plan_.buffers[b].info.why));
    }
    for (const PlanConstant& c : plan_.constants) print(c);
    for (const LoopInput& in : plan_.inputs) print(in);
    for (const SizeCheck& check : plan_.checks) out_ += check_text(check);
    for (const Kernel& k : plan_.kernels) {
      const bool usual = k.ops.size() == 1 && k.ops[0] == k.name;
      line("kernel {}{}{}{}", name_text(k.name),
           k.beside  ? ", beside the one before"
           : k.joins ? ", joined with the one before"
                     : "",
           usual ? "" : " of [" + words_of(k.ops) + "]", k.assertion.empty() ? "" : " asserts " + quoted_name(k.assertion));
      std::visit([&](const auto& def) { print(def); }, k.def);
    }
    for (const LoopOutput& out : plan_.outputs) out_ += output_text(program_, *this, out);
    for (int place : plan_.none_results) line("none {}", place);
    line("arena {} bytes", expr(plan_.arena_bytes));
    for (const LateMemory& late : plan_.late_memory) line("late after {}: {} bytes", symbol(late.after), expr(late.bytes));
    if (plan_.state_bytes > 0) line("states {} bytes, {} stored", plan_.state_bytes, plan_.state_stored);
    const PlanMachine& m = plan_.machine;
    if (m != PlanMachine{}) line("machine of {} units, caches of {} and {} bytes, {} bytes a launch", m.units, m.own_cache, m.shared_cache, m.launch_bytes);
    if (!plan_.arithmetic.empty()) line("arithmetic {}", name_text(plan_.arithmetic));
    for (const FusionNote& n : plan_.not_fused) line("not fused: {} -> {}: {}", name_text(n.producer), name_text(n.consumer), quoted_unless_plain(n.reason));
    return std::move(out_);
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    out_ += fmt::format(format, std::forward<A>(args)...);
    out_ += '\n';
  }

  std::string expr(Expr e) const { return to_string(e, names_); }
  std::string symbol(SymbolId id) const { return name_text(plan_.pool->symbol_info(id).label); }
  std::string at(const PlanOperand& o) const { return o.buffer.valid() ? fmt::format("{}[{}]", name(o.buffer), expr(o.offset)) : "-"; }
  static std::string words_of(const std::vector<std::string>& words) {
    std::string s;
    for (const std::string& w : words) s += (s.empty() ? "" : ", ") + name_text(w);
    return s;
  }
  // One line of printable characters.
  static std::string quoted_unless_plain(const std::string& text) {
    const bool plain = !text.empty() && text[0] != '"' && text[0] != ' ' && std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    return plain ? text : quoted_name(text);
  }

  void print(BufferId id) {
    const PlanBuffer& b = plan_.buffer(id);
    const char* const kWords[] = {"input", "constant", "state", "buffer"};
    const bool stored = b.info.kind == BufferInfo::Kind::constant || b.info.kind == BufferInfo::Kind::state;
    const std::string contents = stored ? contents_text(b.info.data) : "";
    line("{} {}{}; {}", kWords[static_cast<size_t>(b.info.kind)], declaration(id), contents.empty() ? "" : " = " + contents, place(b.placement));
  }

  std::string place(const Placement& p) const {
    switch (p.kind) {
      case Placement::Kind::none: return "nowhere";
      case Placement::Kind::input: return fmt::format("argument {}", p.index);
      case Placement::Kind::output: return fmt::format("result {}", p.index);
      case Placement::Kind::constant: return fmt::format("constant {}", p.index);
      case Placement::Kind::state: return fmt::format("at {} of the states", expr(p.offset));
      case Placement::Kind::arena: return fmt::format("at {} of the arena", expr(p.offset));
      case Placement::Kind::late: return fmt::format("at {} of late memory {}", expr(p.offset), p.index);
      case Placement::Kind::row: return fmt::format("row of {}, {} bytes each", name(BufferId(p.index)), expr(p.offset));
      case Placement::Kind::part: return fmt::format("at {} of an image", expr(p.offset));
    }
    return "";
  }

  void print(const PlanConstant& c) {
    line("package {} as {} k {} n {} groups {} batch {} strides {} {} {} first {}{}", name(c.buffer), c.packing.name(), c.k, c.n, c.groups, c.batch,
         c.batch_stride, c.row_stride, c.col_stride, c.first, c.codes.empty() ? "" : fmt::format(" codes {} {}", c.codes.size(), fmt::join(c.codes, " ")));
  }

  void print(const LoopInput& in) { out_ += input_text(program_, *this, in, "argument", in.buffer.valid() ? name(in.buffer) : ""); }

  void print(const Stmt& s) {
    const std::string lead = fmt::format("  {}{}", s.phase, s.inner ? "*" : " ");
    if (s.kind == Stmt::Kind::store) {
      const std::string to = s.scratch >= 0 ? scratch_name(s.scratch) : name(s.buffer);
      return line("{} {}[{}] = {}{}", lead, to, expr(s.offset), expr(s.value), s.condition ? " where " + expr(s.condition) : "");
    }
    const std::string type = s.dtype == DType::f32 ? "" : fmt::format(": {}", coil::name(s.dtype));
    const std::string how = s.kind == Stmt::Kind::let ? "" : fmt::format("{} {} of ", s.kind == Stmt::Kind::reduce ? "reduce" : "scan", reduce_name(s.op));
    line("{} t{}{} = {}{}", lead, s.temp.index, type, how, expr(s.value));
  }

  void print_scratch(BufferId id) {
    if (id.valid()) line("  scratch memory {}", name(id));
  }

  void print(const LoopKernel& k) {
    std::string axes;
    for (size_t a = 0; a <= k.axes.size(); ++a) {
      if (static_cast<int>(a) == k.num_outer && k.num_outer < static_cast<int>(k.axes.size())) axes += " |";
      if (a < k.axes.size()) axes += fmt::format(" {}<{}", name_text(k.axes[a].name), expr(k.axes[a].size));
    }
    line("  for{}{}", axes, k.sequential ? " in order" : "");
    for (size_t r = 0; r < k.scratch.size(); ++r) {
      const WorkerScratch& s = k.scratch[r];
      line("  keeps {}: {} {}{}", scratch_name(static_cast<int32_t>(r)), coil::name(s.dtype), expr(s.elements),
           s.buffer.valid() ? " in " + name(s.buffer) : "");
    }
    for (const Stmt& s : k.stmts) print(s);
  }

  void print(const TemplateKernel& k) {
    std::string def;
    visit_template(k.def, [&](const auto& d) { def = coil::text(*this, d); });
    line("  template {} {}", template_name(k.def), def);
    std::string operands;
    for (const PlanOperand& o : k.operands) operands += (operands.empty() ? " " : ", ") + at(o);
    line("  reads{}", operands);
    for (const PlanOperand& o : k.weights) line("  or {}", at(o));
    if (k.call_winograd) line("  winograd {}", k.call_winograd);
    if (k.past) {
      line("  with {} rows before them {}{} and {}{}", expr(k.past->rows), at(k.past->k), k.past->keep_k ? " kept" : "", at(k.past->v),
           k.past->keep_v ? " kept" : "");
    }
    line("  gives t{} of {} for {}[{}]", k.acc.index, list(k.result_sizes), name(k.result), expr(k.result_offset));
    print_scratch(k.scratch);
    for (const Stmt& s : k.epilogue) print(s);
  }

  void print(const SortKernel& k) {
    const std::string below = k.def.below > 0 ? fmt::format(" below {}", k.def.below) : "";
    line("  sort{}{} along i{} of {} to {}: {}", k.def.descending ? " descending" : "", below, k.def.dim, expr(k.def.length), list(k.sizes), expr(k.body));
    line("  values {}[{}] indices {}[{}]", name(k.values), expr(k.values_offset), name(k.indices), expr(k.indices_offset));
    print_scratch(k.scratch);
  }
  void print(const LibraryKernel& k) {
    std::string options, more;
    for (int64_t o : k.def.options) options += fmt::format("{}{}", options.empty() ? "" : ", ", o);
    if (k.def.scratch) more += " scratch " + text(k.def.scratch);
    if (k.def.worker_scratch) more += " worker scratch " + text(k.def.worker_scratch);
    line("  library {} {} for {} sizes {} options [{}]{}: {}; gives {}", name_text(k.def.routine), coil::name(k.def.dtype), name_text(k.def.subject),
         list(k.def.sizes), options, more, names(k.def.inputs), names(k.results));
    print_scratch(k.scratch);
  }
  void print(const UserCallKernel& k) {
    std::string operands;
    for (size_t i = 0; i < k.operands.size(); ++i) {
      const auto* tensor = std::get_if<UserCall::Tensor>(&k.def.args[i]);
      if (!tensor || !k.operands[i].buffer.valid()) continue;  // a number, or None
      operands += (operands.empty() ? "" : ", ") + at(k.operands[i]) + " of " + list(tensor->sizes);
    }
    line("  user {}: {} -> {}", name_text(k.def.kernel->name), operands, names(k.results));
  }
  void print(const CopyKernel& k) {
    line("  copy {} -> {}{}{}", name(k.from), name(k.to), k.to_element ? " at " + expr(k.to_element) : "",
         k.why.empty() ? "" : ", because " + quoted_unless_plain(k.why));
  }
  void print(const ReadKernel& k) { line("  read {} from {}{}", symbol(k.symbol), name(k.source), k.limit ? ", at most " + expr(k.limit) : ""); }
  void print(const ControlMark& k) {
    switch (k.kind) {
      case ControlMark::Kind::branch: return line("  if {} in {}", name(k.predicate), name(k.scratch));
      case ControlMark::Kind::otherwise: return line("  else");
      case ControlMark::Kind::loop: return line("  for each {}{} in {}", symbol(k.step), k.steps ? " < " + expr(k.steps) : "", name(k.scratch));
      case ControlMark::Kind::images: return line("  image by image of {}, {} bytes each, in {}", expr(k.steps), expr(k.part_bytes), name(k.scratch));
      case ControlMark::Kind::stop_unless: return line("  stop unless {}", name(k.predicate));
      case ControlMark::Kind::end: return line("  end");
    }
  }

  const KernelPlan& plan_;
  PrintNames names_;
  std::string out_;
};

}  // namespace

std::string to_string(const KernelPlan& plan) { return PlanPrinter(plan).run(); }

}  // namespace coil
