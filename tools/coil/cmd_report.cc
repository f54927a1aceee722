// coil report: one page about a model, or about two side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "archive_kind.h"
#include "base/files.h"
#include "base/text.h"
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

constexpr size_t kListed = 3;

// A text of an object; empty where it has none (library routines have no function).
std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
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

// Which kernels make the second report's calls take longer (or less long) than the first one's: those of a name, in order.
std::string differences(const Json& first, const Json& second, const Style& style) {
  struct Pair {
    const Json *before, *after;
    double change() const { return (after ? undisturbed_us(*after) : 0) - (before ? undisturbed_us(*before) : 0); }
  };
  std::map<std::pair<std::string, int>, Pair> pairs;
  for (const auto& [report, place] : {std::pair(&first, &Pair::before), std::pair(&second, &Pair::after)}) {
    std::map<std::string, int> met;
    for (const Json& k : report->at("kernels")) {
      const std::string name = k.at("name");
      pairs.try_emplace({name, met[name]++}, Pair{nullptr, nullptr}).first->second.*place = &k;
    }
  }
  std::vector<Pair> sorted;
  for (const auto& [name, pair] : pairs) sorted.push_back(pair);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Pair& a, const Pair& b) { return std::abs(a.change()) > std::abs(b.change()); });
  constexpr double kNoise = 0.05, kPart = 0.1;  // of a call, and of the largest difference, beside which a small one says nothing
  const double least = std::max(kNoise * std::min(number_at(first.at("call"), "least_us"), number_at(second.at("call"), "least_us")),
                                sorted.empty() ? 0 : kPart * std::abs(sorted[0].change()));
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kListed) && std::abs(sorted[i].change()) > least; ++i) {
    const auto& [before, after] = sorted[i];
    const auto time = [](const Json* k) { return k ? seconds_text(undisturbed_us(*k) * 1e-6) : std::string("nothing"); };
    text += fmt::format("  {} {}: {} there, {} here{}\n", sorted[i].change() > 0 ? style.red("slower") : style.green("faster"),
                        kernel_name(after ? *after : *before), time(before), time(after), style.dim(from_text(after ? *after : *before)));
  }
  if (text.empty()) return "no kernel's time differs by more than 5 % of a call\n";
  return fmt::format("{} beside {}:\n{}", style.bold(shown(second.at("title").get<std::string>())), shown(first.at("title").get<std::string>()), text);
}

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
  std::vector<Json> data;
  for (const std::string& text : reports) data.push_back(Json::parse(text));
  for (const Json& r : data) put(summary(r, style));
  if (data.size() == 2) put(differences(data[0], data[1], style));
  put(fmt::format("{} ({}) opens in any browser\n", a.output, bytes_text(page.size())));
  return 0;
}

}  // namespace

Action add_report(CommandLine& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("model", a->models, "package, or exported program (compiled in memory first); two are shown side by side")
      .required()
      .values(1, 2)
      .type_name("MODEL");
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
      "The page is one file that loads nothing: it can be mailed, kept, and read offline.");
  return [a] { return report(*a); };
}

}  // namespace coil::tool
