// Groups -> the kernel plan: one kernel per group (a concatenation: one per piece), template operands, copies at the end.
#include <algorithm>
#include <unordered_map>

#include "loop/loop_text.h"
#include "loop/templates/template.h"
#include "schedule/build.h"
#include "schedule/inline_producers.h"
#include "schedule/products/join_products.h"
#include "schedule/lone_loops.h"
#include "schedule/products/panel_lookups.h"
#include "schedule/past_keys.h"
#include "schedule/renumber.h"
#include "schedule/template_operands.h"
#include "schedule/verify_plan.h"
#include "schedule/weights.h"
#include "schedule/written_rows.h"

namespace coil {
namespace {

constexpr size_t kMaxNameParts = 5;

class Planner {
 public:
  Planner(FusionResult fused, const TargetTraits& target)
      : fused_(std::move(fused)), program_(fused_.program), target_(target), weights_(plan_, program_, target_) {}

  Result<KernelPlan> run() {
    plan_.pool = program_.pool;
    plan_.arithmetic = target_.arithmetic;
    plan_.machine = target_.machine;
    // A program that is scheduled for several targets has it already.
    const std::optional<SymbolId> known = program_.pool->find_symbol(kWorkersSymbol);
    plan_.workers = known ? *known : program_.pool->add_symbol({kWorkersSymbol, "workers", 1, 1 << 16});
    const std::vector<PanelTable> tables = look_up_in_panels(fused_.program, target_);
    for (const BufferInfo& b : program_.buffers) plan_.buffers.push_back({b, {}});
    for (const PanelTable& t : tables) weights_.add_packed(t.buffer, t.row);
    plan_.inputs = program_.inputs;
    plan_.outputs = program_.outputs;
    plan_.checks = program_.checks;
    plan_.none_results = program_.none_results;
    plan_.not_fused = fused_.not_fused;
    find_stored();
    past_keys_ = find_past_keys(fused_, target_);
    for (const FusionGroup& group : fused_.groups) {
      TRY_STATUS(add_group(group));
    }
    for (const LoopOutput& o : program_.outputs) {
      if (o.kind == LoopOutput::Kind::user || o.kind == LoopOutput::Kind::check) continue;
      plan_.kernels.push_back({"write_" + o.name, CopyKernel{o.source, o.target, {}, "the kernels of this target write no new values in place"}, {"copy"}, {}});
    }
    if (target_.writes_in_place) write_in_place(plan_);
    if (target_.writes_in_place && target_.most_beside > 1) compute_written_rows(plan_);
    change_in_place(plan_);
    if (target_.joins_products) join_products(plan_);
    mark_beside(plan_.kernels, target_);
    run_by_image(plan_, target_);
    TRY_STATUS(plan_memory(plan_, target_));
    place_parts();
    number_places();
    return std::move(plan_);
  }

 private:
  ExprPool& pool() { return *program_.pool; }
  const Loop& loop(int row) const { return program_.loops[static_cast<size_t>(row)]; }

  // A buffer is stored when another group or the program's outputs read it.
  void find_stored() {
    stored_.assign(program_.buffers.size(), false);
    std::vector<int> group_of_buffer(program_.buffers.size(), -1);
    for (size_t g = 0; g < fused_.groups.size(); ++g) {
      for (int r : fused_.groups[g].loops) {
        for (BufferId id : loop(r).outputs) group_of_buffer[static_cast<size_t>(id.index)] = static_cast<int>(g);
      }
    }
    for (size_t g = 0; g < fused_.groups.size(); ++g) {
      for (int r : fused_.groups[g].loops) {
        for (BufferId id : reads(program_, loop(r))) {
          if (group_of_buffer[static_cast<size_t>(id.index)] != static_cast<int>(g)) stored_[static_cast<size_t>(id.index)] = true;
        }
      }
    }
    for (const LoopOutput& o : program_.outputs) stored_[static_cast<size_t>(o.source.index)] = true;
  }

