#include "schedule/verify_plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "schedule/products/join_products.h"
#include "schedule/kernel_buffers.h"

namespace coil {
namespace {

class PlanVerifier {
 public:
  PlanVerifier(const KernelPlan& plan, const std::vector<KernelBuffers>& used) : plan_(plan), used_(used), written_(plan.buffers.size(), 0) {}

  Status run() {
    for (size_t b = 0; b < plan_.buffers.size(); ++b) TRY_STATUS(check_buffer(BufferId(b)));
    TRY_STATUS(check_rows());
    for (size_t n = 0; n < plan_.kernels.size(); ++n) TRY_STATUS(check_kernel(n));
    if (!open_.empty()) return wrong("the mark of kernel {} has no end", open_.back().begin);
    for (size_t n = 0; n < plan_.kernels.size(); n = last_of_group(plan_, n) + 1) TRY_STATUS(check_group(n, last_of_group(plan_, n)));
    return check_outputs();
  }

 private:
  // A mark that waits for its end.
  struct Open {
    size_t begin;
    ControlMark::Kind kind;
    bool other = false;           // of a branch: the second part has begun
    std::vector<int32_t> before;  // what was written since it began, in its present part
    std::vector<int32_t> first;   // ... in a branch's first part
  };

  // The buffers of a kernel, each once, by number.
  struct Touched {
    std::vector<BufferId> reads, writes;
  };

  template <class... A>
  static Error wrong(fmt::format_string<A...> format, A&&... args) {
    return Error{ErrorCode::internal, "kernel plan: " + fmt::format(format, std::forward<A>(args)...), {}, {}};
  }

  bool exists(BufferId id) const { return id.valid() && static_cast<size_t>(id.index) < plan_.buffers.size(); }
  const std::string& name(BufferId id) const { return plan_.buffer(id).info.name; }
  std::string name_of(size_t kernel) const { return fmt::format("kernel {} '{}'", kernel, plan_.kernels[kernel].name); }

  Status check_buffer(BufferId id) {
    const PlanBuffer& b = plan_.buffer(id);
    if (b.info.strides.size() != b.info.sizes.size() && (!b.info.strides.empty() || b.placement.kind != Placement::Kind::none))
      return wrong("'{}' has {} strides and {} sizes", b.info.name, b.info.strides.size(), b.info.sizes.size());
    for (const auto* list : {&b.info.sizes, &b.info.strides}) {
      for (Expr e : *list) {
        if (!e || e->dtype != DType::index) return wrong("'{}' has a size or a stride that is no index", b.info.name);
      }
    }
    if (b.info.kind != BufferInfo::Kind::computed) written_[static_cast<size_t>(id.index)] = 1;
    return check_placement(id, b.placement);
  }

  Status check_placement(BufferId id, const Placement& p) {
    using Kind = Placement::Kind;
    const auto row_of = [&](size_t count) { return p.index >= 0 && static_cast<size_t>(p.index) < count; };
    bool good = true;
    switch (p.kind) {
      case Kind::none: break;
      case Kind::input: good = row_of(plan_.inputs.size()) && plan_.inputs[static_cast<size_t>(p.index)].buffer == id; break;
      case Kind::output: good = row_of(plan_.outputs.size()); break;
      case Kind::constant: good = row_of(plan_.constants.size()); break;
      case Kind::state: good = p.offset && p.offset->is_constant() && p.offset->as_int() >= 0; break;
      case Kind::arena: good = p.offset && row_of(plan_.buffers.size()) && same_place(BufferId(p.index), p); break;
      case Kind::late: good = p.offset && row_of(plan_.late_memory.size()); break;
      case Kind::row: good = p.offset && row_of(plan_.buffers.size()) && plan_.buffer(BufferId(p.index)).placement.kind != Kind::row; break;
      case Kind::part: good = static_cast<bool>(p.offset); break;
    }
    return good ? ok_status() : Status(wrong("'{}' has a place that does not exist", name(id)));
  }

  bool same_place(BufferId first, const Placement& p) const {
    const Placement& other = plan_.buffer(first).placement;
    return other.kind == p.kind && other.offset == p.offset;
  }

