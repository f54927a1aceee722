// Pointwise kernels that read something along another axis than they write along. A block takes a square tile of the two axes: what is
// read across goes to shared memory in whole lines, so that reads and writes are both contiguous.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/points.h"
#include "codegen/index_text.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int kTransposeThreads = 256;
constexpr int64_t kLeast = 16;          // points along both axes: less is not worth a tile
constexpr int64_t kMostShared = 40960;  // bytes of a block's tiles

struct Tiling {
  int lane = -1, across = -1;
  int side = 64;
  std::vector<Expr> loads;  // contiguous along `across`
};

// Whether neighbours along `axis` are neighbours in memory, and along `lane` they are not.
bool is_across(Expr offset, int lane, int axis) { return depends_on_var(offset, lane) && !unit_stride(offset, lane) && unit_stride(offset, axis); }

// Bytes of a line of the tile: a little more than the elements, so that a column spreads over the banks.
int64_t pitch(int side, int bytes) { return side + std::max(1, 4 / bytes); }

// Of unconditional loads those that are contiguous along another axis than `lane`, of the axis that most are. side: 0 for the own rule's.
std::optional<Tiling> tiling_along(const KernelContext& c, const LoopKernel& k, int lane, int side) {
  Tiling best;
  best.lane = lane;
  const std::vector<Expr> all = unconditional_loads(k.stmts);
  for (int axis = 0; axis < static_cast<int>(k.axes.size()); ++axis) {
    if (axis == best.lane) continue;
    std::vector<Expr> loads;
    for (Expr e : all) {
      if (!from_data(e->args[0]) && is_across(e->args[0], best.lane, axis) && c.read_only.contains(BufferId(e->id))) loads.push_back(e);
    }
    if (loads.size() > best.loads.size()) best.across = axis, best.loads = std::move(loads);
  }
  if (best.loads.empty()) return std::nullopt;
  const int64_t shorter = std::min(typical(k.axes[static_cast<size_t>(best.lane)].size), typical(k.axes[static_cast<size_t>(best.across)].size));
  if (shorter < kLeast) return std::nullopt;
  const auto shared = [&](int side) {
    int64_t bytes = 0;
    for (Expr e : best.loads)
      bytes += side * pitch(side, byte_size(c.plan->buffer(BufferId(e->id)).info.dtype)) * byte_size(c.plan->buffer(BufferId(e->id)).info.dtype);
    return bytes;
  };
  if (side > 0) best.side = side;
  else if (shorter <= 32 || shared(best.side) > kMostShared) best.side = 32;
  return shared(best.side) <= kMostShared ? std::optional(best) : std::nullopt;
}

// The axis along which all stores are contiguous; -1: none.
int stored_axis(const LoopKernel& k) {
  for (int axis = static_cast<int>(k.axes.size()) - 1; axis >= 0; --axis) {
    const auto along = [&](const Stmt& s) { return s.kind != Stmt::Kind::store || unit_stride(s.offset, axis); };
    if (std::all_of(k.stmts.begin(), k.stmts.end(), along)) return axis;
  }
  return -1;
}

// Whether all that is read across goes through tiles: conditional loads and those of what the kernel writes do not.
bool holds_all(const LoopKernel& k, const Tiling& t) {
  const auto misses = [&](Expr n) {
    return n->kind == ExprKind::load && is_across(n->args[0], t.lane, t.across) && std::find(t.loads.begin(), t.loads.end(), n) == t.loads.end();
  };
  return std::none_of(k.stmts.begin(), k.stmts.end(), [&](const Stmt& s) { return s.value && any_of(s.value, misses); });
}

// Threads lie along what most accesses are contiguous along, unless stores are across there, which do not go through tiles (a mask and a gradient, both
// channels first, that become a product channels last): then along these, if tiles hold all the rest.
std::optional<Tiling> find_tiling(const KernelContext& c, const LoopKernel& k, int side) {
  const int most = lane_axis(k), stored = stored_axis(k);
  if (most < 0) return std::nullopt;
  if (stored >= 0 && stored != most) {
    const std::optional<Tiling> tiling = tiling_along(c, k, stored, side);
    if (tiling && tiling->across == most && holds_all(k, *tiling)) return tiling;
  }
  return contiguity(k, most) > 0 ? tiling_along(c, k, most, side) : std::nullopt;
}

