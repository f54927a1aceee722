// coil report: one page about a model, or about two side by side.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "archive_kind.h"
#include "base/files.h"
#include "command.h"
#include "measured.h"
#include "report/report.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::string output = "report.html";
  MeasureArguments measure;
  bool json = false;
};

Result<int> report(const Arguments& a) {
  std::vector<std::string> reports;
  for (const std::string& path : a.models) {
    TRY(reports.emplace_back(), of_manifest(path, [&] { return measured_report(a.measure, path); }));
  }
  if (a.json) {
    Json all = Json::array();
    for (const std::string& text : reports) all.push_back(Json::parse(text));
    put(json_text(all.size() == 1 ? all[0] : all));
    return 0;
  }
  TRY(const std::string page, report::report_page(reports));
  TRY_STATUS(write_file(a.output, {reinterpret_cast<const uint8_t*>(page.data()), page.size()}));
  const Style style;
  for (const std::string& text : reports) {
    const Json r = Json::parse(text);
    put(fmt::format("{}: {} a call, {} in {}\n", style.bold(r.at("title").get<std::string>()), seconds_text(r.at("call").value("call_us", 0.0) * 1e-6), seconds_text(r.at("call").value("kernels_us", 0.0) * 1e-6),
                    count_text(r.at("kernels").size(), "kernel")));
    for (const Json& advice : r.at("advice")) put("  " + advice.at("text").get<std::string>() + "\n");
  }
  put(fmt::format("{} ({}) opens in any browser\n", a.output, bytes_text(page.size())));
  return 0;
}

}  // namespace

Action add_report(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("model", a->models, "package, or exported program (compiled in memory first); two are shown side by side")->required()->expected(1, 2)->type_name("MODEL");
  app.add_option("-o,--output", a->output, "the page; default: report.html")->type_name("FILE");
  app.add_option("--shape", a->measure.shapes, "size of a dynamic dimension; default: 8, or the nearest size in range")->allow_extra_args(false)->type_name("DIM=SIZE");
  app.add_option("-i,--input", a->measure.inputs, "real inputs instead of random ones, as for `coil run`")->allow_extra_args(false)->type_name("FILE");
  app.add_option("--calls", a->measure.calls, "how many calls are measured")->check(CLI::Range(1, 1'000'000))->type_name("N");
  app.add_option("--warmup", a->measure.warmup, "calls before those")->check(CLI::Range(0, 1'000'000))->type_name("N");
  app.add_option("--times", a->measure.record, "a tuning record (--record of `coil compile`): what the variants of each kernel took")->type_name("FILE");
  add_device_option(app, a->measure.device);
  add_program_option(app, a->measure.compile.program);
  add_threads_option(app, a->measure.threads, "threads of a call; default: all that this process may use");
  add_compile_options(app, a->measure.compile);
  app.add_flag("--json", a->json, "print the report's data instead of writing a page");
  app.footer(
      "Examples:\n"
      "  coil report model.coil.pt2 --shape batch=8\n"
      "  coil report untuned.coil.pt2 tuned.coil.pt2 -o both.html\n"
      "The page is one file that loads nothing: it can be mailed, kept, and read offline.");
  return [a] { return report(*a); };
}

}  // namespace coil::tool
