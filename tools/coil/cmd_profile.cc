// coil profile: the times of a model's kernels, as a table beside what the machine can do, and as a trace.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include "base/json.h"
#include <optional>

#include "base/files.h"
#include "command.h"
#include "example_call.h"
#include "interrupt.h"
#include "kernel_table.h"
#include "runtime/profile.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct ProfileArguments {
  std::string model, device, output;
  GivenInputs inputs;
  CompileArguments compile;
  int threads = 0, calls = 20, warmup = 3, top = 30;
  double seconds = 0;
  bool json = false, counters = false, no_limits = false;
};

std::string to_text(const ProfileArguments& a, const LoadedModel& loaded, const Json& all, const report::Limits& limits) {
  const Style style;
  if (all.at("models").empty() || all["models"][0].value("calls", 0) == 0) return "no call was recorded\n";
  const Json& m = all["models"][0];
  std::string sizes;
  for (const auto& [name, value] : m.at("sizes").items()) sizes += fmt::format(" {}={}", name, value.get<int64_t>());
  std::string text = fmt::format("{}: {}, {}{}{}\n", style.bold(a.model), where_text(*loaded.model),
                                 count_text(static_cast<size_t>(loaded.model->host().num_workers), "thread"), sizes.empty() ? "" : ",", sizes);
  Table table;
  const auto time = [&](const char* key) { return seconds_text(m.at(key).get<double>() * 1e-6); };
  const double call = m.at("call_us").get<double>();
  const auto share = [&](const char* key) { return fmt::format("{:.1f} %", call > 0 ? 100 * m.at(key).get<double>() / call : 0); };
  table.add({"call", style.bold(time("call_us")),
             fmt::format("mean of {}; min {}, median {}, max {}", count_text(m.at("calls").get<size_t>(), "call"), time("least_us"), time("median_us"),
                         time("most_us"))});
  table.add({"kernels", time("kernels_us"), share("kernels_us")});
  table.add({"host", time("host_us"), share("host_us") + ": checks of inputs, memory for outputs, between kernels"});
  if (m.at("clock") != "host") table.add({"clock", m.at("clock").get<std::string>(), m.value("clock_note", "")});
  if (limits.memory_gb_s > 0) table.add(limits_row(limits));
  text += table.text() + kernels_text(m, limits, a.top, style);
  if (all.contains("counters")) text += fmt::format("  {}\n", all["counters"].get<std::string>());
  if (m.at("kernels").empty()) text += "  the package tells nothing of its kernels: it has none, or is of an older coil; compile the program again\n";
  return text;
}

// Calls until there are enough of them, the time is up, or somebody asks for the end.
Status make_calls(const ProfileArguments& a, Caller& caller) {
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  int made = 0;
  while (made < a.calls && !asked_to_end() && (a.seconds <= 0 || made == 0 || passed() < a.seconds)) {
    TRY_STATUS(caller.call());
    made++;
  }
  TRY_STATUS(caller.synchronise());
  if (asked_to_end()) {
    note(fmt::format("{} after {} of {} calls: these are shown{}", signal_text(asked_to_end()), made, a.calls, a.output.empty() ? "" : " and written"));
  } else if (made < a.calls) {
    note(fmt::format("{} s are over after {} of {} calls", a.seconds, made, a.calls));
  }
  return ok_status();
}

Result<int> profile(const ProfileArguments& a) {
  clean_up_on_signals(a.output);
  std::optional<AtomicFile> file;  // that it cannot be written is known before anything is compiled and measured
  if (!a.output.empty()) {
    TRY(file, AtomicFile::create(a.output));
  }
  TRY(const LoadedModel loaded, load_model(a.model, a.compile, a.threads, a.device));
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  CallInputs inputs;
  TRY_STATUS(example_inputs(a.inputs, loaded, sizes, &inputs));
  report::Limits limits;
  if (!a.no_limits) limits = report::measure_limits(*loaded.model);
  runtime::Context context(loaded.model);
  TRY(const DeviceInputs on_device, DeviceInputs::make(*loaded.model, inputs));
  Caller caller(context, on_device);
  for (int i = 0; i < a.warmup; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  finish_on_signal();
  const auto recorded = runtime::Profile::start(loaded.model.get(), {0, a.counters, true});
  TRY_STATUS(make_calls(a, caller));
  recorded->stop();
  if (file) {
    const std::string trace = recorded->trace_json();
    TRY_STATUS(file->write({reinterpret_cast<const uint8_t*>(trace.data()), trace.size()}));
    TRY_STATUS(file->commit());
  }
  Json all = Json::parse(recorded->table_json());
  if (a.json) {
    if (!a.no_limits) all["limits"] = Json::parse(report::limits_json(limits));
    put(json_text(all));
  } else {
    put(to_text(a, loaded, all, limits));
    if (!a.output.empty()) note(fmt::format("{} is for https://ui.perfetto.dev", a.output));
  }
  if (asked_to_end() && std::fflush(stdout) == 0) end_by(asked_to_end());
  return 0;
}

}  // namespace

Action add_profile(CommandLine& app) {
  auto a = std::make_shared<ProfileArguments>();
  app.add_option("model", a->model, "package, or exported program (compiled in memory first)").required().type_name("MODEL");
  app.add_option("-o,--output", a->output, "write a trace of the calls, in the format of ui.perfetto.dev and chrome://tracing").type_name("FILE");
  add_input_options(app, a->inputs);
  app.add_option("--calls", a->calls, "how many calls are recorded").within(1, 1'000'000).type_name("N");
  app.add_option("--seconds", a->seconds, "no call begins later than that, so that fewer may be recorded").within(0.001, 1e6).type_name("S");
  app.add_option("--warmup", a->warmup, "calls before those").within(0, 1'000'000).type_name("N");
  app.add_option("--top", a->top, "kernels in the table").within(1, 1'000'000).type_name("N");
  app.add_flag("--counters", a->counters,
               "the processor's cycles, instructions and cache misses too (in the trace and with --json), where the system gives them");
  app.add_flag("--no-limits", a->no_limits, "do not measure what the machine can do");
  add_device_option(app, a->device);
  add_program_option(app, a->compile.program);
  add_threads_option(app, a->threads, "threads of a call; default: all that this process may use");
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print the numbers as JSON");
  app.footer(
      "Examples:\n"
      "  coil profile model.coil.pt2 --shape batch=8\n"
      "  coil profile model.coil.pt2 --input inputs.npz --calls 100 -o trace.json\n"
      "Ctrl-C (SIGINT), SIGTERM and SIGHUP end it after the call under way, with the table and the trace of the calls until then.\n"
      "COIL_PROFILE=trace.json does the same to any process that opens a package.");
  return [a] { return of_manifest(a->model, [&] { return profile(*a); }); };
}

}  // namespace coil::tool