  Status add_group(const FusionGroup& group) {
    const Loop& first = loop(group.loops[0]);
    if (group.closed && !first.assertion.empty()) {
      const BufferInfo& out = program_.buffer(first.outputs[0]);
      emit(group.loops, store_kernel(program_, first.outputs[0], out.sizes, linearise(program_, std::get<Pointwise>(first.def).body), pool().index(0)));
      plan_.kernels.back().assertion = first.assertion;
    } else if (!group.closed) {
      emit(group.loops, build_loop_kernel(program_, group, stored_, target_));
    } else if (const auto* scan = std::get_if<Scan>(&first.def)) {
      emit(group.loops, scan_kernel(program_, first, *scan));
    } else if (const auto* concat = std::get_if<Concat>(&first.def)) {
      bool beside = false;
      for (size_t i = 0; i < concat->pieces.size(); ++i) {
        if (past_keys_.left_out.contains({group.loops[0], i})) continue;
        emit(group.loops, piece_kernel(program_, first, *concat, concat->pieces[i]));
        plan_.kernels.back().beside = std::exchange(beside, true);
      }
    } else if (const auto* sort = std::get_if<Sort>(&first.def)) {
      emit(group.loops, sort_kernel(first, *sort));
    } else if (const auto* library = std::get_if<Library>(&first.def)) {
      emit(group.loops, library_kernel(first, *library));
    } else if (const auto* user = std::get_if<UserCall>(&first.def)) {
      emit(group.loops, user_kernel(first, *user));
    } else if (const auto* compact = std::get_if<Compact>(&first.def)) {
      emit(group.loops, compact_kernel(program_, first, *compact));
    } else if (const auto* read = std::get_if<ReadSize>(&first.def)) {
      emit(group.loops, ReadKernel{read->symbol, read->source, read->limit});
    } else if (const auto* region = std::get_if<Region>(&first.def)) {
      return add_region(group.loops, first, *region);
    } else {
      emit(group.loops, template_kernel(group));
    }
    return ok_status();
  }

  void emit(const std::vector<int>& rows, decltype(Kernel::def) def) {
    Kernel k;
    for (int r : rows) {
      const Loop& l = loop(r);
      k.ops.push_back(l.op);
      if (k.ops.size() <= kMaxNameParts) k.name += (k.name.empty() ? "" : "_") + l.op;
      for (const Origin& o : l.origins) {
        if (std::find(k.origins.begin(), k.origins.end(), o) == k.origins.end()) k.origins.push_back(o);
      }
    }
    for (char& c : k.name) {
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    k.name = k.name.substr(0, 60);
    k.def = std::move(def);
    plan_.kernels.push_back(std::move(k));
  }

  SortKernel sort_kernel(const Loop& l, const Sort& sort) {
    SortKernel k;
    k.def = sort;
    const BufferInfo& values = program_.buffer(l.outputs[0]);
    k.sizes = values.sizes;
    k.dtype = values.dtype;
    k.body = linearise(program_, sort.body);
    k.values = l.outputs[0];
    k.indices = l.outputs[1];
    k.values_offset = linear_offset(pool(), values, variables(pool(), values.sizes.size()));
    k.indices_offset = linear_offset(pool(), program_.buffer(l.outputs[1]), variables(pool(), values.sizes.size()));
    // Values and indices twice: the merge sort's other half.
    Expr rows = plan_.pool->symbol(plan_.workers);
    if (!target_.memory_per_worker) {
      rows = pool().index(1);
      for (size_t d = 0; d < k.sizes.size(); ++d) rows = static_cast<int>(d) == sort.dim ? rows : rows * k.sizes[d];
    }
    if (upper_bound(sort.length).value_or(INT64_MAX) > target_.sorted_in_place)
      k.scratch = scratch_buffer("sort_scratch", DType::u8,
                                 rows * sort.length * 2 * (byte_size(values.dtype) + target_.sort_index_bytes) + (64 + target_.sort_counts_bytes));
    return k;
  }

  Status add_region(const std::vector<int>& rows, const Loop& l, const Region& region) {
    std::vector<KernelPlan> parts;
    for (const RegionPart& part : region.parts) {
      TRY(KernelPlan plan, schedule(*part.program, target_));
      parts.push_back(std::move(plan));
    }
    // One piece of memory for all parts: they do not run at once.
    Expr bytes = pool().index(0);
    for (const KernelPlan& part : parts) bytes = provably_nonnegative(part.arena_bytes - bytes) ? part.arena_bytes : index_max(bytes, part.arena_bytes);
    const bool branch = region.kind == Region::Kind::branch;
    const BufferId scratch = scratch_buffer(l.op + "_part", DType::u8, bytes);
    if (branch) {
      emit(rows, ControlMark{ControlMark::Kind::branch, region.predicate, {}, {}, scratch});
      splice(std::move(parts[0]), region.parts[0], l.outputs, scratch);
      emit(rows, ControlMark{ControlMark::Kind::otherwise, {}, {}, {}, {}});
      splice(std::move(parts[1]), region.parts[1], l.outputs, scratch);
      emit(rows, ControlMark{ControlMark::Kind::end, {}, {}, {}, {}});
      return ok_status();
    }
    for (const KernelPlan& part : parts) {
      if (part.late_memory.empty()) continue;
      return Error{ErrorCode::unsupported_feature,
                   "a loop whose steps need memory of a size that only data decides, without a bound",
                   l.origins.empty() ? "" : l.origins[0].source,
                   {}};
    }
    for (size_t i = 0; i < region.initial.size(); ++i)
      emit(rows, CopyKernel{region.initial[i], l.outputs[i], {}, "the loop begins with it and then changes it, and who made it may read it again"});
    emit(rows, ControlMark{ControlMark::Kind::loop, {}, region.step, region.steps, scratch});
    if (parts.size() > 1) {
      const BufferId goes_on = part_result(parts[1], 0, l.op + "_while");
      splice(std::move(parts[1]), region.parts[1], {goes_on}, scratch);
      emit(rows, ControlMark{ControlMark::Kind::stop_unless, goes_on, {}, {}, {}});
    }
    std::vector<BufferId> next;
    for (size_t i = 0; i < l.outputs.size(); ++i) next.push_back(part_result(parts[0], i, l.op + "_next"));
    splice(std::move(parts[0]), region.parts[0], next, scratch);
    for (size_t i = 0; i < next.size(); ++i) {
      const bool carried = i < region.initial.size();
      const Expr row = carried ? Expr() : pool().symbol(region.step) * product(pool(), plan_.buffer(next[i]).info.sizes);
      emit(rows, CopyKernel{next[i], l.outputs[i], row,
                            carried ? "the next step of the loop begins with it" : "what each step of the loop gives becomes a part of one tensor"});
    }
    emit(rows, ControlMark{ControlMark::Kind::end, {}, {}, {}, {}});
    return ok_status();
  }

  // A buffer for result i of a part.
  BufferId part_result(const KernelPlan& part, size_t i, std::string name) {
    for (const LoopOutput& out : part.outputs) {
      if (out.kind != LoopOutput::Kind::user || i-- > 0) continue;
      BufferInfo info = part.buffer(out.source).info;
      info.name = std::move(name);
      plan_.buffers.push_back({std::move(info), {}});
      break;
    }
    return BufferId(plan_.buffers.size() - 1);
  }

  // Adds a part's kernels, its results in `results`, its memory in `scratch`.
  void splice(KernelPlan part, const RegionPart& region, const std::vector<BufferId>& results, BufferId scratch) {
    std::vector<BufferId> ids(part.buffers.size());
    for (const auto& [own, outer] : region.captures) ids[static_cast<size_t>(own.index)] = outer;
    size_t result = 0;
    for (const LoopOutput& out : part.outputs) {
      if (out.kind == LoopOutput::Kind::user) ids[static_cast<size_t>(out.source.index)] = results[result++];
    }
    const int late = static_cast<int>(plan_.late_memory.size()), constants = static_cast<int>(plan_.constants.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i].valid()) continue;
      PlanBuffer b = part.buffers[i];
      b.info.name = plan_.kernels.back().name + "." + b.info.name;
      if (b.placement.kind == Placement::Kind::constant) b.placement.index += constants;
      if (b.placement.kind == Placement::Kind::late) b.placement.index += late;
      if (b.placement.kind == Placement::Kind::row) b.placement.index = ids[static_cast<size_t>(b.placement.index)].index;  // an earlier one
      ids[i] = BufferId(plan_.buffers.size());
      if (b.placement.kind == Placement::Kind::arena) in_parts_.emplace_back(ids[i], scratch);
      plan_.buffers.push_back(std::move(b));
    }
    for (PlanConstant& c : part.constants) {
      c.buffer = ids[static_cast<size_t>(c.buffer.index)];
      plan_.constants.push_back(c);
    }
    plan_.late_memory.insert(plan_.late_memory.end(), part.late_memory.begin(), part.late_memory.end());
    plan_.not_fused.insert(plan_.not_fused.end(), part.not_fused.begin(), part.not_fused.end());
    for (Kernel& k : part.kernels) plan_.kernels.push_back(renumbered(std::move(k), ids));
  }

