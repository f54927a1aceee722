#include "loop/demanded_ranges.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>

#include "loop/narrow.h"
#include "loop/templates/template.h"

namespace coil {
namespace {

using Ranges = std::vector<DimRange>;

constexpr double kWorthCutting = 0.125, kWorthSplitting = 0.75;
constexpr double kWorthAKernel = 8192;  // results of a product

// What is known of a buffer's readers.
struct Demand {
  bool any = false;
  Ranges ranges;             // of each dimension, once there is any
  std::vector<Ranges> each;  // what reads of some columns (the last dimension) alone take
  bool all_columns = false;  // others take all of them
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
  if (wanted.size() > 1 && !is_whole(wanted.back(), sizes.back())) known.each.push_back(wanted);
  else known.all_columns = true;
}

class DemandedRanges {
 public:
  DemandedRanges(LoopProgram program, bool split_columns)
      : program_(std::move(program)),
        split_columns_(split_columns),
        demand_(program_.buffers.size()),
        narrowed_(program_.buffers.size(), nullptr),
        held_(program_.buffers.size()) {}

  LoopProgram run() {
    for (const LoopOutput& out : program_.outputs) demand_whole(out.source);
    for (const Loop& loop : program_.loops) hold(loop);
    // Readers come after what they read.
    for (size_t i = program_.loops.size(); i-- > 0;) {
      keep_checks(i);
      if (narrower_ && split_columns_) split_columns(i);
      narrow_loop(program_.loops[i]);
      collect(program_.loops[i]);
    }
    if (!narrower_) return std::move(program_);
    insert_added();
    for (Loop& loop : program_.loops) move_reads(program_, loop, narrowed_);
    return dead_loops(std::move(program_));
  }

 private:
  // In front of the loops of their numbers; those of one number the last one first.
  void insert_added() {
    std::vector<Loop> all;
    all.reserve(program_.loops.size() + added_.size());
    auto next = added_.rbegin();
    for (size_t i = 0; i < program_.loops.size(); ++i) {
      for (; next != added_.rend() && next->first == i; ++next) all.push_back(std::move(next->second));
      all.push_back(std::move(program_.loops[i]));
    }
    program_.loops = std::move(all);
  }

  // Who reads and who makes what, where a product's columns are split.
  void find_readers() {
    if (!readers_.empty()) return;
    readers_.resize(program_.buffers.size());
    producer_.assign(program_.buffers.size(), program_.loops.size());
    for (size_t i = 0; i < program_.loops.size(); ++i) {
      producer_[static_cast<size_t>(program_.loops[i].outputs[0].index)] = i;
      for (BufferId id : reads(program_, program_.loops[i])) readers_[static_cast<size_t>(id.index)].push_back({i, false});
    }
    for (size_t i = 0; i < added_.size(); ++i) note_added(i);
  }
  void note_added(size_t number) {
    if (readers_.empty()) return;
    readers_.resize(program_.buffers.size());
    for (BufferId id : reads(program_, added_[number].second)) readers_[static_cast<size_t>(id.index)].push_back({number, true});
  }
  void add(size_t number, Loop loop) {
    added_.emplace_back(number, std::move(loop));
    note_added(added_.size() - 1);
  }

  Demand& demand(BufferId id) { return demand_[static_cast<size_t>(id.index)]; }
  const std::vector<Expr>& sizes_of(BufferId id) const { return program_.buffer(id).sizes; }
  bool is_computed(BufferId id) const { return program_.buffer(id).kind == BufferInfo::Kind::computed; }

  void demand_whole(BufferId id) {
    if (id.valid() && is_computed(id)) demand(id) = {true, whole(sizes_of(id)), {}, true};
  }

  // A template that computes all of a dimension anyway takes the formulas that follow into its kernel, if they stay as they are.
  void hold(const Loop& loop) {
    std::vector<char>& held = held_[static_cast<size_t>(loop.outputs[0].index)];
    const std::vector<Expr>& sizes = sizes_of(loop.outputs[0]);
    if (is_template(loop.def)) {
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
      if (is_held(loop.outputs[0], d) || (!is_whole(ranges[d], sizes[d]) && saved(ranges[d], sizes[d]) < kWorthCutting)) ranges[d] = whole_range(sizes[d]);
      narrower = narrower || !is_whole(ranges[d], sizes[d]);
    }
    if (narrower) cut(loop, std::move(ranges));
  }

