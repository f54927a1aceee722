// coil run: one call of a model on arrays from files.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "arrays.h"
#include "command.h"
#include "device_arrays.h"
#include "base/half.h"
#include "interrupt.h"
#include "load_model.h"
#include "runtime/context.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct RunArguments {
  std::string model, output, device;
  std::vector<std::string> inputs;
  CompileArguments compile;
  int threads = 0;
  bool json = false, verify = false;
};

constexpr size_t kShownValues = 6;

struct Summary {
  std::vector<double> first;
  double min = INFINITY, max = -INFINITY, sum = 0;
  size_t count = 0, not_finite = 0;
};

double value_at(const NpyArray& a, int32_t dtype, size_t i) {
  const auto get = [&]<class T>(T value) {
    std::memcpy(&value, a.data.data() + i * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case COIL_INT8: return get(int8_t{});
    case COIL_INT16: return get(int16_t{});
    case COIL_INT32: return get(int32_t{});
    case COIL_INT64: return static_cast<double>(get(int64_t{}));
    case COIL_FLOAT16: return from_f16(get(uint16_t{}));
    case COIL_FLOAT32: return get(float{});
    case COIL_FLOAT64: return get(double{});
    default: return get(uint8_t{});
  }
}

// Of complex numbers: of their parts, in order.
Summary summarize(const NpyArray& array) {
  Summary s;
  const bool single = array.dtype == COIL_COMPLEX64, parts = single || array.dtype == COIL_COMPLEX128;
  const size_t count = static_cast<size_t>(array.count()) * (parts ? 2 : 1);
  s.count = count;
  for (size_t i = 0; i < count; ++i) {
    const double v = value_at(array, parts ? (single ? COIL_FLOAT32 : COIL_FLOAT64) : array.dtype, i);
    if (i < kShownValues) s.first.push_back(v);
    if (!std::isfinite(v)) {
      ++s.not_finite;
      continue;
    }
    s.min = std::min(s.min, v);
    s.max = std::max(s.max, v);
    s.sum += v;
  }
  return s;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Json run_number(double v) { return std::isfinite(v) ? Json(v) : Json(fmt::format("{}", v)); }

Json to_json(const runtime::Model& model, const NamedArrays& outputs, const std::vector<int32_t>& dtypes) {
  Json rows = Json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NpyArray& a = outputs[i].second;
    const Summary s = summarize(a);
    Json first = Json::array();
    for (double v : s.first) first.push_back(run_number(v));
    Json row = {{"key", outputs[i].first}, {"name", model.manifest().outputs[i].name}, {"dtype", dtype_name(dtypes[i])}, {"shape", a.shape}, {"first", first}};
    const auto finite = static_cast<double>(s.count - s.not_finite);
    row["min"] = finite > 0 ? Json(s.min) : Json(nullptr);
    row["max"] = finite > 0 ? Json(s.max) : Json(nullptr);
    row["mean"] = finite > 0 ? Json(s.sum / finite) : Json(nullptr);
    row["not_finite"] = s.not_finite;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string to_text(const runtime::Model& model, const NamedArrays& outputs, const std::vector<int32_t>& dtypes) {
  const Style style;
  Table table(0);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NpyArray& a = outputs[i].second;
    const Summary s = summarize(a);
    std::string values, range;
    for (double v : s.first) values += fmt::format("{}{:.6g}", values.empty() ? "" : " ", v);
    if (s.count > s.first.size()) values += " ...";
    const auto finite = static_cast<double>(s.count - s.not_finite);
    if (finite > 0 && s.count > 1) range = fmt::format("min {:.6g}  max {:.6g}  mean {:.6g}", s.min, s.max, s.sum / finite);
    if (s.not_finite > 0) range += fmt::format("{}{} not finite", range.empty() ? "" : "  ", s.not_finite);
    table.add({style.bold(outputs[i].first), model.manifest().outputs[i].name, dtype_name(dtypes[i]) + shape_text(a.shape), values, style.dim(range)});
  }
  return table.text();
}

Result<int> run(const RunArguments& a) {
  if (!a.output.empty()) clean_up_on_signals(a.output);
  TRY(const LoadedModel loaded, load_model(a.model, a.compile, a.threads, a.device, a.verify));
  const runtime::Model& model = *loaded.model;
  CallInputs inputs;
  TRY_STATUS(gather_inputs(a.inputs, model, loaded.manifest, &inputs));
  if (!inputs.ignored.empty()) note(fmt::format("keys that name no input are ignored: {}", fmt::join(inputs.ignored, ", ")));

  runtime::Context context(loaded.model);
  std::vector<CoilTensorView> views(model.manifest().outputs.size());
  TRY(const DeviceInputs on_device, DeviceInputs::make(model, inputs));
  const double start = seconds_now();
  TRY_STATUS(run_model(context, on_device.views(), views));
  TRY_STATUS(synchronise(context));
  const double seconds = seconds_now() - start;

  NamedArrays outputs;
  std::vector<int32_t> dtypes;
  for (size_t i = 0; i < views.size(); ++i) {
    TRY(NpyArray array, fetch_array(context, views[i]));
    outputs.emplace_back(fmt::format("out_{}", model.manifest().output_places[i]), std::move(array));
    dtypes.push_back(views[i].dtype);
  }
  if (!a.output.empty()) TRY_STATUS(write_npz(a.output, outputs));
  if (a.json) {
    Json json = {
        {"model", a.model}, {"device", model.device().text()}, {"target", model.isa()}, {"threads", model.host().num_workers}, {"call_seconds", seconds}};
    if (loaded.compiled) json["compile_seconds"] = loaded.compile_seconds;
    if (!a.output.empty()) json["output"] = a.output;
    json["ignored"] = inputs.ignored;
    json["outputs"] = to_json(model, outputs, dtypes);
    put(json_text(json));
  } else {
    put(to_text(model, outputs, dtypes));
  }
  return 0;
}

}  // namespace

Action add_run(CommandLine& app) {
  auto a = std::make_shared<RunArguments>();
  app.add_option("model", a->model, "package, or exported program (compiled in memory first)").required().type_name("MODEL");
  app.add_option("-i,--input", a->inputs, "x.npy, name=x.npy, or an archive a.npz with keys in_0, in_1, ... or names of inputs").one_each().type_name("FILE");
  app.add_option("-o,--output", a->output, "archive to write: out_0, out_1, ..., flattened in the program's order; None results have no entry")
      .type_name("FILE.npz");
  add_device_option(app, a->device);
  add_program_option(app, a->compile.program);
  add_threads_option(app, a->threads, "threads of the call; default: all that this process may use");
  add_compile_options(app, a->compile);
  app.add_flag("--verify", a->verify, "verify the checksum of all weights first (that of code and of weights up to 64 KiB always is)");
  app.add_flag("--json", a->json, "print the outputs' summaries as JSON");
  app.footer(
      "Examples:\n"
      "  coil run model.coil.pt2 --input inputs.npz --output outputs.npz\n"
      "  coil run model.pt2 --input ids=ids.npy --input mask=mask.npy\n"
      "  coil run model.pt2 --input x.npy --json\n"
      "  coil run model.coil.pt2 --input inputs.npz --device cuda:0\n"
      "float32 arrays are accepted for float16 and bfloat16 inputs; bfloat16 outputs are written as float32.");
  return [a] { return of_manifest(a->model, [&] { return run(*a); }); };
}

}  // namespace coil::tool
