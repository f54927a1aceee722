#include "codegen/cpu/reduce_text.h"

#include <fmt/format.h>

#include "codegen/cpu/emit_expr.h"
#include "loop/gives_position.h"

namespace coil::cpu {
namespace {

std::string extreme(DType d, bool lowest) {
  switch (d) {
    case DType::f64: return lowest ? "-__builtin_inf()" : "__builtin_inf()";
    case DType::boolean: return lowest ? "false" : "true";
    case DType::u8: return lowest ? "(cd::u8)0" : "(cd::u8)255";
    case DType::i8: return lowest ? "(cd::i8)-128" : "(cd::i8)127";
    case DType::i16: return lowest ? "(cd::i16)-32768" : "(cd::i16)32767";
    case DType::i32: return lowest ? "(cd::i32)(-2147483647 - 1)" : "(cd::i32)2147483647";
    case DType::i64: return lowest ? "(cd::i64)(-9223372036854775807L - 1)" : "(cd::i64)9223372036854775807L";
    default: return lowest ? "-__builtin_inff()" : "__builtin_inff()";
  }
}

std::string identity(ReduceOp op, DType d) {
  const std::string type = register_type(d);
  switch (op) {
    case ReduceOp::sum: return "(" + type + ")0";
    case ReduceOp::prod: return "(" + type + ")1";
    case ReduceOp::any: return "false";
    case ReduceOp::all: return "true";
    case ReduceOp::max:
    case ReduceOp::argmax:
    case ReduceOp::log_sum: return extreme(compute_type(d), true);
    case ReduceOp::min:
    case ReduceOp::argmin: return extreme(compute_type(d), false);
  }
  return "";
}

const char* step(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "add";
    case ReduceOp::prod: return "mul";
    case ReduceOp::max: return "maximum";
    case ReduceOp::min: return "minimum";
    case ReduceOp::any: return "logical_or";
    case ReduceOp::all: return "logical_and";
    case ReduceOp::argmax: return "argmax_better";
    case ReduceOp::argmin: return "argmin_better";
    case ReduceOp::log_sum: return "log_sum";
  }
  return "";
}

}  // namespace

ReduceText ReduceText::make(const Stmt& s, int number, bool vector, int vectors, bool combine) {
  ReduceText r;
  r.temp = s.temp.index;
  r.accumulator = "acc" + std::to_string(number);
  r.result = "total" + std::to_string(number);
  r.op = s.op;
  // As eager does it, running sums, products and logarithms of sums are not rounded from step to step.
  const bool running = s.kind == Stmt::Kind::scan && (s.op == ReduceOp::sum || s.op == ReduceOp::prod || s.op == ReduceOp::log_sum) && is_float(s.value->dtype);
  r.operand = running ? DType::f64 : s.value->dtype;
  r.vector = vector;
  r.vectors = vectors;
  r.combine = combine;
  return r;
}

std::string array_length(int vectors, int64_t columns) { return columns > 0 ? fmt::format("{} / COIL_LANES", columns) : std::to_string(vectors); }

std::string ReduceText::each_vector(const std::string& indent) const {
  if (columns > 0) return fmt::format("{}for (long u = 0; u < whole; ++u) {{\n", indent);
  return fmt::format("#pragma clang loop unroll(full)\n{}for (int u = 0; u < {}; ++u) {{\n", indent, vectors);
}

std::string ReduceText::declare(const std::string& indent) const {
  const auto one = [&](const std::string& name, const std::string& start) {
    if (columns > 0)
      return fmt::format("{0}decltype(cd::vec({1})) {2}[{3}];\n{4}{0}  {2}[u] = cd::vec({1});\n{0}}}\n", indent, start, name, array_length(vectors, columns),
                         each_vector(indent));
    if (vectors == 1) return fmt::format("{}auto {} = {};\n", indent, name, vector ? "cd::vec(" + start + ")" : start);
    std::string all;
    for (int u = 0; u < vectors; ++u) all += fmt::format("{}cd::vec({})", u ? ", " : "", start);
    return fmt::format("{}decltype(cd::vec({})) {}[{}] = {{{}}};\n", indent, start, name, vectors, all);
  };
  std::string text = one(accumulator, identity(op, operand));
  // Later than any point: the first real one wins a tie.
  if (gives_position(op)) text += one(accumulator + "i", small ? "(cd::i32)2147483647" : "(cd::i64)9223372036854775807L");
  if (blocks && (combine || !vector)) text += fmt::format("{}cd::f64 {}s = 0;\n", indent, accumulator);
  else if (blocks) text += one(accumulator + "s", "(cd::f64)0");
  return text;
}

