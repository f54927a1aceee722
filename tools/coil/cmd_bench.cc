// coil bench: load, first call, steady calls, memory; on random inputs of given sizes or on real ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "arrays.h"
#include "base/text.h"
#include "command.h"
#include "device_arrays.h"
#include "example_call.h"
#include "kernel_table.h"
#include "load_model.h"
#include "runtime/context.h"
#include "runtime/profile.h"
#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct BenchArguments {
  std::string model, device;
  GivenInputs inputs;
  CompileArguments compile;
  int threads = 0, repeat = 0, warmup = 3;
  int top = 30;
  double seconds = 1;
  bool json = false, kernels = false;
};

// Calls shorter than this are timed several at a time: reading the clock takes 20-30 ns.
constexpr double kShortestSample = 20e-6;
constexpr size_t kMostSamples = 1'000'000;

// The device's queue holds about a thousand launches; enqueuing into a full one waits for the device.
constexpr size_t kQueuedLaunches = 512;

// Seconds per call, sorted.
struct Samples {
  std::vector<double> values;
  double quantile(double q) const { return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)]; }
  double min() const { return values.front(); }
  void add(double value) { values.push_back(value); }
  void sort() { std::sort(values.begin(), values.end()); }
};

struct Timing {
  double first = 0;
  Samples call;     // wall time; on CUDA of several calls that are enqueued before they are waited for
  Samples enqueue;  // CUDA: until the call returns
  Samples device;   // CUDA: between events around the calls
  Samples latency;  // CUDA: one call and the wait for it
  size_t calls = 0;
  CoilGraphCounts graphs{};  // CUDA: of all calls
};

// What `--kernels` records, in calls of its own after the measured ones.
struct KernelTimes {
  Json model;  // of Profile::table_json; null: not asked for
  report::Limits limits;
};

// Anonymous resident memory of this process: what it allocated and touched.
uint64_t anonymous_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

