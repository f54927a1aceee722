// Kernels without reductions: a thread computes `width` consecutive points of the most contiguous axis.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/points.h"
#include "codegen/host/index_text.h"

namespace coil::cuda {
namespace {

constexpr int kThreads = 256;

class PointwiseWriter {
 public:
  PointwiseWriter(const KernelPlan& plan, const LoopKernel& k, bool part) : plan_(plan), k_(k), part_(part), c_(loop_context(plan, k)) {}

  KernelText run() {
    axis_ = lane_axis(k_);
    width_ = access_width(c_, k_, axis_);
    const Expr items = item_count();
    c_.wide_index = !fits_32(k_, items * width_);
    const std::string main = k_.axes.empty() ? (part_ ? "  if (threadIdx.x > 0) return;\n" : "") + statements(c_, k_, -1, 1, "  ") : item_code(items);
    const std::vector<BufferId> written = written_buffers(k_.stmts);
    const std::string head = part_ ? part_frame(c_, written) : kernel_frame(c_, written, fmt::format("__launch_bounds__({})", kThreads));
    KernelText t = finish(c_, head + main + "}\n");
    t.threads = kThreads;
    t.grid_x = fmt::format("cdiv({}, {})", host_index(items), kThreads);
    if (k_.axes.empty()) t.threads = part_ ? kThreads : 1, t.grid_x = "1";
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string type() const { return c_.index_type(); }
  std::string index(Expr e) { return index_text(c_, e); }

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
    std::string text = fmt::format("  const {0} item = ({0}){1} * {2} + threadIdx.x;\n  if (item >= {3}) return;\n", ix, part_ ? "block" : "blockIdx.x", kThreads, index(items));
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
        text += fmt::format("  const {} {} = {}{};\n", ix, axis.name, rest, scale);
        break;
      }
      text += fmt::format("  const {0} rest{1} = ({0})(({2}){3} / ({2})({4}));\n  const {0} {5} = ({3} - rest{1} * {4}){6};\n", ix, i, unsigned_ix, rest, n,
                          axis.name, scale);
      rest = "rest" + std::to_string(i);
    }
    return text + guarded_statements(c_, k_, axis_, width_, "  ", "return");
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  bool part_;
  KernelContext c_;
  int axis_ = -1;
  int width_ = 1;
};

}  // namespace

KernelText pointwise_text(const KernelPlan& plan, const LoopKernel& kernel) {
  if (auto tiled = transposing_text(plan, kernel)) return *tiled;
  return PointwiseWriter(plan, kernel, false).run();
}

std::optional<KernelText> pointwise_part(const KernelPlan& plan, const LoopKernel& kernel) {
  if (transposing_text(plan, kernel)) return std::nullopt;
  return PointwiseWriter(plan, kernel, true).run();
}

}  // namespace coil::cuda
