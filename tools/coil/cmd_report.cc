// coil report: one page about a model, or about two side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include "base/json.h"
#include <optional>

#include "archive_kind.h"
#include "base/files.h"
#include "base/text.h"
#include "command.h"
#include "measured.h"
#include "report/compare.h"
#include "report/report.h"
#include "saved_report.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct ReportArguments {
  std::vector<std::string> models;
  std::string output = "report.html";
  MeasureArguments measure;
  bool json = false;
};

constexpr size_t kListed = 3;

// A text of an object; empty where it has none (library routines have no function).
std::string text_at(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found && found->is_string() ? found->get<std::string>() : std::string();
}

double number_at(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found && found->is_number() ? found->get<double>() : 0;
}

std::string kernel_name(const Json& kernel) {
  const std::string function = text_at(kernel, "function");
  return shown(function.empty() ? kernel.at("name").get<std::string>() : function);
}

// The line of the model that a kernel comes from, as the end of a sentence.
std::string from_text(const Json& kernel) {
  for (const Json& origin : kernel.value("origins", Json::array())) {
    const std::string source = origin.is_object() ? text_at(origin, "source") : "";
    if (!source.empty()) return "  " + shown(source);
  }
  return "";
}

std::vector<const Json*> busiest(const Json& report) {
  std::vector<const Json*> out;
  for (const Json& k : report.at("kernels")) out.push_back(&k);
  std::stable_sort(out.begin(), out.end(), [](const Json* a, const Json* b) { return number_at(*a, "us") > number_at(*b, "us"); });
  out.resize(std::min(out.size(), kListed));
  return out;
}

std::string summary(const Json& r, const Style& style) {
  std::string text =
      fmt::format("{}: {} a call, {} in {}\n", style.bold(shown(r.at("title").get<std::string>())), seconds_text(r.at("call").value("call_us", 0.0) * 1e-6),
                  seconds_text(r.at("call").value("kernels_us", 0.0) * 1e-6), count_text(r.at("kernels").size(), "kernel"));
  for (const Json* k : busiest(r)) {
    text += fmt::format("  {:>8}  {:>3.0f} %  {}{}\n", seconds_text(number_at(*k, "us") * 1e-6), 100 * number_at(*k, "share"), kernel_name(*k),
                        style.dim(from_text(*k)));
  }
  for (const Json& advice : r.at("advice")) text += "  " + advice.at("text").get<std::string>() + "\n";
  return text;
}

// What a kernel takes where nothing disturbs it: another program that takes its processor for a while makes single calls longer, not all.
double undisturbed_us(const Json& kernel) { return kernel.contains("least_us") ? number_at(kernel, "least_us") : number_at(kernel, "us"); }

// One line of a comparison: kernels that do the same there and here. Of one program, one that is only on one side was fused or is new.
struct Change {
  std::vector<const Json*> before, after;
  double us = 0;
};

std::string names_of(const std::vector<const Json*>& kernels) {
  std::string names;
  for (size_t i = 0; i < kernels.size() && i < kListed; ++i) names += (names.empty() ? "" : " + ") + kernel_name(*kernels[i]);
  return kernels.size() > kListed ? fmt::format("{} and {} more", names, kernels.size() - kListed) : names;
}

double us_of(const std::vector<const Json*>& kernels) {
  double us = 0;
  for (const Json* k : kernels) us += undisturbed_us(*k);
  return us;
}

std::vector<Change> changes_of(const Json& first, const Json& second, const report::Comparison& comparison) {
  std::vector<Change> changes;
  for (const report::Counterparts& row : comparison.rows) {
    Change c;
    for (const int n : row.a) c.before.push_back(&first.at("kernels")[static_cast<size_t>(n)]);
    for (const int n : row.b) c.after.push_back(&second.at("kernels")[static_cast<size_t>(n)]);
    c.us = us_of(c.after) - us_of(c.before);
    changes.push_back(std::move(c));
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return std::abs(a.us) > std::abs(b.us); });
  return changes;
}

