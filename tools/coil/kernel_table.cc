#include "kernel_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace coil::tool {
namespace {

std::string rate_text(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_number() && row[key].get<double>() > 0 ? fmt::format("{:.3g}", row[key].get<double>()) : "";
}

// "43 % memory": the least time that the machine needs for it, of the time that it took.
std::string roof_text(const report::Limits& limits, const Json& k) {
  if (!k.contains("bytes") || !k.contains("flops")) return "";
  const double launches = std::max(k.at("launches").get<double>(), 1e-9);
  const report::Roof roof = report::roof_of(limits, k["bytes"].get<double>() / launches, k["flops"].get<double>() / launches);
  const double us = k.at("us").get<double>() / launches;
  return roof.us > 0 && us > 0 ? fmt::format("{:.0f} % {}", 100 * roof.us / us, roof.bound) : "";
}

// Where it comes from: "layers.0.attention (model.py:12)". Long names are cut, so that a row stays one.
std::string place_text(const Json& k) {
  constexpr size_t kMost = 80;
  const auto cut = [](const std::string& text) { return text.size() > kMost ? std::string(clipped(text, kMost - 3)) + "..." : text; };
  const std::string module = cut(k.value("module", "")), source = cut(k.value("source", ""));
  if (module.empty()) return source;
  return source.empty() ? module : fmt::format("{} ({})", module, source.substr(0, source.find(" in ")));
}

}  // namespace

std::string kernels_text(const Json& model, const report::Limits& limits, int top, const Style& style) {
  Table table(2, {0, 1, 2, 3, 4});
  table.add({style.dim("share"), "time", "launches", "GB/s", "GFLOP/s", "of the roof", "kernel", "from"});
  int rows = 0;
  double rest = 0;
  for (const Json& k : model.at("kernels")) {
    if (rows++ >= top) {
      rest += k.at("us").get<double>();
      continue;
    }
    std::string name = k.at("name").get<std::string>();
    if (name.size() > 48) name = name.substr(0, 45) + "...";
    table.add({fmt::format("{:.1f} %", 100 * k.at("share").get<double>()), seconds_text(k.at("us").get<double>() * 1e-6),
               fmt::format("{:.4g}", k.at("launches").get<double>()), rate_text(k, "gb_s"), rate_text(k, "gflop_s"), roof_text(limits, k), style.bold(name),
               style.dim(place_text(k))});
  }
  std::string text = table.text();
  if (rows > top)
    text +=
        fmt::format("  and {} of {} together; --top {} shows them\n", count_text(static_cast<size_t>(rows - top), "kernel"), seconds_text(rest * 1e-6), rows);
  return text;
}

std::vector<std::string> limits_row(const report::Limits& limits) {
  const std::string caches = limits.cache_gb_s > 0 ? fmt::format(", {:.3g} from caches", limits.cache_gb_s) : "";
  return {"roof", fmt::format("{:.3g} GB/s", limits.memory_gb_s), fmt::format("from memory{}, {:.4g} GFLOP/s; {}", caches, limits.gflop_s, limits.how)};
}

}  // namespace coil::tool
