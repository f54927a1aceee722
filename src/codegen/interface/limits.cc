#include "codegen/interface/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "device/cuda/limits.h"
#include "loop/templates/template.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kMost = int64_t{1} << 62;
constexpr int64_t kCounted = (int64_t{1} << 31) - (1 << 16);  // by an int, the end of the last tile included
constexpr int64_t kBlocks = cd::kMostGridX, kBlocksYZ = cd::kMostGridYZ;
constexpr size_t kComparedWith = 24;  // amounts that a new one is compared with; more than programs have in practice

class Collector {
 public:
  Collector(const KernelPlan& plan, const InterfaceTraits& target) : plan_(plan), counts_in_32_bits_(target.counts_in_32_bits) {}

  std::vector<SizeLimit> run() {
    add("the scratch space", plan_.arena_bytes);
    for (const LateMemory& m : plan_.late_memory) add("the scratch space", m.bytes);
    for (size_t i = 0; i < plan_.buffers.size(); ++i) add_buffer(plan_.buffers[i]);
    for (const Kernel& k : plan_.kernels) std::visit([&](const auto& def) { add_kernel(k, def); }, k.def);
    for (const SizeCheck& c : plan_.checks) add_condition(c.condition);
    // The large ones first, so that they make the others superfluous.
    std::stable_sort(found_.begin(), found_.end(), [](const SizeLimit& a, const SizeLimit& b) { return typical(a.amount) > typical(b.amount); });
    std::vector<SizeLimit> kept;
    for (SizeLimit& limit : found_) {
      // What is known before the call starts is measured then, whatever becomes known later.
      const auto covers = [&](const SizeLimit& other) {
        return depends_on_data(other.amount) == depends_on_data(limit.amount) && other.most <= limit.most && provably_nonnegative(other.amount - limit.amount);
      };
      const size_t compared = std::min(kept.size(), kComparedWith);
      if (std::none_of(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(compared), covers)) kept.push_back(std::move(limit));
    }
    return kept;
  }

 private:
  // What is greater than `most` is refused.
  void add_counted(const std::string& what, Expr amount, int64_t most = kCounted) {
    const std::optional<int64_t> top = amount ? upper_bound(amount) : 0;
    if (!counts_in_32_bits_ || (top && *top <= most) || !counted_.insert({amount.node(), most}).second) return;
    found_.push_back({what, amount, static_cast<double>(most) + 1, true});
  }

  void add(const std::string& what, Expr amount) {
    if (!amount || amount->kind == ExprKind::symbol || !seen_.insert(amount.node()).second) return;
    // What is divided counts by itself.
    visit(amount, [&](Expr e) {
      const bool divides = e->is_op(ScalarOp::idiv) || e->is_op(ScalarOp::imod);
      if (divides && e->args[0] != amount) add(what, e->args[0]);
    });
    const std::optional<int64_t> top = upper_bound(amount);
    const bool least = any_of(amount, [](Expr e) { return e->kind == ExprKind::symbol && e->pool->symbol_info(SymbolId(e->id)).min < 0; })
                           ? lower_bound(amount).value_or(INT64_MIN) > -kMost
                           : true;
    if (top && *top < kMost && *top >= 0 && least) return;
    found_.push_back({what, amount, static_cast<double>(kMost), false});
  }

  Expr product_of(const std::vector<Expr>& sizes) { return product(*plan_.pool, sizes); }

  void add_buffer(const PlanBuffer& b) {
    const char* kind = "";
    switch (b.placement.kind) {
      case Placement::Kind::input: kind = "input"; break;
      case Placement::Kind::output: kind = "output"; break;
      case Placement::Kind::arena:
      case Placement::Kind::late: kind = "the buffer"; break;
      default: return;  // constants and state are fixed, other values live in registers: their loop counts
    }
    add(fmt::format("{} '{}'", kind, b.info.name), product_of(b.info.sizes) * byte_size(b.info.dtype));
  }

