#include "tests/lower/program_runner.h"

#include <fmt/format.h>

#include <cmath>

#include "device/model_abi.h"
#include "frontend/program_reader.h"
#include "loop/interpret.h"
#include "ops/memory.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"

namespace coil::testing {
namespace {

DType dtype_of(int32_t number) {
  // Wide unsigned numbers are kept by their bits, in the signed type of their size.
  for (DType d : {DType::u16, DType::u32, DType::u64}) {
    if (info(d).shim_number == number) return part_type(d);
  }
  for (DType d : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    if (info(d).shim_number == number) return d;
  }
  return DType::f32;
}

TensorData tensor(const NpyArray& array, DType wanted) {
  TensorData t;
  t.dtype = wanted;
  t.sizes = array.shape;
  t.strides.resize(t.sizes.size());
  int64_t step = 1;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    t.strides[i] = step;
    step *= t.sizes[i];
  }
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(step * byte_size(wanted)));
  interpreter::with_type(dtype_of(array.dtype), [&](auto from) {
    interpreter::with_type(wanted, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      for (int64_t i = 0; i < step; ++i) {
        const From v = interpreter::read_element<From>(array.data.data(), i);
        To out;
        if constexpr (std::is_same_v<From, interpreter::Byte> || std::is_integral_v<From>) out = interpreter::to_memory<To>(static_cast<int64_t>(v));
        else out = interpreter::to_memory<To>(static_cast<double>(v));
        std::memcpy(bytes->data() + static_cast<size_t>(i) * sizeof(To), &out, sizeof(To));
      }
    });
  });
  t.bytes = *bytes;
  t.owner = bytes;
  return t;
}

double element(DType dtype, const uint8_t* data, int64_t i) {
  return interpreter::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const T v = interpreter::read_element<T>(data, i);
    if constexpr (std::is_same_v<T, interpreter::Byte>) return static_cast<double>(static_cast<int64_t>(v));
    else return static_cast<double>(v);
  });
}

// Complex numbers as loop programs see them: pairs of reals.
NpyArray pairs(NpyArray array) {
  if (array.dtype != COIL_COMPLEX64 && array.dtype != COIL_COMPLEX128) return array;
  array.dtype = array.dtype == COIL_COMPLEX64 ? COIL_FLOAT32 : COIL_FLOAT64;
  array.shape.push_back(2);
  return array;
}

const NpyArray* find(const NamedArrays& arrays, const std::string& name) {
  for (const auto& [key, array] : arrays) {
    if (key == name) return &array;
  }
  return nullptr;
}

void compare_output(const std::string& name, const TensorData& got, const NpyArray& expected, double tolerance, Comparison& result) {
  auto report = [&](std::string text) {
    if (result.where.empty()) result.where = name + text;
  };
  if (got.sizes != expected.shape) return report(fmt::format(": {} dimensions or sizes differ", got.sizes.size()));
  const DType type = dtype_of(expected.dtype);
  const int64_t n = expected.count();
  double scale = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double e = element(type, expected.data.data(), i);
    if (std::isfinite(e)) scale = std::max(scale, std::fabs(e));
  }
  if (scale == 0) scale = 1;
  for (int64_t i = 0; i < n; ++i) {
    const double e = element(type, expected.data.data(), i), g = element(got.dtype, got.bytes.data(), i);
    if ((std::isnan(e) && std::isnan(g)) || e == g) continue;
    const double error = std::isfinite(e) && std::isfinite(g) ? std::fabs(e - g) / scale : 1e30;
    result.worst = std::max(result.worst, error);
    if (!(error <= tolerance)) report(fmt::format("[{}]: {}, expected {} (scale {})", i, g, e, scale));
  }
}

}  // namespace

Result<LoopProgram> passed_loops(LoopProgram lowered, bool fold) {
  std::vector<std::string> skip = {"demanded_ranges"};
  if (!fold) skip.emplace_back("fold_constants");
  return run_loop_passes(std::move(lowered), {{}, skip, {}});
}

Result<LoopProgram> lower_file(const std::string& path, bool fold, Graph* graph_out) {
  TRY(Graph graph, read_program_file(path));
  TRY(graph, run_passes(std::move(graph)));
  TRY(LoopProgram program, lower(graph));
  TRY(program, passed_loops(std::move(program), fold));
  if (graph_out) *graph_out = std::move(graph);
  return program;
}

Result<std::vector<TensorData>> inputs_of(const Graph& graph, const NamedArrays& arrays) {
  std::vector<TensorData> inputs;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::user && in.kind != GraphInput::Kind::user_symint) continue;
    const NpyArray* array = find(arrays, fmt::format("in_{}", in.position));
    if (!array) return Error{ErrorCode::input_count, fmt::format("no array in_{}", in.position), {}, {}};
    const bool is_tensor = in.kind == GraphInput::Kind::user;
    inputs.push_back(tensor(pairs(*array), is_tensor ? part_type(graph.value(in.value).tensor().dtype) : DType::i64));
  }
  return inputs;
}

Result<Comparison> compare_results(const std::vector<LoopOutput>& outputs, const std::vector<TensorData>& results, const NamedArrays& arrays,
                                   double tolerance) {
  Comparison result;
  int next = 0;
  std::vector<LoopOutput> computed = outputs;
  std::erase_if(computed, [](const LoopOutput& out) { return out.kind == LoopOutput::Kind::check; });
  for (size_t i = 0; i < results.size(); ++i) {
    if (computed[i].kind != LoopOutput::Kind::user) continue;
    const std::string name = fmt::format("out_{}", next++);
    const NpyArray* expected = find(arrays, name);
    if (!expected) return Error{ErrorCode::output_mismatch, "no array " + name, {}, {}};
    compare_output(name, results[i], pairs(*expected), tolerance, result);
  }
  if (find(arrays, fmt::format("out_{}", next))) result.where += " eager has more outputs";
  return result;
}

std::string first_difference(const TensorData& expected, const TensorData& found, double tolerance) {
  const int64_t n = static_cast<int64_t>(expected.bytes.size()) / byte_size(expected.dtype);
  if (expected.dtype != found.dtype || expected.bytes.size() != found.bytes.size()) return ": another type or size";
  double scale = 1;
  for (int64_t i = 0; i < n; ++i) scale = std::max(scale, std::fabs(element(expected.dtype, expected.bytes.data(), i)));
  for (int64_t i = 0; i < n; ++i) {
    const double e = element(expected.dtype, expected.bytes.data(), i), f = element(found.dtype, found.bytes.data(), i);
    if ((std::isnan(e) && std::isnan(f)) || e == f || std::fabs(e - f) <= tolerance * scale) continue;
    return fmt::format(": element {} is {}, expected {}", i, f, e);
  }
  return "";
}

Result<Comparison> compare_with_eager(const Graph& graph, const LoopProgram& program, const NamedArrays& arrays, double tolerance) {
  TRY(const std::vector<TensorData> inputs, inputs_of(graph, arrays));
  TRY(const std::vector<TensorData> outputs, interpret(program, inputs));
  return compare_results(program.outputs, outputs, arrays, tolerance);
}

}  // namespace coil::testing
