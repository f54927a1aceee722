// coil bench: load, first call, steady calls, memory; on random inputs of given sizes or on real ones.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "arrays.h"
#include "command.h"
#include "load_model.h"
#include "runtime/context.h"
#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> inputs, shapes;
  CompileArguments compile;
  int threads = 0, repeat = 0, warmup = 3;
  double seconds = 1;
  bool json = false;
};

// Calls shorter than this are timed several at a time: reading the clock takes 20-30 ns.
constexpr double kShortestSample = 20e-6;
constexpr size_t kMostSamples = 1'000'000;

struct Timing {
  double first = 0;
  std::vector<double> samples;  // seconds per call, sorted
  size_t calls = 0;
  double quantile(double q) const { return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)]; }
};

// A fixed sequence of numbers: runs are comparable.
class Random {
 public:
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15;
};

// Values between -1 and 1; integers and booleans 0 or 1, which are in range for any index and any mask.
Result<NpyArray> random_array(const Json& info, Sizes& sizes, Random& random) {
  NpyArray a;
  const std::string dtype = info.at("dtype").get<std::string>();
  if (info.contains("value")) {
    TRY(const int64_t value, sizes.evaluate(info["value"]));
    a.dtype = COIL_INT64;
    a.data.resize(sizeof value);
    std::memcpy(a.data.data(), &value, sizeof value);
    return a;
  }
  TRY(a.shape, sizes.evaluate_all(info.at("shape")));
  const bool half = dtype == "bfloat16" || dtype == "float16";
  const bool floating = half || dtype == "float32";
  const size_t item = floating ? 4 : dtype_bytes_of(dtype);
  a.data.assign(static_cast<size_t>(a.count()) * item, 0);
  for (int32_t d : {COIL_BOOL, COIL_UINT8, COIL_INT8, COIL_INT16, COIL_INT32, COIL_INT64, COIL_FLOAT32, COIL_FLOAT64}) {
    if (dtype_name(d) == (half ? "float32" : dtype)) a.dtype = d;
  }
  for (size_t i = 0; i < a.data.size(); i += item) {
    const double u = random.uniform();
    const float f = static_cast<float>(2 * u - 1);
    const double d = 2 * u - 1;
    if (floating) {
      std::memcpy(a.data.data() + i, &f, sizeof f);
    } else if (dtype == "float64") {
      std::memcpy(a.data.data() + i, &d, sizeof d);
    } else {
      a.data[i] = u < 0.5 ? 0 : 1;  // little-endian: the lowest byte
    }
  }
  return a;
}

Status random_inputs(const Json& manifest, Sizes& sizes, CallInputs* inputs) {
  Random random;
  const Json& infos = manifest.at("inputs");
  inputs->arrays.resize(infos.size());
  inputs->strides.resize(infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    TRY(NpyArray array, random_array(infos[i], sizes, random));
    TRY_STATUS(place_input(i, std::move(array), manifest, sizes, inputs));
  }
  make_views(inputs);
  return ok_status();
}

void learn_sizes(const Json& manifest, const CallInputs& inputs, Sizes& sizes) {
  for (size_t i = 0; i < inputs.arrays.size(); ++i) {
    const Json& info = manifest.at("inputs").at(i);
    const NpyArray& a = inputs.arrays[i];
    if (!info.contains("value")) {
      sizes.learn(info.at("shape"), a.shape);
    } else if (int64_t value = 0; a.data.size() == sizeof value) {
      std::memcpy(&value, a.data.data(), sizeof value);
      sizes.learn(Json::array({info["value"]}), {value});
    }
  }
}

// Anonymous resident memory of this process: what it allocated and touched.
uint64_t anonymous_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

// One call with outputs in the context's memory, as a user makes it.
class Caller {
 public:
  Caller(runtime::Context& context, const CallInputs& inputs)
      : context_(context), inputs_(inputs), outputs_(context.model().manifest().outputs.size()) {}
  Status call() {
    for (CoilTensorView& o : outputs_) o.data = nullptr;
    const int32_t code = context_.run(inputs_.views.data(), static_cast<int32_t>(inputs_.views.size()), outputs_.data(),
                                      static_cast<int32_t>(outputs_.size()), &error_);
    if (code != 0) return Error{static_cast<ErrorCode>(code), error_.message, "", ""};
    return ok_status();
  }

