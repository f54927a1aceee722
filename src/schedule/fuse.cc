// The second half of fusion: loops over the same points share a kernel, including reductions over some of the axes and what uses
// their results.
#include <algorithm>

#include "schedule/inline_producers.h"

namespace coil {
namespace {

bool by_index(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

struct LoopShape {
  std::vector<Expr> sizes;  // of the variables: kept ones first
  int kept = 0;
  Expr body;
};

class Grouper {
 public:
  Grouper(LoopProgram& program, const Epilogues& epilogues, const std::vector<bool>& alive, bool fuses_siblings, std::vector<FusionNote>& notes)
      : program_(program), epilogues_(epilogues), alive_(alive), fuses_siblings_(fuses_siblings), notes_(notes), group_of_(program.loops.size(), -1) {}

  std::vector<FusionGroup> run() {
    std::vector<bool> in_epilogue(program_.loops.size(), false);
    for (const auto& [row, chain] : epilogues_) {
      for (int r : chain) in_epilogue[static_cast<size_t>(r)] = true;
    }
    producer_.assign(program_.buffers.size(), -1);
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      for (BufferId id : program_.loops[l].outputs) producer_[static_cast<size_t>(id.index)] = static_cast<int>(l);
    }
    // A template with its epilogue is one group, known before its readers are placed.
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      if (!alive_[l] || in_epilogue[l]) continue;
      const int row = static_cast<int>(l);
      if (epilogues_.contains(row)) {
        FusionGroup g;
        g.closed = true;
        g.loops = {row};
        for (int r : epilogues_.at(row)) g.loops.push_back(r);
        add_group(std::move(g));
      } else {
        place(row);
      }
    }
    return sorted();
  }

 private:
  const Loop& loop(int row) const { return program_.loops[static_cast<size_t>(row)]; }

  bool axes_loop(int row) const {
    return std::holds_alternative<Pointwise>(loop(row).def) || std::holds_alternative<Reduction>(loop(row).def);
  }

  LoopShape shape(int row) const {
    const auto refs = bodies(program_, loop(row));
    return {refs[0].domain, static_cast<int>(program_.buffer(loop(row).outputs[0]).sizes.size()), refs[0].body};
  }

  void add_group(FusionGroup g) {
    for (int r : g.loops) group_of_[static_cast<size_t>(r)] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(g));
  }

