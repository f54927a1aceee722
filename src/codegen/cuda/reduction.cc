// Kernels with reductions and scans. Three ways to hand out the work:
//   row      a group of threads (a warp, or a block of up to 1024) shares one outer point; for reductions along contiguous memory.
//            Values that several passes read stay in registers when the row is short enough.
//   column   a block is some outer points wide (contiguous in memory; a thread has one, or some side by side) and shares the reduced axes among its
//            lines of threads
//   thread   every thread has an outer point of its own, or some side by side: short reduced axes, as in pooling
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "codegen/cuda/machine.h"
#include "codegen/cuda/reduction_writer.h"
#include "codegen/index_text.h"
#include "device/cuda/limits.h"
#include "schedule/schedule.h"

namespace coil::cuda {

constexpr int kScanThreads = 256, kThreadBlock = 128, kSeveral = 4;  // the own rules'
constexpr int kMostSlots = cd::kSharedWithoutAsking / 16;            // of two sets of 8 bytes, in the shared memory that every kernel has

ReductionWriter::ReductionWriter(const KernelPlan& plan, const LoopKernel& k, const LoopWay* way)
    : plan_(plan), narrow_(narrow_kernel(k)), k_(narrow_ ? narrow_->kernel : k), c_(loop_context(plan, k_)) {
  choose_lanes();
  if (way) take_way(*way);
  else choose_way();
}

KernelText ReductionWriter::run() {
  c_.wide_index = !fits_32(k_, index_max(outer_points(), inner_points()));  // never as one number
  if (several()) multiple_of(axis(lane_).size, width_, &c_.divisible);
  std::string main = frame_code();
  main += way_ == Way::scan ? scan_code() : phases();
  KernelText t = finish(c_, kernel_frame(c_, written_buffers(k_.stmts), bounds()) + slots_code() + main + "}\n");
  t.headers = {"cuda/reduce.h"};
  t.threads = block_threads();
  t.work = grid();
  t.grid_x = t.work.per_block == 1 ? host_index(t.work.amount) : fmt::format("cdiv({}, {})", host_index(t.work.amount), t.work.per_block);
  return t;
}

std::string ReductionWriter::slots_code() const {
  if (!needs_slots_) return "";
  const int slots = way_ == Way::column ? block_threads() : 32;
  return fmt::format("  __shared__ cd::{} slots;\n", several() ? fmt::format("ValueSlots<{}>", wide_slots()) : fmt::format("Slots<{}>", slots));
}

KernelText ReductionWriter::run_as_part() {
  part_ = true;
  c_.wide_index = !fits_32(k_, index_max(outer_points(), inner_points()));  // never as one number
  const std::string main = frame_code() + phases();
  const std::vector<BufferId> written = written_buffers(k_.stmts);
  const auto row = std::find_if(k_.stmts.begin(), k_.stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::store && s.inner && s.scratch < 0; });
  CHECK(row != k_.stmts.end(), "a part that makes no row");
  const std::string name = c_.names.pointer(row->buffer), type = memory_type(plan_.buffer(row->buffer).info.dtype);
  std::string head = part_frame(c_, written, type + "* const rows");
  replace_all(head, fmt::format("{} = ({}*)a.p[{}];", name, type, name.substr(1)), fmt::format("{} = rows;", name));
  KernelText t = finish(c_, head + slots_code() + main + "}\n");
  t.headers = {"cuda/reduce.h"};
  t.threads = block_threads();
  return t;
}

Expr ReductionWriter::outer_points() const {
  Expr n = pool().index(1);
  for (int a = 0; a < k_.num_outer; ++a) n = n * axis(a).size;
  return n;
}

Expr ReductionWriter::inner_points() const {
  Expr n = pool().index(1);
  for (int a = k_.num_outer; a < num_axes(); ++a) n = n * axis(a).size;
  return n;
}

