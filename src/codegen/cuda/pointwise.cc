// Kernels without reductions: a thread computes `width` consecutive points of the most contiguous axis.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/machine.h"
#include "codegen/cuda/points.h"
#include "codegen/index_text.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int kPointwiseThreads = 256;
constexpr int kMostGroups = 8;  // of points of one thread

// What keeps enough of memory's loads under way: this many bytes of each buffer a thread, where there are more points than threads that a machine has at once
// (some 2^18). Bodies beyond so many nodes have loads enough, or would fill the registers.
constexpr int kBytes = 16;
constexpr int kMostNodes = 160;  // of all groups

class PointwiseWriter {
 public:
  // points: of a thread; 0: as many as are one access.
  PointwiseWriter(const KernelPlan& plan, const LoopKernel& k, bool part, int threads = kPointwiseThreads, int points = 0)
      : plan_(plan), k_(k), part_(part), c_(loop_context(plan, k)), threads_(threads), axis_(lane_axis(k)), width_(access_width(c_, k, axis_)) {
    if (points > 0 && points < width_) width_ = points;
    groups_ = points > 0 ? std::max(points / width_, 1) : own_groups();
  }

  int points() const { return width_ * groups_; }
  bool possible() const { return groups_ == 1 || (groups_ <= kMostGroups && !k_.axes.empty()); }

  KernelText run() {
    const Expr items = item_count();
    c_.wide_index = !fits_32(k_, items * width_);
    const std::string main = k_.axes.empty() ? (part_ ? "  if (threadIdx.x > 0) return;\n" : "") + statements(c_, k_, -1, 1, "  ") : item_code(items);
    const std::vector<BufferId> written = written_buffers(k_.stmts);
    const std::string head = part_ ? part_frame(c_, written) : kernel_frame(c_, written, fmt::format("__launch_bounds__({})", threads_));
    KernelText t = finish(c_, head + main + "}\n");
    t.threads = threads_;
    t.grid_x = fmt::format("cdiv({}, {})", host_index(items), threads_ * groups_);
    t.work = {items, threads_ * groups_};
    if (k_.axes.empty()) t.threads = part_ ? threads_ : 1, t.grid_x = "1", t.work = {};
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string type() const { return c_.index_type(); }
  std::string index(Expr e) { return index_text(c_, e); }

  // Where accesses are narrow (rows of odd lengths, positions from data) a thread takes several points, far apart, whose loads do not wait for each other.
  int own_groups() const {
    if (k_.axes.empty()) return 1;
    int widest = 1;
    for_each_access(k_.stmts, [&](BufferId id, Expr, int) { widest = std::max(widest, byte_size(plan_.buffer(id).info.dtype)); });
    int nodes = 0;
    for (const Stmt& s : k_.stmts) visit(s.value, [&](Expr) { ++nodes; });
    const int64_t items = typical(item_count());
    int groups = 1;
    while (groups < kMostGroups && groups * 2 * width_ * widest <= kBytes && groups * 2 * nodes <= kMostNodes && items / (groups * 2) >= threads_at_once(plan_))
      groups *= 2;
    return groups;
  }

  Expr item_count() const {
    Expr items = pool().index(1);
    for (int a = 0; a < static_cast<int>(k_.axes.size()); ++a) {
      const Expr n = k_.axes[static_cast<size_t>(a)].size;
      items = items * (a == axis_ ? ceil_div(n, pool().index(width_)) : n);
    }
    return items;
  }

  // The item's number taken apart: the lane axis runs fastest.
  std::string item_code(Expr items) {
    const std::string ix = type(), unsigned_ix = c_.wide_index ? "cd::u64" : "cd::u32";
    const std::string in = groups_ > 1 ? "    " : "  ", leave = groups_ > 1 ? "continue" : "return";
    std::string text = groups_ > 1 ? fmt::format("#pragma unroll\n  for (int g = 0; g < {}; ++g) {{\n", groups_) : "";
    text += fmt::format("{0}const {1} item = ({1}){2} * {3} + {4}threadIdx.x;\n", in, ix, part_ ? "block" : "blockIdx.x", threads_ * groups_,
                        groups_ > 1 ? fmt::format("g * {} + ", threads_) : "");
    text += fmt::format("{}if (item >= {}) {};\n", in, index(items), leave);
    std::vector<int> order = {axis_};
    for (int a = static_cast<int>(k_.axes.size()) - 1; a >= 0; --a) {
      if (a != axis_) order.push_back(a);
    }
    std::string rest = "item";
    for (size_t i = 0; i < order.size(); ++i) {
      const Axis& axis = k_.axes[static_cast<size_t>(order[i])];
      const bool last = i + 1 == order.size();
      const std::string scale = order[i] == axis_ && width_ > 1 ? fmt::format(" * {}", width_) : "";
      const std::string n = index(order[i] == axis_ ? ceil_div(axis.size, pool().index(width_)) : axis.size);
      if (last) {
        text += fmt::format("{}const {} {} = {}{};\n", in, ix, axis.name, rest, scale);
        break;
      }
      text += fmt::format("{7}const {0} rest{1} = ({0})(({2}){3} / ({2})({4}));\n{7}const {0} {5} = ({3} - rest{1} * {4}){6};\n", ix, i, unsigned_ix, rest, n,
                          axis.name, scale, in);
      rest = "rest" + std::to_string(i);
    }
    return text + guarded_statements(c_, k_, axis_, width_, in, leave) + (groups_ > 1 ? "  }\n" : "");
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  bool part_;
  KernelContext c_;
  const int threads_;
  const int axis_;
  int width_;
  int groups_ = 1;
};

}  // namespace

KernelText pointwise_text(const KernelPlan& plan, const LoopKernel& kernel) {
  if (auto tiled = transposing_text(plan, kernel)) return *tiled;
  return PointwiseWriter(plan, kernel, false).run();
}

std::optional<KernelText> pointwise_text(const KernelPlan& plan, const LoopKernel& kernel, int threads, int points) {
  PointwiseWriter writer(plan, kernel, false, threads, points);
  return writer.possible() ? std::optional(writer.run()) : std::nullopt;
}

int own_points(const KernelPlan& plan, const LoopKernel& kernel) { return PointwiseWriter(plan, kernel, false).points(); }

std::optional<KernelText> pointwise_part(const KernelPlan& plan, const LoopKernel& kernel) {
  if (transposing_text(plan, kernel)) return std::nullopt;
  return PointwiseWriter(plan, kernel, true).run();
}

}  // namespace coil::cuda
