#include "codegen/cpu/loop_form.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/cpu_machine.h"
#include "codegen/kernel_text.h"
#include "schedule/schedule.h"

namespace coil::cpu {
namespace {

constexpr int kMostVectors = 8;
constexpr int64_t kManyInner = 8;
constexpr int64_t kSumRegisters = 12;  // of 16 that every machine has
// Of the own rule: steps of a largest value, which looks for NaN, wait for each other longer than additions; more columns at once read whole lines.
constexpr int kSumVectors = 2, kExtremeVectors = 4, kColumnVectors = 4;

bool is_outer(const LoopKernel& k, int axis) { return axis >= 0 && axis < k.num_outer; }
bool pointwise(const LoopKernel& k) { return k.num_outer == static_cast<int>(k.axes.size()) && !k.sequential; }

// Points of the inner loops, at typical sizes.
int64_t inner_points(const LoopKernel& k) {
  int64_t points = 1;
  for (size_t a = static_cast<size_t>(k.num_outer); a < k.axes.size(); ++a) points *= std::max<int64_t>(typical(k.axes[a].size), 1);
  return points;
}

// Offsets of all loads and stores with a weight: stores count more. What happens once for many inner points is nothing beside these.
void for_each_access(const LoopKernel& k, const std::function<void(Expr offset, int weight)>& f) {
  const bool many = inner_points(k) >= kManyInner;
  for (const Stmt& s : k.stmts) {
    if (many && !s.inner) continue;
    visit(s.value, [&](Expr e) {
      if (e->kind == ExprKind::load) f(e->args[0], 2);
    });
    if (s.offset) f(s.offset, 3);
  }
}

// Operations of one point.
int body_cost(const LoopKernel& k) {
  int sum = 0;
  for (const Stmt& s : k.stmts) sum += cost(s.value);
  return sum;
}

// Whether all points along an axis have the value in common; what a temp stands for is not looked at.
bool is_shared(Expr e, int axis) {
  return !depends_on_var(e, axis) && !any_of(e, [](Expr n) { return n->kind == ExprKind::temp; });
}

// How well lanes run along an axis: by how many accesses are contiguous in it. Null: they cannot.
std::optional<int> lane_score(const LoopKernel& k, int a) {
  const int n = static_cast<int>(k.axes.size());
  const Expr size = k.axes[static_cast<size_t>(a)].size;
  const bool inner = a >= k.num_outer;
  if ((k.sequential && inner) || (size->is_constant() && size->as_int() < 4)) return std::nullopt;
  if (!inner && !k.scratch.empty()) return std::nullopt;  // scratch holds one point's row, not a vector of points
  if (inner && a != n - 1) return std::nullopt;           // other inner axes would need the innermost loop outside
  // A store happens for whole vectors, or for none of their points.
  if (std::any_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) { return s.condition && !k.sequential && !is_shared(s.condition, a); }))
    return std::nullopt;
  int score = 0;
  for_each_access(k, [&](Expr offset, int weight) {
    if (!depends_on_var(offset, a)) return;
    const auto affine = as_affine(offset, a);
    const bool unit = affine && affine->coefficient == offset->pool->index(1);
    score += unit ? 2 * weight : affine ? -weight : -2 * weight;
  });
  // Lanes that lie apart do not make a running sum quicker, but one of exponentials; what is kept of a compaction has its place by the elements before it.
  const bool short_steps = std::none_of(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::scan && s.op == ReduceOp::log_sum; });
  if (k.sequential &&
      ((short_steps && score <= 0) || std::any_of(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return static_cast<bool>(s.condition); })))
    return std::nullopt;
  return size->is_constant() && size->as_int() < kMaxLanes ? score / 2 - 1 : score;
}

// Accesses of single elements cost lanes more than the others save; but not where there is arithmetic for all lanes at once between them.
int own_lanes(const LoopKernel& k) {
  const int least = -6 - body_cost(k) / 2;
  int best = -1, best_score = 0;
  for (int a = static_cast<int>(k.axes.size()) - 1; a >= 0; --a) {
    const std::optional<int> score = lane_score(k, a);
    if (!score || (best < 0 ? *score <= least : *score <= best_score)) continue;
    best = a;
    best_score = *score;
  }
  return best;
}

