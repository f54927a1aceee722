// Reductions across memory (sums over rows, statistics of channels that lie last) whose accumulators are more than the registers: a row of them lies in the
// core's nearest cache, and the rows of the operands stream by in the order in which they lie.
#include <fmt/format.h>

#include "codegen/cpu/loop_writer.h"

namespace coil::cpu {

// An item: `whole` vectors of a block of lanes together, then the lanes that are left.
void LoopWriter::column_block() {
  const std::string v = axis(form_.lanes).name, indent = "    ";
  out() += fmt::format("{0}const long {1}_at = block * {2};\n{0}const long stop = cd::minimum((cd::i64)({1}_at + {2}), (cd::i64)({3}));\n", indent, v,
                       form_.columns, size(form_.lanes));
  out() += fmt::format("{0}const long whole = (stop - {1}_at) / COIL_LANES;\n{0}if (whole > 0) {{\n", indent, v);
  context_.lane_var = form_.lanes, context_.whole_steps = true;
  repeats_ = true;
  phases(indent + "  ");
  repeats_ = false;
  out() += indent + "}\n";
  if (!whole_vectors(axis(form_.lanes).size)) {
    out() += fmt::format(
        "{0}if ({1}_at + whole * COIL_LANES < stop) {{\n{0}  const long {1} = {1}_at + whole * COIL_LANES;\n{0}  const int lanes = (int)(stop - {1});\n",
        indent, v);
    context_.tail = "lanes";
    phases(indent + "  ");
    context_.tail.clear();
    out() += indent + "}\n";
  }
  context_.lane_var = -1, context_.whole_steps = false;
}

// The innermost loop, some rows at a time: each vector of accumulators is read and written once for them.
void LoopWriter::column_rows(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& begin, const std::string& end,
                             const std::string& indent) {
  const int last = static_cast<int>(k_.axes.size()) - 1;
  const std::string& r = axis(last).name;
  for (ReduceText& reduction : reductions) reduction.element = "[u]";
  const auto rows = [&](const std::string& count, const std::string& in) {
    out() += keep_rolled(in) + open_repeat(in, 1);
    if (count != "rest") out() += "#pragma clang loop unroll(full)\n";
    out() += fmt::format("{0}  for (int row = 0; row < {1}; ++row) {{\n{0}    [[maybe_unused]] const long {2} = {2}_at + row;\n", in, count, r);
    inner_body(stmts, reductions, in + "    ");
    out() += fmt::format("{0}  }}\n{0}}}\n", in);
  };
  out() += fmt::format("{0}long {1}_at = {2};\n", indent, r, begin);
  out() += fmt::format("{0}for (; {1}_at + {2} <= {3}; {1}_at += {2}) {{\n", indent, r, kColumnRows, end);
  rows(std::to_string(kColumnRows), indent + "  ");
  out() += indent + "}\n";
  const Expr size = axis(last).size;
  if (size->is_constant() && size->as_int() % kColumnRows == 0 && kSumBlock % kColumnRows == 0) return;
  out() += fmt::format("{0}if ({1}_at < {2}) {{\n{0}  const int rest = (int)({2} - {1}_at);\n", indent, r, end);
  rows("rest", indent + "  ");
  out() += indent + "}\n";
}

}  // namespace coil::cpu