  Status check_rows() {
    for (const PlanConstant& c : plan_.constants) {
      if (!exists(c.buffer)) return wrong("a constant is no buffer");
      if (plan_.buffer(c.buffer).info.kind != BufferInfo::Kind::constant) return wrong("the constant '{}' has no contents", name(c.buffer));
    }
    for (const LoopInput& in : plan_.inputs) {
      if (in.buffer.valid() && !exists(in.buffer)) return wrong("the input '{}' is no buffer", in.name);
    }
    return ok_status();
  }

  Status check_kernel(size_t n) {
    const Kernel& k = plan_.kernels[n];
    const KernelBuffers& used = used_[n];
    if (const std::string problem = kernel_problem(plan_, k, used); !problem.empty()) return wrong("{} {}", name_of(n), problem);
    for (const auto* list : {&used.reads, &used.writes, &used.own}) {
      for (BufferId id : *list) {
        if (plan_.buffer(id).placement.kind == Placement::Kind::none) return wrong("{} uses '{}', which has no place", name_of(n), name(id));
      }
    }
    for (BufferId id : used.reads) {
      const BufferId whole = whole_buffer(plan_, id);
      const bool own = std::find(used.writes.begin(), used.writes.end(), id) != used.writes.end() && std::holds_alternative<TemplateKernel>(k.def);
      if (!written_[static_cast<size_t>(whole.index)] && !own) return wrong("{} reads '{}' before anything is written there", name_of(n), name(id));
    }
    if (const auto* mark = std::get_if<ControlMark>(&k.def)) return check_mark(n, *mark);
    for (BufferId id : used.writes) write(whole_buffer(plan_, id));
    return ok_status();
  }

  void write(BufferId id) {
    char& flag = written_[static_cast<size_t>(id.index)];
    if (flag) return;
    flag = 1;
    if (!open_.empty()) open_.back().before.push_back(id.index);
  }

  Status check_mark(size_t n, const ControlMark& mark) {
    using Kind = ControlMark::Kind;
    if (mark.opens()) {
      open_.push_back({n, mark.kind, false, {}, {}});
      return ok_status();
    }
    if (open_.empty()) return wrong("{} is a mark without a beginning", name_of(n));
    Open& open = open_.back();
    if (mark.kind == Kind::stop_unless) return open.kind == Kind::loop ? ok_status() : Status(wrong("{} ends a loop that it is not in", name_of(n)));
    if (mark.kind == Kind::otherwise) {
      if (open.kind != Kind::branch || open.other) return wrong("{} is another way of no branch", name_of(n));
      open.other = true;
      open.first = std::move(open.before);
      open.before.clear();
      for (int32_t id : open.first) written_[static_cast<size_t>(id)] = 0;
      return ok_status();
    }
    close(std::move(open));
    return ok_status();
  }

  // Behind a branch is written what both parts write; behind a loop what its steps do, of which there may be none where nobody reads.
  void close(Open open) {
    open_.pop_back();
    std::vector<int32_t> kept = std::move(open.before);
    if (open.kind == ControlMark::Kind::branch) {
      const std::set<int32_t> first(open.first.begin(), open.first.end());
      for (int32_t id : kept) written_[static_cast<size_t>(id)] = first.contains(id);
      std::erase_if(kept, [&](int32_t id) { return !first.contains(id); });
    }
    if (!open_.empty()) open_.back().before.insert(open_.back().before.end(), kept.begin(), kept.end());
  }

  // Kernels that may run at the same time. Pieces of one concatenation write to one buffer; a joined product may read the rows that the first of them
  // makes, and in its epilogue the points of another one that are its own.
  Status check_group(size_t first, size_t last) {
    if (plan_.kernels[first].beside || plan_.kernels[first].joins) return wrong("{} runs beside nothing", name_of(first));
    if (first == last) return ok_status();
    std::vector<Touched> touched;
    for (size_t n = first; n <= last; ++n) {
      touched.push_back({whole(used_[n].reads), whole(used_[n].writes)});
      if (std::holds_alternative<ControlMark>(plan_.kernels[n].def)) return wrong("{} is a mark that runs beside a kernel", name_of(n));
      for (size_t earlier = first; earlier < n; ++earlier) TRY_STATUS(check_pair(earlier, touched[earlier - first], n, touched.back(), earlier == first));
    }
    return ok_status();
  }