  void add_kernel(const Kernel& k, const LoopKernel& loop) {
    std::vector<Expr> sizes;
    for (const Axis& a : loop.axes) sizes.push_back(a.size);
    add("the loop '" + k.name + "'", product_of(sizes));
  }
  void add_kernel(const Kernel& k, const TemplateKernel& t) {
    const std::string of_kernel = "'" + k.name + "'", what = "the operands of " + of_kernel;
    add(what, product_of(t.result_sizes));
    const TemplateLimits limits = template_limits(*plan_.pool, t.def, t.result_sizes);
    for (Expr amount : limits.amounts) add(what, amount);
    for (const auto& [name, count] : limits.counts) add_counted(name + of_kernel, count);
  }
  void add_kernel(const Kernel& k, const SortKernel& s) {
    std::vector<Expr> sizes = s.sizes;
    if (!sizes.empty()) {
      std::vector<Expr> others = sizes;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(s.def.dim));
      add_counted("the rows of '" + k.name + "'", product_of(others), kBlocks);
      sizes[static_cast<size_t>(s.def.dim)] = s.def.length;
    }
    add("the rows of '" + k.name + "'", product_of(sizes));
  }
  void add_kernel(const Kernel& k, const LibraryKernel& l) {
    for (Expr size : l.def.sizes) add("a size of '" + k.name + "'", size);
  }
  void add_kernel(const Kernel& k, const UserCallKernel& u) {
    for (const UserCall::Argument& a : u.def.args) {
      if (const auto* e = std::get_if<Expr>(&a)) add("a number that '" + k.name + "' gets", *e);
    }
    for (const UserCall::Launch& l : u.def.launches) {
      for (Expr e : {l.range, l.work, l.grid[0], l.grid[1], l.grid[2]}) add("the range of '" + k.name + "'", e);
      for (size_t i = 0; i < 3; ++i) add_counted("the grid of '" + k.name + "'", l.grid[i], i == 0 ? kBlocks : kBlocksYZ);
    }
    add("the key of '" + k.name + "'", u.def.key);
  }
  void add_kernel(const Kernel&, const CopyKernel&) {}
  void add_kernel(const Kernel&, const ReadKernel&) {}
  void add_kernel(const Kernel& k, const ControlMark& mark) {
    if (mark.kind == ControlMark::Kind::loop || mark.kind == ControlMark::Kind::images) add("the steps of '" + k.name + "'", mark.steps);
  }

  void add_condition(const Condition& c) {
    if (c.a) add("a side of the condition " + to_string(c), c.a);
    if (c.b) add("a side of the condition " + to_string(c), c.b);
    for (const Condition& part : c.parts) add_condition(part);
  }

  const KernelPlan& plan_;
  bool counts_in_32_bits_;
  std::set<const ExprNode*> seen_;
  std::set<std::pair<const ExprNode*, int64_t>> counted_;
  std::vector<SizeLimit> found_;
};

}  // namespace

std::vector<SizeLimit> size_limits(const KernelPlan& plan, const InterfaceTraits& target) { return Collector(plan, target).run(); }

std::string most_function() { return "static inline double most(double a, double b) { return a > b ? a : b; }\n"; }

std::string measure_text(const KernelPlan& plan, Expr e) {
  if (e->is_constant()) return fmt::format("{:.17g}", std::abs(static_cast<double>(e->as_int()))) + (e->as_int() < int64_t{1} << 50 ? ".0" : "");
  if (e->kind == ExprKind::symbol) {
    const SymbolId id(e->id);
    const Symbol& s = plan.pool->symbol_info(id);
    if (id == plan.workers) return fmt::format("{}.0", s.max);
    return s.min < 0 && !s.from_data ? fmt::format("__builtin_fabs((double)s[{}])", e->id) : fmt::format("(double)s[{}]", e->id);
  }
  CHECK(e->kind == ExprKind::op && is_index_op(e->op), "a size that is not an expression of symbols");
  if (e->op == ScalarOp::iadd || e->op == ScalarOp::imul) {
    std::string text;
    for (Expr a : e->args) text += (text.empty() ? "" : e->op == ScalarOp::iadd ? " + " : " * ") + measure_text(plan, a);
    return "(" + text + ")";
  }
  const std::string a = measure_text(plan, e->args[0]), b = measure_text(plan, e->args[1]);
  if (e->op == ScalarOp::idiv) return fmt::format("({} / {})", a, b);
  if (e->op == ScalarOp::imod) return b;
  return fmt::format("most({}, {})", a, b);  // the least of two is at most the greatest
}

}  // namespace coil
