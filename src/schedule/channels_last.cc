#include "schedule/channels_last.h"

#include <algorithm>
#include <span>

#include "schedule/schedule.h"

namespace coil {
namespace {

using Found = std::map<BufferId, const char*>;

bool lies_channels_last(ExprPool& pool, const BufferInfo& b) {
  if (b.strides.empty() || b.sizes.size() < 3) return false;
  const bool side_by_side = b.strides[1] == pool.index(1) && !(b.sizes[1] == pool.index(1));
  return side_by_side && b.strides == channels_last_strides(pool, b.sizes) && b.strides != contiguous_strides(pool, b.sizes);
}

// Whether variable 1, the channels of who reads (in `rank` dimensions), is in no other coordinate, and they alone are in theirs.
bool has_channels_second(std::span<const Expr> at, size_t rank) {
  if (at.size() < 3) return false;
  for (size_t d = 0; d < at.size(); ++d) {
    if (d != 1 && depends_on_var(at[d], 1)) return false;
  }
  for (size_t v = 0; v < rank; ++v) {
    if (v != 1 && depends_on_var(at[1], static_cast<int>(v))) return false;
  }
  return depends_on_var(at[1], 1) || at[1]->is_constant();
}

// An element for each point: one that many points share (a number for each row of scores) says nothing about how they should lie.
bool is_read_once(Expr e, const std::vector<Expr>& sizes) {
  for (size_t v = 0; v < sizes.size(); ++v) {
    const auto here = [&](Expr at) { return depends_on_var(at, static_cast<int>(v)); };
    if (!(sizes[v]->is_constant() && sizes[v]->as_int() == 1) && std::none_of(e->args.begin(), e->args.end(), here)) return false;
  }
  return true;
}

bool reads_channels_in_place(const Found& found, Expr e, const std::vector<Expr>& sizes) {
  return e->kind == ExprKind::load && found.contains(BufferId(e->id)) && has_channels_second(e->args, sizes.size()) && is_read_once(e, sizes);
}

}  // namespace

std::vector<Expr> channels_last_strides(ExprPool& pool, const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size(), pool.index(1));
  Expr stride = sizes[1];
  for (size_t d = sizes.size(); d-- > 2;) {
    strides[d] = stride;
    stride = stride * sizes[d];
  }
  strides[0] = stride;
  return strides;
}

// Convolution inputs and outputs, then whatever reads them point by point, all with the channels in dimension 1 and of any rank that has an
// image or a line behind it: an image that was turned to have them last (for a layer norm) has them side by side as it is. So have inputs that
// the caller keeps like this.
Found find_channels_last(const LoopProgram& program) {
  Found found;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (lies_channels_last(*program.pool, program.buffers[i])) found.emplace(BufferId(i), "its caller keeps it so");
  }
  for (const Loop& loop : program.loops) {
    const auto* conv = std::get_if<Conv2d>(&loop.def);
    if (!conv) continue;
    if (has_channels_second(conv->x.coordinates, conv->x_sizes.size()))
      found.emplace(conv->x.buffer, "a convolution reads the channels of a point side by side");
    found.emplace(loop.outputs[0], "a convolution writes the channels of a point side by side");
  }
  for (const Loop& loop : program.loops) {
    const bool elementwise =
        std::holds_alternative<Pointwise>(loop.def) || std::holds_alternative<Reduction>(loop.def) || std::holds_alternative<Concat>(loop.def);
    const std::vector<Expr>& sizes = program.buffer(loop.outputs[0]).sizes;
    if (!elementwise || sizes.size() < 3) continue;
    for (const BodyRef& ref : bodies(program, loop)) {
      if (any_of(ref.body, [&](Expr e) { return reads_channels_in_place(found, e, sizes); }))
        found.emplace(loop.outputs[0], "what it is made from, point by point, has the channels of a point side by side");
    }
  }
  return found;
}

}  // namespace coil
