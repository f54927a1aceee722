// Examples of sizes, and where stores go for them.
#include <algorithm>

#include <fmt/format.h>

#include "schedule/kernel_buffers.h"
#include "schedule/verify_plan.h"

namespace coil {
namespace {

constexpr size_t kMostExamples = 5;

bool depends_on_values(Expr e) {
  return any_of(e, [](Expr n) { return n->kind == ExprKind::load || n->kind == ExprKind::temp; });
}

// The ends of a domain in each of its dimensions, and some points between, always the same ones. None of an empty one.
std::vector<std::vector<int64_t>> points_of(const std::vector<int64_t>& sizes) {
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s <= 0; })) return {};
  constexpr size_t kMostEnds = 64;
  constexpr int kBetween = 8;
  std::vector<std::vector<int64_t>> points{std::vector<int64_t>(sizes.size(), 0), {}};
  for (int64_t s : sizes) points.back().push_back(s - 1);
  for (size_t d = 0; d < sizes.size() && points.size() <= kMostEnds; ++d) {
    const size_t before = points.size();
    for (size_t i = 0; i < before && sizes[d] > 1; ++i) {
      points.push_back(points[i]);
      points.back()[d] = points[i][d] == 0 ? sizes[d] - 1 : 0;
    }
  }
  uint64_t random = 1;
  for (int i = 0; i < kBetween; ++i) {
    points.emplace_back();
    for (int64_t s : sizes) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      points.back().push_back(static_cast<int64_t>((random >> 33) % static_cast<uint64_t>(s)));
    }
  }
  return points;
}

class StoreVerifier {
 public:
  StoreVerifier(const KernelPlan& plan, const std::vector<int64_t>& values) : plan_(plan), values_(values) {}

  Status run() {
    int branches = 0;
    for (const Kernel& k : plan_.kernels) {
      if (const auto* mark = std::get_if<ControlMark>(&k.def)) branches += mark->opens() - (mark->kind == ControlMark::Kind::end);
      one_way_ = branches > 0;
      if (const auto* loop = std::get_if<LoopKernel>(&k.def)) TRY_STATUS(check(k, *loop));
      else if (const auto* t = std::get_if<TemplateKernel>(&k.def)) TRY_STATUS(check(k, *t));
    }
    return ok_status();
  }

 private:
  int64_t value(Expr e, std::span<const int64_t> vars = {}) const {
    return evaluate_index(e, [&](SymbolId id) { return values_[static_cast<size_t>(id.index)]; }, vars);
  }
  std::vector<int64_t> sizes_of(const std::vector<Expr>& exprs) const {
    std::vector<int64_t> sizes;
    for (Expr e : exprs) sizes.push_back(value(e));
    return sizes;
  }

  Status check(const Kernel& k, const LoopKernel& loop) {
    std::vector<Expr> all;
    for (const Axis& axis : loop.axes) all.push_back(axis.size);
    const std::vector<int64_t> inner = sizes_of(all), outer(inner.begin(), inner.begin() + loop.num_outer);
    for (const Stmt& s : loop.stmts) {
      if (s.kind != Stmt::Kind::store) continue;
      const bool own = s.scratch >= 0;
      if (!own && another_way(s.buffer)) continue;
      const int64_t room = own ? value(loop.scratch[static_cast<size_t>(s.scratch)].elements) : elements(s.buffer);
      TRY_STATUS(check_store(k, own ? "its scratch memory" : plan_.buffer(s.buffer).info.name, room, s.offset, s.condition, s.inner ? inner : outer));
    }
    return ok_status();
  }

  Status check(const Kernel& k, const TemplateKernel& t) {
    const std::vector<int64_t> sizes = sizes_of(t.result_sizes);
    if (t.epilogue.empty() && another_way(t.result)) return ok_status();
    if (t.epilogue.empty()) return check_store(k, plan_.buffer(t.result).info.name, elements(t.result), t.result_offset, {}, sizes);
    for (const Stmt& s : t.epilogue) {
      if (s.kind != Stmt::Kind::store || another_way(s.buffer)) continue;
      TRY_STATUS(check_store(k, plan_.buffer(s.buffer).info.name, elements(s.buffer), s.offset, s.condition, sizes));
    }
    return ok_status();
  }

