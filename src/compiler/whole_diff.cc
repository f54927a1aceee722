#include "compiler/whole_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "compiler/call_memory.h"
#include "compiler/device_call.h"
#include "compiler/target.h"
#include "loop/interpret.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"
#include "reference/interpreter.h"
#include "runtime/context.h"

namespace coil {
namespace {

using reference::Num;

constexpr double kNoise = 16;            // times as far off as a program that rounds each step may be
constexpr double kMostWithBound = 1e-2;  // where the bound of the arithmetic says more than that, it says nothing

// Passes without which a program compiles just as well.
std::vector<std::string> optional_passes() {
  std::vector<std::string> out;
  for (const Pass& p : graph_passes()) {
    if (can_be_left_out(p.name)) out.emplace_back(p.name);
  }
  for (const LoopPass& p : loop_passes()) out.emplace_back(p.name);
  return out;
}

double value_of(const Num& n, DType type) { return is_float(type) ? n.f : static_cast<double>(n.i); }

// What cancels out, or depends on how often a loop runs, is as far off in any arithmetic of the program's types.
double largest_difference(const reference::Tensor& a, const reference::Tensor& b) {
  double most = 0;
  if (!is_float(a.dtype) || a.sizes != b.sizes) return 0;
  for (int64_t n = 0; n < element_count(a.sizes); ++n) {
    const std::vector<int64_t> index = index_of(n, a.sizes);
    const double x = a.at(offset_of(index, a.strides)).f, y = b.at(offset_of(index, b.strides)).f;
    if (std::isfinite(x) && std::isfinite(y)) most = std::max(most, std::fabs(x - y));
  }
  return most;
}

template <class ExpectedAt>
ResultDiff compare(const CallResult& found, double most_relative, const ExpectedAt& expected_at, double noise = 0) {
  ResultDiff d;
  d.name = found.name;
  const DType type = d.dtype = found.data.dtype;
  d.elements = element_count(found.data.sizes);
  double scale = 0;
  for (int64_t n = 0; n < d.elements; ++n) {
    const double e = value_of(expected_at(index_of(n, found.data.sizes)), type);
    if (std::isfinite(e)) scale = std::max(scale, std::fabs(e));
  }
  const double most = std::max(most_relative * scale, noise);
  const reference::Tensor values = reference::exact(found.data);
  for (int64_t n = 0; n < d.elements; ++n) {
    const std::vector<int64_t> index = index_of(n, found.data.sizes);
    Num e = expected_at(index);
    const Num f = values.at(offset_of(index, found.data.strides));
    const double x = value_of(f, type), y = value_of(e, type);
    if (std::isfinite(x) && std::isfinite(y) && scale > 0) d.worst = std::max(d.worst, std::fabs(x - y) / scale);
    // What 16-bit types round on the way is the program's business: templates may do so where its operators do not.
    if (is_float(type)) e.e = byte_size(type) == 2 ? most : std::min(e.e, most);
    if (reference::allows(e, type, f.f, f.i)) continue;
    if (d.different++ > 0) continue;
    d.index = index;
    d.found = x;
    d.expected = y;
    d.bound = reference::allowed_error(e, type);
  }
  return d;
}

}  // namespace

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f32: return 1e-3;
    default: return 5e-2;
  }
}

Result<std::vector<CallResult>> call_package(std::span<const uint8_t> package, std::span<const CoilTensorView> inputs, int threads,
                                             const std::string& program) {
  runtime::ModelOptions options;
  options.program = program;
  options.num_threads = threads;
  TRY(const std::shared_ptr<runtime::Model> model, runtime::Model::open_memory(package, options));
  const OwnInputs own(inputs);
  TRY(const DeviceTensors there, DeviceTensors::make(*model, own.views));
  runtime::Context context(model);
  std::vector<CoilTensorView> outputs(static_cast<size_t>(model->code().num_outputs));
  CoilError error = {};
  const int32_t code =
      context.run(there.views().data(), static_cast<int32_t>(there.views().size()), outputs.data(), static_cast<int32_t>(outputs.size()), &error);
  if (code != 0) return Error{static_cast<ErrorCode>(code), error.message, "", ""};
  std::vector<CallResult> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    TRY(TensorData data, fetched(model->device(), outputs[i]));
    results.push_back({model->code().outputs[i].name, std::move(data)});
  }
  if (context.synchronise(&error)) return runtime::error_of(error);  // what kernels report that run later than the call
  return results;
}

