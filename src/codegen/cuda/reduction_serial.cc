// Inner loops of a thread alone: over all points of its own outer point, or over every so many of a column's. Long sums go in blocks.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/reduction_writer.h"
#include "codegen/sum_blocks.h"
#include "loop/gives_position.h"
#include "schedule/schedule.h"

namespace coil::cuda {

std::optional<NarrowKernel> narrow_kernel(const LoopKernel& k) {
  if (k.num_outer + 1 != static_cast<int>(k.axes.size()) || k.sequential || k.num_phases != 1 || !k.scratch.empty()) return std::nullopt;
  const int axis = k.num_outer;
  std::set<int> moving;  // temps of inner points
  for (const Stmt& s : k.stmts) {
    if (s.inner && s.kind == Stmt::Kind::let) moving.insert(s.temp.index);
  }
  const auto fixed = [&](Expr e) {
    return !depends_on_var(e, axis) && !any_of(e, [&](Expr n) { return n->kind == ExprKind::temp && moving.contains(n->id); });
  };
  NarrowKernel narrow{k, {}, {}};
  for (Stmt& s : narrow.kernel.stmts) {
    if (!s.inner || s.kind == Stmt::Kind::let) continue;
    const auto span = s.kind == Stmt::Kind::reduce ? reduced_span(s.op, s.value, axis, fixed) : std::nullopt;
    if (!span || (narrow.first && (narrow.first != span->first || narrow.last != span->last))) return std::nullopt;
    narrow.first = span->first, narrow.last = span->last;
    s.value = span->body;
  }
  return narrow.first ? std::optional(std::move(narrow)) : std::nullopt;
}

std::string ReductionWriter::range_code() {
  std::string text;
  Emitter emitter(c_, {&text, &text, "  ", "  ", -1, 1}, temps_);
  const Expr zero = pool().constant_int(0, DType::i64), size = pool().cast(axis(last_axis()).size, DType::i64);
  const auto bound = [&](Expr e) { return emitter.value(pool().op(ScalarOp::minimum, {pool().op(ScalarOp::maximum, {e, zero}), size})).text; };
  const std::string first = bound(narrow_->first), last = bound(narrow_->last);
  return text + fmt::format("  const {0} range_first = ({0})({1}), range_last = ({0})({2});\n", type(), first, last);
}

std::string ReductionWriter::serial_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators) {
  const bool adds = std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return adds_floats(*s); });
  return way_ == Way::thread ? thread_loop(stmts, accumulators, adds) : column_loop(stmts, accumulators, adds);
}

std::string ReductionWriter::thread_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool adds) {
  const SumBlocks blocks = adds ? sum_blocks(k_, -1, 1) : SumBlocks();
  std::string text = blocks.axis >= 0 ? whole_sums(accumulators) : "";
  if (narrow_) text += range_code();
  if (several()) {
    text +=
        "  if (a.wide) {\n" + thread_points(stmts, accumulators, blocks, true) + "  } else {\n" + thread_points(stmts, accumulators, blocks, false) + "  }\n";
  } else {
    text += thread_points(stmts, accumulators, blocks, false);
  }
  return text + (blocks.axis >= 0 ? join_sums(accumulators) : "");
}

std::string ReductionWriter::thread_points(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, const SumBlocks& blocks,
                                           bool wide) {
  std::string text, indent = "  ";
  for (int a = k_.num_outer; a < num_axes(); ++a) {
    const std::string last = narrow_ ? "range_last" : index(axis(a).size), step = a == blocks.axis ? index(blocks.step) : "";
    text += open_loop(axis(a).name, narrow_ ? "range_first" : "0", last, "1", step, indent);
  }
  text += points_chunk(stmts, accumulators, wide, indent, k_.scratch.empty() ? "" : fmt::format("[{}]", index(inner_number())));
  for (int a = num_axes() - 1; a >= k_.num_outer; --a) text += close_loop(accumulators, a == blocks.axis, indent);
  return text;
}

std::string ReductionWriter::points_chunk(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool wide,
                                          const std::string& indent, const std::string& element) {
  if (wide) return chunk(stmts, accumulators, 0, width_, indent, element);
  if (!several()) return chunk(stmts, accumulators, 0, 1, indent, element);
  const std::string v = axis(lane_).name;
  std::string text = each_point(indent);
  c_.vars[static_cast<size_t>(lane_)] = v + "_at";
  text += chunk(stmts, accumulators, 0, 1, indent + "  ", element) + indent + "}\n";
  c_.vars[static_cast<size_t>(lane_)] = v;
  return text;
}

