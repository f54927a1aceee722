// A report of a model: what its package says (manifest, generated code, reasons), what calls of it took (a profile) and what the machine
// can do, as JSON, and as one page that needs nothing else (page/).
#pragma once

#include <string>
#include <vector>

#include "report/limits.h"
#include "runtime/profile.h"

namespace coil::report {

struct ReportOptions {
  std::string title;   // what the model is called, for readers: its path
  std::string record;  // a tuning record's JSON; empty: none
};

// COIL-E301 when the package's own texts are not as they should be, COIL-E407 when the record is not. The profile has calls of the model.
Result<std::string> report_json(const runtime::Model& model, const runtime::Profile& profile, const Limits& limits, const ReportOptions& options);

// A page of one report, of two side by side, or of several to choose from. What they hold is data there: nothing of it is taken for markup or code.
// COIL-E301 when the page would be larger than 2 MB even without the generated code.
Result<std::string> report_page(const std::vector<std::string>& reports);

}  // namespace coil::report