Expr ReductionWriter::outer_groups(int points) const {
  Expr n = ceil_div(axis(lane_).size, pool().index(points));
  for (int a = 0; a < k_.num_outer; ++a) {
    if (a != lane_) n = n * axis(a).size;
  }
  return n;
}

void ReductionWriter::choose_lanes() {
  for (int a = k_.num_outer - 1; a >= 0; --a) {
    const int score = contiguity(k_, a);
    if (lane_ < 0 || score > outer_score_) lane_ = a, outer_score_ = score;
  }
}

bool ReductionWriter::reads_once() const {
  return std::none_of(k_.stmts.begin(), k_.stmts.end(), [](const Stmt& s) { return s.inner && s.phase > 0; });
}

void ReductionWriter::choose_way() {
  const Expr inner = inner_points();
  const int64_t n = typical(inner), outer = typical(outer_points());
  const int inner_score = contiguity(k_, last_axis());
  const auto bound = upper_bound(inner);
  // A thread for each point leaves most of the device idle, and what it does next waits for what it has read.
  const bool few_columns = lane_ >= 0 && outer_score_ > inner_score && k_.scratch.empty() && n >= kFewSteps && outer < kFewPoints;
  const bool short_one = bound && *bound <= kShortReduction;
  if (narrow_) {
    choose_narrow(n, outer);
  } else if (k_.sequential) {
    way_ = outer_score_ > inner_score && outer >= 1024 ? Way::thread : Way::scan;
    if (way_ == Way::scan) choose_scan(n, kScanThreads);
  } else if (short_one && !few_columns && ((outer >= 2048 && n <= (reads_once() ? kShortSum : kShortRow)) || n <= 8 || outer_score_ > inner_score)) {
    way_ = Way::thread;
  } else if (lane_ >= 0 && outer_score_ > inner_score && k_.scratch.empty()) {
    way_ = outer >= 65536 && n <= 1024 ? Way::thread : Way::column;
    lines_ = n >= 256 ? 32 : 8;
    if (way_ == Way::column && n >= 256) widen_columns(kSeveral);
  } else {
    way_ = Way::row;
    choose_row(n, bound, 0);
  }
  if (way_ != Way::thread) return;
  threads_ = kThreadBlock;
  widen_threads(kSeveral);
  while (width_ > 1 && outer / width_ < threads_at_once(plan_)) width_ /= 2;
}

void ReductionWriter::choose_narrow(int64_t n, int64_t outer) {
  constexpr int64_t enough_threads = 1 << 14, short_range = 32;
  int64_t ranges = 1;
  for (int a = 0; a < k_.num_outer; ++a) {
    if (depends_on_var(narrow_->first, a) || depends_on_var(narrow_->last, a)) ranges *= typical(axis(a).size);
  }
  const bool many = outer >= enough_threads && n <= 8 * short_range * ranges;
  way_ = many || n <= short_range * ranges || lane_ < 0 ? Way::thread : Way::column;
  lines_ = n >= 256 * ranges ? 32 : 8;
}

void ReductionWriter::take_way(const LoopWay& way) {
  const Expr inner = inner_points();
  const auto bound = upper_bound(inner);
  const bool short_one = bound && *bound <= kShortReduction;
  switch (way.kind) {
    case kRowWay:
      way_ = Way::row;
      possible_ = !k_.sequential && !narrow_;
      if (possible_) choose_row(typical(inner), bound, way.threads);
      return;
    case kColumnWay:
      way_ = Way::column;
      possible_ = !k_.sequential && lane_ >= 0 && k_.scratch.empty();
      lines_ = way.threads;
      if (possible_ && way.points > 1) {
        possible_ = widen_columns(way.points) && width_ == way.points && way.threads * columns_ >= 32 && way.threads * columns_ <= 1024;
        lines_ = way.threads;
        possible_ = possible_ && wide_slots() <= kMostSlots;
      }
      return;
    case kThreadWay:
      way_ = Way::thread;
      possible_ = k_.scratch.empty() || short_one;
      threads_ = way.threads;
      if (way.points > 1) widen_threads(way.points);
      possible_ = possible_ && width_ == std::max(way.points, 1);
      return;
    default:
      way_ = Way::scan;
      possible_ = way.kind == kScanWay && k_.sequential;
      if (possible_) choose_scan(typical(inner), way.threads);
  }
}

