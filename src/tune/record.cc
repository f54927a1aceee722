#include "tune/record.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace coil::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

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

NamedChoice choice_of(const Json& j) {
  NamedChoice choice;
  for (const auto& [name, value] : j.items()) choice[name] = value.get<int32_t>();
  return choice;
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

Entry entry_of(const Json& j) {
  Entry e;
  e.problem = j.at("problem").get<std::string>();
  e.kernel = j.value("kernel", "");
  e.kernels = j.value("kernels", 1);
  e.key = j.value("key", "");
  for (const Json& r : j.at("rows")) {
    Row row;
    if (!r.at("up_to").is_null()) row.up_to = r["up_to"].get<int64_t>();
    row.choice = choice_of(r.at("choice"));
    row.text = r.value("text", "");
    e.rows.push_back(std::move(row));
  }
  for (const Json& c : j.value("to_time", Json::array())) e.to_time.push_back(choice_of(c));
  for (const Json& m : j.value("measured", Json::array())) {
    MeasuredPoint p;
    for (const auto& [name, value] : m.at("sizes").items()) p.sizes[name] = value.get<int64_t>();
    p.key = m.value("key", int64_t{0});
    p.chosen = m.value("chosen", "");
    p.reason = m.value("reason", "");
    for (const Json& t : m.value("timings", Json::array())) {
      Timing timing;
      timing.choice = t.value("choice", "");
      timing.median = t.at("median_us").get<double>();
      timing.low = t.at("quartiles_us").at(0).get<double>();
      timing.high = t.at("quartiles_us").at(1).get<double>();
      timing.samples = t.value("samples", 0);
      timing.fault = t.value("fault", "");
      p.timings.push_back(std::move(timing));
    }
    e.measured.push_back(std::move(p));
  }
  return e;
}

// Rows must rise and end without a bound: the generated program relies on it.
bool rises(const Entry& e) {
  for (size_t i = 0; i + 1 < e.rows.size(); ++i) {
    if (e.rows[i].up_to >= e.rows[i + 1].up_to) return false;
  }
  return !e.rows.empty() && e.rows.back().up_to == INT64_MAX;
}

Record record_of(const Json& j) {
  Record r;
  const Json& h = j.at("hardware");
  const bool gpu = h.contains("gpu");
  r.hardware = {h.at(gpu ? "gpu" : "cpu").get<std::string>(), h.at(gpu ? "architecture" : "isa").get<std::string>(), h.at(gpu ? "multiprocessors" : "threads").get<int>()};
  r.seconds = j.value("seconds", 0.0);
  r.runs = j.value("runs", 0);
  r.untimed = j.value("untimed", false);
  for (const Json& e : j.at("problems")) r.entries.push_back(entry_of(e));
  for (const Json& w : j.value("whole_program", Json::array())) {
    WholeProgram whole;
    for (const auto& [name, value] : w.at("sizes").items()) whole.sizes[name] = value.get<int64_t>();
    whole.untuned = w.at("untuned_us").get<double>();
    whole.tuned = w.at("tuned_us").get<double>();
    whole.kept = w.value("kept", false);
    r.whole.push_back(std::move(whole));
  }
  return r;
}

}  // namespace

std::string Hardware::text() const {
  if (is_gpu()) return fmt::format("{}, {}, {} multiprocessors", processor, isa, units);
  return fmt::format("{}, x86-64-{}, {} thread{}", processor, isa, units, units == 1 ? "" : "s");
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
  const Json j = {{"coil_tuning", kFormat},
                  {"coil", COIL_VERSION},
                  {"hardware", hardware_json(r.hardware)},
                  {"untimed", r.untimed},
                  {"seconds", rounded(r.seconds)},
                  {"runs", r.runs},
                  {"whole_program", whole},
                  {"problems", problems}};
  return j.dump(1) + "\n";
}

Result<Record> parse_record(std::string_view text, const std::string& name) {
  const auto bad = [&](const std::string& why) {
    return Error{ErrorCode::tuning_record, "this is no tuning record of coil: " + why, name, "records are written by `coil compile --tune ... --record FILE`"};
  };
  try {
    const Json j = Json::parse(text);
    if (!j.is_object() || !j.contains("coil_tuning")) return bad("it lacks \"coil_tuning\"");
    if (j["coil_tuning"] != kFormat) return bad(fmt::format("its format is {}, this version of coil reads {}", j["coil_tuning"].dump(), kFormat));
    Record r = record_of(j);
    for (const Entry& e : r.entries) {
      if (!r.untimed && !rises(e)) return bad(fmt::format("the rows of '{}' do not rise to a last one without a bound", e.problem));
    }
    return r;
  } catch (const Json::exception& e) {
    return bad(e.what());
  }
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
                        w.kept ? "" : " (not surely faster: the own rules stay)");
  }
  for (const Entry& e : r.entries) {
    for (const MeasuredPoint& p : e.measured) {
      text += fmt::format("\nAUTOTUNE {}{}{}\n  kernel {}{}\n", e.problem, p.sizes.empty() ? "" : " at ", sizes_text(p.sizes), e.kernel,
                          e.kernels > 1 ? fmt::format(" and {} more", e.kernels - 1) : "");
      std::vector<Timing> sorted = p.timings;
      std::stable_sort(sorted.begin(), sorted.end(), [](const Timing& a, const Timing& b) { return a.median < b.median; });
      const double best = sorted.empty() ? 0 : sorted[0].median;
      for (const Timing& t : sorted) {
        text += fmt::format("  {:>10.1f} us {:>5.1f} %  {:>8.1f} .. {:<8.1f} {:>3} samples  {}{}{}\n", t.median, t.median > 0 ? 100 * best / t.median : 100.0, t.low, t.high,
                            t.samples, t.choice, t.choice == p.chosen ? "  <- chosen" : "", t.fault.empty() ? "" : "  (" + t.fault + ")");
      }
      text += fmt::format("  {}: {}\n", p.chosen, p.reason);
    }
  }
  return text;
}

}  // namespace coil::tune
