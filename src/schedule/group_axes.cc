#include "schedule/group_axes.h"

#include <algorithm>

namespace coil {
namespace {

constexpr const char* kOtherRanges = "the loops run over different ranges";

std::string bind_reads(const LoopProgram& program, const FusionGroup& g, const LoopShape& s, std::vector<int>& axis_of) {
  std::string why;
  visit(s.body, [&](Expr e) {
    if (e->kind != ExprKind::load || !why.empty()) return;
    for (size_t m = 0; m < g.loops.size(); ++m) {
      const Loop& member = program.loops[static_cast<size_t>(g.loops[m])];
      if (member.outputs[0].index != e->id) continue;
      for (size_t d = 0; d < e->args.size(); ++d) {
        const int axis = g.axis_of_var[m][d];
        if (axis < 0) continue;
        const Expr c = e->args[d];
        if (c->kind != ExprKind::var) {
          why = "it reads " + program.buffer(member.outputs[0]).name + " at other coordinates than its own";
          return;
        }
        if (s.sizes[static_cast<size_t>(c->id)] != g.axis_sizes[static_cast<size_t>(axis)]) {  // the beginning of it only
          why = kOtherRanges;
          return;
        }
        int& bound = axis_of[static_cast<size_t>(c->id)];
        if (bound != -2 && bound != axis) why = "it reads what the producer makes in another order";
        bound = axis;
      }
    }
  });
  return why;
}

std::string bind_rest(const FusionGroup& g, const LoopShape& s, std::vector<int>& axis_of) {
  for (size_t v = 0; v < axis_of.size(); ++v) {
    if (axis_of[v] != -2) continue;
    for (size_t a = 0; a < g.axis_sizes.size() && axis_of[v] == -2; ++a) {
      const bool taken = std::find(axis_of.begin(), axis_of.end(), static_cast<int>(a)) != axis_of.end();
      if (!taken && g.axis_sizes[a] == s.sizes[v]) axis_of[v] = static_cast<int>(a);
    }
    if (axis_of[v] == -2) return kOtherRanges;
  }
  for (size_t v = 0; v < axis_of.size(); ++v) {
    for (size_t w = v + 1; w < axis_of.size(); ++w) {
      if (axis_of[v] >= 0 && axis_of[v] == axis_of[w]) return kOtherRanges;
    }
  }
  return "";
}

}  // namespace

LoopShape loop_shape(const LoopProgram& program, const Loop& loop) {
  const auto refs = bodies(program, loop);
  return {refs[0].domain, static_cast<int>(program.buffer(loop.outputs[0]).sizes.size()), refs[0].body};
}

std::string bind_axes(const LoopProgram& program, const FusionGroup& group, const LoopShape& shape, std::vector<int>& axis_of) {
  const std::string why = bind_reads(program, group, shape, axis_of);
  return why.empty() ? bind_rest(group, shape, axis_of) : why;
}

}  // namespace coil