LoopWay ReductionWriter::way() const {
  switch (way_) {
    case Way::row: return {kRowWay, threads_, 0};
    case Way::column: return {kColumnWay, lines_, width_ > 1 ? width_ : 0};
    case Way::thread: return {kThreadWay, threads_, width_ > 1 ? width_ : 0};
    case Way::scan: return {kScanWay, threads_, 0};
  }
  return {};
}

void ReductionWriter::choose_scan(int64_t n, int most_threads) {
  width_ = access_width(c_, k_, last_axis());
  if (width_ == 1 && n >= kSkewed) skew_row();
  threads_ = most_threads;
  while (threads_ > 32 && threads_ / 2 * width_ >= n) threads_ /= 2;
  int bytes = 1;
  for (const Stmt& s : k_.stmts) bytes = std::max(bytes, byte_size(compute_type(s.dtype)));
  const int64_t chunks = (n + threads_ * width_ - 1) / (threads_ * width_), most = std::max(kScannedBytes / (bytes * width_), 1);
  // Points that are not read in chunks lie side by side for the threads of a warp.
  chunks_ = width_ == 1 ? 1 : static_cast<int>(std::clamp<int64_t>(chunks, 1, most));
}

void ReductionWriter::choose_row(int64_t n, std::optional<int64_t> bound, int wished) {
  width_ = access_width(c_, k_, last_axis());
  if (width_ == 1 && n >= kSkewed) skew_row();
  int64_t threads = 32;
  while (threads < 1024 && threads * 16 < n) threads *= 2;
  if (bound && !k_.scratch.empty()) {
    while (threads < 1024 && threads * kUnrolledChunks * width_ < *bound) threads *= 2;
  }
  threads_ = wished > 0 ? wished : static_cast<int>(threads);
  const Expr chunks = chunk_count();
  const auto most = upper_bound(chunks);
  if (most) {
    const int64_t each = std::max<int64_t>((*most + threads_ - 1) / threads_, 1);
    if (each <= kUnrolledChunks && each * width_ <= most_kept()) chunks_ = static_cast<int>(each);
  }
  // A loop over a long row goes on while other rows' blocks wait for theirs.
  if (wished == 0 && chunks_ == 0 && typical(outer_points()) >= 1024) threads_ = std::min(threads_, 256);
  possible_ = k_.scratch.empty() || chunks_ > 0;
  if (chunks_ > 0 && k_.num_phases > 1) find_kept_values();
}

void ReductionWriter::skew_row() {
  if (k_.num_outer != last_axis()) return;
  Expr base;
  bool same = true;
  for_each_access(k_.stmts, [&](BufferId, Expr offset, int) {
    if (!unit_stride(offset, last_axis())) return;
    const auto affine = as_affine(offset, last_axis());
    same = same && (!base || base == affine->base) && !any_of(affine->base, [](Expr e) { return e->kind == ExprKind::load || e->kind == ExprKind::temp; });
    base = affine->base;
  });
  if (!base || !same) return;
  c_.skew = base;
  width_ = access_width(c_, k_, last_axis());
  if (width_ == 1) c_.skew = {};
}

Expr ReductionWriter::chunk_count() const {
  Expr n = ceil_div(axis(last_axis()).size + (c_.skew ? width_ - 1 : 0), pool().index(width_));
  for (int a = k_.num_outer; a < last_axis(); ++a) n = n * axis(a).size;
  return n;
}

bool ReductionWriter::moves(Expr e) const {
  bool found = false;
  for (int a = k_.num_outer; a < num_axes(); ++a) found = found || depends_on_var(e, a);
  return found;
}

