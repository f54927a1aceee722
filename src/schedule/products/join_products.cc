// See join_products.h. Only neighbours share a launch, so products of one left operand that have other kernels between them (each followed by its rotary
// embedding) are moved up behind the first one.
#include "schedule/products/join_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "schedule/schedule.h"
#include "schedule/work.h"

namespace coil {
namespace {

constexpr size_t kMostJoined = cd::kJoinedProducts;
constexpr size_t kMostBetween = 32;  // kernels between two products: they are looked at for each product
constexpr int64_t kLine = 8;         // elements of 16 bytes

std::optional<int64_t> constant(Expr e) { return e->is_constant() ? std::optional(e->as_int()) : std::nullopt; }

// Null: it is none.
const TemplateKernel* few_rows_product(const KernelPlan& plan, const Kernel& k) {
  ExprPool& pool = *plan.pool;
  const auto* t = std::get_if<TemplateKernel>(&k.def);
  const auto* g = t ? std::get_if<Gemm>(&t->def) : nullptr;
  if (!g || g->quantised || !(product(pool, g->batch) == pool.index(1))) return nullptr;
  const DType type = plan.buffer(t->operands[0].buffer).info.dtype;
  if ((type != DType::bf16 && type != DType::f16) || plan.buffer(t->operands[1].buffer).info.dtype != type) return nullptr;
  const std::optional<int64_t> depth = constant(product(pool, g->k)), columns = constant(product(pool, g->n));
  if (!depth || !columns || *depth < kLine || *depth % kLine != 0 || *depth > kJoinedDepth || *columns < 1) return nullptr;
  const Expr rows = product(pool, g->m);
  if (lower_bound(rows).value_or(0) > kJoinedRows) return nullptr;
  const int m0 = static_cast<int>(g->batch.size()), n0 = m0 + static_cast<int>(g->m.size()), k0 = n0 + static_cast<int>(g->n.size());
  const auto steps = [&](const PlanOperand& o, int first, const std::vector<Expr>& sizes) { return merged_stride(o.offset, first, sizes); };
  const auto a_row = steps(t->operands[0], m0, g->m), a_col = steps(t->operands[0], k0, g->k), b_row = steps(t->operands[1], k0, g->k),
             b_col = steps(t->operands[1], n0, g->n);
  const auto is_one = [&](const std::optional<Expr>& e) { return e && *e == pool.index(1); };
  const auto lines = [&](const std::optional<Expr>& e, Expr count) { return e && (count == pool.index(1) || (constant(*e) && *constant(*e) % kLine == 0)); };
  return is_one(a_col) && is_one(b_row) && lines(a_row, rows) && lines(b_col, product(pool, g->n)) ? t : nullptr;
}

// The same of bytes: rows of int8 and a weight of numbers. Null: it is none.
const TemplateKernel* few_rows_of_bytes(const KernelPlan& plan, const Kernel& k) {
  ExprPool& pool = *plan.pool;
  const auto* t = std::get_if<TemplateKernel>(&k.def);
  const auto* g = t ? std::get_if<Gemm>(&t->def) : nullptr;
  if (!g || !(product(pool, g->batch) == pool.index(1)) || plan.buffer(t->operands[0].buffer).info.dtype != DType::i8) return nullptr;
  const std::optional<int64_t> depth = constant(product(pool, g->k)), columns = constant(product(pool, g->n));
  return depth && columns && *depth >= 1 && *columns >= 1 && lower_bound(product(pool, g->m)).value_or(0) <= 1 ? t : nullptr;
}

class Joiner {
 public:
  explicit Joiner(KernelPlan& plan) : plan_(plan) {
    for (const LoopOutput& o : plan.outputs) shown_.insert(o.source);
    for (const Kernel& kernel : plan.kernels) {
      for (const BufferId id : read_by(kernel)) ++readers_[id];
    }
  }

  void run() {
    for (size_t i = 0; i < plan_.kernels.size(); ++i) {
      if (!product_of(plan_.kernels[i])) continue;
      const size_t last = gather(i);
      const bool rows = i > 0 && makes_rows(plan_.kernels[i - 1], i, last);
      if (rows) plan_.kernels[i].joins = true;
      i = last;
    }
  }

 private:
  ExprPool& pool() { return *plan_.pool; }

  const TemplateKernel* product_of(const Kernel& k) {
    const TemplateKernel* found = few_rows_product(plan_, k);
    return found ? found : few_rows_of_bytes(plan_, k);
  }

  static bool same_rows(const TemplateKernel& x, const TemplateKernel& y) {
    const auto &a = std::get<Gemm>(x.def), &b = std::get<Gemm>(y.def);
    return x.operands[0].buffer == y.operands[0].buffer && x.operands[0].offset == y.operands[0].offset && a.batch == b.batch && a.m == b.m && a.k == b.k &&
           a.n.size() == b.n.size();
  }