  Status check_pair(size_t earlier, const Touched& a, size_t later, const Touched& b, bool first) {
    const bool both_loops = std::holds_alternative<LoopKernel>(plan_.kernels[earlier].def) && std::holds_alternative<LoopKernel>(plan_.kernels[later].def);
    if (!both_loops && meet(a.writes, b.writes)) return wrong("{} and {} run at the same time and write to one buffer", name_of(earlier), name_of(later));
    if (meet(a.reads, b.writes)) return wrong("{} writes what {} reads at the same time", name_of(later), name_of(earlier));
    if (!meet(a.writes, b.reads) || may_read(earlier, a, later, first)) return ok_status();
    return wrong("{} reads what {} writes at the same time", name_of(later), name_of(earlier));
  }

  bool may_read(size_t earlier, const Touched& a, size_t later, bool first) const {
    const auto* t = std::get_if<TemplateKernel>(&plan_.kernels[later].def);
    if (!t || !plan_.kernels[later].joins) return false;
    if (const auto* other = std::get_if<TemplateKernel>(&plan_.kernels[earlier].def)) return reads_result(plan_, *t, *other) != ReadsResult::others;
    std::vector<BufferId> rest = used_[later].reads;  // without the left operand, once
    if (const auto rows = std::find(rest.begin(), rest.end(), t->operands[0].buffer); rows != rest.end()) rest.erase(rows);
    const auto* loop = std::get_if<LoopKernel>(&plan_.kernels[earlier].def);
    if (loop && is_few_rows_of_bytes(plan_, plan_.kernels[later])) {  // of a single row, whose values each block makes itself
      const std::vector<BufferId> values = row_values(plan_, *loop);
      std::erase_if(rest, [&](BufferId id) { return std::find(values.begin(), values.end(), id) != values.end(); });
    }
    return first && !meet(a.writes, whole(rest));
  }

  // Each once, by number.
  std::vector<BufferId> whole(const std::vector<BufferId>& ids) const {
    std::vector<BufferId> all;
    for (BufferId id : ids) all.push_back(whole_buffer(plan_, id));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  static bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) {
    for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
      if (a[i] == b[k]) return true;
      a[i] < b[k] ? ++i : ++k;
    }
    return false;
  }

  Status check_outputs() {
    int user = 0;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind == LoopOutput::Kind::check) continue;
      if (!exists(o.source)) return wrong("the output '{}' is no buffer", o.name);
      if (!written_[static_cast<size_t>(o.source.index)]) return wrong("the output '{}' is never written", o.name);
      if (o.kind != LoopOutput::Kind::user) {
        if (!exists(o.target)) return wrong("the output '{}' goes to no buffer", o.name);
        continue;
      }
      const Placement& p = plan_.buffer(o.source).placement;
      if (p.kind != Placement::Kind::output || p.index != user) return wrong("the output '{}' is not in the memory of output {}", o.name, user);
      ++user;
    }
    return ok_status();
  }

  const KernelPlan& plan_;
  const std::vector<KernelBuffers>& used_;
  std::vector<char> written_;
  std::vector<Open> open_;
};

}  // namespace

static std::vector<KernelBuffers> used_by(const KernelPlan& plan) {
  std::vector<KernelBuffers> used;
  for (const Kernel& k : plan.kernels) used.push_back(buffers_of(k));
  return used;
}

static Status verify(const KernelPlan& plan, const std::vector<KernelBuffers>& used) {
  TRY_STATUS(PlanVerifier(plan, used).run());
  return verify_memory(plan, used, nullptr);
}

Status verify(const KernelPlan& plan) { return verify(plan, used_by(plan)); }

Status verify_at_examples(const KernelPlan& plan) {
  const std::vector<KernelBuffers> used = used_by(plan);
  TRY_STATUS(verify(plan, used));
  for (const std::vector<int64_t>& values : example_sizes(plan)) {
    TRY_STATUS(verify_memory(plan, used, &values));
    TRY_STATUS(verify_stores(plan, values));
  }
  return ok_status();
}

}  // namespace coil
