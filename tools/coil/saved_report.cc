#include "saved_report.h"

#include <fmt/format.h>

#include <array>

#include "archive_kind.h"
#include "base/files.h"
#include "base/json_read.h"
#include "base/text.h"

namespace coil::tool {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 26;
constexpr std::string_view kPage = "<!DOCTYPE html>", kData = "<script type=\"application/json\" id=\"data\">", kEnd = "</script>";

Error no_report(const std::string& path, const std::string& why) {
  return Error{ErrorCode::bad_json, "this is no report: " + why, path, "give a page that `coil report` wrote, or what `coil report --json` printed"};
}

// What the page and the comparison read of every report; what may be absent they look for.
Status check(const Json& r, const std::string& path) {
  if (!r.is_object() || r.value("report", 0) != 1) return no_report(path, "it has no \"report\": 1");
  constexpr std::array kLists = {"kernels", "advice", "not_fused", "inputs", "outputs", "targets", "layouts"};
  for (const char* key : kLists) {
    const auto list = r.find(key);
    if (list == r.end() || !list->is_array()) return no_report(path, fmt::format("'{}' is not a list", key));
    for (const Json& each : *list) {
      if (!each.is_object()) return no_report(path, fmt::format("'{}' has something that is no object", key));
    }
  }
  constexpr std::array kObjects = {"call", "limits", "memory", "sources"};
  for (const char* key : kObjects) {
    if (!r.contains(key) || !r.at(key).is_object()) return no_report(path, fmt::format("'{}' is not an object", key));
  }
  if (!r.contains("title") || !r.at("title").is_string()) return no_report(path, "it has no title");
  if (!r.at("memory").contains("buffers") || !r.at("memory").at("buffers").is_array()) return no_report(path, "its memory has no buffers");
  int64_t n = 0;
  for (const Json& k : r.at("kernels")) {
    const bool right = k.contains("n") && k.at("n").is_number_integer() && k.at("n").get<int64_t>() == n++ && k.contains("name") && k.at("name").is_string();
    if (!right) return no_report(path, fmt::format("kernel {} has no name, or another number", n - 1));
  }
  for (const Json& a : r.at("advice")) {
    if (!a.contains("text") || !a.at("text").is_string() || !a.contains("kernels") || !a.at("kernels").is_array())
      return no_report(path, "its advice has no text");
  }
  return ok_status();
}

}  // namespace

Result<std::optional<std::vector<std::string>>> saved_reports(const std::string& path) {
  {
    TRY(const MappedFile file, MappedFile::open(path));
    const std::string_view begin(reinterpret_cast<const char*>(file.bytes().data()), std::min(file.bytes().size(), kPage.size()));
    const size_t first = begin.find_first_not_of(" \t\r\n");
    if (begin != kPage && (first == std::string_view::npos || (begin[first] != '{' && begin[first] != '['))) return std::optional<std::vector<std::string>>{};
  }
  TRY(std::string text, read_text_file(path, kMostBytes));
  if (text.starts_with(kPage)) {
    const size_t at = text.find(kData), end = at == std::string::npos ? at : text.find(kEnd, at);
    if (end == std::string::npos) return no_report(path, "the page has no data of one");
    text = text.substr(at + kData.size(), end - at - kData.size());
  }
  TRY([[maybe_unused]] const JsonDoc bounded, JsonDoc::parse(text, shown(path), {.max_depth = 32, .max_bytes = kMostBytes}));
  Json all = Json::try_parse(text).value_or(Json());
  if (all.is_object()) all = Json::array({all});
  if (!all.is_array() || all.empty()) return no_report(path, "it is neither one nor a list of them");
  std::vector<std::string> reports;
  for (Json& r : all) {
    try {
      TRY_STATUS(check(r, path));
    } catch (const Json::Exception& e) {  // a member of another kind
      return no_report(path, e.what());
    }
    r.erase("beside");
    reports.push_back(r.dump());
  }
  return std::optional(std::move(reports));
}

}  // namespace coil::tool