  // Puts products that go with number `first` behind it; returns the number of the last one.
  size_t gather(size_t first) {
    members_ = {first};
    paired_.clear();
    work_ = {kernel_work(plan_, plan_.kernels[first])};
    std::set<BufferId> read, written;  // by kernels that a product would move past
    for (size_t j = first + 1; j < plan_.kernels.size() && j <= members_.back() + kMostBetween && members_.size() < kMostJoined; ++j) {
      const Kernel& kernel = plan_.kernels[j];
      if (std::holds_alternative<ControlMark>(kernel.def) || std::holds_alternative<ReadKernel>(kernel.def)) break;
      KernelWork work = kernel_work(plan_, kernel);
      if (meets(work.reads, written) || meets(work.writes, written) || meets(work.writes, read) || !goes_with(kernel, work)) {
        read.insert(work.reads.begin(), work.reads.end());
        written.insert(work.writes.begin(), work.writes.end());
        continue;
      }
      const size_t to = members_.back() + 1;
      const auto at = [&](size_t i) { return plan_.kernels.begin() + static_cast<std::ptrdiff_t>(i); };
      std::rotate(at(to), at(j), at(j + 1));
      plan_.kernels[to].joins = true;
      members_.push_back(to);
      work_.push_back(std::move(work));
    }
    return members_.back();
  }

  // Whether a product may run at the same time as those that were gathered: it needs none of their results, or of one that of the point that it computes.
  bool goes_with(const Kernel& kernel, const KernelWork& work) {
    const TemplateKernel* t = product_of(kernel);
    if (!t || !same_rows(*t, std::get<TemplateKernel>(plan_.kernels[members_[0]].def))) return false;
    std::optional<size_t> partner;
    for (size_t i = 0; i < members_.size(); ++i) {
      const auto& earlier = std::get<TemplateKernel>(plan_.kernels[members_[i]].def);
      const ReadsResult reads = reads_result(plan_, *t, earlier);
      if (reads == ReadsResult::others || (reads == ReadsResult::own_points && (partner || paired_.contains(i)))) return false;
      if (reads == ReadsResult::own_points) partner = i;
      const std::set<BufferId> used = both(work_[i]);
      if (meets(work.writes, used)) return false;
    }
    if (partner) paired_.insert({*partner, members_.size()});
    return true;
  }

  static std::set<BufferId> both(const KernelWork& w) {
    std::set<BufferId> all;
    for (const auto& list : {w.reads, w.writes}) {
      for (const BufferId id : list) all.insert(id);
    }
    return all;
  }
  static bool meets(const std::vector<BufferId>& list, const std::set<BufferId>& ids) {
    return std::any_of(list.begin(), list.end(), [&](BufferId id) { return ids.contains(id); });
  }

  // Whether a kernel computes each row of products' left operand from a pass over that row, and nothing else (of bytes: but values of the row); and these are
  // all that reads it.
  bool makes_rows(const Kernel& kernel, size_t first, size_t last) {
    const auto* loop = std::get_if<LoopKernel>(&kernel.def);
    const auto& product_kernel = std::get<TemplateKernel>(plan_.kernels[first].def);
    const auto& g = std::get<Gemm>(product_kernel.def);
    const BufferId rows = product_kernel.operands[0].buffer;
    const Expr depth = product(pool(), g.k), count = product(pool(), g.m);
    if (!loop || loop->sequential || !kernel.assertion.empty() || loop->num_outer + 1 != static_cast<int>(loop->axes.size()) ||
        !(loop->axes.back().size == depth))
      return false;
    Expr outer = pool().index(1);
    for (int a = 0; a < loop->num_outer; ++a) outer = outer * loop->axes[static_cast<size_t>(a)].size;
    if (!(outer == count) || !(product(pool(), plan_.buffer(rows).info.sizes) == count * depth)) return false;
    int stores = 0;
    const bool bytes = is_few_rows_of_bytes(plan_, plan_.kernels[first]);
    const std::vector<BufferId> values = bytes ? row_values(plan_, *loop) : std::vector<BufferId>();
    for (const Stmt& s : loop->stmts) {
      if (s.kind != Stmt::Kind::store || s.scratch >= 0) continue;
      if (std::find(values.begin(), values.end(), s.buffer) != values.end() && !shown_.contains(s.buffer)) continue;
      if (s.buffer != rows || s.condition || !s.inner) return false;
      ++stores;
    }
    return stores == 1 && dense(product_kernel.operands[0], g) && only_readers(rows, first, last);
  }