void ReductionWriter::visit_plain(Expr e, std::set<const ExprNode*>& seen, const std::function<bool(Expr)>& f) const {
  if (!seen.insert(e.node()).second || !f(e)) return;
  if (e->kind == ExprKind::load) return;  // offsets are no values
  if (e->is_op(ScalarOp::masked)) return visit_plain(e->args[0], seen, f);
  for (Expr a : e->args) visit_plain(a, seen, f);
}

void ReductionWriter::find_kept_values() {
  const auto phases_of = [&](const std::function<bool(Expr)>& wanted, std::vector<Expr>& order) {
    std::map<const ExprNode*, std::set<int>> phases;
    for (const Stmt& s : k_.stmts) {
      if (!s.inner) continue;
      std::set<const ExprNode*> seen;
      visit_plain(s.value, seen, [&](Expr e) {
        for (const auto& [kept, first] : kept_values_) {
          if (kept == e && first < s.phase) return false;
        }
        if (!wanted(e) || !moves(e)) return true;
        if (phases[e.node()].empty()) order.push_back(e);
        phases[e.node()].insert(s.phase);
        return true;
      });
    }
    return phases;
  };
  int registers = static_cast<int>(k_.scratch.size()) * chunks_ * width_;
  const auto keep = [&](const std::function<bool(Expr)>& wanted) {
    std::vector<Expr> order;
    const auto phases = phases_of(wanted, order);
    for (Expr e : order) {
      const std::set<int>& uses = phases.at(e.node());
      const int needed = chunks_ * width_ * (compute_type(e->dtype) == DType::f64 ? 2 : 1);
      if (uses.size() < 2 || registers + needed > most_kept()) continue;
      registers += needed;
      kept_values_.push_back({e, *uses.begin()});
    }
  };
  keep([](Expr e) { return e->kind == ExprKind::op && e->dtype != DType::index && info(e->op).cost >= kDear; });
  keep([](Expr e) { return e->kind == ExprKind::load && e->id < kScratchBase; });
}

int ReductionWriter::block_threads() const {
  if (way_ == Way::thread) return threads_;
  if (way_ == Way::column) return columns_ * lines_;
  if (warp_rows()) return 256;
  return threads_;
}

std::string ReductionWriter::bounds() const {
  int dear = 0;
  bool simple = way_ == Way::row && chunks_ > 0 && chunks_ * width_ <= 16 && k_.scratch.empty();
  std::set<const ExprNode*> first_loads;
  for (const Stmt& s : k_.stmts) {
    dear += cost(s.value);
    if (!s.inner || s.phase > 0) continue;
    simple = simple && s.kind != Stmt::Kind::store;
    visit(s.value, [&](Expr e) {
      if (e->kind == ExprKind::load) first_loads.insert(e.node());
    });
  }
  const bool full = simple && dear <= 48 && first_loads.size() == 1;
  return full ? fmt::format("__launch_bounds__({}, {})", block_threads(), std::min(2048 / block_threads(), 16))
              : fmt::format("__launch_bounds__({})", block_threads());
}

GridWork ReductionWriter::grid() const {
  switch (way_) {
    case Way::thread: return {several() ? outer_groups(width_) : outer_points(), block_threads()};
    case Way::column: return {outer_groups(columns_ * width_), 1};
    case Way::row:
    case Way::scan: return {outer_points(), warp_rows() ? 8 : 1};
  }
  return {pool().index(1), 1};
}

