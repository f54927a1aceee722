// States and inputs that a program changes element by element (an optimizer's moments and weights, running statistics) or of which it changes some
// elements (a row of a cache) are written where they lie: the kernel that computes the new values stores them there, instead of a whole new tensor into
// memory of its own from which it is copied when all is done.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "schedule/early_checks.h"
#include "schedule/renumber.h"
#include "schedule/row_writes.h"
#include "schedule/schedule.h"
#include "schedule/work.h"

namespace coil {
namespace {

class InPlaceWrites {
 public:
  explicit InPlaceWrites(KernelPlan& plan) : plan_(plan) {}

  void run() {
    const std::optional<EarlyChecks> checks = EarlyChecks::find(plan_);
    if (!checks) {
      for (Kernel& k : plan_.kernels) stay(k, "a call may still fail behind the kernel that computes it, and changes nothing then");
      return;
    }
    find_users();
    std::set<int32_t> sources, kept;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind == LoopOutput::Kind::user || o.kind == LoopOutput::Kind::check || !sources.insert(o.source.index).second) kept.insert(o.source.index);
    }
    to_.resize(plan_.buffers.size());
    for (size_t i = 0; i < to_.size(); ++i) to_[i] = BufferId(i);
    std::vector<bool> gone(plan_.kernels.size(), false);
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      const auto* copy = std::get_if<CopyKernel>(&plan_.kernels[n].def);
      if (!copy) continue;
      const bool alone = !kept.contains(copy->from.index);
      const char* why = alone ? place(*copy, static_cast<int>(n), *checks) : "its new value is a result of the program, or of several states, too";
      gone[n] = !why;
      if (why) stay(plan_.kernels[n], why);
    }
    apply(gone, *checks);
  }

 private:
  // A loop's copies have their own reason.
  void stay(Kernel& k, const char* why) const {
    auto* copy = std::get_if<CopyKernel>(&k.def);
    if (!copy) return;
    const bool written = std::any_of(plan_.outputs.begin(), plan_.outputs.end(), [&](const LoopOutput& o) { return o.target.valid() && o.target == copy->to; });
    if (written) copy->why = why;
  }

  // A kernel's store of a new tensor in the memory of the old one: of some elements, or (no rows) of all of them.
  struct Write {
    BufferId made;
    std::optional<RowWrite> rows;
  };

  const std::vector<int>& users(BufferId id) const { return users_[static_cast<size_t>(id.index)]; }

  // Which kernels touch each buffer, in their order.
  void find_users() {
    users_.assign(plan_.buffers.size(), {});
    makers_.assign(plan_.buffers.size(), 0);
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      renumbered(plan_.kernels[n], [&](BufferId id) {
        std::vector<int>& list = users_[static_cast<size_t>(id.index)];
        if (list.empty() || list.back() != static_cast<int>(n)) list.push_back(static_cast<int>(n));
        return id;
      });
      for (const BufferId id : kernel_work(plan_, plan_.kernels[n]).writes) ++makers_[static_cast<size_t>(id.index)];
    }
  }

  // The kernel that makes a computed buffer (if it is one alone) is the first that touches it.
  int writer(BufferId id) const { return users(id).front(); }

  // Follows the new value of a state back to the state: kernels that change some elements of what the one before has made, or one that makes each
  // element of the old one. All of them then work in the state's memory. Those that write run behind all checks: a call that fails changes nothing.
  // Null: so it is; else why not.
  const char* place(const CopyKernel& copy, int at, const EarlyChecks& checks) {
    std::vector<std::pair<int, std::optional<RowWrite>>> writers;
    std::vector<BufferId> made;
    for (BufferId now = copy.from; now != copy.to;) {
      if (!fits(now, copy.to)) return "its new value is no tensor of its own with the same strides";
      if (makers_[static_cast<size_t>(now.index)] != 1) return "several kernels make its new value";  // those of a concatenation's parts
      const int n = writer(now);
      const auto* loop = std::get_if<LoopKernel>(&plan_.kernels[static_cast<size_t>(n)].def);
      if (!loop) return "a template, a sort, a copy or a routine makes its new value, which is stored whole";
      if (n <= checks.last_needed()) return "a check reads what its kernel computes: the call may still fail then, and changes nothing";
      if (reduces(*loop) && !checks.empty()) return "what is stored behind a reduction is stored without a condition, and the call may fail";
      std::optional<RowWrite> rows = find_row_write(*loop, now);
      if (rows && rows->old != copy.to && plan_.buffer(rows->old).info.kind != BufferInfo::Kind::computed) rows.reset();
      if (!rows && !stores_where_it_reads(*loop, now, copy.to)) return "its kernel reads other elements of the old value than the one that it replaces";
      made.push_back(now);
      const BufferId before = rows ? rows->old : copy.to;
      if (before != copy.to && users(before).back() > n) return "a later kernel reads what it was on the way";
      writers.emplace_back(n, std::move(rows));
      now = before;
    }
    if (!last_read_before(copy.to, writers.back().first, at)) return "a later kernel reads the old value";
    for (const BufferId id : made) to_[static_cast<size_t>(id.index)] = copy.to;
    for (size_t i = 0; i < writers.size(); ++i) writes_[writers[i].first].push_back({made[i], std::move(writers[i].second)});
    return nullptr;
  }

  bool fits(BufferId made, BufferId target) const {
    const BufferInfo &from = plan_.buffer(made).info, &to = plan_.buffer(target).info;
    return from.kind == BufferInfo::Kind::computed && from.dtype == to.dtype && from.sizes == to.sizes && from.strides == to.strides;
  }

  // Who reads the old value after the new one is there? The copy itself touches both.
  bool last_read_before(BufferId old, int made, int copy) const {
    return std::all_of(users(old).begin(), users(old).end(), [&](int user) { return user <= made || user == copy; });
  }

  // Each point reads of `old` no element but the one whose new value it stores: the points of a pointwise kernel, or what a kernel with reductions does
  // for each point between its passes (a running mean behind the sums of a batch).
  static bool stores_where_it_reads(const LoopKernel& k, BufferId made, BufferId old) {
    if (k.sequential || !k.scratch.empty()) return false;
    const Stmt* store = nullptr;
    for (const Stmt& s : k.stmts) {
      if (s.kind == Stmt::Kind::scan || (s.kind == Stmt::Kind::reduce && !s.inner)) return false;
      if (s.kind != Stmt::Kind::store || s.buffer != made) continue;
      if (store || s.condition || (reduces(k) && s.inner)) return false;
      store = &s;
    }
    if (!store) return false;
    bool same = true;
    for (const Stmt& s : k.stmts) {
      const bool in_time = !reduces(k) || (!s.inner && s.phase <= store->phase);
      for (Expr e : {s.value, s.offset, s.condition}) {
        if (!e) continue;
        visit(e, [&](Expr n) {
          if (n->kind == ExprKind::load && n->id == old.index) same = same && in_time && n->args[0] == store->offset;
          if (n->kind == ExprKind::load && n->id == made.index) same = false;
        });
      }
    }
    return same;
  }

  static bool reduces(const LoopKernel& k) { return k.num_outer != static_cast<int>(k.axes.size()); }

  // All stores of a point behind all that is read there; between two passes those of that place.
  static void store_last(LoopKernel& k) {
    int32_t next = 0;
    for (const Stmt& s : k.stmts) next = std::max(next, s.temp.index + 1);
    const auto passes = [&](const Stmt& s) { return reduces(k) && s.inner; };
    std::vector<Stmt> stmts;
    for (Stmt s : k.stmts) {
      if (s.kind == Stmt::Kind::store && !passes(s) && any_of(s.value, [](Expr n) { return n->kind == ExprKind::load; })) {
        Stmt let;
        let.kind = Stmt::Kind::let;
        let.inner = s.inner, let.phase = s.phase;
        let.temp = TempId(next++);
        let.value = s.value;
        let.dtype = s.value->dtype;
        s.value = s.value->pool->temp(let.temp, let.dtype);
        stmts.push_back(std::move(let));
      }
      stmts.push_back(std::move(s));
    }
    const auto rank = [&](const Stmt& s) { return std::tuple(s.phase, passes(s), !passes(s) && s.kind == Stmt::Kind::store); };
    std::stable_sort(stmts.begin(), stmts.end(), [&](const Stmt& a, const Stmt& b) { return rank(a) < rank(b); });
    k.stmts = std::move(stmts);
  }

  void apply(const std::vector<bool>& gone, const EarlyChecks& checks) {
    if (writes_.empty()) return;
    std::vector<Kernel> kernels;
    Expr allowed;
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      if (gone[n]) continue;
      Kernel& k = plan_.kernels[n];
      const auto write = writes_.find(static_cast<int>(n));
      if (write != writes_.end()) {
        if (write == writes_.begin() && !checks.empty()) {
          for (Kernel& check : checks.kernels(plan_, [&](int n) { return writes_.contains(n); }, &allowed)) kernels.push_back(std::move(check));
          for (size_t i = to_.size(); i < plan_.buffers.size(); ++i) to_.push_back(BufferId(i));
        }
        change(std::get<LoopKernel>(k.def), write->second, allowed);
      }
      kernels.push_back(renumbered(std::move(k), to_));
    }
    plan_.kernels = std::move(kernels);
    for (LoopOutput& o : plan_.outputs) o.source = to_[static_cast<size_t>(o.source.index)];
  }

  // The writes as those of rows, if they are all such and none reads what another one changes.
  static std::optional<std::vector<RowWrite>> rows_alone(const std::vector<Write>& writes) {
    std::vector<RowWrite> rows;
    for (const Write& w : writes) {
      if (!w.rows) return std::nullopt;
      rows.push_back(*w.rows);
    }
    for (const RowWrite& w : rows) {
      for (const RowWrite& other : rows) {
        const auto reads = [&](Expr e) { return any_of(e, [&](Expr n) { return n->kind == ExprKind::load && n->id == other.old.index; }); };
        if (w.store != other.store && (reads(w.value) || reads(w.condition))) return std::nullopt;
      }
    }
    return rows;
  }

  static void change(LoopKernel& loop, const std::vector<Write>& writes, Expr allowed) {
    if (const std::optional<std::vector<RowWrite>> rows = rows_alone(writes)) {
      loop = only_new_elements(std::move(loop), *rows, allowed);
      return;
    }
    for (const Write& w : writes) {
      for (Stmt& s : loop.stmts) {
        if (s.kind == Stmt::Kind::store && s.buffer == w.made) s.condition = allowed;
      }
    }
    store_last(loop);
  }

  KernelPlan& plan_;
  std::vector<std::vector<int>> users_;
  std::vector<int> makers_;                   // how many kernels store to each buffer
  std::vector<BufferId> to_;                  // in whose memory each buffer is
  std::map<int, std::vector<Write>> writes_;  // of kernels that write in place
};

}  // namespace

void write_in_place(KernelPlan& plan) { InPlaceWrites(plan).run(); }

}  // namespace coil