 private:
  runtime::Context& context_;
  const CallInputs& inputs_;
  std::vector<CoilTensorView> outputs_;
  CoilError error_{};
};

Result<Timing> measure(const Arguments& a, Caller& caller, Timing timing) {
  for (int i = 0; i < a.warmup; ++i) TRY_STATUS(caller.call());
  double start = seconds_now();
  TRY_STATUS(caller.call());
  const double one = std::max(seconds_now() - start, 1e-9);
  const size_t batch = a.repeat > 0 ? 1 : static_cast<size_t>(std::clamp(kShortestSample / one, 1.0, 1e4));
  const size_t most = a.repeat > 0 ? static_cast<size_t>(a.repeat) : kMostSamples;
  const double begin = seconds_now();
  do {
    start = seconds_now();
    for (size_t i = 0; i < batch; ++i) TRY_STATUS(caller.call());
    timing.samples.push_back((seconds_now() - start) / static_cast<double>(batch));
  } while (timing.samples.size() < most && (a.repeat > 0 || seconds_now() - begin < a.seconds));
  timing.calls = timing.samples.size() * batch;
  std::sort(timing.samples.begin(), timing.samples.end());
  return timing;
}

struct Memory {
  MemoryNeed formula;
  int64_t arena = 0, outputs = 0;  // what the runtime asked for
  uint64_t grown = 0;              // anonymous resident memory that the first call added
};

Json to_json(const Arguments& a, const LoadedModel& loaded, const Json& sizes, const Timing& t, const Memory& memory) {
  Json json = {
      {"model", a.model}, {"target", loaded.model->isa()}, {"threads", loaded.model->host().num_workers}, {"sizes", sizes}};
  if (loaded.compiled) json["compile_ms"] = loaded.compile_seconds * 1e3;
  json["load_ms"] = loaded.load_seconds * 1e3;
  json["first_call_us"] = t.first * 1e6;
  json["call_us"] = {{"median", t.quantile(0.5) * 1e6},
                     {"p10", t.quantile(0.1) * 1e6},
                     {"p90", t.quantile(0.9) * 1e6},
                     {"min", t.samples.front() * 1e6}};
  json["calls"] = t.calls;
  json["memory"] = {{"arena_bytes", memory.arena},
                    {"arena_bytes_formula", memory.formula.arena},
                    {"output_bytes", memory.outputs},
                    {"output_bytes_formula", memory.formula.outputs},
                    {"constants_bytes", memory.formula.constants},
                    {"state_bytes", memory.formula.state},
                    {"resident_grown_bytes", memory.grown}};
  return json;
}

std::string to_text(const Arguments& a, const LoadedModel& loaded, const Json& sizes, const Timing& t, const Memory& memory) {
  const Style style;
  std::string where;
  for (const auto& [name, value] : sizes.items())
    where += fmt::format("{}{}={}", where.empty() ? "" : " ", name, value.get<int64_t>());
  std::string text = fmt::format("{}: {}, {}{}{}\n", style.bold(a.model), loaded.model->isa(),
                                 count_text(static_cast<size_t>(loaded.model->host().num_workers), "thread"),
                                 where.empty() ? "" : ", ", where);
  Table table;
  if (loaded.compiled) table.add({"compile", seconds_text(loaded.compile_seconds)});
  table.add({"load", seconds_text(loaded.load_seconds)});
  table.add({"first call", seconds_text(t.first)});
  table.add({"call", style.bold(seconds_text(t.quantile(0.5))),
             fmt::format("median of {}; min {}, 10 % {}, 90 % {}", count_text(t.calls, "call"), seconds_text(t.samples.front()),
                         seconds_text(t.quantile(0.1)), seconds_text(t.quantile(0.9)))});
  table.add({"scratch", bytes_text(static_cast<uint64_t>(memory.arena)),
             fmt::format("by the formula {}", bytes_text(static_cast<uint64_t>(memory.formula.arena)))});
  table.add({"outputs", bytes_text(static_cast<uint64_t>(memory.outputs)),
             fmt::format("by the formula {}", bytes_text(static_cast<uint64_t>(memory.formula.outputs)))});
  table.add({"weights", bytes_text(static_cast<uint64_t>(memory.formula.constants))});
  table.add({"resident", bytes_text(memory.grown), "that the first call added, without the mapped weights"});
  return text + table.text();
}