// Two marks on the device's default stream.
class Stopwatch {
 public:
  explicit Stopwatch(const runtime::CudaDevice& device) : driver_(device.driver()), scope_(&driver_, device.context()) {
    for (void*& e : events_) check(driver_.make_event(&e, 0));
  }
  ~Stopwatch() {
    for (void* e : events_) driver_.delete_event(e);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  void start() { check(driver_.record_event(events_[0], nullptr)); }
  void stop() { check(driver_.record_event(events_[1], nullptr)); }
  // After a synchronisation.
  Result<double> seconds() {
    float milliseconds = 0;
    check(driver_.elapsed(&milliseconds, events_[0], events_[1]));
    if (failed_.code != 0) return Error{static_cast<ErrorCode>(failed_.code), failed_.message, "", ""};
    return milliseconds * 1e-3;
  }

 private:
  void check(cd::CudaResult result) {
    if (result != cd::kCudaSuccess) cd::cuda_fail(&driver_, result, &failed_, "cannot take the time on the device");
  }
  const cd::CudaDriver& driver_;
  cd::CudaScope scope_;
  void* events_[2] = {nullptr, nullptr};
  CoilError failed_{};
};

Result<Timing> measure_cuda(const BenchArguments& a, size_t launches, Caller& caller, Timing timing) {
  Stopwatch watch(*caller.model().cuda());
  for (int i = 0; i < a.warmup; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  const size_t batch = a.repeat > 0 ? 1 : std::clamp<size_t>(kQueuedLaunches / std::max<size_t>(launches, 1), 1, 64);
  const size_t most = a.repeat > 0 ? static_cast<size_t>(a.repeat) : kMostSamples;
  const double begin = seconds_now();
  do {
    double start = seconds_now();
    TRY_STATUS(caller.call());
    TRY_STATUS(caller.synchronise());
    timing.latency.add(seconds_now() - start);
    start = seconds_now();
    watch.start();
    const double first = seconds_now();
    for (size_t i = 0; i < batch; ++i) TRY_STATUS(caller.call());
    timing.enqueue.add((seconds_now() - first) / static_cast<double>(batch));
    watch.stop();
    TRY_STATUS(caller.synchronise());
    timing.call.add((seconds_now() - start) / static_cast<double>(batch));
    TRY(const double seconds, watch.seconds());
    timing.device.add(seconds / static_cast<double>(batch));
  } while (timing.call.values.size() < most && (a.repeat > 0 || seconds_now() - begin < a.seconds));
  timing.calls = timing.call.values.size() * batch;
  const runtime::Model& model = caller.model();
  if (model.code().count_graphs) model.code().count_graphs(model.loaded(), &timing.graphs);
  for (Samples* s : {&timing.call, &timing.enqueue, &timing.device, &timing.latency}) s->sort();
  return timing;
}

Result<Timing> measure(const BenchArguments& a, Caller& caller, Timing timing) {
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
    timing.call.add((seconds_now() - start) / static_cast<double>(batch));
  } while (timing.call.values.size() < most && (a.repeat > 0 || seconds_now() - begin < a.seconds));
  timing.calls = timing.call.values.size() * batch;
  timing.call.sort();
  return timing;
}

// As many calls as 20, or fewer where those would take longer than the measurement may.
Result<KernelTimes> measure_kernels(const BenchArguments& a, const LoadedModel& loaded, Caller& caller, double call) {
  KernelTimes times;
  times.limits = report::measure_limits(*loaded.model);
  const int calls = static_cast<int>(std::clamp(a.seconds / std::max(call, 1e-9), 3.0, 20.0));
  const auto recorded = runtime::Profile::start(loaded.model.get(), {0, false, true});
  for (int i = 0; i < calls; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  recorded->stop();
  const Json all = Json::parse(recorded->table_json());
  if (all.at("models").empty()) return Error{ErrorCode::internal, "no call was recorded", "", ""};
  times.model = all["models"][0];
  return times;
}

struct Memory {
  MemoryNeed formula;
  int64_t arena = 0, outputs = 0;  // what the runtime asked for
  uint64_t grown = 0;              // anonymous resident memory that the first call added
};

Json to_json(const Samples& s) {
  return {{"median", s.quantile(0.5) * 1e6}, {"p10", s.quantile(0.1) * 1e6}, {"p90", s.quantile(0.9) * 1e6}, {"min", s.min() * 1e6}};
}

std::string spread_text(const Samples& s) {
  return fmt::format("min {}, 10 % {}, 90 % {}", seconds_text(s.min()), seconds_text(s.quantile(0.1)), seconds_text(s.quantile(0.9)));
}

Json to_json(const BenchArguments& a, const LoadedModel& loaded, const Json& sizes, const Timing& t, const Memory& memory, const KernelTimes& kernels) {
  Json json = {{"model", a.model},
               {"device", loaded.model->device().text()},
               {"target", loaded.model->isa()},
               {"threads", loaded.model->host().num_workers},
               {"sizes", sizes}};
  if (loaded.compiled) json["compile_ms"] = loaded.compile_seconds * 1e3;
  json["load_ms"] = loaded.load_seconds * 1e3;
  json["first_call_us"] = t.first * 1e6;
  json["call_us"] = to_json(t.call);
  if (loaded.model->cuda()) {
    json["enqueue_us"] = to_json(t.enqueue);
    json["device_us"] = to_json(t.device);
    json["latency_us"] = to_json(t.latency);
    json["graphs"] = {{"calls", t.graphs.calls}, {"graph_calls", t.graphs.graph_calls}, {"graphs", t.graphs.graphs}};
  }
  json["calls"] = t.calls;
  json["memory"] = {{"arena_bytes", memory.arena},
                    {"arena_bytes_formula", memory.formula.arena},
                    {"output_bytes", memory.outputs},
                    {"output_bytes_formula", memory.formula.outputs},
                    {"constants_bytes", memory.formula.constants},
                    {"state_bytes", memory.formula.state},
                    {"resident_grown_bytes", memory.grown}};
  if (a.kernels) {
    json["kernels"] = kernels.model.at("kernels");
    json["host_us"] = kernels.model.at("host_us");
    json["limits"] = Json::parse(report::limits_json(kernels.limits));
  }
  return json;
}

std::string to_text(const BenchArguments& a, const LoadedModel& loaded, const Json& sizes, const Timing& t, const Memory& memory, const KernelTimes& kernels) {
  const Style style;
  std::string where;
  for (const auto& [name, value] : sizes.items()) where += fmt::format("{}{}={}", where.empty() ? "" : " ", shown(name), value.get<int64_t>());
  std::string text = fmt::format("{}: {}, {}{}{}\n", style.bold(a.model), where_text(*loaded.model),
                                 count_text(static_cast<size_t>(loaded.model->host().num_workers), "thread"), where.empty() ? "" : ", ", where);
  Table table;
  if (loaded.compiled) table.add({"compile", seconds_text(loaded.compile_seconds)});
  table.add({"load", seconds_text(loaded.load_seconds)});
  table.add({"first call", seconds_text(t.first)});
  table.add({"call", style.bold(seconds_text(t.call.quantile(0.5))), fmt::format("median of {}; {}", count_text(t.calls, "call"), spread_text(t.call))});
  if (loaded.model->cuda()) {
    table.add({"on the device", style.bold(seconds_text(t.device.quantile(0.5))), "between events; " + spread_text(t.device)});
    table.add({"host, to enqueue", style.bold(seconds_text(t.enqueue.quantile(0.5))), spread_text(t.enqueue)});
    table.add({"one call, waited for", style.bold(seconds_text(t.latency.quantile(0.5))), spread_text(t.latency)});
    table.add({"as CUDA graphs", style.bold(fmt::format("{} of {}", t.graphs.graph_calls, count_text(static_cast<size_t>(t.graphs.calls), "call")))});
  }
  table.add(
      {"scratch", bytes_text(static_cast<uint64_t>(memory.arena)), fmt::format("by the formula {}", bytes_text(static_cast<uint64_t>(memory.formula.arena)))});
  table.add({"outputs", bytes_text(static_cast<uint64_t>(memory.outputs)),
             fmt::format("by the formula {}", bytes_text(static_cast<uint64_t>(memory.formula.outputs)))});
  table.add({"weights", bytes_text(static_cast<uint64_t>(memory.formula.constants))});
  table.add({"resident", bytes_text(memory.grown), "that the first call added, without the mapped weights"});
  if (a.kernels && kernels.limits.memory_gb_s > 0) table.add(limits_row(kernels.limits));
  return text + table.text() + (a.kernels ? kernels_text(kernels.model, kernels.limits, a.top, style) : "");
}

Result<int> bench(const BenchArguments& a) {
  TRY(const LoadedModel loaded, load_model(a.model, a.compile, a.threads, a.device));
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  CallInputs inputs;
  TRY_STATUS(example_inputs(a.inputs, loaded, sizes, &inputs));
  Json used = Json::object();
  for (const DynamicSize& s : sizes.symbols()) {
    if (!s.of_inputs()) continue;
    TRY(used[s.name], sizes.evaluate(Json(s.name)));
  }
  runtime::Context context(loaded.model);
  TRY(const DeviceInputs on_device, DeviceInputs::make(*loaded.model, inputs));
  Caller caller(context, on_device);
  const uint64_t before = anonymous_bytes();
  const double start = seconds_now();
  TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  Timing timing;
  timing.first = seconds_now() - start;
  Memory memory;
  memory.grown = anonymous_bytes() - std::min(before, anonymous_bytes());
  memory.arena = context.arena_bytes();
  memory.outputs = context.output_bytes();
  sizes.set_workers(loaded.model->host().num_workers);
  TRY(memory.formula, memory_need(loaded.manifest, sizes));
  if (loaded.model->cuda()) {
    const size_t launches = loaded.manifest.value("kernels", Json::array()).size();
    TRY(timing, measure_cuda(a, launches, caller, std::move(timing)));
  } else {
    TRY(timing, measure(a, caller, std::move(timing)));
  }
  KernelTimes kernels;
  if (a.kernels) {
    TRY(kernels, measure_kernels(a, loaded, caller, timing.call.quantile(0.5)));
  }
  put(a.json ? json_text(to_json(a, loaded, used, timing, memory, kernels)) : to_text(a, loaded, used, timing, memory, kernels));
  return 0;
}

}  // namespace

Action add_bench(CommandLine& app) {
  auto a = std::make_shared<BenchArguments>();
  app.add_option("model", a->model, "package, or exported program (compiled in memory first)").required().type_name("MODEL");
  add_input_options(app, a->inputs);
  app.add_option("--seconds", a->seconds, "how long to measure").within(0.0, 3600.0).type_name("S");
  app.add_option("--repeat", a->repeat, "measure this many calls instead").within(1, 1'000'000'000).type_name("N");
  app.add_option("--warmup", a->warmup, "calls before the measurement").within(0, 1'000'000).type_name("N");
  add_device_option(app, a->device);
  add_program_option(app, a->compile.program);
  add_threads_option(app, a->threads, "threads of a call; default: all that this process may use");
  app.add_flag("--kernels", a->kernels, "the kernels, the busiest first, beside what the machine can do (`coil profile` shows and records more)");
  app.add_option("--top", a->top, "kernels in that table; default: 30").within(1, 1'000'000).type_name("N");
  add_compile_options(app, a->compile, "--user-kernels");
  app.add_flag("--json", a->json, "print the numbers as JSON");
  app.footer(
      "Examples:\n"
      "  coil bench model.coil.pt2 --shape batch=8 --shape seq=128\n"
      "  coil bench model.coil.pt2 --input inputs.npz --threads 1 --seconds 5\n"
      "  coil bench model.pt2 --json\n"
      "  coil bench model.coil.pt2 --device cuda:0 --kernels\n"
      "Random integers are 0 or 1: any table can be indexed with them. Use --input where values matter.");
  return [a] { return of_manifest(a->model, [&] { return bench(*a); }); };
}

}  // namespace coil::tool
