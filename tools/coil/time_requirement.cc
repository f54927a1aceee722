#include "time_requirement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "base/files.h"
#include "base/machine.h"
#include "base/text.h"
#include "example_call.h"
#include "pattern.h"
#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

constexpr int kRounds = 3;  // the least of their medians counts: what else the machine does makes calls slower, never faster
constexpr double kRoundSeconds = 0.7;
constexpr size_t kLeastCalls = 3, kMostCalls = 2000;  // of a round
constexpr double kShortestTimed = 20e-6;              // calls shorter than this are timed several at a time
constexpr uint64_t kMostRecordBytes = uint64_t{1} << 24;

struct Wanted {
  std::string text;
  std::vector<std::string> shapes;  // "batch=1"
  std::string comparison;
  double factor = 0;  // of the record; 0: `us` is meant
  double us = 0;
};

Error bad(const std::string& text, const std::string& what, const std::string& hint = "write it like \"time(batch=1) <= 1.2 * record\" or \"time <= 5 ms\"") {
  return Error{ErrorCode::bad_option, fmt::format("--require '{}': {}", shown(text), what), "", hint};
}

Result<Wanted> parse(const std::string& text) {
#define SPACE "[[:space:]]*"
  constexpr const char* kForm = SPACE "time" SPACE "(\\(([^()]*)\\))?" SPACE "(<=|<)" SPACE "((([0-9]+(\\.[0-9]+)?)" SPACE "\\*" SPACE
                                      ")?(record)|([0-9]+(\\.[0-9]+)?)" SPACE "(us|ms|s))" SPACE;
#undef SPACE
  const auto m = text.size() > 1000 ? std::nullopt : match(kForm, text);
  if (!m) return bad(text.substr(0, 60), "it is no requirement about time");
  const std::string &sizes = m->at(2), &factor = m->at(6), &record = m->at(8), &amount = m->at(9), &unit = m->at(11);
  Wanted w{text, {}, m->at(3), 0, 0};
  std::istringstream shapes(sizes);
  for (std::string word; std::getline(shapes, word, ',');) {
    std::erase(word, ' ');
    if (!word.empty()) w.shapes.push_back(word);
  }
  const auto number = [](const std::string& digits) { return digits.size() > 18 ? -1.0 : std::stod(digits); };
  if (!record.empty()) w.factor = factor.empty() ? 1 : number(factor);
  else w.us = number(amount) * (unit == "s" ? 1e6 : unit == "ms" ? 1e3 : 1);
  if (w.factor < 0 || w.us < 0 || (!record.empty() && w.factor == 0)) return bad(text, "its number is out of range");
  return w;
}

struct Measured {
  double us = 0, low = 0, high = 0;  // the least of the rounds' medians; 10 % and 90 % of that round
  size_t calls = 0;
  std::string machine, program;
  std::map<std::string, int64_t> sizes;
};

// One round: seconds a call, sorted.
Result<std::vector<double>> round_of(Caller& caller, size_t batch) {
  std::vector<double> seconds;
  const double begin = seconds_now();
  do {
    const double start = seconds_now();
    for (size_t i = 0; i < batch; ++i) {
      TRY_STATUS(caller.call());
    }
    TRY_STATUS(caller.synchronise());
    seconds.push_back((seconds_now() - start) / static_cast<double>(batch));
  } while (seconds.size() < kLeastCalls || (seconds.size() < kMostCalls && seconds_now() - begin < kRoundSeconds));
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

Result<Measured> measure(const LoadedModel& loaded, const MeasureArguments& a, const std::vector<std::string>& shapes) {
  GivenInputs all = a.inputs;  // those of the requirement come last, and count
  for (const std::string& s : shapes) {
    const std::string name = s.substr(0, s.find('=') + 1);
    std::erase_if(all.shapes, [&](const std::string& other) { return other.starts_with(name); });
    all.shapes.push_back(s);
  }
  TRY(Sizes sizes, Sizes::read(loaded.manifest));
  CallInputs inputs;
  TRY_STATUS(example_inputs(all, loaded, sizes, &inputs));
  Measured m;
  for (const DynamicSize& s : sizes.symbols()) {
    if (!s.of_inputs()) continue;
    TRY(m.sizes[s.name], sizes.evaluate(Json(s.name)));
  }
  runtime::Context context(loaded.model);
  TRY(const DeviceInputs on_device, DeviceInputs::make(*loaded.model, inputs));
  Caller caller(context, on_device);
  for (int i = 0; i < std::max(a.warmup, 1); ++i) TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  const double start = seconds_now();
  TRY_STATUS(caller.call());
  TRY_STATUS(caller.synchronise());
  const size_t batch = static_cast<size_t>(std::clamp(kShortestTimed / std::max(seconds_now() - start, 1e-9), 1.0, 1e4));
  for (int r = 0; r < kRounds; ++r) {
    TRY(const std::vector<double> seconds, round_of(caller, batch));
    m.calls += seconds.size() * batch;
    const auto quantile = [&](double q) { return 1e6 * seconds[static_cast<size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)]; };
    if (r == 0 || quantile(0.5) < m.us) m.us = quantile(0.5), m.low = quantile(0.1), m.high = quantile(0.9);
  }
  const runtime::Model& model = *loaded.model;
  m.machine = model.cuda() ? fmt::format("{}, {}", where_text(model), model.isa())
                           : fmt::format("{}, {}, {}", cpu_name(), model.isa(), count_text(static_cast<size_t>(model.host().num_workers), "thread"));
  if (model.package().several) m.program = model.package().program;
  return m;
}

