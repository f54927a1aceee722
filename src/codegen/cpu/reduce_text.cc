#include "codegen/cpu/reduce_text.h"

#include <fmt/format.h>

#include "codegen/cpu/emit_expr.h"

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
    case ReduceOp::max: case ReduceOp::argmax: return extreme(compute_type(d), true);
    case ReduceOp::min: case ReduceOp::argmin: return extreme(compute_type(d), false);
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
  }
  return "";
}

bool by_index(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

}  // namespace

ReduceText ReduceText::make(const Stmt& s, int number, bool vector) {
  ReduceText r;
  r.temp = s.temp.index;
  r.accumulator = "acc" + std::to_string(number);
  r.result = "total" + std::to_string(number);
  r.op = s.op;
  r.operand = s.value->dtype;
  r.vector = vector;
  return r;
}

std::string ReduceText::declare(const std::string& indent) const {
  const std::string start = identity(op, operand);
  std::string text = fmt::format("{}auto {} = {};\n", indent, accumulator, vector ? "cd::vec(" + start + ")" : start);
  if (by_index(op)) {
    const std::string none = "(cd::i64)9223372036854775807L";  // later than any point: the first real one wins a tie
    text += fmt::format("{}auto {}i = {};\n", indent, accumulator, vector ? "cd::vec(" + none + ")" : none);
  }
  return text;
}

std::string ReduceText::update(const std::string& indent, const std::string& value, const std::string& number, bool masked) const {
  if (by_index(op)) {
    std::string better = fmt::format("cd::{}({}, {}i, {}, {})", step(op), accumulator, accumulator, value, number);
    if (masked) better = fmt::format("cd::logical_and(cd::tail(lanes), {})", better);
    return fmt::format("{}{{\n{}  const auto better = {};\n{}  {} = cd::select(better, {}, {});\n{}  {}i = cd::select(better, {}, {}i);\n{}}}\n", indent,
                       indent, better, indent, accumulator, value, accumulator, indent, accumulator, number, accumulator, indent);
  }
  const std::string x = masked ? fmt::format("cd::select(cd::tail(lanes), {}, cd::vec({}))", value, identity(op, operand)) : value;
  return fmt::format("{}{} = cd::{}({}, {});\n", indent, accumulator, step(op), accumulator, x);
}

std::string ReduceText::finish(const std::string& indent, bool combine) const {
  if (!combine) return fmt::format("{}const auto {} = {}{};\n", indent, result, accumulator, by_index(op) ? "i" : "");
  const char* f = op == ReduceOp::sum ? "hsum" : op == ReduceOp::prod ? "hprod" : op == ReduceOp::max ? "hmax" : op == ReduceOp::min ? "hmin"
                  : op == ReduceOp::any ? "hany" : op == ReduceOp::all ? "hall" : op == ReduceOp::argmax ? "hargmax" : "hargmin";
  if (by_index(op)) return fmt::format("{}const auto {} = cd::{}({}, {}i);\n", indent, result, f, accumulator, accumulator);
  return fmt::format("{}const auto {} = cd::{}({});\n", indent, result, f, accumulator);
}

}  // namespace coil::cpu