std::string ReductionWriter::column_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool adds) {
  const bool blocks = adds && upper_bound(inner_points()).value_or(INT64_MAX) > kShortSum * lines_;
  std::string text = blocks ? whole_sums(accumulators) : "";
  if (narrow_) text += range_code();
  if (several()) {
    text +=
        "  if (a.wide) {\n" + column_points(stmts, accumulators, blocks, true) + "  } else {\n" + column_points(stmts, accumulators, blocks, false) + "  }\n";
  } else {
    text += column_points(stmts, accumulators, blocks, false);
  }
  return text + (blocks ? join_sums(accumulators) : "");
}

std::string ReductionWriter::column_points(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool blocks, bool wide) {
  std::string indent = "  ";
  std::string text = open_loop("c", narrow_ ? "range_first + line" : "line", narrow_ ? "range_last" : index(inner_points()), std::to_string(lines_),
                               blocks ? std::to_string(kSumBlock * lines_) : "", indent);
  std::vector<int> order;
  for (int a = last_axis(); a >= k_.num_outer; --a) order.push_back(a);
  text += take_apart("c", order, {});
  std::string inside = points_chunk(stmts, accumulators, wide, indent, "");
  // Idle columns must not store.
  const bool stores = std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return s->kind == Stmt::Kind::store; });
  if (stores) inside = indent + "if (active) {\n" + inside + indent + "}\n";
  return text + inside + close_loop(accumulators, blocks, indent);
}

std::string ReductionWriter::each_point(const std::string& indent) {
  const std::string v = axis(lane_).name, n = index(axis(lane_).size);
  return fmt::format("#pragma unroll\n{0}for (int v = 0; v < {1}; ++v) {{\n{0}  const {2} {3}_at = {3} + v < {4} ? {3} + v : {4} - 1;\n", indent, width_,
                     type(), v, n);
}

std::string ReductionWriter::outer_of_several(const std::vector<const Stmt*>& stmts) {
  const std::string v = axis(lane_).name, in_range = fmt::format("{} + v < {}", v, index(axis(lane_).size));
  std::string text;
  if (way_ == Way::thread) {  // at once, as their neighbours do
    std::string before, body, after;
    Emitter emitter(c_, {&before, &body, "    ", "      ", lane_, width_}, temps_);
    for (const Stmt* s : stmts) {
      if (s->kind == Stmt::Kind::let) temps_[s->temp.index] = emitter.value(s->value);
      else emitter.store(s->buffer, s->offset, s->value, s->condition, after, "    ");
    }
    text = fmt::format("  if (a.wide) {{\n{}#pragma unroll\n    for (int v = 0; v < {}; ++v) {{\n{}    }}\n{}  }} else {{\n", before, width_, body, after);
  }
  text += each_point("  ");
  c_.vars[static_cast<size_t>(lane_)] = v + "_at";
  text += outer_code(stmts, way_ == Way::thread ? in_range : "line == 0 && active && " + in_range, "    ");
  c_.vars[static_cast<size_t>(lane_)] = v;
  return text + (way_ == Way::thread ? "  }\n  }\n" : "  }\n");
}

bool ReductionWriter::one_pass(bool with_positions) const {
  int after = -1;
  const bool own_ranges = narrow_ && (depends_on_var(narrow_->first, lane_) || depends_on_var(narrow_->last, lane_));  // of a thread's neighbouring points
  if (own_ranges || k_.sequential || !k_.scratch.empty()) return false;
  for (const Stmt& s : k_.stmts) {
    const bool position = s.kind == Stmt::Kind::reduce && gives_position(s.op);
    if (s.inner ? s.kind != Stmt::Kind::reduce || s.phase > 0 || (position && !with_positions) : s.phase == 0 || (after >= 0 && s.phase != after)) return false;
    if (!s.inner) after = s.phase;
  }
  return true;
}

int ReductionWriter::lane_width(int most) {
  int width = std::min(access_width(c_, k_, lane_), most);
  while (width > 1 && !multiple_of(axis(lane_).size, width, nullptr)) width /= 2;
  return width;
}