class TransposeWriter {
 public:
  TransposeWriter(const KernelPlan& plan, const LoopKernel& k, KernelContext c, const Tiling& tiling) : plan_(plan), k_(k), c_(std::move(c)), t_(tiling) {}

  KernelText run() {
    const Expr side = pool().index(t_.side);
    Expr blocks = pool().index(1), points = pool().index(1);
    for (int a = 0; a < static_cast<int>(k_.axes.size()); ++a) {
      const Expr n = k_.axes[static_cast<size_t>(a)].size, tiles = ceil_div(n, side);
      blocks = blocks * (tiled(a) ? tiles : n);
      points = points * (tiled(a) ? tiles * side : n);
    }
    c_.wide_index = !fits_32(k_, points);
    const int width = access_width(c_, k_, t_.lane);
    std::string text = block_code();
    for (size_t i = 0; i < t_.loads.size(); ++i) text += fill_code(i);
    text += "  __syncthreads();\n" + points_code(width);
    KernelText t = finish(c_, kernel_frame(c_, written_buffers(k_.stmts), fmt::format("__launch_bounds__({})", kTransposeThreads)) + text + "}\n");
    t.threads = kTransposeThreads;
    t.grid_x = host_index(blocks);
    t.work = {blocks, 1};
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  bool tiled(int axis) const { return axis == t_.lane || axis == t_.across; }
  const Axis& axis(int a) const { return k_.axes[static_cast<size_t>(a)]; }
  std::string index(Expr e) { return index_text(c_, e); }
  // Whether a point of a tile is inside of the axis, in C++; empty: the tiles divide it.
  std::string inside(int a) {
    const Expr size = axis(a).size;
    return size->is_constant() && size->as_int() % t_.side == 0 ? "" : fmt::format("{} < {}", axis(a).name, index(size));
  }

  // The block's number taken apart: tiles along the lanes run fastest.
  std::string block_code() {
    const std::string ix = c_.index_type(), unsigned_ix = c_.wide_index ? "cd::u64" : "cd::u32";
    std::vector<int> order = {t_.lane, t_.across};
    for (int a = static_cast<int>(k_.axes.size()) - 1; a >= 0; --a) {
      if (!tiled(a)) order.push_back(a);
    }
    std::string text, rest = fmt::format("({})blockIdx.x", unsigned_ix);
    for (size_t i = 0; i < order.size(); ++i) {
      const Axis& a = axis(order[i]);
      const std::string name = a.name + (tiled(order[i]) ? "_tile" : ""), scale = tiled(order[i]) ? fmt::format(" * {}", t_.side) : "";
      if (i + 1 == order.size()) {
        text += fmt::format("  const {0} {1} = ({0})({2}){3};\n", ix, name, rest, scale);
        break;
      }
      const std::string n = index(tiled(order[i]) ? ceil_div(a.size, pool().index(t_.side)) : a.size);
      text += fmt::format("  const {0} rest{1} = {2} / ({0})({3});\n  const {4} {5} = ({4})({2} - rest{1} * ({0})({3})){6};\n", unsigned_ix, i, rest, n, ix,
                          name, scale);
      rest = "rest" + std::to_string(i);
    }
    return text;
  }

  // A tile's lines are the points along `across`; threads read them as whole words.
  std::string fill_code(size_t number) {
    const Expr load = t_.loads[number], offset = load->args[0], size = axis(t_.across).size;
    const BufferId id(load->id);
    const DType dtype = plan_.buffer(id).info.dtype;
    const std::string tile = "tile" + std::to_string(number), p = c_.names.pointer(id);
    const int64_t line = pitch(t_.side, byte_size(dtype));
    int width = std::max(1, 4 / byte_size(dtype));
    if ((size->is_constant() && size->as_int() % width != 0) || access_kind(c_, id, offset, t_.across, width, false) != AccessKind::wide) width = 1;
    const auto loop = [&](int w, const std::string& indent) {
      const int groups = t_.side / w;
      const std::string step = w > 1 ? fmt::format(" * {}", w) : "",
                        guard = inside(t_.lane) + (inside(t_.lane).empty() || inside(t_.across).empty() ? "" : " && ") + inside(t_.across);
      return fmt::format(
          "#pragma unroll 8\n{0}for (int n = threadIdx.x; n < {1}; n += {2}) {{\n{0}  const {3} {4} = {4}_tile + n / {5}, {6} = {6}_tile + n % {5}{7};\n"
          "{0}  {8}cd::copy<{9}>({10} + n / {5} * {11} + n % {5}{7}, {12} + {13});\n{0}}}\n",
          indent, t_.side * groups, kTransposeThreads, c_.index_type(), axis(t_.lane).name, groups, axis(t_.across).name, step,
          guard.empty() ? "" : "if (" + guard + ") ", w, tile, line, p, index(offset));
    };
    std::string text = fmt::format("  __shared__ __align__(16) {} {}[{}];\n", memory_type(dtype), tile, t_.side * line);
    if (width == 1) return text + loop(1, "  ");
    access_kind(c_, id, offset, t_.across, width, true);
    if (!size->is_constant()) c_.divisible.insert(fmt::format("{} % {}", host_index(size), width));
    return text + "  if (a.wide) {\n" + loop(width, "    ") + "  } else {\n" + loop(1, "    ") + "  }\n";
  }

  std::string points_code(int width) {
    const std::string lane = axis(t_.lane).name, across = axis(t_.across).name;
    const int groups = t_.side / width;
    std::string text = fmt::format("  for (int n = threadIdx.x; n < {}; n += {}) {{\n", t_.side * groups, kTransposeThreads);
    text += fmt::format("    const {0} {1} = {1}_tile + n % {2}{3}, {4} = {4}_tile + n / {2};\n", c_.index_type(), lane, groups,
                        width > 1 ? fmt::format(" * {}", width) : "", across);
    for (const int a : {t_.lane, t_.across}) {
      if (!inside(a).empty()) text += "    if (!(" + inside(a) + ")) continue;\n";
    }
    const Prepare from_tiles = [&](Emitter& emitter, std::string& body, const std::string& indent, int w) {
      for (size_t i = 0; i < t_.loads.size(); ++i) {
        const std::string name = fmt::format("t{}", i), at = c_.vars[static_cast<size_t>(t_.lane)];
        body += fmt::format("{}const auto {} = cd::load1(tile{} + ({}{} - {}_tile) * {} + ({} - {}_tile));\n", indent, name, i, at, w > 1 ? " + v" : "", lane,
                            pitch(t_.side, byte_size(plan_.buffer(BufferId(t_.loads[i]->id)).info.dtype)), across, across);
        emitter.know(t_.loads[i], {name, w > 1});
      }
    };
    return text + guarded_statements(c_, k_, t_.lane, width, "    ", "continue", from_tiles) + "  }\n";
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  KernelContext c_;
  const Tiling t_;
};

}  // namespace

std::optional<KernelText> transposing_text(const KernelPlan& plan, const LoopKernel& k, int side) {
  KernelContext c = loop_context(plan, k);
  const std::optional<Tiling> tiling = find_tiling(c, k, side);
  if (!tiling) return std::nullopt;
  return TransposeWriter(plan, k, std::move(c), *tiling).run();
}

std::optional<int> own_tiles(const KernelPlan& plan, const LoopKernel& k) {
  const std::optional<Tiling> tiling = find_tiling(loop_context(plan, k), k, 0);
  return tiling ? std::optional(tiling->side) : std::nullopt;
}

}  // namespace coil::cuda