Result<int> bench(const Arguments& a) {
  TRY(const LoadedModel loaded, load_model(a.model, a.compile, a.threads));
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  TRY_STATUS(apply_shapes(a.shapes, sizes));
  CallInputs inputs;
  if (!a.inputs.empty()) {
    if (!a.shapes.empty())
      return Error{ErrorCode::bad_option, "--shape and --input exclude each other: arrays have sizes", "", ""};
    TRY_STATUS(gather_inputs(a.inputs, *loaded.model, loaded.manifest, &inputs));
    if (!inputs.ignored.empty()) note(fmt::format("keys that name no input are ignored: {}", fmt::join(inputs.ignored, ", ")));
    learn_sizes(loaded.manifest, inputs, sizes);
  }
  const auto chosen = sizes.fill_defaults();
  if (a.inputs.empty()) {
    for (const auto& [name, value] : chosen) note(fmt::format("{} is {}; choose with --shape {}=N", name, value, name));
    TRY_STATUS(random_inputs(loaded.manifest, sizes, &inputs));
  }
  Json used = Json::object();
  for (const DynamicSize& s : sizes.symbols()) {
    TRY(used[s.name], sizes.evaluate(Json(s.name)));
  }
  runtime::Context context(loaded.model);
  Caller caller(context, inputs);
  const uint64_t before = anonymous_bytes();
  const double start = seconds_now();
  TRY_STATUS(caller.call());
  Timing timing;
  timing.first = seconds_now() - start;
  Memory memory;
  memory.grown = anonymous_bytes() - std::min(before, anonymous_bytes());
  memory.arena = context.arena_bytes();
  memory.outputs = context.output_bytes();
  sizes.set_workers(loaded.model->host().num_workers);
  TRY(memory.formula, memory_need(loaded.manifest, sizes));
  TRY(timing, measure(a, caller, std::move(timing)));
  put(a.json ? to_json(a, loaded, used, timing, memory).dump(2) + "\n" : to_text(a, loaded, used, timing, memory));
  return 0;
}

}  // namespace

Action add_bench(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("model", a->model, "package, or exported program (compiled in memory first)")->required()->type_name("MODEL");
  app.add_option("--shape", a->shapes, "size of a dynamic dimension; default: 8, as far as it is in range")
      ->allow_extra_args(false)
      ->type_name("DIM=SIZE");
  app.add_option("-i,--input", a->inputs, "real inputs instead of random ones, as for `coil run`")
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--seconds", a->seconds, "how long to measure")->check(CLI::Range(0.0, 3600.0))->type_name("S");
  app.add_option("--repeat", a->repeat, "measure this many calls instead")->check(CLI::Range(1, 1'000'000'000))->type_name("N");
  app.add_option("--warmup", a->warmup, "calls before the measurement")->check(CLI::Range(0, 1'000'000))->type_name("N");
  add_threads_option(app, a->threads, "threads of a call; default: all that this process may use");
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print the numbers as JSON");
  app.footer(
      "Examples:\n"
      "  coil bench model.coil.pt2 --shape batch=8 --shape seq=128\n"
      "  coil bench model.coil.pt2 --input inputs.npz --threads 1 --seconds 5\n"
      "  coil bench model.pt2 --json\n"
      "Random integers are 0 or 1: any table can be indexed with them. Use --input where values matter.");
  return [a] { return bench(*a); };
}

}  // namespace coil::tool
