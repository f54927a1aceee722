// The second half of fusion: loops over the same points share a kernel, including reductions over some of the axes and what uses
// their results.
#include <algorithm>
#include <climits>
#include <set>
#include <unordered_map>
#include <utility>

#include "expr/written_size.h"
#include "loop/gives_position.h"
#include "loop/reduced_span.h"
#include "schedule/group_axes.h"
#include "schedule/group_order.h"
#include "schedule/inline_producers.h"
#include "schedule/turned_loops.h"

namespace coil {
namespace {

// Budgets: a kernel stays readable, and the time to find and to compile it linear in the program.
constexpr int64_t kMaxGroupText = 1000;  // nodes of all loops of a kernel, as they are written
constexpr int kMaxGroupCost = 2000;      // of their operations: clang's time grows faster than a function beyond that
constexpr size_t kMaxGroupLoops = 80;
constexpr size_t kMaxSiblings = 64;  // kernels that are tried because they read the same, the latest ones
constexpr int kMaxSearch = 2000;     // kernels that are looked at to know whether one needs another

constexpr const char* kTurned = "it stores along another axis than it reads along: a kernel of its own does that in tiles";

class Grouper {
 public:
  Grouper(LoopProgram& program, const Epilogues& epilogues, const std::vector<bool>& alive, const TargetTraits& target, std::vector<FusionNote>& notes)
      : program_(program),
        epilogues_(epilogues),
        alive_(alive),
        target_(target),
        notes_(notes),
        group_of_(program.loops.size(), -1),
        turned_(turned_for_rows(program)) {}

  std::vector<FusionGroup> run() {
    std::vector<bool> in_epilogue(program_.loops.size(), false);
    for (const auto& [row, chain] : epilogues_) {
      for (int r : chain) in_epilogue[static_cast<size_t>(r)] = true;
    }
    producer_.assign(program_.buffers.size(), -1);
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      for (BufferId id : program_.loops[l].outputs) producer_[static_cast<size_t>(id.index)] = static_cast<int>(l);
    }
    reads_.resize(program_.loops.size());
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      if (alive_[l]) reads_[l] = reads(program_, program_.loops[l]);
    }
    open_readers_.resize(program_.buffers.size());
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
    std::vector<bool> late;
    for (const FusionGroup& g : groups_) late.push_back(reads_little(g));
    return in_order(std::move(groups_), needs_, late);
  }

 private:
  // Whether a pointwise group reads little of other groups, besides the program's inputs: an optimizer's update, which needs the step that another group
  // counts. Updates that run behind all steps stand side by side, and a GPU runs them as a few kernels.
  bool reads_little(const FusionGroup& g) const {
    if (g.closed || g.has_inner) return false;
    constexpr int64_t kMostElements = 16384;
    const auto is_little = [&](BufferId id) {
      const int p = producer_[static_cast<size_t>(id.index)];
      if (p < 0 || group_of_[static_cast<size_t>(p)] == group_of_[static_cast<size_t>(g.loops.front())]) return true;
      Expr elements = program_.pool->index(1);
      for (Expr size : program_.buffer(id).sizes) elements = elements * size;
      return elements->is_constant() && elements->as_int() <= kMostElements;
    };
    return std::all_of(g.loops.begin(), g.loops.end(), [&](int row) { return std::all_of(reads_of(row).begin(), reads_of(row).end(), is_little); });
  }

  const Loop& loop(int row) const { return program_.loops[static_cast<size_t>(row)]; }

  bool axes_loop(int row) const { return std::holds_alternative<Pointwise>(loop(row).def) || std::holds_alternative<Reduction>(loop(row).def); }

  const std::vector<BufferId>& reads_of(int row) const { return reads_[static_cast<size_t>(row)]; }

  void add_group(FusionGroup g) {
    const int number = static_cast<int>(groups_.size());
    needs_.emplace_back();
    needed_by_.emplace_back();
    order_.push_back(next_order_++);
    length_.emplace_back();
    seen_.push_back(0);
    groups_.push_back(std::move(g));
    for (int r : groups_.back().loops) group_of_[static_cast<size_t>(r)] = number;
    for (int r : groups_.back().loops) joined(number, r);
  }