  // Rows of the groups that `row` reads from.
  std::vector<int> inputs_of(int row) const {
    std::vector<int> out;
    for (BufferId id : reads(program_, loop(row))) {
      const int p = producer_[static_cast<size_t>(id.index)];
      if (p < 0) continue;
      const int g = group_of_[static_cast<size_t>(p)];
      if (g >= 0 && std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
    }
    return out;
  }

  // Whether group `from` is needed, directly or not, to compute group `to`.
  bool reaches(int from, int to, std::vector<int>& seen) const {
    if (from == to) return true;
    if (std::find(seen.begin(), seen.end(), to) != seen.end()) return false;
    seen.push_back(to);
    for (int r : groups_[static_cast<size_t>(to)].loops) {
      for (int g : inputs_of(r)) {
        if (g != to && reaches(from, g, seen)) return true;
      }
    }
    return false;
  }

  void place(int row) {
    if (!axes_loop(row) || !loop(row).assertion.empty()) {  // an assertion's kernel reports that assertion and nothing else
      FusionGroup g;
      g.closed = true;
      g.loops = {row};
      add_group(std::move(g));
      return;
    }
    const std::vector<int> inputs = inputs_of(row);
    std::vector<int> candidates = inputs;
    std::sort(candidates.rbegin(), candidates.rend());
    for (int sibling : fuses_siblings_ ? siblings(row) : std::vector<int>()) {
      if (std::find(candidates.begin(), candidates.end(), sibling) == candidates.end()) candidates.push_back(sibling);
    }
    for (int g : candidates) {
      const bool feeds = std::find(inputs.begin(), inputs.end(), g) != inputs.end();
      std::string reason = try_merge(g, row, inputs);
      if (reason.empty()) return;
      if (feeds) notes_.push_back({loop(groups_[static_cast<size_t>(g)].loops.back()).op, loop(row).op, reason});
    }
    FusionGroup g;
    const LoopShape s = shape(row);
    std::vector<int> axis_of_var;
    for (size_t v = 0; v < s.sizes.size(); ++v) {
      if (s.sizes[v] == program_.pool->index(1)) {
        axis_of_var.push_back(-1);
        continue;
      }
      axis_of_var.push_back(static_cast<int>(g.axis_sizes.size()));
      g.axis_sizes.push_back(s.sizes[v]);
      g.axis_inner.push_back(static_cast<int>(v) >= s.kept);
      g.has_inner |= static_cast<int>(v) >= s.kept;
    }
    g.loops = {row};
    g.axis_of_var = {axis_of_var};
    // A reduction over one point keeps its structure: an axis of size 1.
    if (std::holds_alternative<Reduction>(loop(row).def) && !g.has_inner) {
      g.axis_sizes.push_back(program_.pool->index(1));
      g.axis_inner.push_back(true);
      g.has_inner = true;
    }
    add_group(std::move(g));
  }

  // Open groups that read a buffer of at least rank 1 that `row` reads as well.
  std::vector<int> siblings(int row) const {
    std::vector<int> out;
    const auto mine = reads(program_, loop(row));
    for (size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].closed) continue;
      for (int r : groups_[g].loops) {
        for (BufferId id : reads(program_, loop(r))) {
          const bool shared = std::find(mine.begin(), mine.end(), id) != mine.end();
          if (shared && program_.buffer(id).sizes.size() >= 2 && program_.buffer(id).kind != BufferInfo::Kind::constant) {
            out.push_back(static_cast<int>(g));
            goto next_group;
          }
        }
      }
    next_group:;
    }
    return out;
  }

  // Empty: merged. Otherwise why not.
  std::string try_merge(int gi, int row, const std::vector<int>& inputs) {
    FusionGroup& g = groups_[static_cast<size_t>(gi)];
    if (g.closed) return "the producer is a template, scan, sort or concatenation";
    for (int other : inputs) {
      std::vector<int> seen;
      if (other != gi && reaches(gi, other, seen)) return "another kernel has to run between them";
    }
    const LoopShape s = shape(row);
    std::vector<int> axis_of(s.sizes.size(), -2);
    for (size_t v = 0; v < s.sizes.size(); ++v) {
      if (s.sizes[v] == program_.pool->index(1)) axis_of[v] = -1;
    }
    if (std::string why = bind_reads(g, s, axis_of); !why.empty()) return why;
    if (std::string why = bind_rest(g, s, axis_of); !why.empty()) return why;
    return settle(gi, row, s, axis_of);
  }

  // Variables that index what the group produces are the group's axes.
  std::string bind_reads(const FusionGroup& g, const LoopShape& s, std::vector<int>& axis_of) const {
    std::string why;
    visit(s.body, [&](Expr e) {
      if (e->kind != ExprKind::load || !why.empty()) return;
      for (size_t m = 0; m < g.loops.size(); ++m) {
        const Loop& member = loop(g.loops[m]);
        if (member.outputs[0].index != e->id) continue;
        for (size_t d = 0; d < e->args.size(); ++d) {
          const int axis = g.axis_of_var[m][d];
          if (axis < 0) continue;
          const Expr c = e->args[d];
          if (c->kind != ExprKind::var) {
            why = "it reads " + program_.buffer(member.outputs[0]).name + " at other coordinates than its own";
            return;
          }
          if (s.sizes[static_cast<size_t>(c->id)] != g.axis_sizes[static_cast<size_t>(axis)]) {  // the beginning of it only
            why = "the loops run over different ranges";
            return;
          }
          int& bound = axis_of[static_cast<size_t>(c->id)];
          if (bound != -2 && bound != axis) why = "it reads what the producer makes in another order";
          bound = axis;
        }
      }
    });
    return why;
  }

  // The other variables take the axes that are left, in order, where sizes agree.
  std::string bind_rest(const FusionGroup& g, const LoopShape& s, std::vector<int>& axis_of) const {
    for (size_t v = 0; v < axis_of.size(); ++v) {
      if (axis_of[v] != -2) continue;
      for (size_t a = 0; a < g.axis_sizes.size() && axis_of[v] == -2; ++a) {
        const bool taken = std::find(axis_of.begin(), axis_of.end(), static_cast<int>(a)) != axis_of.end();
        if (!taken && g.axis_sizes[a] == s.sizes[v]) axis_of[v] = static_cast<int>(a);
      }
      if (axis_of[v] == -2) return "the loops run over different ranges";
    }
    for (size_t v = 0; v < axis_of.size(); ++v) {
      for (size_t w = v + 1; w < axis_of.size(); ++w) {
        if (axis_of[v] >= 0 && axis_of[v] == axis_of[w]) return "the loops run over different ranges";
      }
    }
    return "";
  }

  // Checks that outer and inner axes agree, and takes the loop in.
  std::string settle(int gi, int row, const LoopShape& s, const std::vector<int>& axis_of) {
    FusionGroup& g = groups_[static_cast<size_t>(gi)];
    const size_t n = g.axis_sizes.size();
    std::vector<bool> kept(n, false), reduced(n, false);
    bool reduces = false;
    for (size_t v = 0; v < axis_of.size(); ++v) {
      if (axis_of[v] < 0) continue;
      const bool is_kept = static_cast<int>(v) < s.kept;
      (is_kept ? kept : reduced)[static_cast<size_t>(axis_of[v])] = true;
      reduces |= !is_kept;
    }
    if (const auto* r = std::get_if<Reduction>(&loop(row).def)) {
      if (!reduces) return "a reduction over one point";
      // An index reduction numbers its points in its own order, which has to be the axes' order.
      std::vector<int> order(axis_of.begin() + s.kept, axis_of.end());
      std::erase(order, -1);
      if (by_index(r->op) && !std::is_sorted(order.begin(), order.end())) return "it numbers the points in another order";
    }
    bool all = true, outer_only = true;
    for (size_t a = 0; a < n; ++a) {
      all &= kept[a] || reduced[a];
      outer_only &= g.axis_inner[a] ? !kept[a] && !reduced[a] : kept[a];
    }
    if (!all && !(g.has_inner && outer_only)) return "the loops run over different ranges";
    if (reduces) {
      for (size_t a = 0; a < n; ++a) {
        if (g.has_inner && reduced[a] != g.axis_inner[a]) return "they reduce over different axes";
      }
      for (size_t a = 0; a < n; ++a) g.axis_inner[a] = reduced[a];
      g.has_inner = true;
    }
    g.loops.push_back(row);
    g.axis_of_var.push_back(axis_of);
    group_of_[static_cast<size_t>(row)] = gi;
    return "";
  }

  // Groups in an order that respects dependences; among ready ones the one with the earliest first loop.
  std::vector<FusionGroup> sorted() {
    const size_t n = groups_.size();
    std::vector<std::vector<int>> needs(n);
    for (size_t g = 0; g < n; ++g) {
      for (int r : groups_[g].loops) {
        for (int i : inputs_of(r)) {
          if (i != static_cast<int>(g)) needs[g].push_back(i);
        }
      }
    }
    std::vector<FusionGroup> out;
    std::vector<bool> done(n, false);
    while (out.size() < n) {
      int best = -1;
      for (size_t g = 0; g < n; ++g) {
        if (done[g]) continue;
        const bool ready = std::all_of(needs[g].begin(), needs[g].end(), [&](int i) { return done[static_cast<size_t>(i)]; });
        if (ready && (best < 0 || groups_[g].loops.back() < groups_[static_cast<size_t>(best)].loops.back())) best = static_cast<int>(g);
      }
      CHECK(best >= 0, "fusion made a cycle");
      done[static_cast<size_t>(best)] = true;
      out.push_back(std::move(groups_[static_cast<size_t>(best)]));
    }
    return out;
  }

  LoopProgram& program_;
  const Epilogues& epilogues_;
  const std::vector<bool>& alive_;
  const bool fuses_siblings_;
  std::vector<FusionNote>& notes_;
  std::vector<FusionGroup> groups_;
  std::vector<int> group_of_;
  std::vector<int> producer_;
};

}  // namespace

FusionResult fuse(LoopProgram program, const TargetTraits& target) {
  FusionResult result;
  select_concats(program, target);
  const Epilogues epilogues = target.fuse_epilogues ? find_epilogues(program, result.not_fused) : Epilogues();
  std::vector<bool> alive(program.loops.size(), true);
  inline_pointwise(program, epilogues, target, alive, result.not_fused);
  result.groups = Grouper(program, epilogues, alive, target.fuse_siblings, result.not_fused).run();
  result.program = std::move(program);
  return result;
}

}  // namespace coil
