#include "loop/demand.h"

#include <algorithm>

#include "expr/estimate.h"
#include "expr/extent.h"

namespace coil {
namespace {

// At least as many elements as are read, inside of the dimension wherever the program runs: also where nothing reads them because another
// dimension is empty.
bool is_inside(const DimRange& r, Expr size) {
  if (!provably_nonnegative(r.first) || !provably_nonnegative(r.count)) return false;
  return provably_less(r.end() - 1, size);
}

bool depends_on_data_sizes(const DimRange& r) { return depends_on_data(r.first) || depends_on_data(r.step) || depends_on_data(r.count); }

DimRange checked(const DimRange& r, Expr size) { return is_inside(r, size) && !depends_on_data_sizes(r) ? r : whole_range(size); }

// base + step * (one variable), as the rows of images that a product sees as one list. Null step: something else.
DimRange progression(Expr coordinate, std::span<const Expr> domain) {
  int32_t var = -1;
  bool several = false;
  visit(coordinate, [&](Expr e) {
    if (e->kind != ExprKind::var || e->id == var) return;
    several = several || var >= 0;
    var = e->id;
  });
  if (var < 0 || several || static_cast<size_t>(var) >= domain.size()) return {};
  const std::optional<Affine> affine = as_affine(coordinate, var);
  if (!affine || !provably_nonnegative(affine->coefficient - 1)) return {};
  return {affine->base, affine->coefficient, domain[static_cast<size_t>(var)]};
}

// Products of two of its numbers fit: no arithmetic on ranges leaves int64, whatever a program's file says.
bool is_modest(Expr e) {
  return !any_of(e, [](Expr x) { return x->is_constant() && (x->as_int() > INT32_MAX || x->as_int() < INT32_MIN); });
}

// The common way of reading everything, without proofs.
bool reads_all(Expr coordinate, Expr size, std::span<const Expr> domain) {
  return coordinate->kind == ExprKind::var && static_cast<size_t>(coordinate->id) < domain.size() && domain[static_cast<size_t>(coordinate->id)] == size;
}

}  // namespace

DimRange whole_range(Expr size) { return {size->pool->index(0), size->pool->index(1), size}; }

bool is_whole(const DimRange& range, Expr size) { return range == whole_range(size); }

DimRange range_of(Expr coordinate, Expr size, std::span<const Expr> domain) {
  if (reads_all(coordinate, size, domain)) return whole_range(size);
  if (!is_modest(coordinate) || !is_modest(size) || !std::all_of(domain.begin(), domain.end(), is_modest)) return whole_range(size);
  if (const DimRange r = progression(coordinate, domain); r.step) return checked(r, size);
  const std::optional<Extent> e = extent(coordinate, {domain});
  if (!e || !provably_nonnegative(e->first) || !provably_less(e->last, size)) return whole_range(size);
  return checked({simplify_index(e->first, {}), size->pool->index(1), simplify_index(e->last - e->first + 1, {})}, size);
}

DimRange without_steps(const DimRange& range, Expr size) {
  if (range.is_unit_step()) return range;
  return checked({range.first, size->pool->index(1), simplify_index(range.end() - range.first, {})}, size);
}

DimRange joined(const DimRange& a, const DimRange& b, Expr size) {
  if (a == b) return a;
  const DimRange x = without_steps(a, size), y = without_steps(b, size);
  const auto smaller = [](Expr u, Expr v) { return provably_nonnegative(v - u) ? u : provably_nonnegative(u - v) ? v : Expr(); };
  const Expr first = smaller(x.first, y.first), left = smaller(x.end(), y.end());
  if (!first || !left) return whole_range(size);
  const Expr end = left == x.end() ? y.end() : x.end();
  return checked({first, size->pool->index(1), end - first}, size);
}

double likely(Expr size) {
  constexpr double kLikely = 64;
  return estimate_index(size, [&](SymbolId id) {
    const Symbol& s = size->pool->symbol_info(id);
    return std::clamp(kLikely, static_cast<double>(s.min), std::max(static_cast<double>(s.min), static_cast<double>(s.max)));
  });
}

double saved(const DimRange& range, Expr size) {
  const double all = likely(size);
  return all > 0 ? 1 - likely(range.count) / all : 0;
}

}  // namespace coil
