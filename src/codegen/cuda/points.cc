#include "codegen/cuda/points.h"

#include <fmt/format.h>

namespace coil::cuda {

int lane_axis(const LoopKernel& k) {
  int axis = -1, best = 0;
  for (int a = static_cast<int>(k.axes.size()) - 1; a >= 0; --a) {
    const int score = contiguity(k, a);
    if (axis < 0 || score > best) axis = a, best = score;
  }
  return axis;
}

std::string statements(KernelContext& c, const LoopKernel& k, int axis, int width, const std::string& indent, const Prepare& prepare) {
  std::string before, body, after;
  std::map<int, TempText> temps;
  const std::string body_indent = width > 1 ? indent + "  " : indent;
  Emitter emitter(c, {&before, width > 1 ? &body : &before, indent, body_indent, axis, width}, temps);
  if (prepare) prepare(emitter, width > 1 ? body : before, body_indent, width);
  for (const Stmt& s : k.stmts) {
    if (s.kind == Stmt::Kind::let) {
      temps[s.temp.index] = emitter.value(s.value);
    } else {
      CHECK(s.kind == Stmt::Kind::store, "a pointwise kernel that reduces");
      emitter.store(s.buffer, s.offset, s.value, s.condition, after, indent);
    }
  }
  if (body.empty()) return before + after;
  return before + fmt::format("#pragma unroll\n{}for (int v = 0; v < {}; ++v) {{\n", indent, width) + body + indent + "}\n" + after;
}

std::string guarded_statements(KernelContext& c, const LoopKernel& k, int axis, int width, const std::string& indent, const std::string& leave,
                               const Prepare& prepare) {
  if (width == 1) return statements(c, k, axis, 1, indent, prepare);
  const Expr size = k.axes[static_cast<size_t>(axis)].size;
  const std::string v = k.axes[static_cast<size_t>(axis)].name, ix = c.index_type();
  const std::string n = index_text(c, size);
  const bool whole = size->is_constant() && size->as_int() % width == 0;
  const std::string wide = statements(c, k, axis, width, indent + "  ", prepare);
  std::string text =
      fmt::format("{0}if (a.wide{1}) {{\n{2}{0}  {3};\n{0}}}\n", indent, whole ? "" : fmt::format(" && {} + {} <= {}", v, width, n), wide, leave);
  // One by one: the last points of a row, or addresses that are not aligned.
  const std::string start = v + "_start";
  text += fmt::format("{0}const {1} {2} = {3}, {3}_stop = {3} + {4} < {5} ? {3} + {4} : {5};\n", indent, ix, start, v, width, n);
  c.vars[static_cast<size_t>(axis)] = v + "_at";
  text += fmt::format("{0}for ({1} {2}_at = {3}; {2}_at < {2}_stop; ++{2}_at) {{\n{4}{0}}}\n", indent, ix, v, start,
                      statements(c, k, axis, 1, indent + "  ", prepare));
  c.vars[static_cast<size_t>(axis)] = v;
  return text;
}

}  // namespace coil::cuda