bool reduces(const LoopKernel& k) {
  return std::any_of(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::reduce; });
}

// Stores of some points only cannot be those of whole vectors.
bool can_repeat(const LoopKernel& k, int lanes) {
  return lanes >= 0 && (reduces(k) || k.sequential) &&
         std::none_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) { return is_outer(k, lanes) && s.condition; });
}

// Of lanes along an outer axis the whole body is repeated, else loops over inner points one by one. Not where a step would never be full.
int own_vectors(const LoopKernel& k, int lanes) {
  if (!can_repeat(k, lanes)) return 1;
  const bool extremes = std::any_of(k.stmts.begin(), k.stmts.end(),
                                    [](const Stmt& s) { return s.kind == Stmt::Kind::reduce && s.op != ReduceOp::sum && s.op != ReduceOp::prod; });
  int vectors = is_outer(k, lanes) ? kColumnVectors : extremes ? kExtremeVectors : kSumVectors;
  if (is_outer(k, lanes)) {
    const auto sums = std::count_if(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::reduce; });
    while (vectors > 1 && vectors * sums > kSumRegisters) vectors /= 2;
  }
  const int64_t full = upper_bound(k.axes[static_cast<size_t>(lanes)].size).value_or(INT64_MAX) / kMaxLanes;
  if (full >= vectors) return vectors;
  return is_outer(k, lanes) && full >= 2 ? 2 : 1;
}

// --- columns

// Whether what is read at each point lies side by side for neighbours along an outer axis: then rows are read as they lie. Bytes that a lane reads are
// added to `bytes`.
bool read_by_rows(const KernelPlan& plan, const LoopKernel& k, int lanes, int64_t& bytes) {
  bool found = false, apart = false;
  const int last = static_cast<int>(k.axes.size()) - 1;
  for (const Stmt& s : k.stmts) {
    visit(s.value, [&](Expr e) {
      if (e->kind != ExprKind::load || !depends_on_var(e->args[0], lanes) || !depends_on_var(e->args[0], last)) return;
      const Expr offset = e->args[0];
      found = true;
      apart |= from_data(offset) || !as_affine(offset, lanes) || !unit_stride(offset, lanes);
      bytes += byte_size(plan.buffer(BufferId(e->id)).info.dtype) * inner_points(k);
    });
  }
  return found && !apart;
}

// Lanes of an item whose accumulators lie in memory; 0: they stay in registers. Rows that are read again by a later pass shall still be near.
int64_t own_columns(const KernelPlan& plan, const LoopKernel& k, int lanes) {
  if (!is_outer(k, lanes) || k.sequential || !reduces(k) || !can_repeat(k, lanes) || typical(k.axes.back().size) < kColumnRows) return 0;
  const int64_t size = typical(k.axes[static_cast<size_t>(lanes)].size);
  int64_t bytes = 0;
  if (size < kReductionBlock || !read_by_rows(plan, k, lanes, bytes)) return 0;
  std::set<int> passes;
  int64_t items = 1;
  for (const Stmt& s : k.stmts) {
    if (s.inner) passes.insert(s.phase);
  }
  for (int a = 0; a < k.num_outer; ++a) items *= a == lanes ? 1 : std::max<int64_t>(typical(k.axes[static_cast<size_t>(a)].size), 1);
  const CpuMachine machine = machine_of(plan);
  int64_t block = kColumnBlock;
  while (passes.size() > 1 && block > kReductionBlock && block * bytes > near_bytes(machine)) block /= 2;
  while (block > kColumnBlock / 4 && (size + block - 1) / block * items * 2 < parallel_points(machine)) block /= 2;
  return block;
}

// --- tiles

// A tile is read before its points are written.
bool is_written(const KernelPlan& plan, const LoopKernel& k, BufferId id) {
  const Placement& x = plan.buffer(id).placement;
  return std::any_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::store || s.scratch >= 0) return false;
    const Placement& y = plan.buffer(s.buffer).placement;
    return s.buffer == id || (x.kind == y.kind && (x.kind == Placement::Kind::arena || x.kind == Placement::Kind::part) && x.offset == y.offset);
  });
}