  void cut(Loop& loop, Ranges ranges) {
    narrower_ = true;
    narrow(program_, loop, ranges);
    kept_.push_back(std::make_unique<const Ranges>(std::move(ranges)));
    for (BufferId id : loop.outputs) narrowed_[static_cast<size_t>(id.index)] = kept_.back().get();
  }

  // --- columns of a product that want different rows

  // Those whose readers take few of the rows, where the others' columns lie aside: the queries of a joint projection to q, k and v.
  std::optional<Ranges> few_rows(const Demand& d, const std::vector<Expr>& sizes) const {
    if (d.all_columns || d.each.size() < 2) return std::nullopt;
    Demand few, rest;
    for (const Ranges& read : d.each) {
      bool is_few = false;
      for (size_t i = 0; i + 1 < sizes.size(); ++i) is_few = is_few || saved(read[i], sizes[i]) >= kWorthSplitting;
      join(is_few ? few : rest, read, sizes);
    }
    if (!few.any || !rest.any) return std::nullopt;
    const DimRange &a = few.ranges.back(), &b = rest.ranges.back();
    for (Expr e : {a.first, a.count, b.first, b.count}) {
      if (!e->is_constant() || e->as_int() % 16 != 0) return std::nullopt;  // whole vectors
    }
    if (saved(b, sizes.back()) < kWorthCutting) return std::nullopt;  // they would be computed all the same
    if (results(rest.ranges, a) - results(few.ranges, a) < kWorthAKernel) return std::nullopt;
    const bool apart = a.end()->as_int() <= b.first->as_int() || b.end()->as_int() <= a.first->as_int();
    return apart && a.is_unit_step() && b.is_unit_step() ? std::optional(few.ranges) : std::nullopt;
  }

  // In those columns.
  static double results(Ranges rows, const DimRange& columns) {
    rows.back() = columns;
    double n = 1;
    for (const DimRange& r : rows) n *= likely(r.count);
    return n;
  }

  // A template whose kernel takes formulas in and can compute those columns alone.
  bool computes_columns(const Loop& loop, const DimRange& columns) const {
    if (!takes_epilogue(loop.def) || loop.outputs.size() != 1) return false;
    return narrowable(program_, loop, sizes_of(loop.outputs[0]).size() - 1, columns) == columns;
  }

  // Such a template, or the formula of one that its kernel takes in.
  bool splits_at(size_t number, const DimRange& columns) const {
    const Loop& loop = program_.loops[number];
    if (!program_.buffer(loop.outputs[0]).strides.empty()) return false;
    if (is_template(loop.def)) return computes_columns(loop, columns);
    if (!std::holds_alternative<Pointwise>(loop.def) || checked_dims(program_, loop)) return false;
    for (BufferId id : reads(program_, loop)) {
      const size_t maker = static_cast<size_t>(id.index) < producer_.size() ? producer_[static_cast<size_t>(id.index)] : number;
      if (maker < number && sizes_of(id) == sizes_of(loop.outputs[0]) && computes_columns(program_.loops[maker], columns)) return true;
    }
    return false;
  }

  void split_columns(size_t number) {
    const BufferId whole_id = program_.loops[number].outputs[0];
    const Demand wanted = demand(whole_id);
    if (program_.loops[number].outputs.size() != 1) return;
    const std::optional<Ranges> few = few_rows(wanted, sizes_of(whole_id));
    if (!few) return;
    find_readers();
    if (!splits_at(number, few->back())) return;
    Loop part = program_.loops[number];
    give_new_results(part, ".rows");
    const BufferId part_id = part.outputs[0];
    readers_.resize(program_.buffers.size());
    std::vector<Reader>& readers = readers_[static_cast<size_t>(whole_id.index)];
    for (const Reader& r : readers) redirect_reads(r.added ? added_[r.number].second : program_.loops[r.number], program_, whole_id, part_id, few->back());
    readers_[static_cast<size_t>(part_id.index)] = readers;
    demand(whole_id) = {};
    for (const Ranges& read : wanted.each) {
      const bool in_part = joined(read.back(), few->back(), sizes_of(whole_id).back()) == few->back();
      join(demand(in_part ? part_id : whole_id), read, sizes_of(whole_id));
    }
    narrow_loop(part);
    collect(part);
    add(number, std::move(part));
  }

