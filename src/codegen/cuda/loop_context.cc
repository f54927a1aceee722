#include "codegen/cuda/loop_context.h"

#include <algorithm>

#include <fmt/format.h>

#include "schedule/schedule.h"

namespace coil::cuda {

void for_each_access(const std::vector<Stmt>& stmts, const std::function<void(BufferId buffer, Expr offset, int weight)>& f) {
  for (const Stmt& s : stmts) {
    visit(s.value, [&](Expr e) {
      if (e->kind == ExprKind::load && e->id < kScratchBase) f(BufferId(e->id), e->args[0], 2);
    });
    if (s.kind == Stmt::Kind::store && s.scratch < 0) f(s.buffer, s.offset, 3);
  }
}

namespace {

bool depends_on_any(Expr offset, int first, int last) {
  for (int a = first; a < last; ++a) {
    if (depends_on_var(offset, a)) return true;
  }
  return false;
}

// Whether neighbours along an axis are neighbours in memory but for the borders between runs of kRun of them, as where a dimension is made of two.
bool unit_stride_in_runs(const LoopKernel& k, Expr offset, int axis) {
  constexpr int64_t kRun = 32;
  if (!any_of(offset, [](Expr n) { return n->is_op(ScalarOp::imod); })) return false;
  ExprPool& pool = *offset->pool;
  std::vector<Expr> replaced, sizes;
  for (size_t a = 0; a < k.axes.size(); ++a) replaced.push_back(pool.var(static_cast<int32_t>(a))), sizes.push_back(k.axes[a].size);
  const auto run = static_cast<int32_t>(k.axes.size()), place = run + 1;
  const auto at = static_cast<size_t>(axis);
  replaced[at] = pool.var(run) * kRun + pool.var(place);
  sizes.push_back(ceil_div(sizes[at], pool.index(kRun))), sizes.push_back(pool.index(kRun));
  return unit_stride(simplify_index(substitute_vars(offset, replaced), {sizes}), place);
}

// Points at which an access is at another place: about what it moves, where the rest is read again from a cache.
double footprint(const LoopKernel& k, Expr offset) {
  double points = 1;
  for (size_t a = 0; a < k.axes.size(); ++a) {
    if (depends_on_var(offset, static_cast<int32_t>(a))) points *= static_cast<double>(std::max<int64_t>(typical(k.axes[a].size), 1));
  }
  return points;
}

}  // namespace

int contiguity(const LoopKernel& k, int axis) {
  const int axes = static_cast<int>(k.axes.size());
  const bool reduces = k.num_outer > 0 && k.num_outer < axes;
  const auto own_at_each_point = [&](Expr offset) { return depends_on_any(offset, 0, k.num_outer) && depends_on_any(offset, k.num_outer, axes); };
  bool any = false;
  double most = 0;
  for_each_access(k.stmts, [&](BufferId, Expr offset, int) {
    any = any || own_at_each_point(offset);
    most = std::max(most, footprint(k, offset));
  });
  int score = 0;
  for_each_access(k.stmts, [&](BufferId, Expr offset, int weight) {
    if (!depends_on_var(offset, axis)) return;
    // Tables of a few lines (weights of channels, places of columns), and results where there are not many for the steps, decide only what the rest leaves
    // open.
    const bool cached = reduces && any && !own_at_each_point(offset);
    if (cached && footprint(k, offset) * 64 < most) return;
    if (!cached && footprint(k, offset) * 4 >= most) weight *= 16;
    score += unit_stride(offset, axis) || unit_stride_in_runs(k, offset, axis) ? 2 * weight : -weight;
  });
  return score;
}

int access_width(KernelContext& c, const LoopKernel& k, int axis) {
  if (axis < 0) return 1;
  const Expr size = k.axes[static_cast<size_t>(axis)].size;
  int narrowest = 16, widest = 1;
  for_each_access(k.stmts, [&](BufferId id, Expr offset, int) {
    if (access_kind(c, id, offset, axis, 2, false) == AccessKind::same) return;
    if (!unit_stride(offset, axis)) return;
    const int bytes = byte_size(c.plan->buffer(id).info.dtype);
    narrowest = std::min(narrowest, bytes);
    widest = std::max(widest, bytes);
  });
  if (narrowest == 16) return 1;
  int width = std::min({8, 16 / narrowest, 32 / widest});
  for (; width > 1; width /= 2) {
    if (size->is_constant() && size->as_int() < width) continue;
    bool all = true;
    for_each_access(k.stmts, [&](BufferId id, Expr offset, int) {
      if (unit_stride(offset, axis) && access_kind(c, id, offset, axis, width, false) != AccessKind::wide) all = false;
    });
    if (all) return width;
  }
  return 1;
}

bool fits_32(const std::vector<Stmt>& stmts, const std::vector<Expr>& sizes, Expr items) {
  const auto small = [&](Expr e) {
    const auto top = upper_bound(e, {sizes}), bottom = lower_bound(e, {sizes});
    return top && bottom && *top < INT32_MAX / 2 && *bottom > INT32_MIN / 2;
  };
  if (!small(items)) return false;
  bool all = true;
  const auto look = [&](Expr e) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->dtype != DType::index) return;
      // Data that serves as an index is checked against a size, so it is as small as that.
      if (n->is_op(ScalarOp::cast)) return;
      if (!small(n)) all = false;
    });
  };
  for (const Stmt& s : stmts) {
    look(s.value);
    look(s.offset);
    if (s.condition) look(s.condition);
  }
  return all;
}