void ReductionWriter::widen_threads(int most) { width_ = one_pass(true) && lane_ >= 0 ? lane_width(most) : 1; }

bool ReductionWriter::widen_columns(int most) {
  constexpr int line = 128, least = 4, threads = 512, each = 8;  // bytes of a line of the cache; threads side by side and of a block; points of a thread
  int widest = 1;
  for (const Stmt& s : k_.stmts) {
    if (!s.inner) continue;
    visit(s.value, [&](Expr e) {
      if (e->kind != ExprKind::load || e->id >= kScratchBase || !unit_stride(e->args[0], lane_)) return;
      widest = std::max(widest, byte_size(plan_.buffer(BufferId(static_cast<size_t>(e->id))).info.dtype));
    });
  }
  const int width = one_pass(false) && !narrow_ ? lane_width(most) : 1;
  if (width < 2) return false;
  width_ = width;
  columns_ = std::clamp(line / (width_ * widest), least, kColumns);
  while (columns_ > least && columns_ / 2 * width_ >= typical(axis(lane_).size)) columns_ /= 2;
  lines_ = threads / columns_;
  while (lines_ * columns_ > kColumns && lines_ * each > typical(inner_points())) lines_ /= 2;
  return true;
}

// Points of a column at once, whose loads overlap. The more a kernel computes for each the less that gains, and the longer NVRTC takes.
int ReductionWriter::unrolled_points() const {
  constexpr int64_t kStatements = 64;
  const int64_t inner = std::count_if(k_.stmts.begin(), k_.stmts.end(), [](const Stmt& s) { return s.inner; });
  return static_cast<int>(std::clamp<int64_t>(kStatements / std::max<int64_t>(inner, 1), 1, several() ? 4 : 8));
}

std::string ReductionWriter::open_loop(const std::string& v, const std::string& first, const std::string& end, const std::string& step,
                                       const std::string& block, std::string& indent) const {
  const std::string ix = type(), unroll = way_ == Way::column ? fmt::format("#pragma unroll {}\n", unrolled_points()) : "",
                    next = step == "1" ? "++" + v : v + " += " + step;
  std::string text, from = first, to = end;
  if (!block.empty()) {
    text = fmt::format(
        "{0}for ({1} {2}_block = {3}; {2}_block < {4}; {2}_block += {5}) {{\n{0}  const {1} {2}_stop = {2}_block + cd::minimum(({1})({5}), ({1})({4} - {2}_block));\n",
        indent, ix, v, first, end, block);
    indent += "  ";
    from = v + "_block";
    to = v + "_stop";
  }
  text += fmt::format("{0}{1}for ({2} {3} = {4}; {3} < {5}; {6}) {{\n", unroll, indent, ix, v, from, to, next);
  indent += "  ";
  return text;
}

std::string ReductionWriter::close_loop(const std::vector<Accumulator>& accumulators, bool block, std::string& indent) const {
  indent.resize(indent.size() - 2);
  std::string text = indent + "}\n";
  if (!block) return text;
  const std::string each = several() ? fmt::format("#pragma unroll\n{}for (int v = 0; v < {}; ++v) ", indent, width_) : indent;
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt)) text += fmt::format("{0}{1}s{2} = cd::add({1}s{2}, {1}{2}), {1}{2} = 0;\n", each, a.name, a.lane);
  }
  indent.resize(indent.size() - 2);
  return text + indent + "}\n";
}

std::string ReductionWriter::whole_sums(const std::vector<Accumulator>& accumulators) const {
  std::string text;
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt))
      text +=
          fmt::format("  {} {}s{} = {};\n", register_type(a.stmt->value->dtype), a.name, several() ? fmt::format("[{}]", width_) : "", several() ? "{}" : "0");
  }
  return text;
}

std::string ReductionWriter::join_sums(const std::vector<Accumulator>& accumulators) const {
  std::string text;
  const std::string each = several() ? fmt::format("#pragma unroll\n  for (int v = 0; v < {}; ++v) ", width_) : "  ";
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt)) text += fmt::format("{0}{1}{2} = {1}s{2};\n", each, a.name, a.lane);
  }
  return text;
}

}  // namespace coil::cuda
