// The page of a report: the template of page/ with the reports as data inside.
#include "report/compare.h"
#include "report/page_text.h"
#include "report/report.h"

#include "base/json.h"

namespace coil::report {
namespace {

constexpr size_t kMostBytes = 2'000'000;

// JSON that ends no script and begins no markup, wherever it stands.
std::string inert(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      out += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

void replace(std::string* text, std::string_view mark, std::string_view with) {
  const size_t at = text->find(mark);
  CHECK(at != std::string::npos, mark);
  text->replace(at, mark.size(), with);
}

std::string page_of(const Json& reports) {
  std::string page(kPageHtml);
  replace(&page, "/*STYLE*/", kPageCss);
  replace(&page, "/*LIBRARY*/", kPageLibrary);
  replace(&page, "/*SCRIPT*/", kPageJs);
  replace(&page, "/*DATA*/", inert(reports.dump(-1, true)));
  return page;
}

}  // namespace

// Where the code is too much, the longest functions go first.
Result<std::string> report_page(const std::vector<std::string>& reports) {
  Json all = Json::array();
  for (const std::string& text : reports) all.push_back(Json::parse(text));
  if (all.size() == 2) all[1]["beside"] = to_json(compare_reports(all[0], all[1]));
  for (size_t most = size_t{1} << 20;; most /= 4) {
    std::string page = page_of(all);
    if (page.size() <= kMostBytes) return page;
    if (most < 64) return Error{ErrorCode::bad_package, "the report of a program of so many kernels is larger than 2 MB", "", "use --json, which has no limit"};
    for (Json& report : all) {
      for (Json& kernel : report["kernels"]) kernel.erase("call");
      for (auto& [name, function] : report["sources"].items()) {
        if (function["text"].as_string().size() > most) function["text"] = "// left out: the page may have 2 MB. coil inspect --source " + name + "\n";
      }
    }
  }
}

}  // namespace coil::report
