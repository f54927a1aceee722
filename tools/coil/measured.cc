#include "measured.h"

#include "base/files.h"
#include "example_call.h"
#include "load_model.h"
#include "report/report.h"

namespace coil::tool {
namespace {

// As many calls as are asked for, or, where nobody says, as many as bring something: medians of 20 are steady, and nobody waits for minutes.
Status call_enough(const MeasureArguments& a, Caller& caller) {
  constexpr int kMost = 20, kLeast = 3;
  constexpr double kSeconds = 2;
  const double end = seconds_now() + kSeconds;
  for (int i = 0; i < (a.calls > 0 ? a.calls : kMost); ++i) {
    if (a.calls == 0 && i >= kLeast && seconds_now() > end) break;
    TRY_STATUS(caller.call());
    if (a.calls == 0) TRY_STATUS(caller.synchronise());
  }
  return caller.synchronise();
}

}  // namespace

Result<std::string> measured_report(const MeasureArguments& a, const std::string& path) {
  TRY(const LoadedModel loaded, load_model(path, a.compile, a.threads, a.device));
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  CallInputs inputs;
  TRY_STATUS(example_inputs(a.inputs, loaded, sizes, &inputs));
  const report::Limits limits = report::measure_limits(*loaded.model);
  runtime::Context context(loaded.model);
  TRY(const DeviceInputs on_device, DeviceInputs::make(*loaded.model, inputs));
  Caller caller(context, on_device);
  for (int i = 0; i < a.warmup; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  const auto profile = runtime::Profile::start(loaded.model.get(), {a.calls, false, true});
  TRY_STATUS(call_enough(a, caller));
  profile->stop();
  report::ReportOptions options{path, ""};
  const bool several = loaded.model->package().several;
  if (several) options.title += " (" + loaded.model->package().program + ")";
  if (!a.record.empty()) {
    TRY(options.record, read_text_file(a.record));
  } else {
    options.record = loaded.tuning;
  }
  return report::report_json(*loaded.model, *profile, limits, options);
}

}  // namespace coil::tool
