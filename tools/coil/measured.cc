#include "measured.h"

#include "base/files.h"
#include "example_call.h"
#include "report/report.h"

namespace coil::tool {

Result<std::string> measured_report(const MeasureArguments& a, const std::string& path) {
  TRY(const LoadedModel loaded, load_model(path, a.compile, a.threads, a.device));
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  CallInputs inputs;
  TRY_STATUS(example_inputs(a.inputs, a.shapes, loaded, sizes, &inputs));
  const report::Limits limits = report::measure_limits(*loaded.model);
  runtime::Context context(loaded.model);
  TRY(const DeviceInputs on_device, DeviceInputs::make(*loaded.model, inputs));
  Caller caller(context, on_device);
  for (int i = 0; i < a.warmup; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  const auto profile = runtime::Profile::start(loaded.model.get(), {a.calls, false});
  for (int i = 0; i < a.calls; ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  profile->stop();
  report::ReportOptions options{path, ""};
  const bool several = loaded.model->package().several;
  if (several) options.title += " (" + loaded.model->package().program + ")";
  if (!a.record.empty()) {
    TRY(options.record, read_text_file(a.record));
  }
  return report::report_json(*loaded.model, *profile, limits, options);
}

}  // namespace coil::tool