  // Of a result whose size data decides, each way of a branch makes as many elements as it has: the example may be of the other way.
  bool another_way(BufferId id) const {
    const std::vector<Expr>& sizes = plan_.buffer(id).info.sizes;
    return one_way_ && std::any_of(sizes.begin(), sizes.end(), [](Expr s) { return depends_on_data(s); });
  }

  int64_t elements(BufferId id) const {
    return spanned_elements(plan_.buffer(id).info, [&](Expr e) { return value(e); });
  }

  Status check_store(const Kernel& k, const std::string& to, int64_t room, Expr offset, Expr condition, const std::vector<int64_t>& domain) {
    if (depends_on_values(offset) || (condition && depends_on_values(condition))) return ok_status();  // known where it runs
    for (const std::vector<int64_t>& point : points_of(domain)) {
      const auto symbol = [&](SymbolId id) { return values_[static_cast<size_t>(id.index)]; };
      if (condition && evaluate(condition, EvalContext{.symbol = symbol, .vars = point}).i == 0) continue;
      const int64_t at = value(offset, point);
      if (at >= 0 && at < room) continue;
      std::string text;
      for (int64_t v : point) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
      return Error{ErrorCode::internal, fmt::format("kernel plan: '{}' stores element {} of {}, which has {}, at [{}]", k.name, at, to, room, text), {}, {}};
    }
    return ok_status();
  }

  const KernelPlan& plan_;
  const std::vector<int64_t>& values_;
  bool one_way_ = false;  // the kernel is in a region, which may be a branch's way
};

// Sizes that are read from data follow from the others as far as their limits do.
void set_data_sizes(const KernelPlan& plan, bool most, std::vector<int64_t>& values) {
  for (const Kernel& k : plan.kernels) {
    const auto* read = std::get_if<ReadKernel>(&k.def);
    if (!read) continue;
    const Symbol& symbol = plan.pool->symbol_info(read->symbol);
    int64_t& value = values[static_cast<size_t>(read->symbol.index)];
    int64_t limit = symbol.max;
    if (read->limit) limit = std::min(limit, evaluate_index(read->limit, [&](SymbolId id) { return values[static_cast<size_t>(id.index)]; }));
    value = std::max(symbol.min, most && read->limit ? limit : std::min(value, limit));
  }
}

bool possible(const KernelPlan& plan, const std::vector<int64_t>& values) {
  return std::all_of(plan.checks.begin(), plan.checks.end(), [&](const SizeCheck& c) {
    return evaluate_index(holds(*plan.pool, c.condition), [&](SymbolId id) { return values[static_cast<size_t>(id.index)]; }) != 0;
  });
}

}  // namespace

std::vector<std::vector<int64_t>> example_sizes(const KernelPlan& plan) {
  std::vector<std::vector<int64_t>> found;
  const size_t count = plan.pool->num_symbols();
  const bool sized = count > (plan.workers.valid() ? 1 : 0);
  for (const auto& [base, step] : {std::pair<int64_t, int64_t>{5, 2}, {1, 0}, {64, 0}, {3, 1}, {33, 31}, {8, 0}, {2, 0}, {16, 8}, {7, 0}, {4, 4}}) {
    std::vector<int64_t> values;
    for (size_t s = 0; s < count; ++s) {
      const Symbol& info = plan.pool->symbol_info(SymbolId(s));
      values.push_back(std::min(std::max(info.min, base + step * static_cast<int64_t>(s)), info.max));
    }
    if (plan.workers.valid()) values[static_cast<size_t>(plan.workers.index)] = found.size() % 3 == 0 ? 3 : found.size() % 3 == 1 ? 1 : 16;
    set_data_sizes(plan, found.size() % 2 == 0, values);
    if (!possible(plan, values)) continue;
    found.push_back(std::move(values));
    if (found.size() >= (sized ? kMostExamples : 3)) break;
  }
  return found;
}

Status verify_stores(const KernelPlan& plan, const std::vector<int64_t>& values) { return StoreVerifier(plan, values).run(); }

}  // namespace coil