std::string change_text(const Change& c, const Style& style) {
  const auto time = [](const std::vector<const Json*>& kernels) { return seconds_text(us_of(kernels) * 1e-6); };
  const std::string there = names_of(c.before), here = names_of(c.after), from = style.dim(from_text(*(c.after.empty() ? c.before : c.after)[0]));
  if (c.before.empty()) return fmt::format("  {} {}: {}{}\n", style.red("only here"), here, time(c.after), from);
  if (c.after.empty()) return fmt::format("  {} {}: {}{}\n", style.green("only there"), there, time(c.before), from);
  const bool alike = c.before.size() == 1 && c.after.size() == 1;
  return fmt::format("  {} {}: {} there{}, {} here{}\n", c.us > 0 ? style.red("slower") : style.green("faster"), here, time(c.before),
                     alike ? "" : fmt::format(" ({})", there), time(c.after), from);
}

// Programs that have little in common, by what their kernels are.
std::string kinds_text(const Json& first, const Json& second) {
  std::map<std::string, std::pair<double, double>> kinds;
  for (const Json& k : first.at("kernels")) kinds[text_at(k, "kind")].first += undisturbed_us(k);
  for (const Json& k : second.at("kernels")) kinds[text_at(k, "kind")].second += undisturbed_us(k);
  std::vector<std::pair<std::string, std::pair<double, double>>> sorted;
  for (const auto& kind : kinds) {
    if (kind.second.first + kind.second.second > 0) sorted.push_back(kind);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.first + a.second.second > b.second.first + b.second.second; });
  Table table(2, {1, 2});
  const auto time = [](double us) { return us > 0 ? seconds_text(us * 1e-6) : std::string("none"); };
  table.add({"kind", "there", "here"});
  for (const auto& [kind, us] : sorted) table.add({shown(kind), time(us.first), time(us.second)});
  return table.text();
}

// Which kernels make the second report's calls take longer (or less long) than the first one's.
std::string differences(const Json& first, const Json& second, const Style& style) {
  const report::Comparison comparison = report::compare_reports(first, second);
  const auto least_us = [](const Json& r) { return number_at(r.at("call"), "least_us"); };
  std::string text = fmt::format("{} beside {}:", style.bold(shown(second.at("title").get<std::string>())), shown(first.at("title").get<std::string>()));
  if (!comparison.one_program)
    return text + fmt::format(" different programs, a call takes {} there, {} here. Kernels with {:.0f} % of the time there and {:.0f} % here do the same.\n{}",
                              seconds_text(least_us(first) * 1e-6), seconds_text(least_us(second) * 1e-6), 100 * comparison.matched_a,
                              100 * comparison.matched_b, kinds_text(first, second));
  const std::vector<Change> changes = changes_of(first, second, comparison);
  constexpr double kNoise = 0.05, kPart = 0.1;  // of a call, and of the largest difference, beside which a small one says nothing
  const double least = std::max(kNoise * std::min(least_us(first), least_us(second)), changes.empty() ? 0 : kPart * std::abs(changes[0].us));
  std::string lines;
  for (size_t i = 0; i < std::min(changes.size(), kListed) && std::abs(changes[i].us) > least; ++i) lines += change_text(changes[i], style);
  const auto sizes = [](const Json& r) { return r.at("call").value("sizes", Json::object()); };
  if (sizes(first) != sizes(second)) text += fmt::format(" of other sizes, {} there, {} here:", shown(sizes(first).dump()), shown(sizes(second).dump()));
  if (lines.empty()) return text + " no kernel's time differs by more than 5 % of a call\n";
  return text + "\n" + lines;
}