  // A copy of a loop defines buffers of its own.
  void give_new_results(Loop& copy, const std::string& suffix) {
    for (BufferId& id : copy.outputs) {
      BufferInfo info = program_.buffer(id);
      info.name = unused_name(info.name + suffix);
      const std::vector<char> held = held_[static_cast<size_t>(id.index)];
      id = BufferId(program_.buffers.size());
      program_.buffers.push_back(std::move(info));
      demand_.emplace_back();
      narrowed_.push_back(nullptr);
      held_.push_back(held);
    }
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
    for (const BufferId* id : parts_of(loop.def).whole) demand_whole(*id);
  }

  static Ranges ranges_of(const ReadAt& read, const std::vector<Expr>& sizes) {
    Ranges ranges;
    for (size_t d = 0; d < sizes.size(); ++d) ranges.push_back(range_of(read.coordinates[d], sizes[d], read.domain));
    return ranges;
  }

  // --- what may end the call

  static bool is_cut(const Demand& d, const std::vector<char>& dims, const std::vector<Expr>& sizes) {
    for (size_t i = 0; d.any && i < sizes.size(); ++i) {
      if (is_whole(d.ranges[i], sizes[i])) continue;
      if (dims[i] || !provably_nonnegative(d.ranges[i].count - 1)) return true;
    }
    return !d.any;
  }

  // Less of it is read than there is, or nothing: eager checks all of it, and so what it checks on the way is to be checked all the same.
  void keep_checks(size_t number) {
    const Loop& loop = program_.loops[number];
    if (defines_whole(loop.def)) {  // its results may differ in rank
      const bool wanted = std::any_of(loop.outputs.begin(), loop.outputs.end(), [&](BufferId id) { return demand(id).any; });
      if (narrower_ && !wanted) add_check(loop.outputs[0]);
      return;
    }
    const Demand wanted = wanted_of(loop);
    const std::optional<std::vector<char>> dims = checked_dims(program_, loop);
    if (dims && is_cut(wanted, *dims, sizes_of(loop.outputs[0]))) split_checks(number, *dims);
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
    give_new_results(check, ".checks");
    Ranges ranges = whole(sizes_of(check.outputs[0]));
    const Expr one = program_.pool->index(1);
    for (size_t d = 0; d < ranges.size(); ++d) {
      if (dims[d] || !provably_nonnegative(ranges[d].count - 1)) continue;
      ranges[d] = narrowable(program_, check, d, {ranges[d].first, one, one});
    }
    cut(check, std::move(ranges));
    add_check(check.outputs[0]);
    collect(check);
    add(number, std::move(check));
  }

  std::string unused_name(std::string name) {
    if (names_.empty()) {
      for (const BufferInfo& b : program_.buffers) names_.insert(b.name);
    }
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  LoopProgram program_;
  const bool split_columns_;
  bool narrower_ = false;  // than it was: something has been cut
  std::vector<Demand> demand_;
  std::vector<std::unique_ptr<const Ranges>> kept_;
  NarrowedBuffers narrowed_;
  std::vector<std::vector<char>> held_;         // by buffer and dimension; empty: none
  std::vector<std::pair<size_t, Loop>> added_;  // to be inserted before the loop of that number; later ones first
  struct Reader {
    size_t number;  // of a loop of the program, or of an added one
    bool added;
  };
  std::vector<std::vector<Reader>> readers_;  // by buffer; these three are made when first needed
  std::vector<size_t> producer_;              // by buffer: the loop whose first result it is
  std::unordered_set<std::string> names_;     // of all buffers
};

}  // namespace

LoopProgram demanded_ranges(LoopProgram program, bool split_columns) { return DemandedRanges(std::move(program), split_columns).run(); }

}  // namespace coil