  // What is known of a group grows with each of its loops.
  void joined(int number, int row) {
    for (BufferId id : reads_of(row)) {
      const int p = producer_[static_cast<size_t>(id.index)];
      if (p < 0) continue;
      const int g = group_of_[static_cast<size_t>(p)];
      if (g < 0) waiting_[p].push_back(number);  // of an epilogue, before its turn
      else if (g != number) need(number, g);
    }
    if (const auto waiting = waiting_.find(row); waiting != waiting_.end()) {
      for (int g : waiting->second) need(g, number);
      waiting_.erase(waiting);
    }
    if (groups_[static_cast<size_t>(number)].closed) return;
    const Length own = length_of(row), again = repeated_for(number, row);
    Length& length = length_[static_cast<size_t>(number)];
    length = {length.text + own.text + again.text, length.cost + own.cost + again.cost};
    for (BufferId id : reads_of(row)) {
      const BufferInfo& b = program_.buffer(id);
      if (b.sizes.size() < 2 || b.kind == BufferInfo::Kind::constant) continue;
      std::vector<int>& readers = open_readers_[static_cast<size_t>(id.index)];
      if (readers.empty() || readers.back() != number) readers.push_back(number);
    }
  }

  // Group `g` reads what `other` makes. A group's number in order_ is larger than those of all that it needs.
  void need(int g, int other) {
    if (!needs_[static_cast<size_t>(g)].insert(other).second) return;
    needed_by_[static_cast<size_t>(other)].push_back(g);
    if (order_[static_cast<size_t>(other)] < order_[static_cast<size_t>(g)]) return;
    std::vector<int> later = dependents(g, INT_MAX);
    std::sort(later.begin(), later.end(), [&](int a, int b) { return order_[static_cast<size_t>(a)] < order_[static_cast<size_t>(b)]; });
    for (int moved : later) order_[static_cast<size_t>(moved)] = next_order_++;
  }

  // `g` and all that need it, as far as they are at most so many.
  std::vector<int> dependents(int g, int most) {
    std::vector<int> found = {g};
    seen_[static_cast<size_t>(g)] = ++search_;
    for (size_t i = 0; i < found.size() && found.size() <= static_cast<size_t>(most); ++i) {
      for (int by : needed_by_[static_cast<size_t>(found[i])]) {
        if (std::exchange(seen_[static_cast<size_t>(by)], search_) != search_) found.push_back(by);
      }
    }
    return found;
  }

  // Of a loop or a kernel.
  struct Length {
    int64_t text = 0;
    int cost = 0;
  };
  Length length_of(int row) const {
    Length sum;
    for (const BodyRef& ref : bodies(program_, loop(row))) sum = {sum.text + written_size(ref.body, kMaxGroupText), sum.cost + cost(ref.body)};
    return sum;
  }

  // What the pass of a reduction computes again because values are not kept from one pass of the kernel to the next: all that it reads within the kernel.
  Length repeated_for(int group, int row) const {
    Length sum;
    if (target_.memory_per_worker || !std::holds_alternative<Reduction>(loop(row).def)) return sum;
    std::vector<int> todo = {row};
    std::set<int> seen;
    while (!todo.empty()) {
      const int at = todo.back();
      todo.pop_back();
      for (BufferId id : reads_of(at)) {
        const int p = producer_[static_cast<size_t>(id.index)];
        if (p < 0 || group_of_[static_cast<size_t>(p)] != group || !std::holds_alternative<Pointwise>(loop(p).def) || !seen.insert(p).second) continue;
        const Length own = length_of(p);
        sum = {sum.text + own.text, sum.cost + own.cost};
        todo.push_back(p);
      }
    }
    return sum;
  }

  // Whether the target visits a range of its own for each result, which no other loop over the same points has.
  bool narrow(int row) const { return target_.narrows_reductions && reduced_span(program_, loop(row)).has_value(); }