// model.coil.pt2 -> model.coil.times.json
std::string path_beside(const std::string& model) { return (model.ends_with(".pt2") ? model.substr(0, model.size() - 4) : model) + ".times.json"; }

class RecordFile {
 public:
  static Result<RecordFile> read(const std::string& path) {
    RecordFile r;
    r.path_ = path;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return r;
    TRY(const std::string text, read_text_file(path, kMostRecordBytes));
    const Json json = Json::try_parse(text).value_or(Json());
    const Error wrong{ErrorCode::bad_json, "it is no record of times: it has no list \"times\"", path, "write it with --update-times"};
    if (!json.is_object() || !json.contains("times") || !json["times"].is_array()) return wrong;
    for (const Json& t : json["times"]) {
      const bool good = t.is_object() && t.contains("us") && t["us"].is_number() && t.contains("machine") && t["machine"].is_string() && t.contains("sizes") &&
                        t["sizes"].is_object();
      if (!good) return wrong;
    }
    r.times_ = json["times"];
    return r;
  }

  bool exists() const { return !times_.empty(); }
  // The time of the same calls on the same machine; null: none.
  const Json* find(const Measured& m) const {
    for (const Json& t : times_) {
      if (t["machine"] == m.machine && same_calls(t, m)) return &t;
    }
    return nullptr;
  }
  // The machines that it has such calls of.
  std::string machines(const Measured& m) const {
    std::vector<std::string> found;
    for (const Json& t : times_) {
      if (same_calls(t, m)) found.push_back(shown(t["machine"].get<std::string>()));
    }
    return fmt::format("{}", fmt::join(found, "; "));
  }
  void put(const Measured& m) {
    Json rows = Json::array();
    for (const Json& t : times_) {
      if (!(t["machine"] == m.machine && same_calls(t, m))) rows.push_back(t);
    }
    Json row = {{"machine", m.machine}};
    if (!m.program.empty()) row["program"] = m.program;
    row["sizes"] = m.sizes;
    row["us"] = m.us, row["low_us"] = m.low, row["high_us"] = m.high;
    rows.push_back(std::move(row));
    times_ = std::move(rows);
    changed_ = true;
  }
  Status save() const { return changed_ ? write_file(path_, std::string_view(json_text({{"times", times_}}))) : ok_status(); }
  const std::string& path() const { return path_; }

 private:
  static bool same_calls(const Json& t, const Measured& m) {
    return t["sizes"] == Json(m.sizes) && (t.contains("program") ? t["program"] : Json("")) == m.program;
  }
  std::string path_;
  Json times_ = Json::array();
  bool changed_ = false;
};

std::string spread_text(const Measured& m) {
  return fmt::format("{} a call (median; {} to {}, the best of {} rounds, {})", seconds_text(m.us * 1e-6), seconds_text(m.low * 1e-6),
                     seconds_text(m.high * 1e-6), kRounds, count_text(m.calls, "call"));
}

Result<Requirement> compare(const Wanted& w, const Measured& m, RecordFile& file, bool update) {
  double limit = w.us;
  std::string against;
  if (w.factor > 0 && update) {
    file.put(m);
    return Requirement{w.text, true, spread_text(m) + ", which is the record now"};
  }
  if (w.factor > 0) {
    const Json* known = file.find(m);
    if (!known) {
      const std::string others = file.machines(m);
      return bad(w.text,
                 others.empty() ? fmt::format("{} has no time of such calls", shown(file.path()))
                                : fmt::format("{} is of another machine ({}); this is {}", shown(file.path()), others, m.machine),
                 "write the record on this machine: the same command with --update-times");
    }
    limit = w.factor * (*known)["us"].get<double>();
    against = fmt::format("; the record is {}", seconds_text((*known)["us"].get<double>() * 1e-6));
  }
  const bool met = w.comparison == "<" ? m.us < limit : m.us <= limit;
  return Requirement{w.text, met, fmt::format("{}{}, the limit {}", spread_text(m), against, seconds_text(limit * 1e-6))};
}

}  // namespace

bool is_about_time(const std::string& requirement) {
  const size_t at = requirement.find_first_not_of(" \t");
  if (at == std::string::npos || requirement.compare(at, 4, "time") != 0) return false;
  const size_t next = requirement.find_first_not_of(" \t", at + 4);
  return next == std::string::npos || requirement[next] == '(' || requirement[next] == '<' || requirement[next] == '>' || requirement[next] == '=';
}

Parted part_requirements(const std::vector<std::string>& texts) {
  Parted out;
  for (const std::string& text : texts) (is_about_time(text) ? out.times : out.others).push_back(text);
  return out;
}

Result<std::vector<Requirement>> check_times(const std::string& model, const MeasureArguments& a, const std::vector<std::string>& texts,
                                             const TimeRecord& record) {
  std::vector<Requirement> out;
  if (texts.empty()) return out;
  std::vector<Wanted> wanted;
  for (const std::string& text : texts) {
    TRY(wanted.emplace_back(), parse(text));
  }
  TRY(const LoadedModel loaded, load_model(model, a.compile, a.threads, a.device));
  TRY(RecordFile file, RecordFile::read(record.path.empty() ? path_beside(model) : record.path));
  for (const Wanted& w : wanted) {
    TRY(const Measured m, measure(loaded, a, w.shapes));
    TRY(out.emplace_back(), compare(w, m, file, record.update));
  }
  TRY_STATUS(file.save());
  return out;
}

}  // namespace coil::tool
