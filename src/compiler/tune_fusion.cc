#include "compiler/tune_fusion.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/hash.h"

namespace coil {
namespace {

constexpr double kBudgetPart = 0.25, kMaxSeconds = 60;  // of the whole budget; the default budget of the mode `max`
constexpr double kBuildPart = 0.75;                     // of that: for the builds
constexpr int kSamples = 20;
constexpr size_t kMostPoints = 2;
constexpr uint64_t kMostConstants = uint64_t{512} << 20;  // bytes
constexpr double kSlower = 1.01;                          // at sizes that matter less
constexpr const char* kWayName = "way";

// Numbers in records: 1 is the first. New ones go to the end.
constexpr FusionWay kWays[] = {
    {"epilogues apart", [](TargetTraits& t) { t.fuse_epilogues = false; }},
    {"siblings apart", [](TargetTraits& t) { t.fuse_siblings = false; }},
    {"nothing recomputed", [](TargetTraits& t) { t.inline_cost = 0, t.max_inlined_loads = 0, t.select_pieces = 0; }},
    {"more recomputed", [](TargetTraits& t) { t.inline_cost *= 4, t.max_inlined_loads *= 2; }},
    {"long reductions in one step", [](TargetTraits& t) { t.parallel_points = 0; }},
    {"more reductions in two steps", [](TargetTraits& t) { t.parallel_points *= 4, t.split_points /= 8, t.split_parts *= 4; }},
};

std::string problem_of(const LoopProgram& loops) { return fmt::format("fusion of {} loops, {:016x}", loops.loops.size(), hash64(to_string(loops))); }

// 0: the own rules; negative: no such way.
int number_of(const tune::Entry& entry) {
  if (entry.rows.size() != 1) return -1;
  const tune::NamedChoice& choice = entry.rows[0].choice;
  const auto it = choice.find(kWayName);
  if (it == choice.end()) return choice.empty() ? 0 : -1;
  return it->second >= 1 && it->second <= static_cast<int>(std::size(kWays)) ? it->second : -1;
}

const FusionWay* way_of(int number) { return number > 0 ? &kWays[number - 1] : nullptr; }
std::string text_of(int number) { return number > 0 ? way_of(number)->text : "default"; }

cache::Key cache_key(const std::string& problem, const TuningTarget& target, const CompileOptions& options) {
  const tune::Hardware h = target.hardware();
  cache::Key key = {"tuning",
                    problem,
                    {{"processor", h.processor},
                     {"instruction set", h.isa},
                     {"threads", std::to_string(h.units)},
                     {"memory", std::to_string(options.tune.memory)},
                     {"coil", COIL_VERSION}}};
  for (auto& field : target.cache_fields()) key.fields.push_back(std::move(field));
  return key;
}

std::optional<tune::Entry> known_entry(const std::string& problem, const TuningTarget& target, const CompileOptions& options) {
  const auto& known = options.tune.known;
  if (known && !known->untimed && known->hardware == target.hardware()) {
    if (const tune::Entry* entry = known->find(problem)) return *entry;
  }
  if (!options.cache || options.tune.mode != TuneOptions::Mode::max) return std::nullopt;
  return cached_entry(*options.cache, cache_key(problem, target, options));
}

// One problem, the program: each candidate is a build of its own.
class WaysProfiler : public tune::Profiler {
 public:
  struct Way {
    int number;
    std::unique_ptr<TuningTarget> target;
    TuningTarget::Candidates own_rules;
    std::unique_ptr<ProgramProfiler> profiler;
  };
  explicit WaysProfiler(std::vector<Way>& ways) : ways_(ways) {}

  Result<tune::RunTimes> run(const Call& call) override {
    Way& way = ways_[call.choice[0]];
    TRY(tune::RunTimes times, way.profiler->run({call.point, std::vector<size_t>(way.target->problems().size(), 0), false, false}));
    times.problems = {times.seconds};
    if (call.check) {
      if (call.point != point_) check_.forget();
      point_ = call.point;
      TRY(const std::vector<ResultSamples> results, way.profiler->results());
      check_.begin();
      for (const ResultSamples& r : results) {
        if (!check_.matches(r.dtype, r.values)) times.wrong = 0;
      }
    }
    return times;
  }

 private:
  std::vector<Way>& ways_;
  size_t point_ = SIZE_MAX;
  ResultCheck check_;
};

class FusionTuner {
 public:
  FusionTuner(std::string problem, const PlanOneWay& plan, const CompileOptions& options, double begin)
      : problem_(std::move(problem)), plan_(plan), options_(options), begin_(begin) {}