  // What parts have in their own memory, in the whole plan's.
  void place_parts() {
    for (const auto& [id, scratch] : in_parts_) {
      const Placement& base = plan_.buffer(scratch).placement;
      const Expr offset = base.offset + plan_.buffer(id).placement.offset;
      plan_.buffer(id).placement = {base.kind, base.index, offset};
    }
  }

  // Host programs name a place after the first buffer there.
  void number_places() {
    std::unordered_map<const ExprNode*, int> first;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      Placement& p = plan_.buffers[b].placement;
      if (p.kind == Placement::Kind::arena) p.index = first.try_emplace(p.offset.node(), static_cast<int>(b)).first->second;
    }
  }

  LibraryKernel library_kernel(const Loop& l, const Library& call) {
    LibraryKernel k{call, l.outputs, {}};
    Expr bytes = pool().index(0);
    if (call.scratch) bytes = bytes + ceil_div(call.scratch, pool().index(64)) * 64;
    if (call.worker_scratch) bytes = bytes + plan_.pool->symbol(plan_.workers) * call.worker_scratch;
    if (!(bytes == pool().index(0))) k.scratch = scratch_buffer(l.op + "_scratch", DType::u8, bytes);
    return k;
  }

  UserCallKernel user_kernel(const Loop& l, const UserCall& call) {
    UserCallKernel k{call, {}, l.outputs};
    for (const UserCall::Argument& a : call.args) {
      const auto* t = std::get_if<UserCall::Tensor>(&a);
      PlanOperand o;
      if (t && t->operand.buffer.valid())
        o = {t->operand.buffer, simplify_index(linear_offset(pool(), program_.buffer(t->operand.buffer), t->operand.coordinates), {t->sizes})};
      k.operands.push_back(o);
    }
    return k;
  }

