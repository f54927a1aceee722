#include "codegen/cuda/reduction_words.h"

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"

namespace coil::cuda {

const char* op_type(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "cd::Sum";
    case ReduceOp::prod: return "cd::Product";
    case ReduceOp::max:
    case ReduceOp::any: return "cd::Maximum";
    case ReduceOp::min:
    case ReduceOp::all: return "cd::Minimum";
    case ReduceOp::argmax: return "cd::Argmax";
    case ReduceOp::argmin: return "cd::Argmin";
    case ReduceOp::log_sum: return "cd::LogSum";
  }
  return "";
}

namespace {

std::string extreme(DType d, bool lowest) {
  switch (compute_type(d)) {
    case DType::f64: return lowest ? "-cd::inf64()" : "cd::inf64()";
    case DType::boolean: return lowest ? "false" : "true";
    case DType::u8: return lowest ? "(cd::u8)0" : "(cd::u8)255";
    case DType::i8: return lowest ? "(cd::i8)-128" : "(cd::i8)127";
    case DType::i16: return lowest ? "(cd::i16)-32768" : "(cd::i16)32767";
    case DType::i32: return lowest ? "(cd::i32)(-2147483647 - 1)" : "(cd::i32)2147483647";
    case DType::i64: return lowest ? "(cd::i64)(-9223372036854775807ll - 1)" : "(cd::i64)9223372036854775807ll";
    default: return lowest ? "-cd::inf32()" : "cd::inf32()";
  }
}

}  // namespace

std::string identity(ReduceOp op, DType d) {
  switch (op) {
    case ReduceOp::sum: return fmt::format("({})0", register_type(d));
    case ReduceOp::prod: return fmt::format("({})1", register_type(d));
    case ReduceOp::max:
    case ReduceOp::argmax:
    case ReduceOp::log_sum: return extreme(d, true);
    case ReduceOp::min:
    case ReduceOp::argmin: return extreme(d, false);
    case ReduceOp::any: return "false";
    case ReduceOp::all: return "true";
  }
  return "";
}

std::string lanes_loop(const std::string& body, int width, const std::string& indent) {
  return fmt::format("#pragma unroll\n{0}for (int v = 0; v < {1}; ++v) {{\n{2}{0}}}\n", indent, width, body);
}

}  // namespace coil::cuda