// Not the formulas that write through positions that are data.
bool stores_lie_across(const LoopKernel& k, int lanes, int axis) {
  return std::all_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::store) return true;
    const bool strided =
        s.scratch < 0 && !from_data(s.offset) && as_affine(s.offset, lanes) && depends_on_var(s.offset, lanes) && !unit_stride(s.offset, lanes);
    return strided && unit_stride(s.offset, axis);
  });
}

void find_tiles(const KernelPlan& plan, const LoopKernel& k, LoopForm& form) {
  if (!pointwise(k) || form.lanes < 0) return;
  if (std::any_of(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return static_cast<bool>(s.condition); })) return;
  const std::vector<Expr> all = unconditional_loads(k.stmts);
  const auto long_enough = [&](int axis) { return typical(k.axes[static_cast<size_t>(axis)].size) >= kMaxLanes; };
  if (!long_enough(form.lanes)) return;
  for (int axis = 0; axis < static_cast<int>(k.axes.size()); ++axis) {
    if (axis == form.lanes || !long_enough(axis)) continue;
    std::vector<Expr> loads;
    for (Expr e : all) {
      const Expr offset = e->args[0];
      const bool strided = !from_data(offset) && as_affine(offset, form.lanes) && depends_on_var(offset, form.lanes) && !unit_stride(offset, form.lanes);
      if (strided && unit_stride(offset, axis) && !is_written(plan, k, BufferId(e->id))) loads.push_back(e);
    }
    if (loads.size() > form.tiled.size()) form.across = axis, form.tiled = std::move(loads);
  }
  if (!form.tiled.empty()) return;
  for (int axis = 0; axis < static_cast<int>(k.axes.size()) && !form.turned; ++axis) {
    if (axis != form.lanes && long_enough(axis) && stores_lie_across(k, form.lanes, axis)) form.across = axis, form.turned = true;
  }
}

// --- stores past the caches

// What an access moves at least: an element for each point of the axes that it depends on.
int64_t least_bytes(const LoopKernel& k, Expr offset, DType dtype) {
  int64_t bytes = byte_size(dtype);
  for (size_t a = 0; a < k.axes.size(); ++a) {
    if (depends_on_var(offset, static_cast<int>(a)) && __builtin_mul_overflow(bytes, std::max<int64_t>(lower_bound(k.axes[a].size).value_or(0), 0), &bytes))
      return INT64_MAX / 2;
  }
  return bytes;
}

bool can_stream(const LoopKernel& k, int lanes) {
  return lanes >= 0 && std::any_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) {
           return s.kind == Stmt::Kind::store && s.scratch < 0 && !s.condition && !from_data(s.offset) && as_affine(s.offset, lanes) &&
                  unit_stride(s.offset, lanes);
         });
}

// In place, or in a worker's own memory, results are in the caches already.
bool streams_by_itself(const KernelPlan& plan, const LoopKernel& k, int lanes) {
  if (!can_stream(k, lanes)) return false;
  int64_t stored = 0, moved = 0;
  // Measured on a Zen 4 (x * y, two threads): results of 8 MB 0.22 -> 0.32 ms, 16 MB 0.85 -> 0.65, 24 MB 1.6 -> 1.1, 64 MB 5.5 -> 4.1, which is what a loop of
  // nothing but such stores takes.
  const CpuMachine machine = machine_of(plan);
  const int64_t most_moved = moved_bytes(machine);
  std::map<int32_t, int64_t> loaded;  // of each buffer
  for (const Stmt& s : k.stmts) {
    visit(s.value, [&](Expr e) {
      if (e->kind != ExprKind::load || e->id >= kScratchBase) return;
      int64_t& most = loaded[e->id];
      most = std::max(most, least_bytes(k, e->args[0], e->dtype));
    });
    if (s.kind != Stmt::Kind::store || s.scratch >= 0) continue;
    if (plan.buffer(s.buffer).placement.kind == Placement::Kind::part) return false;
    stored = std::min(stored + least_bytes(k, s.offset, s.dtype), most_moved);
  }
  for (const auto& [id, bytes] : loaded) {
    if (is_written(plan, k, BufferId(id))) return false;
    moved = std::min(moved + bytes, most_moved);
  }
  return stored >= streamed_bytes(machine) && stored + moved >= most_moved;
}

