#include "loop/demanded_ranges.h"

#include <algorithm>
#include <memory>

#include "loop/narrow.h"

namespace coil {
namespace {

using Ranges = std::vector<DimRange>;

// What is known of a buffer's readers.
struct Demand {
  bool any = false;
  Ranges ranges;  // of each dimension, once there is any
};

Ranges whole(const std::vector<Expr>& sizes) {
  Ranges ranges;
  for (Expr size : sizes) ranges.push_back(whole_range(size));
  return ranges;
}

void join(Demand& known, const Ranges& wanted, const std::vector<Expr>& sizes) {
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (known.any) known.ranges[d] = joined(known.ranges[d], wanted[d], sizes[d]);
    else known.ranges.push_back(wanted[d]);
  }
  known.any = true;
}

class DemandedRanges {
 public:
  explicit DemandedRanges(LoopProgram program)
      : program_(std::move(program)), demand_(program_.buffers.size()), narrowed_(program_.buffers.size(), nullptr), held_(program_.buffers.size()) {}

  LoopProgram run() {
    for (const LoopOutput& out : program_.outputs) demand_whole(out.source);
    for (const Loop& loop : program_.loops) hold(loop);
    // Readers come after what they read.
    for (size_t i = program_.loops.size(); i-- > 0;) {
      if (original_) keep_checks(i);
      narrow_loop(program_.loops[i]);
      collect(program_.loops[i]);
    }
    if (!original_) return std::move(program_);
    for (auto& [number, check] : checks_) program_.loops.insert(program_.loops.begin() + static_cast<std::ptrdiff_t>(number), std::move(check));
    for (Loop& loop : program_.loops) move_reads(program_, loop, narrowed_);
    return dead_loops(std::move(program_));
  }

 private:
  Demand& demand(BufferId id) { return demand_[static_cast<size_t>(id.index)]; }
  const std::vector<Expr>& sizes_of(BufferId id) const { return program_.buffer(id).sizes; }
  bool is_computed(BufferId id) const { return program_.buffer(id).kind == BufferInfo::Kind::computed; }

  void demand_whole(BufferId id) {
    if (id.valid() && is_computed(id)) demand(id) = {true, whole(sizes_of(id))};
  }

  // A template that computes all of a dimension anyway takes the formulas that follow into its kernel, if they stay as they are.
  void hold(const Loop& loop) {
    std::vector<char>& held = held_[static_cast<size_t>(loop.outputs[0].index)];
    const std::vector<Expr>& sizes = sizes_of(loop.outputs[0]);
    if (std::holds_alternative<Gemm>(loop.def) || std::holds_alternative<Conv2d>(loop.def) || std::holds_alternative<Attention>(loop.def)) {
      const Expr one = program_.pool->index(1);
      held.resize(sizes.size());
      for (size_t d = 0; d < sizes.size(); ++d) held[d] = is_whole(narrowable(program_, loop, d, {program_.pool->index(0), one, one}), sizes[d]);
    }
    const auto* formula = std::get_if<Pointwise>(&loop.def);
    if (!formula) return;
    visit(formula->body, [&](Expr e) {
      if (e->kind != ExprKind::load) return;
      const std::vector<char>& of_read = held_[static_cast<size_t>(e->id)];
      for (size_t d = 0; d < of_read.size(); ++d) {
        const Expr c = e->args[d];
        if (!of_read[d] || c->kind != ExprKind::var || !(sizes[static_cast<size_t>(c->id)] == sizes_of(BufferId(e->id))[d])) continue;
        held.resize(sizes.size());
        held[static_cast<size_t>(c->id)] = 1;
      }
    });
  }
  bool is_held(BufferId id, size_t dim) const {
    const std::vector<char>& held = held_[static_cast<size_t>(id.index)];
    return dim < held.size() && held[dim];
  }

  // Of a definition with several results all are cut alike.
  Demand wanted_of(const Loop& loop) {
    Demand wanted;
    for (BufferId id : loop.outputs) {
      if (demand(id).any) join(wanted, demand(id).ranges, sizes_of(id));
    }
    return wanted;
  }

  void narrow_loop(Loop& loop) {
    if (defines_whole(loop.def)) return;
    Ranges ranges = wanted_of(loop).ranges;
    const std::vector<Expr> sizes = sizes_of(loop.outputs[0]);
    bool narrower = false;
    for (size_t d = 0; d < ranges.size(); ++d) {
      if (!is_whole(ranges[d], sizes[d])) ranges[d] = narrowable(program_, loop, d, ranges[d]);
      if (is_held(loop.outputs[0], d) || (!is_whole(ranges[d], sizes[d]) && !saves_work(ranges[d], sizes[d]))) ranges[d] = whole_range(sizes[d]);
      narrower = narrower || !is_whole(ranges[d], sizes[d]);
    }
    if (narrower) cut(loop, std::move(ranges));
  }

  void cut(Loop& loop, Ranges ranges) {
    if (!original_) original_ = std::make_unique<const LoopProgram>(program_);
    narrow(program_, loop, ranges);
    kept_.push_back(std::make_unique<const Ranges>(std::move(ranges)));
    for (BufferId id : loop.outputs) narrowed_[static_cast<size_t>(id.index)] = kept_.back().get();
  }