// Of a model that is called here, or of calls that were measured before.
Status add_reports(const ReportArguments& a, const std::string& path, std::vector<std::string>* reports) {
  TRY(std::optional<std::vector<std::string>> saved, saved_reports(path));
  if (!saved) {
    TRY(reports->emplace_back(), of_manifest(path, [&] { return measured_report(a.measure, path); }));
    return ok_status();
  }
  for (std::string& text : *saved) reports->push_back(std::move(text));
  return ok_status();
}

// Writes the page; what the terminal says of it.
Result<std::string> write_page(const ReportArguments& a, const std::vector<std::string>& reports, AtomicFile& file) {
  TRY(const std::string page, report::report_page(reports));
  const Style style;
  std::vector<Json> data;
  std::string told;
  for (const std::string& text : reports) data.push_back(Json::parse(text));
  for (const Json& r : data) told += summary(r, style);
  if (data.size() == 2) told += differences(data[0], data[1], style);
  TRY_STATUS(file.write({reinterpret_cast<const uint8_t*>(page.data()), page.size()}));
  TRY_STATUS(file.commit());
  return told + fmt::format("{} ({}) opens in any browser\n", a.output, bytes_text(page.size()));
}

Result<int> report(const ReportArguments& a) {
  std::optional<AtomicFile> file;  // that it cannot be written is known before anything is compiled and measured
  if (!a.json) {
    TRY(file, AtomicFile::create(a.output));
  }
  std::vector<std::string> reports;
  for (const std::string& path : a.models) TRY_STATUS(add_reports(a, path, &reports));
  if (a.models.size() > 1 && reports.size() != 2)
    return Error{ErrorCode::bad_option, fmt::format("{} reports side by side: there is room for two", reports.size()), a.models[0],
                 "give pages that have one report each"};
  if (a.json) {
    Json all = Json::array();
    for (const std::string& text : reports) all.push_back(Json::parse(text));
    put(json_text(all.size() == 1 ? all[0] : all));
    return 0;
  }
  const auto written = [&]() -> Result<std::string> {  // a report that was saved may have anything in the place of a number
    try {
      return write_page(a, reports, *file);
    } catch (const Json::Exception& e) {
      return Error{ErrorCode::bad_json, fmt::format("a report is not as coil writes it: {}", e.what()), a.models[0],
                   "write it anew with `coil report` of the package"};
    }
  };
  TRY(const std::string told, written());
  put(told);
  return 0;
}

}  // namespace

Action add_report(CommandLine& app) {
  auto a = std::make_shared<ReportArguments>();
  app.add_option("model", a->models,
                 "package, or exported program (compiled in memory first), or a page or data (--json) of an earlier report, also from another "
                 "machine; two are shown side by side")
      .required()
      .values(1, 2)
      .type_name("MODEL|PAGE");
  app.add_option("-o,--output", a->output, "the page; default: report.html").type_name("FILE");
  add_input_options(app, a->measure.inputs);
  app.add_option("--calls", a->measure.calls, "how many calls are measured; default: 20, or as many as fit into two seconds (3 at least)")
      .within(1, 1'000'000)
      .type_name("N");
  app.add_option("--warmup", a->measure.warmup, "calls before those").within(0, 1'000'000).type_name("N");
  app.add_option("--times", a->measure.record, "a tuning record (--record of `coil compile`): what the variants of each kernel took").type_name("FILE");
  add_device_option(app, a->measure.device);
  add_program_option(app, a->measure.compile.program);
  add_threads_option(app, a->measure.threads, "threads of a call; default: all that this process may use");
  add_compile_options(app, a->measure.compile);
  app.add_flag("--json", a->json, "print the report's data instead of writing a page");
  app.footer(
      "Examples:\n"
      "  coil report model.coil.pt2 --shape batch=8\n"
      "  coil report untuned.coil.pt2 tuned.coil.pt2 -o both.html\n"
      "  coil report here.html there.html -o both.html        two machines\n"
      "The page is one file that loads nothing: it can be mailed, kept, and read offline.");
  return [a] { return report(*a); };
}

}  // namespace coil::tool