  BufferId scratch_buffer(std::string name, DType dtype, Expr elements) {
    BufferInfo b;
    b.name = std::move(name);
    b.dtype = dtype;
    b.sizes = {elements};
    b.strides = {pool().index(1)};
    plan_.buffers.push_back({std::move(b), {}});
    return BufferId(plan_.buffers.size() - 1);
  }

  TemplateKernel template_kernel(const FusionGroup& group) {
    const Loop& first = loop(group.loops[0]);
    TemplateKernel k;
    k.def = first.def;
    const BufferInfo& out = program_.buffer(first.outputs[0]);
    k.result = first.outputs[0];
    k.result_sizes = out.sizes;
    k.result_offset = linear_offset(pool(), out, variables(pool(), out.sizes.size()));
    k.acc = TempId(0);
    operands_.add(k, group.loops[0]);
    const Expr bytes = target_.template_scratch ? target_.template_scratch(plan_, k) : Expr();
    if (bytes) k.scratch = scratch_buffer(first.op + "_scratch", DType::u8, bytes);
    if (group.loops.size() > 1 || !stores_itself(k)) add_epilogue(k, group);
    return k;
  }

  // The templates' own stores know one layout each: rows of columns (gemm), dense channels-last (convolution), rows (attention); and one
  // type: that of what they multiply. Sums of 16-bit numbers that are kept in float32 are stored by an epilogue.
  bool stores_itself(const TemplateKernel& k) {
    const BufferInfo& out = program_.buffer(k.result);
    const DType read = program_.buffer(k.operands[0].buffer).dtype;
    if (is_float(read) && read != out.dtype) return false;
    const std::optional<std::vector<Expr>> own = template_strides(pool(), k.def, out.sizes);
    return !own || out.strides == *own;
  }

  void add_epilogue(TemplateKernel& k, const FusionGroup& group) {
    BufferId source = k.result;
    Expr value = pool().temp(k.acc, compute_type(program_.buffer(source).dtype));
    std::vector<Expr> point = variables(pool(), program_.buffer(source).sizes.size());  // of `source`, in the template's coordinates
    for (size_t m = 1; m < group.loops.size(); ++m) {
      const Loop& l = loop(group.loops[m]);
      const Expr previous = value, body = std::get<Pointwise>(l.def).body;
      point = *epilogue_point(program_, l, source, point);
      value = linearise(program_, substitute_vars(body, point), [&](BufferId id) { return id == source ? previous : Expr(); });
      source = l.outputs[0];
    }
    const BufferInfo& out = program_.buffer(source);
    Stmt store;
    store.dtype = out.dtype;
    store.value = value;
    store.buffer = source;
    const Expr offset = linear_offset(pool(), out, point);
    store.offset = point == variables(pool(), point.size()) ? offset : simplify_index(offset, {k.result_sizes});
    k.epilogue.push_back(store);
  }

  FusionResult fused_;
  const LoopProgram& program_;
  const TargetTraits& target_;
  KernelPlan plan_;
  std::vector<bool> stored_;
  WeightPacker weights_;
  PastKeysPlan past_keys_;
  TemplateOperands operands_{program_, weights_, past_keys_};
  std::vector<std::pair<BufferId, BufferId>> in_parts_;  // buffers of regions' parts, and what holds their memory
};

}  // namespace

Result<KernelPlan> build_kernels(FusionResult fused, const TargetTraits& target) { return Planner(std::move(fused), target).run(); }

LoopProgram laid_out(LoopProgram program, const TargetTraits& target) {
  for (BufferInfo& b : program.buffers) {
    if (b.kind == BufferInfo::Kind::constant || b.kind == BufferInfo::Kind::state) {
      b.strides = contiguous_strides(*program.pool, b.sizes);  // the package holds them dense
    }
  }
  // How a reduction lies in memory decides what splitting brings: layouts come first.
  return split_reductions(choose_layouts(split_scans(change_small_products(std::move(program), target), target), target), target);
}

Result<KernelPlan> schedule(LoopProgram program, const TargetTraits& target) {
  TRY(KernelPlan plan, build_kernels(fuse(laid_out(std::move(program), target), target), target));
  const Status sound = verify(plan);
  CHECK(sound.ok(), sound.ok() ? "" : sound.error().message);
  return plan;
}

}  // namespace coil