bool fits_32(const LoopKernel& k, Expr items) {
  std::vector<Expr> sizes;
  for (const Axis& a : k.axes) sizes.push_back(a.size);
  return fits_32(k.stmts, sizes, items);
}

bool stores_halves(const std::vector<Stmt>& stmts) {
  return std::all_of(stmts.begin(), stmts.end(),
                     [](const Stmt& s) { return s.kind != Stmt::Kind::store || s.scratch >= 0 || s.dtype == DType::bf16 || s.dtype == DType::f16; });
}

std::vector<BufferId> written_buffers(const std::vector<Stmt>& stmts) {
  std::vector<BufferId> written;
  for (const Stmt& s : stmts) {
    if (s.kind == Stmt::Kind::store && s.scratch < 0) written.push_back(s.buffer);
  }
  return written;
}

void mark_read_only(KernelContext& c, const std::vector<Stmt>& stmts, const std::vector<BufferId>& written) {
  const auto shares = [&](BufferId a, BufferId b) {
    const Placement &x = c.plan->buffer(a).placement, &y = c.plan->buffer(b).placement;
    return a == b || (x.kind == y.kind && x.kind == Placement::Kind::arena && x.offset == y.offset);
  };
  for_each_access(stmts, [&](BufferId id, Expr, int weight) {
    if (weight != 2) return;
    if (std::none_of(written.begin(), written.end(), [&](BufferId w) { return shares(w, id); })) c.read_only.insert(id);
  });
}

KernelContext loop_context(const KernelPlan& plan, const LoopKernel& k) {
  KernelContext c(plan);
  for (const Axis& a : k.axes) {
    c.vars.push_back(a.name);
    c.sizes.push_back(a.size);
  }
  c.half_results = stores_halves(k.stmts);
  mark_read_only(c, k.stmts, written_buffers(k.stmts));
  return c;
}

std::string args_struct(const KernelContext& c) {
  return fmt::format("struct @NAME@_args {{\n  void* p[{}];\n  cd::i64 s[{}];\n  cd::i32* flag;\n  cd::i32 kernel, wide;\n}};\n",
                     std::max<size_t>(c.names.buffers().size(), 1), std::max<size_t>(c.plan->pool->num_symbols() - 1, 1));
}

std::string pointers(const KernelContext& c, const std::vector<BufferId>& written) {
  const std::vector<BufferId>& buffers = c.names.buffers();
  std::string text;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const bool writes = std::find(written.begin(), written.end(), buffers[i]) != written.end();
    const std::string type = (writes ? "" : "const ") + memory_type(c.plan->buffer(buffers[i]).info.dtype) + "*";
    text += fmt::format("  {} p{} = ({})a.p[{}];\n", type, i, type, i);
  }
  return text;
}

std::string kernel_frame(const KernelContext& c, const std::vector<BufferId>& written, const std::string& bounds, const std::string& more) {
  return args_struct(c) +
         fmt::format("COIL_KERNEL void {} @NAME@(const __grid_constant__ @NAME@_args a{}) {{\n  cd::begin_kernel();\n", bounds,
                     more.empty() ? "" : ", " + more) +
         pointers(c, written);
}

std::string part_frame(const KernelContext& c, const std::vector<BufferId>& written, const std::string& more) {
  const std::string parameters = "const @NAME@_args& a, const cd::u32 block" + (more.empty() ? "" : ", " + more);
  return args_struct(c) + fmt::format("__device__ __forceinline__ void @NAME@({}) {{\n", parameters) + pointers(c, written);
}

KernelText finish(const KernelContext& c, std::string body) {
  KernelText t;
  t.body = std::move(body);
  t.headers = {"cuda/base.h"};
  t.buffers = c.names.buffers();
  for (const auto& [buffer, bytes] : c.aligned) t.aligned.emplace_back(BufferId(buffer), bytes);
  t.divisible.assign(c.divisible.begin(), c.divisible.end());
  return t;
}

}  // namespace coil::cuda