Result<WholeReference> WholeReference::make(const Graph& graph, const CompileOptions& given, std::span<const CoilTensorView> inputs) {
  CompileOptions options = given;
  options.skip_passes = optional_passes();
  TRY(const Graph plain, simplified(with_own_pool(graph), options));
  TRY(const LoopProgram loops, loops_of(plain, *options.targets[0].target, options));
  std::vector<TensorData> tensors;
  for (const CoilTensorView& v : inputs) tensors.push_back(borrowed(v));
  TRY(std::vector<int64_t> symbols, bind_symbols(loops, tensors));
  reference::Interpreter reference(loops, std::move(symbols), {options.tf32, options.winograd});
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (loops.inputs[i].buffer.valid()) reference.set(loops.inputs[i].buffer, copy_of(inputs[i]));
  }
  const Result<std::vector<TensorData>> rounded = interpret(loops, tensors);
  WholeReference whole;
  size_t next = 0;  // of the results that are rounded
  for (const LoopOutput& o : loops.outputs) {
    if (o.kind == LoopOutput::Kind::check) continue;
    const size_t number = next++;
    if (o.kind != LoopOutput::Kind::user) continue;
    TRY(const reference::Tensor* t, reference.compute(o.source));
    reference::Tensor& made = whole.results_.emplace_back(*t);
    if (const BufferInfo& buffer = loops.buffer(o.source); !buffer.shown.empty()) {
      made.sizes = reference.sizes(buffer.shown);
      made.strides = reference.sizes(face(buffer).strides);
    }
    whole.noise_.push_back(rounded.ok() ? largest_difference(made, reference::exact(rounded.value()[number])) : 0);
  }
  return whole;
}

Result<std::vector<ResultDiff>> WholeReference::diff(const std::vector<CallResult>& found, double tolerance) const {
  std::vector<ResultDiff> out;
  for (size_t i = 0; i < std::min(found.size(), results_.size()); ++i) {
    const CallResult& f = found[i];
    const reference::Tensor& t = results_[i];
    if (t.sizes != f.data.sizes) return Error{ErrorCode::output_mismatch, fmt::format("result '{}' has other sizes than the reference's", f.name), "", ""};
    const double most = tolerance > 0 ? tolerance : std::max(default_tolerance(f.data.dtype), kMostWithBound);
    ResultDiff d = compare(f, most, [&](const std::vector<int64_t>& index) { return t.at(offset_of(index, t.strides)); }, kNoise * noise_[i]);
    d.result = i;
    out.push_back(std::move(d));
  }
  return out;
}

Result<std::vector<ResultDiff>> diff_with_reference(const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs,
                                                    const std::vector<CallResult>& found, double tolerance) {
  TRY(const WholeReference reference, WholeReference::make(graph, options, inputs));
  return reference.diff(found, tolerance);
}

Result<std::vector<ResultDiff>> diff_results(const std::vector<CallResult>& expected, const std::vector<CallResult>& found, double tolerance) {
  if (expected.size() != found.size())
    return Error{ErrorCode::output_mismatch, fmt::format("there are {} results, and {} to compare with", found.size(), expected.size()), "", ""};
  std::vector<ResultDiff> out;
  for (size_t i = 0; i < found.size(); ++i) {
    const reference::Tensor t = reference::exact(expected[i].data);
    if (t.sizes != found[i].data.sizes || is_float(t.dtype) != is_float(found[i].data.dtype))
      return Error{ErrorCode::output_mismatch, fmt::format("result '{}' has another type or other sizes than what it is compared with", found[i].name), "", ""};
    out.push_back(compare(found[i], tolerance > 0 ? tolerance : default_tolerance(found[i].data.dtype), [&](const std::vector<int64_t>& index) {
      Num n = t.at(offset_of(index, t.strides));
      if (is_float(t.dtype)) n.e = std::numeric_limits<double>::max();  // no bound is known
      return n;
    }));
    out.back().result = i;
  }
  return out;
}

}  // namespace coil