  // Whether the operand is its whole buffer, row behind row.
  bool dense(const PlanOperand& a, const Gemm& g) {
    const int m0 = static_cast<int>(g.batch.size()), k0 = m0 + static_cast<int>(g.m.size() + g.n.size());
    const Expr count = product(pool(), g.m), base = substitute_vars(a.offset, std::vector<Expr>(64, pool().index(0)));
    const auto row = merged_stride(a.offset, m0, g.m), col = merged_stride(a.offset, k0, g.k);
    return base == pool().index(0) && col && *col == pool().index(1) && row && (count == pool().index(1) || *row == product(pool(), g.k));
  }

  std::set<BufferId> read_by(const Kernel& kernel) const {
    const std::vector<BufferId> reads = kernel_work(plan_, kernel).reads;
    return {reads.begin(), reads.end()};
  }

  bool only_readers(BufferId rows, size_t first, size_t last) const {
    int inside = 0;
    for (size_t i = first; i <= last; ++i) {
      const Kernel& kernel = plan_.kernels[i];
      inside += read_by(kernel).contains(rows);
      const auto* t = std::get_if<TemplateKernel>(&kernel.def);
      if (!t) continue;  // else it may read it as its left operand alone
      if (t->operands[1].buffer == rows) return false;
      for (const Stmt& s : t->epilogue) {
        if (any_of(s.value, [&](Expr e) { return e->kind == ExprKind::load && e->id == rows.index; })) return false;
      }
    }
    const auto all = readers_.find(rows);
    return !shown_.contains(rows) && (all == readers_.end() || all->second == inside);
  }

  KernelPlan& plan_;
  std::vector<size_t> members_;      // the kernels of the launch that is gathered
  std::vector<KernelWork> work_;     // theirs
  std::map<BufferId, int> readers_;  // how many kernels read a buffer, wherever they stand
  std::set<BufferId> shown_;         // results of the program
  std::set<size_t> paired_;          // those of them of which one reads the other's result
};

}  // namespace

BufferId stored_buffer(const TemplateKernel& k) { return k.epilogue.empty() ? k.result : k.epilogue[0].buffer; }
Expr stored_offset(const TemplateKernel& k) { return k.epilogue.empty() ? k.result_offset : k.epilogue[0].offset; }

ReadsResult reads_result(const KernelPlan& plan, const TemplateKernel& later, const TemplateKernel& earlier) {
  const BufferId made = stored_buffer(earlier);
  ReadsResult result = ReadsResult::nothing;
  for (const PlanOperand& o : later.operands) {
    if (o.buffer == made) return ReadsResult::others;
  }
  const bool same_points = later.result_sizes == earlier.result_sizes && earlier.epilogue.size() <= 1;
  std::vector<Expr> point;  // a coordinate of which there is one value is 0, however it is written
  for (size_t d = 0; d < later.result_sizes.size(); ++d)
    point.push_back(later.result_sizes[d] == plan.pool->index(1) ? plan.pool->index(0) : plan.pool->var(static_cast<int32_t>(d)));
  for (const Stmt& s : later.epilogue) {
    visit(s.value, [&](Expr e) {
      if (e->kind != ExprKind::load || e->id != made.index) return;
      const bool own = same_points && substitute_vars(e->args[0], point) == substitute_vars(stored_offset(earlier), point) &&
                       e->dtype == compute_type(plan.buffer(made).info.dtype);
      result = own && result != ReadsResult::others ? ReadsResult::own_points : ReadsResult::others;
    });
  }
  return result;
}

bool is_few_rows_product(const KernelPlan& plan, const Kernel& kernel) { return few_rows_product(plan, kernel) != nullptr; }

bool is_few_rows_of_bytes(const KernelPlan& plan, const Kernel& kernel) { return few_rows_of_bytes(plan, kernel) != nullptr; }

std::vector<BufferId> row_values(const KernelPlan& plan, const LoopKernel& rows) {
  Expr count = plan.pool->index(1);
  for (int a = 0; a < rows.num_outer; ++a) count = count * rows.axes[static_cast<size_t>(a)].size;
  std::vector<BufferId> found;
  for (const Stmt& s : rows.stmts) {
    if (s.kind != Stmt::Kind::store || s.scratch >= 0 || s.inner || s.condition) continue;
    const Placement::Kind where = plan.buffer(s.buffer).placement.kind;  // none before the memory is planned
    const bool own = where == Placement::Kind::none || where == Placement::Kind::arena;
    if (own && product(*plan.pool, plan.buffer(s.buffer).info.sizes) == count) found.push_back(s.buffer);
  }
  return found;
}

void join_products(KernelPlan& plan) { Joiner(plan).run(); }

}  // namespace coil