std::string ReductionWriter::frame_code() {
  const std::string ix = type();
  std::string text;
  if (way_ == Way::thread) {
    text = fmt::format("  const {0} point = ({0})blockIdx.x * {1} + threadIdx.x;\n  if (point >= {2}) return;\n", ix, block_threads(), index(grid().amount));
    std::vector<int> order;
    if (lane_ >= 0) order.push_back(lane_);
    for (int a = k_.num_outer - 1; a >= 0; --a) {
      if (a != lane_) order.push_back(a);
    }
    if (!several()) return text + take_apart("point", order, {});
    text += take_apart("point", order, index(ceil_div(axis(lane_).size, pool().index(width_))));
    return text + fmt::format("  const {0} {1} = {1}_block * {2};\n", ix, axis(lane_).name, width_);
  }
  if (way_ == Way::column) {
    text = fmt::format("  const int line = threadIdx.x / {};\n", columns_);
    std::vector<int> order;
    if (lane_ >= 0) order.push_back(lane_);
    for (int a = k_.num_outer - 1; a >= 0; --a) {
      if (a != lane_) order.push_back(a);
    }
    text += fmt::format("  const {0} block = blockIdx.x;\n", ix);
    const std::string v = axis(lane_).name, blocks = index(ceil_div(axis(lane_).size, pool().index(columns_ * width_)));
    // The last block of a line may hang over: its idle columns compute the last one again and store nothing.
    text += take_apart("block", order, blocks);
    const std::string first = several() ? fmt::format("{0}_block * {1} + threadIdx.x % {2} * {3}", v, columns_ * width_, columns_, width_)
                                        : fmt::format("{0}_block * {1} + threadIdx.x % {1}", v, columns_);
    const std::string length = index(axis(lane_).size);
    text += fmt::format("  const {0} {1}_wish = {2}, {1} = {1}_wish < {3} ? {1}_wish : {4};\n  const bool active = {1}_wish < {3};\n", ix, v, first, length,
                        several() ? "0" : length + " - 1");
    return text;
  }
  if (warp_rows()) {
    text = fmt::format("  const {0} row = ({0})blockIdx.x * 8 + threadIdx.x / 32;\n  const int y = threadIdx.x % 32;\n  if (row >= {1}) return;\n", ix,
                       index(outer_points()));
  } else {
    text = fmt::format("  const {0} row = {1};\n  const int y = threadIdx.x;\n", ix, part_ ? "block" : "blockIdx.x");
  }
  std::vector<int> order;
  for (int a = k_.num_outer - 1; a >= 0; --a) order.push_back(a);
  return text + take_apart("row", order, {});
}

std::string ReductionWriter::take_apart(std::string rest, const std::vector<int>& order, const std::string& lane_blocks) {
  const std::string ix = type(), unsigned_ix = c_.wide_index ? "cd::u64" : "cd::u32";
  std::string text;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool blocks = i == 0 && !lane_blocks.empty();
    const std::string name = axis(order[i]).name + (blocks ? "_block" : ""), n = blocks ? lane_blocks : index(axis(order[i]).size);
    if (i + 1 == order.size()) {
      text += fmt::format("  const {} {} = {};\n", ix, name, rest);
      break;
    }
    const std::string next = "rest" + std::to_string(c_.next_name++);
    text += fmt::format("  const {0} {1} = ({0})(({2}){3} / ({2})({4})), {5} = {3} - {1} * {4};\n", ix, next, unsigned_ix, rest, n, name);
    rest = next;
  }
  return text;
}

KernelText reduction_text(const KernelPlan& plan, const LoopKernel& kernel) {
  ReductionWriter writer(plan, kernel);
  CHECK(writer.possible(), "kept values of a row that does not fit registers");
  return writer.run();
}

std::optional<KernelText> reduction_text(const KernelPlan& plan, const LoopKernel& kernel, const LoopWay& way) {
  ReductionWriter writer(plan, kernel, &way);
  return writer.possible() ? std::optional(writer.run()) : std::nullopt;
}

std::optional<KernelText> reduction_part(const KernelPlan& plan, const LoopKernel& kernel, int threads) {
  const LoopWay way = {kRowWay, threads, 0};
  ReductionWriter writer(plan, kernel, &way);
  return writer.takes_row_by_block() ? std::optional(writer.run_as_part()) : std::nullopt;
}

LoopWay own_reduction(const KernelPlan& plan, const LoopKernel& kernel) { return ReductionWriter(plan, kernel).way(); }

}  // namespace coil::cuda
