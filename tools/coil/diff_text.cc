#include "diff_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "compiler/interface.h"
#include "example_call.h"
#include "runtime/model.h"

namespace coil::tool {
namespace {

std::string number_text(double v) { return std::fabs(v) < 1e15 && v == std::trunc(v) ? fmt::format("{:.0f}", v) : fmt::format("{:.9g}", v); }
Json number(double v) { return std::isfinite(v) ? Json(v) : Json(fmt::format("{}", v)); }

// Where the kernel comes from: its operators, modules and lines.
std::string origin_lines(const KernelPlace& p, const Style& style) {
  std::string text = fmt::format("  operators  {}\n", shown(fmt::format("{}", fmt::join(p.ops, ", "))));
  std::vector<std::string> seen;
  for (const Origin& o : p.origins) {
    std::string line = o.source + (o.module_path.empty() ? "" : " (" + o.module_path + ")") + (o.source_line.empty() ? "" : ": " + o.source_line);
    if (o.source.empty() || std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
    text += fmt::format("  {}  {}\n", seen.empty() ? "model    " : "         ", style.dim(line));
    seen.push_back(std::move(line));
  }
  return text;
}

Json place_json(const KernelPlace& p) {
  Json origins = Json::array();
  for (const Origin& o : p.origins) origins.push_back({{"module", o.module_path}, {"source", o.source}, {"line", o.source_line}});
  return {{"kernel", p.kernel}, {"name", p.name}, {"function", p.function}, {"ops", p.ops}, {"origins", origins}};
}

const char* kind_name(KernelDifference::Kind kind) {
  return kind == KernelDifference::Kind::wrong ? "wrong" : kind == KernelDifference::Kind::unordered ? "unordered" : "overwritten";
}

}  // namespace

std::string difference_text(const KernelDifference& d, const Style& style) {
  const std::string name = style.bold(d.place.function.empty() ? d.place.name : d.place.function);
  const std::string element = fmt::format("{}[{}]", shown(d.value), fmt::join(d.index, ", "));
  std::string text;
  switch (d.kind) {
    case KernelDifference::Kind::wrong:
      text = fmt::format("{} kernel {}: {} is {}, expected {} within {:.2g}; {} of {} differ\n", style.red("wrong"), name, element, number_text(d.found),
                         number_text(d.expected), d.bound, d.different, count_text(static_cast<size_t>(d.elements), "element"));
      break;
    case KernelDifference::Kind::unordered:
      text = fmt::format("{} kernel {}: {} is {} {}, and {} otherwise; {} of {} differ. Parts of its loop that run at the same time depend on each other\n",
                         style.red("race"), name, element, number_text(d.found), d.detail, number_text(d.expected), d.different,
                         count_text(static_cast<size_t>(d.elements), "element"));
      break;
    case KernelDifference::Kind::overwritten:
      text =
          fmt::format("{} kernel {} changes the memory of {} (of {}), which a later kernel reads\n", style.red("overwritten"), name, element, shown(d.detail));
      break;
  }
  return text + origin_lines(d.place, style);
}

std::string nonfinite_text(const NonFinite& n, const Style& style) {
  return fmt::format("first {}: {}[{}] of kernel {}, from {}{}\n", n.what, style.bold(n.value), fmt::join(n.index, ", "), n.place.name, shown(n.from),
                     n.where.empty() ? "" : " at " + shown(n.where));
}

std::string result_text(const ResultDiff& r, const std::string& beside, const Style& style) {
  return fmt::format("{} result {} ('{}'): [{}] is {}, and {} of {}, within {:.2g}; {} of {} differ, by at most {:.2g} of the largest number\n",
                     style.red("different"), r.result, shown(r.name), fmt::join(r.index, ", "), number_text(r.found), number_text(r.expected), beside, r.bound,
                     r.different, count_text(static_cast<size_t>(r.elements), "element"), r.worst);
}

Json difference_json(const KernelDifference& d) {
  Json out = place_json(d.place);
  out.update({{"kind", kind_name(d.kind)},
              {"value", d.value},
              {"dtype", name(d.dtype)},
              {"index", d.index},
              {"found", number(d.found)},
              {"expected", number(d.expected)},
              {"bound", number(d.bound)},
              {"different", d.different},
              {"elements", d.elements}});
  if (!d.detail.empty()) out["detail"] = d.detail;
  return out;
}

Json nonfinite_json(const NonFinite& n) {
  Json out = place_json(n.place);
  out.update({{"value", n.value}, {"what", n.what}, {"index", n.index}, {"from", n.from}, {"where", n.where}});
  return out;
}

Json result_json(const ResultDiff& r) {
  Json out = {{"result", r.result},     {"name", r.name},           {"dtype", name(r.dtype)},
              {"elements", r.elements}, {"different", r.different}, {"largest_relative", number(r.worst)}};
  if (r.different > 0) out.update({{"index", r.index}, {"found", number(r.found)}, {"expected", number(r.expected)}, {"bound", number(r.bound)}});
  return out;
}

static Status gather(const GivenInputs& given, const std::string& text, const Json& manifest, CallInputs* inputs) {
  TRY(const runtime::Manifest interface, runtime::parse_manifest(text));
  TRY(Sizes sizes, Sizes::read(manifest));
  return example_inputs(given, interface, manifest, sizes, inputs);
}

Status gather_for_program(const GivenInputs& given, const Graph& graph, const CompileOptions& options, CallInputs* inputs) {
  TRY(const std::string text, interface_text(graph, options));
  return gather(given, text, Json::parse(text), inputs);
}

Status gather_for_package(const GivenInputs& given, std::span<const uint8_t> package, CallInputs* inputs) {
  TRY(const ZipReader zip, ZipReader::from_bytes(package, "the program"));
  TRY(const Json manifest, read_manifest(zip));
  return gather(given, manifest.dump(), manifest, inputs);
}

Json verdicts_json(const WatchedBuild& build, const KernelDiff& diff) {
  Json rows = Json::array();
  for (const KernelVerdict& v : diff.kernels) {
    Json row = {{"kernel", v.kernel}, {"name", place_of(build, v.kernel).name}, {"compared", v.compared}, {"largest_error", v.largest_error}};
    if (!v.compared) row["why_not"] = v.why_not;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace coil::tool