  void collect(const Loop& loop) {
    std::vector<BufferId> by_coordinates;
    for (const ReadAt& read : reads_at(program_, loop)) {
      by_coordinates.push_back(read.buffer);
      if (is_computed(read.buffer)) join(demand(read.buffer), ranges_of(read, sizes_of(read.buffer)), sizes_of(read.buffer));
    }
    for (BufferId id : reads(program_, loop)) {
      if (std::find(by_coordinates.begin(), by_coordinates.end(), id) == by_coordinates.end()) demand_whole(id);
    }
    // A buffer that is read by coordinates and as a whole as well:
    if (const auto* conv = std::get_if<Conv2d>(&loop.def)) demand_whole(conv->weight);
    if (const auto* gemm = std::get_if<Gemm>(&loop.def); gemm && gemm->quantised) {
      demand_whole(gemm->quantised->scale);
      demand_whole(gemm->quantised->zero);
    }
  }

  static Ranges ranges_of(const ReadAt& read, const std::vector<Expr>& sizes) {
    Ranges ranges;
    for (size_t d = 0; d < sizes.size(); ++d) ranges.push_back(range_of(read.coordinates[d], sizes[d], read.domain));
    return ranges;
  }

  // --- what may end the call

  // Whether all of it was read along the dimensions in question.
  bool was_whole(BufferId id, const std::vector<char>& dims) const {
    Demand before;
    const std::vector<Expr>& sizes = original_->buffer(id).sizes;
    for (const Loop& loop : original_->loops) {
      for (const ReadAt& read : reads_at(*original_, loop)) {
        if (read.buffer == id) join(before, ranges_of(read, sizes), sizes);
      }
    }
    return !before.any || !is_cut(before, dims, sizes);  // what no coordinates read is read as a whole
  }

  static bool is_cut(const Demand& d, const std::vector<char>& dims, const std::vector<Expr>& sizes) {
    for (size_t i = 0; d.any && i < sizes.size(); ++i) {
      if (is_whole(d.ranges[i], sizes[i])) continue;
      if (dims[i] || !provably_nonnegative(d.ranges[i].count - 1)) return true;
    }
    return !d.any;
  }

  // Less of it is read than before, or nothing: what it checks on the way is to be checked all the same.
  void keep_checks(size_t number) {
    const Loop& loop = program_.loops[number];
    const Demand wanted = wanted_of(loop);
    if (defines_whole(loop.def)) {
      if (!wanted.any) add_check(loop.outputs[0]);
      return;
    }
    const std::optional<std::vector<char>> dims = checked_dims(program_, loop);
    if (dims && is_cut(wanted, *dims, sizes_of(loop.outputs[0])) && was_whole(loop.outputs[0], *dims)) split_checks(number, *dims);
  }

  void add_check(BufferId id) {
    LoopOutput out;
    out.kind = LoopOutput::Kind::check;
    out.source = id;
    out.name = program_.buffer(id).name;
    program_.outputs.push_back(std::move(out));
    demand_whole(id);
  }

  // A definition of the same elements along the dimensions that checks depend on, of one element along the others.
  void split_checks(size_t number, const std::vector<char>& dims) {
    Loop check = program_.loops[number];
    for (BufferId& id : check.outputs) {
      BufferInfo info = program_.buffer(id);
      info.name = unused_name(info.name + ".checks");
      id = BufferId(program_.buffers.size());
      program_.buffers.push_back(std::move(info));
      demand_.emplace_back();
      narrowed_.push_back(nullptr);
      held_.emplace_back();
    }
    Ranges ranges = whole(sizes_of(check.outputs[0]));
    const Expr one = program_.pool->index(1);
    for (size_t d = 0; d < ranges.size(); ++d) {
      if (dims[d] || !provably_nonnegative(ranges[d].count - 1)) continue;
      ranges[d] = narrowable(program_, check, d, {ranges[d].first, one, one});
    }
    cut(check, std::move(ranges));
    add_check(check.outputs[0]);
    collect(check);
    checks_.emplace_back(number, std::move(check));
  }

  std::string unused_name(std::string name) const {
    const auto taken = [&] { return std::any_of(program_.buffers.begin(), program_.buffers.end(), [&](const BufferInfo& b) { return b.name == name; }); };
    while (taken()) name += "_";
    return name;
  }

  LoopProgram program_;
  std::unique_ptr<const LoopProgram> original_;      // null as long as all is whole
  std::vector<Demand> demand_;
  std::vector<std::unique_ptr<const Ranges>> kept_;
  NarrowedBuffers narrowed_;
  std::vector<std::vector<char>> held_;  // by buffer and dimension; empty: none
  std::vector<std::pair<size_t, Loop>> checks_;  // to be inserted before the loop of that number; later ones first
};

}  // namespace

LoopProgram demanded_ranges(LoopProgram program) { return DemandedRanges(std::move(program)).run(); }

}  // namespace coil