  // Rows of the groups that `row` reads from.
  std::vector<int> inputs_of(int row) const {
    std::vector<int> out;
    for (BufferId id : reads_of(row)) {
      const int p = producer_[static_cast<size_t>(id.index)];
      if (p >= 0 && group_of_[static_cast<size_t>(p)] >= 0) out.push_back(group_of_[static_cast<size_t>(p)]);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // Whether group `from` is needed, directly or not, to compute group `to`; taken for granted where the search would be long.
  bool reaches(int from, int to) {
    if (from == to) return true;
    const auto order = [&](int g) { return order_[static_cast<size_t>(g)]; };
    if (order(to) < order(from)) return false;
    std::vector<int> todo = {to};
    seen_[static_cast<size_t>(to)] = ++search_;
    while (!todo.empty()) {
      const std::set<int>& needs = needs_[static_cast<size_t>(todo.back())];
      todo.pop_back();
      for (int g : needs) {
        if (g == from || --steps_ < 0) return true;
        if (order(g) > order(from) && std::exchange(seen_[static_cast<size_t>(g)], search_) != search_) todo.push_back(g);
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
    steps_ = kMaxSearch;
    const Length own = length_of(row);
    const std::vector<int> inputs = inputs_of(row);
    std::vector<int> candidates = inputs;
    std::sort(candidates.rbegin(), candidates.rend());
    std::vector<int> beside;
    const bool turned = (target_.turns_in_tiles && stores_turned(program_, loop(row))) || turned_.contains(row);
    if (target_.fuse_siblings && !turned) beside = siblings(row);
    for (int sibling : beside) {
      if (std::find(candidates.begin(), candidates.end(), sibling) == candidates.end()) candidates.push_back(sibling);
    }
    for (int g : candidates) {
      const bool feeds = std::find(inputs.begin(), inputs.end(), g) != inputs.end();
      std::string reason = turned ? kTurned : try_merge(g, row, own, inputs);
      if (reason.empty()) return;
      if (feeds) notes_.push_back({loop(groups_[static_cast<size_t>(g)].loops.back()).op, loop(row).op, reason});
    }
    FusionGroup g;
    const LoopShape s = loop_shape(program_, loop(row));
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
    if (turned) alone_.insert(static_cast<int>(groups_.size()));
    add_group(std::move(g));
  }

  // Open groups that read a buffer of at least rank 2 that `row` reads as well, the latest first; of a reduction also those that read what the same
  // kernel makes, such as the parts of several sums.
  std::vector<int> siblings(int row) const {
    std::set<int, std::greater<>> found;
    const auto add_readers = [&](BufferId id) {
      const std::vector<int>& readers = open_readers_[static_cast<size_t>(id.index)];
      found.insert(readers.end() - static_cast<std::ptrdiff_t>(std::min(readers.size(), kMaxSiblings)), readers.end());
    };
    const bool reduces = std::holds_alternative<Reduction>(loop(row).def);
    for (BufferId id : reads_of(row)) {
      add_readers(id);
      const int producer = producer_[static_cast<size_t>(id.index)], group = producer < 0 ? -1 : group_of_[static_cast<size_t>(producer)];
      if (!reduces || group < 0) continue;
      for (int member : groups_[static_cast<size_t>(group)].loops) {
        for (BufferId made : loop(member).outputs) add_readers(made);
      }
    }
    std::vector<int> out(found.begin(), found.end());
    if (out.size() > kMaxSiblings) out.resize(kMaxSiblings);
    return out;
  }

  // Empty: merged. Otherwise why not.
  std::string try_merge(int gi, int row, const Length& own, const std::vector<int>& inputs) {
    FusionGroup& g = groups_[static_cast<size_t>(gi)];
    if (!target_.merges_loops) return "an option keeps them apart";
    if (g.closed) return "the producer is a template, scan, sort or concatenation";
    if (alone_.contains(gi)) return kTurned;
    const Length again = repeated_for(gi, row);
    const Length length = {length_[static_cast<size_t>(gi)].text + again.text, length_[static_cast<size_t>(gi)].cost + again.cost};
    if (g.loops.size() >= kMaxGroupLoops || length.text + own.text > kMaxGroupText || length.cost + own.cost > kMaxGroupCost)
      return "the kernel would grow too long";
    for (int other : inputs) {
      if (other != gi && reaches(gi, other)) return "another kernel has to run between them";
    }
    for (BufferId id : reads_of(row)) {
      const int p = producer_[static_cast<size_t>(id.index)];
      if (p >= 0 && group_of_[static_cast<size_t>(p)] == gi && target_.stored.contains(program_.buffer(id).name)) return "an option keeps them apart";
    }
    const bool moves =
        std::any_of(inputs.begin(), inputs.end(), [&](int other) { return order_[static_cast<size_t>(other)] > order_[static_cast<size_t>(gi)]; });
    if (moves && dependents(gi, kMaxSearch).size() > static_cast<size_t>(kMaxSearch)) return "too many kernels need the producer already";
    const LoopShape s = loop_shape(program_, loop(row));
    std::vector<int> axis_of(s.sizes.size(), -2);
    for (size_t v = 0; v < s.sizes.size(); ++v) {
      if (s.sizes[v] == program_.pool->index(1)) axis_of[v] = -1;
    }
    if (std::string why = bind_axes(program_, g, s, axis_of); !why.empty()) return why;
    return settle(gi, row, s, axis_of);
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
      if (gives_position(r->op) && !std::is_sorted(order.begin(), order.end())) return "it numbers the points in another order";
    }
    bool all = true, outer_only = true;
    for (size_t a = 0; a < n; ++a) {
      all &= kept[a] || reduced[a];
      outer_only &= g.axis_inner[a] ? !kept[a] && !reduced[a] : kept[a];
    }
    if (!all && !(g.has_inner && outer_only)) return "the loops run over different ranges";
    const bool beside_range = std::any_of(g.loops.begin(), g.loops.end(), [&](int r) { return narrow(r); }) && !(g.has_inner && outer_only);
    if (beside_range || narrow(row)) return "each result is reduced over a range of its own";
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
    joined(gi, row);
    return "";
  }

  LoopProgram& program_;
  const Epilogues& epilogues_;
  const std::vector<bool>& alive_;
  const TargetTraits& target_;
  std::vector<FusionNote>& notes_;
  std::vector<FusionGroup> groups_;
  std::vector<int> group_of_;
  std::vector<int> producer_;
  const std::set<int> turned_;                  // rows of copies that loops read rows of
  std::set<int> alone_;                         // groups of a loop that stores turned
  std::vector<std::vector<BufferId>> reads_;    // of each loop
  std::vector<std::vector<int>> open_readers_;  // of each buffer: groups that may take more loops in, rising but for loops that join late
  std::vector<std::set<int>> needs_;            // of each group: those that it reads from
  std::vector<std::vector<int>> needed_by_;
  std::vector<int64_t> order_;                         // of the groups: what is needed has the smaller number
  std::unordered_map<int, std::vector<int>> waiting_;  // groups that read what a loop makes that has no group yet
  int64_t next_order_ = 0;
  std::vector<Length> length_;  // of each group's kernel
  std::vector<int> seen_;       // the last search that came by a group
  int search_ = 0;
  int steps_ = 0;  // that are left to the searches for one loop
};

}  // namespace

FusionResult fuse(LoopProgram program, const TargetTraits& target) {
  FusionResult result;
  select_concats(program, target);
  Epilogues epilogues = find_epilogues(program, target, result.not_fused);
  std::vector<bool> alive(program.loops.size(), true);
  inline_pointwise(program, epilogues, target, alive, result.not_fused);
  result.groups = Grouper(program, epilogues, alive, target, result.not_fused).run();
  result.program = std::move(program);
  return result;
}

}  // namespace coil