Choice form_choice(LoopFormKind kind, int32_t size) { return choice_of(LoopChoice{.form = kind, .size = size}); }

}  // namespace

LoopForm own_form(const KernelPlan& plan, const LoopKernel& k) {
  LoopForm form;
  form.lanes = own_lanes(k);
  form.vectors = own_vectors(k, form.lanes);
  form.columns = own_columns(plan, k, form.lanes);
  find_tiles(plan, k, form);
  form.streams = streams_by_itself(plan, k, form.lanes);
  return form;
}

std::optional<LoopForm> chosen_form(const KernelPlan& plan, const LoopKernel& k, const Choice& choice) {
  LoopForm form = own_form(plan, k);
  const int32_t size = as<LoopChoice>(choice).size;
  switch (as<LoopChoice>(choice).form) {
    case kOwnForm: return size == 0 ? std::optional(form) : std::nullopt;
    case kVectors:
      if (!can_repeat(k, form.lanes) || size < 1 || size > kMostVectors || (!form.columns && size == form.vectors && size == form.long_vectors))
        return std::nullopt;
      form.vectors = form.long_vectors = size, form.columns = 0;
      return form;
    case kLanes: {
      const int axis = size - 1;
      if (axis < 0 || axis >= static_cast<int>(k.axes.size()) || axis == form.lanes || !lane_score(k, axis)) return std::nullopt;
      form = {};
      form.lanes = axis;
      form.vectors = own_vectors(k, axis);
      form.columns = own_columns(plan, k, axis);
      find_tiles(plan, k, form);
      form.streams = streams_by_itself(plan, k, axis);
      return form;
    }
    case kTiles:
      if (size != kWithoutTiles || form.across < 0) return std::nullopt;
      form.across = -1;
      form.tiled.clear();
      form.turned = false;
      return form;
    case kStreams:
      if (!can_stream(k, form.lanes) || (size != 0 && size != kWithoutStreams)) return std::nullopt;
      form.streams = size == 0;
      return form;
    default: return std::nullopt;
  }
}

std::vector<Choice> form_choices(const KernelPlan& plan, const LoopKernel& k, const std::function<int64_t(SymbolId)>& sizes) {
  std::vector<Choice> out;
  int64_t stored = 0;
  if (std::any_of(k.axes.begin(), k.axes.end(), [](const Axis& a) { return depends_on_data(a.size); })) return out;
  for (const Stmt& s : k.stmts) {
    if (s.kind != Stmt::Kind::store || s.scratch >= 0) continue;
    int64_t bytes = byte_size(s.dtype);
    for (const Axis& a : k.axes) bytes *= evaluate_index(a.size, sizes);
    stored += bytes;
  }
  if (stored >= far_bytes(machine_of(plan))) out.push_back(form_choice(kStreams, own_form(plan, k).streams ? kWithoutStreams : 0));
  for (const int32_t vectors : {2, 4, 1, 8}) out.push_back(form_choice(kVectors, vectors));
  out.push_back(form_choice(kTiles, kWithoutTiles));
  std::vector<std::pair<int, Choice>> others;
  for (int a = 0; a < static_cast<int>(k.axes.size()); ++a) {
    const std::optional<int> score = lane_score(k, a);
    if (score && evaluate_index(k.axes[static_cast<size_t>(a)].size, sizes) >= kMaxLanes) others.emplace_back(-*score, form_choice(kLanes, a + 1));
  }
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [score, choice] : others) out.push_back(choice);
  std::erase_if(out, [&](const Choice& c) { return !chosen_form(plan, k, c); });
  return out;
}

std::string form_text(const LoopKernel& k, const Choice& choice) {
  const int32_t size = as<LoopChoice>(choice).size;
  switch (as<LoopChoice>(choice).form) {
    case kVectors: return size == 1 ? "one vector at a time" : fmt::format("{} vectors at once", size);
    case kLanes: return "lanes along " + (size >= 1 && size <= static_cast<int32_t>(k.axes.size()) ? k.axes[static_cast<size_t>(size - 1)].name : "no axis");
    case kTiles: return "no tiles";
    case kStreams: return size == kWithoutStreams ? "stores into the caches" : "stores past the caches";
    default: return "unknown";
  }
}

}  // namespace coil::cpu
