// Inner loops of a thread alone: over all points of its own outer point, or over every so many of a column's. Long sums go in blocks.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/reduction_writer.h"
#include "codegen/sum_blocks.h"

namespace coil::cuda {

std::optional<NarrowKernel> narrow_kernel(const LoopKernel& k) {
  if (k.num_outer + 1 != static_cast<int>(k.axes.size()) || k.sequential || k.num_phases != 1 || !k.scratch.empty()) return std::nullopt;
  const int axis = k.num_outer;
  std::set<int> moving;  // temps of inner points
  for (const Stmt& s : k.stmts) {
    if (s.inner && s.kind == Stmt::Kind::let) moving.insert(s.temp.index);
  }
  const auto fixed = [&](Expr e) { return !depends_on_var(e, axis) && !any_of(e, [&](Expr n) { return n->kind == ExprKind::temp && moving.contains(n->id); }); };
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
  std::string text = blocks.axis >= 0 ? whole_sums(accumulators) : "", indent = "  ";
  if (narrow_) text += range_code();
  for (int a = k_.num_outer; a < num_axes(); ++a) {
    text += open_loop(axis(a).name, narrow_ ? "range_first" : "0", narrow_ ? "range_last" : index(axis(a).size), "1", a == blocks.axis ? index(blocks.step) : "", indent);
  }
  const std::string element = k_.scratch.empty() ? "" : fmt::format("[{}]", index(inner_number()));
  text += chunk(stmts, accumulators, 0, 1, indent, element);
  for (int a = num_axes() - 1; a >= k_.num_outer; --a) text += close_loop(accumulators, a == blocks.axis, indent);
  return text + (blocks.axis >= 0 ? join_sums(accumulators) : "");
}

std::string ReductionWriter::column_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool adds) {
  const Expr points = inner_points();
  const bool blocks = adds && upper_bound(points).value_or(INT64_MAX) > kShortSum * lines_;
  std::string text = blocks ? whole_sums(accumulators) : "", indent = "  ";
  if (narrow_) text += range_code();
  text += open_loop("c", narrow_ ? "range_first + line" : "line", narrow_ ? "range_last" : index(points), std::to_string(lines_), blocks ? std::to_string(kSumBlock * lines_) : "", indent);
  std::vector<int> order;
  for (int a = last_axis(); a >= k_.num_outer; --a) order.push_back(a);
  text += take_apart("c", order, {});
  std::string inside = chunk(stmts, accumulators, 0, 1, indent, "");
  // Idle columns must not store.
  const bool stores = std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return s->kind == Stmt::Kind::store; });
  if (stores) inside = indent + "if (active) {\n" + inside + indent + "}\n";
  text += inside + close_loop(accumulators, blocks, indent);
  return text + (blocks ? join_sums(accumulators) : "");
}

std::string ReductionWriter::open_loop(const std::string& v, const std::string& first, const std::string& end, const std::string& step, const std::string& block, std::string& indent) const {
  const std::string ix = type(), unroll = way_ == Way::column ? "#pragma unroll 8\n" : "", next = step == "1" ? "++" + v : v + " += " + step;
  std::string text, from = first, to = end;
  if (!block.empty()) {
    text = fmt::format("{0}for ({1} {2}_block = {3}; {2}_block < {4}; {2}_block += {5}) {{\n{0}  const {1} {2}_stop = {2}_block + cd::minimum(({1})({5}), ({1})({4} - {2}_block));\n", indent, ix, v, first, end, block);
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
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt)) text += fmt::format("{0}{1}s = cd::add({1}s, {1});\n{0}{1} = 0;\n", indent, a.name);
  }
  indent.resize(indent.size() - 2);
  return text + indent + "}\n";
}

std::string ReductionWriter::whole_sums(const std::vector<Accumulator>& accumulators) const {
  std::string text;
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt)) text += fmt::format("  {} {}s = 0;\n", register_type(a.stmt->value->dtype), a.name);
  }
  return text;
}

std::string ReductionWriter::join_sums(const std::vector<Accumulator>& accumulators) const {
  std::string text;
  for (const Accumulator& a : accumulators) {
    if (adds_floats(*a.stmt)) text += fmt::format("  {0} = {0}s;\n", a.name);
  }
  return text;
}

}  // namespace coil::cuda