std::string ReduceText::update(const std::string& indent, const std::string& value, const std::string& number, bool masked) const {
  const std::string acc = accumulator + element, at = accumulator + "i" + element;
  if (gives_position(op)) {
    std::string better = fmt::format("cd::{}({}, {}, {}, {})", step(op), acc, at, value, number);
    if (masked) better = fmt::format("cd::logical_and(cd::tail(lanes), {})", better);
    return fmt::format("{0}{{\n{0}  const auto better = {1};\n{0}  {2} = cd::select(better, {3}, {2});\n{0}  {4} = cd::select(better, {5}, {4});\n{0}}}\n",
                       indent, better, acc, value, at, number);
  }
  const std::string x = masked ? fmt::format("cd::select(cd::tail(lanes), {}, cd::vec({}))", value, identity(op, operand)) : value;
  return fmt::format("{}{} = cd::{}({}, {});\n", indent, acc, step(op), acc, x);
}

std::string ReduceText::in_place() const {
  const std::string value = accumulator + (gives_position(op) ? "i" : "") + element;
  return small ? fmt::format("cd::cast<cd::i64>({})", value) : value;
}

std::string ReduceText::join_vectors(const std::string& indent) const {
  if (vectors == 1) return "";
  ReduceText first = *this;
  first.element = "[0]";
  return fmt::format("#pragma clang loop unroll(full)\n{0}for (int u = 1; u < {1}; ++u) {{\n{2}{0}}}\n", indent, vectors,
                     first.update(indent + "  ", accumulator + "[u]", accumulator + "i[u]", false));
}

std::string ReduceText::add_block(const std::string& indent) const {
  const std::string none = identity(op, operand);
  if (!vector) return fmt::format("{0}{1}s += {1};\n{0}{1} = {2};\n", indent, accumulator, none);
  const std::string e = is_array() ? "[u]" : "";
  std::string text;
  if (combine) text = join_vectors(indent) + fmt::format("{0}{1}s += cd::hsum({1}{2});\n", indent, accumulator, vectors > 1 ? "[0]" : "");
  if (is_array()) text += each_vector(indent);
  if (!combine) text += fmt::format("{0}{1}s{2} = cd::add({1}s{2}, cd::cast<cd::f64>({1}{2}));\n", indent, accumulator, e);
  text += fmt::format("{}{}{} = cd::vec({});\n", indent, accumulator, e, none);
  return is_array() ? text + indent + "}\n" : text;
}

std::string ReduceText::finish_in_place(const std::string& indent) const {
  if (!blocks) return "";
  return each_vector(indent) +
         fmt::format("{0}  {1}[u] = cd::cast<{2}>(cd::add({1}s[u], cd::cast<cd::f64>({1}[u])));\n{0}}}\n", indent, accumulator, register_type(operand));
}

std::string ReduceText::finish(const std::string& indent) const {
  const std::string type = register_type(operand);
  if (!combine) {
    const std::string value = !blocks  ? in_place()
                              : vector ? fmt::format("cd::cast<{0}>(cd::add({1}s{2}, cd::cast<cd::f64>({1}{2})))", type, accumulator, element)
                                       : fmt::format("({0})({1}s + {1})", type, accumulator);
    return fmt::format("{}const auto {} = {};\n", indent, result, value);
  }
  const char* f = op == ReduceOp::sum      ? "hsum"
                  : op == ReduceOp::prod   ? "hprod"
                  : op == ReduceOp::max    ? "hmax"
                  : op == ReduceOp::min    ? "hmin"
                  : op == ReduceOp::any    ? "hany"
                  : op == ReduceOp::all    ? "hall"
                  : op == ReduceOp::argmax ? "hargmax"
                                           : "hargmin";
  const std::string e = vectors > 1 ? "[0]" : "", text = join_vectors(indent);
  if (gives_position(op)) {
    const std::string at = fmt::format(fmt::runtime(small ? "cd::cast<cd::i64>({}i{})" : "{}i{}"), accumulator, e);
    return text + fmt::format("{}const auto {} = cd::{}({}{}, {});\n", indent, result, f, accumulator, e, at);
  }
  if (blocks) return text + fmt::format("{0}const auto {1} = ({2})({3}s + cd::{4}({3}{5}));\n", indent, result, type, accumulator, f, e);
  return text + fmt::format("{}const auto {} = cd::{}({}{});\n", indent, result, f, accumulator, e);
}

}  // namespace coil::cpu