  Result<FusionChoice> run(std::unique_ptr<TuningTarget> own) {
    const double budget = (options_.tune.seconds > 0 ? options_.tune.seconds : kMaxSeconds) * kBudgetPart;
    points_ = points_of(own->plan(), options_.tune);
    if (points_.size() > kMostPoints) points_.resize(kMostPoints);
    ways_.push_back({0, std::move(own), {}, nullptr});
    TRY_STATUS(add_ways());
    if (!points_.empty()) TRY_STATUS(build_ways(budget));
    if (points_.empty() || ways_.size() < 2) return FusionChoice();
    tune::SearchOptions search;
    search.samples = kSamples;
    search.seconds = std::max(0.0, budget - (tuning_clock() - begin_));
    search.now = tuning_clock;
    WaysProfiler profiler(ways_);
    TRY(const tune::SearchResult found, tune::search(std::vector<std::vector<size_t>>(points_.size(), {ways_.size()}), profiler, search));
    const size_t chosen = choose(found);
    FusionChoice out{way_of(ways_[chosen].number), entry(found, chosen)};
    const TuningTarget& own_target = *ways_[0].target;
    if (options_.cache && found.points[0].timed) keep_entry(*options_.cache, cache_key(problem_, own_target, options_), own_target.hardware(), *out.entry);
    return out;
  }

 private:
  // Those that change something, each once.
  Status add_ways() {
    std::vector<std::string> seen = {to_string(ways_[0].target->plan())};
    for (int number = 1; number <= static_cast<int>(std::size(kWays)); ++number) {
      TRY(std::unique_ptr<TuningTarget> target, plan_(way_of(number)));
      std::string text = to_string(target->plan());
      if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
      if (options_.tune.memory > 0 && most_scratch(target->plan(), options_.tune, target->workers()) > options_.tune.memory) continue;
      seen.push_back(std::move(text));
      ways_.push_back({number, std::move(target), {}, nullptr});
    }
    return ok_status();
  }

  // As many as there is time for; those without a profiler are left out. One alone is of no use.
  Status build_ways(double budget) {
    const double until = begin_ + budget * kBuildPart;
    double dearest = ways_[0].target->ready_seconds();
    size_t built = 0;
    for (WaysProfiler::Way& w : ways_) {
      const double before = tuning_clock();
      if (before + dearest * (built == 0 ? 2 : 1) > until) break;
      w.own_rules.assign(points_.size(), std::vector<std::vector<Choice>>(w.target->problems().size(), {Choice{}}));
      TRY(w.profiler, w.target->profiler(points_, w.own_rules, budget));
      if (!w.profiler) break;  // no device to time them
      dearest = std::max(dearest, tuning_clock() - before);
      ++built;
    }
    ways_.erase(ways_.begin() + static_cast<ptrdiff_t>(built), ways_.end());
    return ok_status();
  }

  size_t choose(const tune::SearchResult& found) const {
    if (!found.points[0].kept) return 0;
    const size_t chosen = found.points[0].problems[0].chosen;
    for (size_t i = 1; i < found.points.size(); ++i) {
      if (!found.points[i].timed) continue;
      const std::vector<tune::CandidateTimes>& times = found.points[i].problems[0].candidates;
      if (times[chosen].wrong || times[chosen].samples == 0 || times[chosen].median > times[0].median * kSlower) return 0;
    }
    return chosen;
  }

  tune::Entry entry(const tune::SearchResult& found, size_t chosen) const {
    tune::Entry e;
    e.problem = problem_;
    e.kernel = "the whole program";
    const int number = ways_[chosen].number;
    e.rows = {{INT64_MAX, number ? tune::NamedChoice{{kWayName, number}} : tune::NamedChoice(), text_of(number)}};
    for (size_t i = 0; i < found.points.size(); ++i) {
      if (!found.points[i].timed) continue;
      const tune::ProblemResult& r = found.points[i].problems[0];
      tune::MeasuredPoint m{names_of(ways_[0].target->plan(), points_[i]), 0, {}, text_of(number), r.reason};
      add_timings(m, r, [this](size_t c) { return text_of(ways_[c].number); });
      e.measured.push_back(std::move(m));
    }
    return e;
  }

  const std::string problem_;
  const PlanOneWay& plan_;
  const CompileOptions& options_;
  const double begin_;
  std::vector<SymbolValues> points_;
  std::vector<WaysProfiler::Way> ways_;
};

}  // namespace

Result<const FusionWay*> recorded_way(const tune::Record& record, const LoopProgram& loops) {
  const tune::Entry* entry = record.find(problem_of(loops));
  if (!entry) return static_cast<const FusionWay*>(nullptr);
  const int number = number_of(*entry);
  if (number < 0) {
    return Error{ErrorCode::tuning_record, fmt::format("the tuning record's choice for '{}' is not one that this version of coil has", entry->problem),
                 record.name, "tune the program again with --tune and --record"};
  }
  return way_of(number);
}

Result<FusionChoice> tune_fusion(const LoopProgram& loops, const PlanOneWay& plan, const CompileOptions& options, double begin) {
  const std::string problem = problem_of(loops);
  TRY(std::unique_ptr<TuningTarget> own, plan(nullptr));
  if (std::optional<tune::Entry> known = known_entry(problem, *own, options)) {
    const int number = number_of(*known);
    if (number >= 0) return FusionChoice{way_of(number), std::move(known)};
  }
  if (!options.tune.time || options.tune.mode != TuneOptions::Mode::max || own->plan().constants_bytes > kMostConstants) return FusionChoice();
  return FusionTuner(problem, plan, options, begin).run(std::move(own));
}

}  // namespace coil
