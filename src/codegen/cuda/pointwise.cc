// Kernels without reductions: a thread computes `width` consecutive points of the most contiguous axis.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/host/index_text.h"

namespace coil::cuda {
namespace {

constexpr int kThreads = 256;

class PointwiseWriter {
 public:
  PointwiseWriter(const KernelPlan& plan, const LoopKernel& k) : plan_(plan), k_(k), c_(loop_context(plan, k)) {}

  KernelText run() {
    choose_axis();
    width_ = access_width(c_, k_, axis_);
    const Expr items = item_count();
    c_.wide_index = !fits_32(plan_, k_, items * width_);
    const std::string main = k_.axes.empty() ? statements(1, "  ") : item_code(items);
    std::vector<BufferId> written;
    for (const Stmt& s : k_.stmts) written.push_back(s.buffer);
    KernelText t = finish(c_, kernel_frame(c_, written, fmt::format("__launch_bounds__({})", kThreads)) + main + "}\n");
    t.threads = kThreads;
    t.grid_x = fmt::format("cdiv({}, {})", host_index(items), kThreads);
    if (k_.axes.empty()) t.threads = 1, t.grid_x = "1";
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string type() const { return c_.index_type(); }
  std::string index(Expr e) {
    std::string ignored;
    std::map<int, TempText> none;
    return Emitter(c_, {&ignored, &ignored, "", "", -1, 1}, none).index(e);
  }

  void choose_axis() {
    int best = 0;
    for (int a = static_cast<int>(k_.axes.size()) - 1; a >= 0; --a) {
      const int score = contiguity(k_, a);
      if (axis_ < 0 || score > best) axis_ = a, best = score;
    }
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
    std::string text = fmt::format("  const {0} item = ({0})blockIdx.x * {1} + threadIdx.x;\n  if (item >= {2}) return;\n", ix, kThreads, index(items));
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
    if (width_ == 1) return text + statements(1, "  ");
    const std::string v = k_.axes[static_cast<size_t>(axis_)].name, n = index(k_.axes[static_cast<size_t>(axis_)].size);
    const Expr size = k_.axes[static_cast<size_t>(axis_)].size;
    const bool whole = size->is_constant() && size->as_int() % width_ == 0;
    const std::string wide = statements(width_, "    ");
    text += fmt::format("  if (a.wide{}) {{\n{}    return;\n  }}\n", whole ? "" : fmt::format(" && {} + {} <= {}", v, width_, n), wide);
    // One by one: the last points of a row, or addresses that are not aligned.
    const std::string start = v + "_start";
    text += fmt::format("  const {0} {1} = {2}, {2}_stop = {2} + {3} < {4} ? {2} + {3} : {4};\n", ix, start, v, width_, n);
    c_.vars[static_cast<size_t>(axis_)] = v + "_at";
    text += fmt::format("  for ({0} {1}_at = {2}; {1}_at < {1}_stop; ++{1}_at) {{\n{3}  }}\n", ix, v, start, statements(1, "    "));
    c_.vars[static_cast<size_t>(axis_)] = v;
    return text;
  }

  std::string statements(int width, const std::string& indent) {
    std::string before, body, after;
    std::map<int, TempText> temps;
    Emitter::Place place = {&before, width > 1 ? &body : &before, indent, width > 1 ? indent + "  " : indent, axis_, width};
    Emitter emitter(c_, place, temps);
    for (const Stmt& s : k_.stmts) {
      if (s.kind == Stmt::Kind::let) {
        temps[s.temp.index] = emitter.value(s.value);
      } else {
        CHECK(s.kind == Stmt::Kind::store, "a pointwise kernel that reduces");
        emitter.store(s.buffer, s.offset, s.value, after, indent);
      }
    }
    if (body.empty()) return before + after;
    return before + fmt::format("{}#pragma unroll\n{}for (int v = 0; v < {}; ++v) {{\n", "", indent, width) + body + indent + "}\n" + after;
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  KernelContext c_;
  int axis_ = -1;
  int width_ = 1;
};

}  // namespace

KernelText pointwise_text(const KernelPlan& plan, const LoopKernel& kernel) { return PointwiseWriter(plan, kernel).run(); }

}  // namespace coil::cuda
