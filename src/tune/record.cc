#include "tune/record.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include "base/json.h"

#include "tune/record_format.h"

#include "base/host_machine.h"
#include "base/machines.h"

namespace coil::tune {
namespace {

double rounded(double v) { return std::round(v * 1000) / 1000; }

Json sizes_json(const std::map<std::string, int64_t>& sizes) {
  Json j = Json::object();
  for (const auto& [name, value] : sizes) j[name] = value;
  return j;
}

std::string sizes_text(const std::map<std::string, int64_t>& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : sizes) parts.push_back(fmt::format("{}={}", name, value));
  return fmt::format("{}", fmt::join(parts, " "));
}

Json hardware_json(const Hardware& h) {
  if (h.is_gpu()) return {{"gpu", h.processor}, {"architecture", h.isa}, {"multiprocessors", h.units}};
  return {{"cpu", h.processor}, {"isa", h.isa}, {"threads", h.units}};
}

Json choice_json(const NamedChoice& choice) {
  Json j = Json::object();
  for (const auto& [name, value] : choice) j[name] = value;
  return j;
}

Json to_json(const Entry& e) {
  Json rows = Json::array(), measured = Json::array();
  for (const Row& r : e.rows) {
    rows.push_back({{"up_to", r.up_to == INT64_MAX ? Json(nullptr) : Json(r.up_to)}, {"choice", choice_json(r.choice)}, {"text", r.text}});
  }
  for (const MeasuredPoint& p : e.measured) {
    Json timings = Json::array();
    for (const Timing& t : p.timings) {
      Json row = {{"choice", t.choice}, {"median_us", rounded(t.median)}, {"quartiles_us", {rounded(t.low), rounded(t.high)}}, {"samples", t.samples}};
      if (!t.fault.empty()) row["fault"] = t.fault;
      timings.push_back(row);
    }
    measured.push_back({{"sizes", sizes_json(p.sizes)}, {"key", p.key}, {"chosen", p.chosen}, {"reason", p.reason}, {"timings", timings}});
  }
  Json j = {{"problem", e.problem}, {"kernel", e.kernel}, {"kernels", e.kernels}, {"key", e.key}, {"rows", rows}, {"measured", measured}};
  for (const NamedChoice& c : e.to_time) j["to_time"].push_back(choice_json(c));
  return j;
}

}  // namespace

std::string Hardware::text() const {
  if (is_gpu()) return fmt::format("{}, {}, {} multiprocessors", processor, isa, units);
  const HostLevel* level = find_level(isa).level;
  return fmt::format("{}, {}, {} thread{}", processor, level ? level->full_name : std::string_view(isa), units, units == 1 ? "" : "s");
}

const Entry* Record::find(std::string_view problem) const {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.problem == problem; });
  return it == entries.end() ? nullptr : &*it;
}

std::string record_text(const Record& r) {
  Json whole = Json::array(), problems = Json::array();
  for (const WholeProgram& w : r.whole) {
    whole.push_back({{"sizes", sizes_json(w.sizes)}, {"untuned_us", rounded(w.untuned)}, {"tuned_us", rounded(w.tuned)}, {"kept", w.kept}});
  }
  for (const Entry& e : r.entries) problems.push_back(to_json(e));
  Json j = {{"coil_tuning", kFormat}, {"coil", COIL_VERSION}, {"hardware", hardware_json(r.hardware)}};
  if (r.machine) j["machine"] = machine_json(*r.machine, r.hardware.processor);
  j.update({{"untimed", r.untimed}, {"seconds", rounded(r.seconds)}, {"runs", r.runs}, {"whole_program", whole}, {"problems", problems}});
  return j.dump(1) + "\n";
}

Status merge(Record& into, const Record& more) {
  if (more.untimed) return ok_status();
  if (!(into.hardware == more.hardware)) {
    return Error{ErrorCode::tuning_record, fmt::format("a record of [{}] does not go with one of [{}]", more.hardware.text(), into.hardware.text()), "",
                 "keep one record for each kind of machine"};
  }
  for (const Entry& e : more.entries) {
    if (!into.find(e.problem)) into.entries.push_back(e);
  }
  return ok_status();
}

std::string record_tables(const Record& r) {
  std::string text = fmt::format("Tuned on {} in {:.1f} s, {} runs of the program\n", r.hardware.text(), r.seconds, r.runs);
  for (const WholeProgram& w : r.whole) {
    text += fmt::format("whole program{}{}: {:.1f} us untuned, {:.1f} us tuned{}\n", w.sizes.empty() ? "" : " ", sizes_text(w.sizes), w.untuned, w.tuned,
                        w.kept ? "" : " (not surely faster: the defaults stay)");
  }
  for (const Entry& e : r.entries) {
    for (const MeasuredPoint& p : e.measured) {
      text += fmt::format("\nAUTOTUNE {}{}{}\n  kernel {}{}\n", e.problem, p.sizes.empty() ? "" : " at ", sizes_text(p.sizes), e.kernel,
                          e.kernels > 1 ? fmt::format(" and {} more", e.kernels - 1) : "");
      std::vector<Timing> sorted = p.timings;
      std::stable_sort(sorted.begin(), sorted.end(), [](const Timing& a, const Timing& b) { return a.median < b.median; });
      const double best = sorted.empty() ? 0 : sorted[0].median;
      for (const Timing& t : sorted) {
        text += fmt::format("  {:>10.1f} us {:>5.1f} %  {:>8.1f} .. {:<8.1f} {:>3} samples  {}{}{}\n", t.median, t.median > 0 ? 100 * best / t.median : 100.0,
                            t.low, t.high, t.samples, t.choice, t.choice == p.chosen ? "  <- chosen" : "", t.fault.empty() ? "" : "  (" + t.fault + ")");
      }
      text += fmt::format("  {}: {}\n", p.chosen, p.reason);
    }
  }
  return text;
}

}  // namespace coil::tune
