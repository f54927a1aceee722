#include "tune/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/index_text.h"

namespace coil {
namespace {

using Mode = TuneOptions::Mode;

constexpr double kFastSeconds = 10, kMaxSeconds = 60;
constexpr int kFastSamples = 10, kMaxSamples = 30;
constexpr double kFastLeast = 0.1, kMaxLeast = 0.5;  // seconds of a point
constexpr int kRefinements = 3;
constexpr double kFusionShare = 4.0 / 3;  // of a larger budget more goes to the ways to fuse before
constexpr double kLeastRefinement = 0.2;  // of the budget that must be left for one
constexpr size_t kFastCandidates = 5, kMaxCandidates = 12;

class Tuner {
 public:
  Tuner(TuningTarget& target, const TuneOptions& options, cache::Cache* cache, double begin)
      : target_(target), plan_(target.plan()), problems_(target.problems()), options_(options), cache_(cache), begin_(begin) {
    record_.hardware = target.hardware();
  }

  Result<tune::Record> run() {
    const bool fast = options_.mode == Mode::fast;
    points_ = points_of(plan_, options_);
    reuse_known();
    find_candidates(fast ? kFastCandidates : kMaxCandidates);
    tune::SearchResult found;
    if (options_.time && !points_.empty() && anything_to_time()) {
      const double budget = options_.seconds > 0 ? options_.seconds : fast ? kFastSeconds : kMaxSeconds, ready = spent() + target_.ready_seconds();
      if (ready > budget) {
        record_.least_seconds = std::ceil(2 * ready);
      } else {
        TRY(found, time_candidates(fast, budget));
      }
    }
    write_record(found);
    record_.seconds = spent();
    record_.runs = found.runs;
    return std::move(record_);
  }

 private:
  double spent() const { return tuning_clock() - begin_; }

  Result<tune::SearchResult> time_candidates(bool fast, double budget) {
    TRY(const std::unique_ptr<ProgramProfiler> profiler, target_.profiler(points_, choices_, budget - spent()));
    record_.untimed = !profiler;
    if (!profiler) return tune::SearchResult();
    tune::SearchOptions search;
    search.samples = fast ? kFastSamples : kMaxSamples;
    search.least = fast ? kFastLeast : kMaxLeast;
    search.seconds = std::max(0.0, budget - spent());
    search.now = tuning_clock;
    search.needed_gain = [this](size_t i, size_t p, size_t c) { return target_.needed_gain(first(p), choices_[i][p][c]); };
    for (const SymbolValues& point : points_) {
      double cost = 1;
      for (const SymbolId id : free_symbols(plan_)) cost *= static_cast<double>(std::max<int64_t>(point[static_cast<size_t>(id.index)], 1));
      search.costs.push_back(cost);
    }
    search.progress = options_.progress;
    TRY(tune::SearchResult found, tune::search(counts(0), *profiler, search));
    if (found.least_seconds > 0) record_.least_seconds = std::ceil((found.least_seconds + budget - search.seconds) * kFusionShare);
    for (int round = 0; round < kRefinements; ++round) TRY_STATUS(refine(found, *profiler, search, budget));
    return found;
  }

  size_t first(size_t p) const { return problems_[p].kernels[0]; }

  bool is_known(size_t p) const { return known_.contains(p); }

  // From the caller's record, then from the cache.
  void reuse_known() {
    const bool fits = options_.known && !options_.known->untimed && options_.known->hardware == record_.hardware;
    for (size_t p = 0; p < problems_.size(); ++p) {
      const tune::Entry* entry = fits ? options_.known->find(problems_[p].text) : nullptr;
      if (entry) {
        known_[p] = *entry;
      } else if (std::optional<tune::Entry> cached = cache_ ? cached_entry(*cache_, cache_key(p)) : std::nullopt) {
        known_[p] = std::move(*cached);
      }
    }
  }

  // All that a problem's choices depend on.
  cache::Key cache_key(size_t p) const {
    std::string ranges, warm;
    for (const SymbolId id : free_symbols(plan_)) {
      const Symbol& s = plan_.pool->symbol_info(id);
      ranges += fmt::format("{}{} {}..{}", ranges.empty() ? "" : ", ", s.label, s.min, s.max);
    }
    for (const auto& [name, sizes] : options_.warm) warm += fmt::format("{}={} ", name, fmt::join(sizes, ","));
    const tune::Hardware& h = record_.hardware;
    cache::Key key = {"tuning",
                      problems_[p].text,
                      {{"processor", h.processor},
                       {"instruction set", h.isa},
                       {"threads", std::to_string(h.units)},
                       {"mode", options_.mode == Mode::fast ? "fast" : "max"},
                       {"dimensions", ranges},
                       {"sizes that matter", warm},
                       {"memory", std::to_string(options_.memory)},
                       {"coil", COIL_VERSION}}};
    for (auto& field : target_.cache_fields()) key.fields.push_back(std::move(field));
    return key;
  }

  // What a record from a machine without a device has built for the problem: nothing else is timed then. Null: there is no such record.
  const tune::Entry* built(size_t p) const {
    const bool fits = options_.known && options_.known->untimed && options_.known->hardware.isa == record_.hardware.isa;
    return fits ? options_.known->find(problems_[p].text) : nullptr;
  }

  void find_candidates(size_t most) {
    for (const SymbolValues& point : points_) {
      auto& row = choices_.emplace_back();
      for (size_t p = 0; p < problems_.size(); ++p) {
        row.push_back(is_known(p) || depends_on_data(choice_key(p)) ? std::vector<Choice>{Choice{}}
                                                                    : target_.candidates(first(p), lookup(plan_, point, target_.workers()), most));
        if (const tune::Entry* entry = built(p)) {
          std::erase_if(row.back(), [&](const Choice& c) {
            return c != Choice{} && std::find(entry->to_time.begin(), entry->to_time.end(), named(target_.names(first(p)), c)) == entry->to_time.end();
          });
        }
      }
    }
    add_between();
  }

  // What is likely between two neighbouring sizes is built for the larger, to be there when sizes between are tried (`refine`).
  void add_between() {
    const std::vector<SymbolId> symbols = free_symbols(plan_);
    if (symbols.size() != 1) return;
    const auto at = static_cast<size_t>(symbols[0].index);
    std::map<int64_t, size_t> by_size;
    for (size_t i = 0; i < points_.size(); ++i) by_size[points_[i][at]] = i;
    for (auto it = by_size.begin(); it != by_size.end() && std::next(it) != by_size.end(); ++it) {
      const auto& [next_size, next] = *std::next(it);
      SymbolValues values = points_[next];
      values[at] = middle_of(it->first, next_size);
      for (size_t p = 0; p < problems_.size(); ++p) {
        std::vector<Choice>& list = choices_[next][p];
        const std::vector<Choice> best = built(p) ? std::vector<Choice>() : likely(p, values, 2);
        if (best.size() == 2 && std::find(list.begin(), list.end(), best[1]) == list.end()) list.push_back(best[1]);
      }
    }
  }

  static int64_t middle_of(int64_t low, int64_t high) { return static_cast<int64_t>(std::sqrt(static_cast<double>(low) * static_cast<double>(high))); }

  Expr choice_key(size_t p) const { return target_.choice_key(first(p)); }
  std::string text(size_t p, const Choice& c) const { return target_.choice_text(first(p), c); }

  bool anything_to_time() const {
    for (const auto& row : choices_) {
      for (const auto& c : row) {
        if (c.size() > 1) return true;
      }
    }
    return false;
  }

  // Of the points from `first` on.
  std::vector<std::vector<size_t>> counts(size_t first) const {
    std::vector<std::vector<size_t>> out;
    for (size_t i = first; i < choices_.size(); ++i) {
      auto& n = out.emplace_back();
      for (const auto& c : choices_[i]) n.push_back(c.size());
    }
    return out;
  }

  int64_t key_at(size_t p, size_t point) const { return evaluate_index(choice_key(p), lookup(plan_, points_[point], target_.workers())); }

  // Where the choices of two neighbouring sizes differ, or another one is likely between them, the size between them is tried too, with what was chosen
  // anywhere and what is likely there, of the builds that there are. Programs of one dynamic dimension, as far as there is time.
  Status refine(tune::SearchResult& found, tune::Profiler& profiler, tune::SearchOptions search, double budget) {
    const std::vector<SymbolId> symbols = free_symbols(plan_);
    search.seconds = budget - spent();
    if (symbols.size() != 1 || search.seconds < kLeastRefinement * budget) return ok_status();
    const auto at = static_cast<size_t>(symbols[0].index);
    std::map<int64_t, size_t> by_size;
    for (size_t i = 0; i < found.points.size(); ++i) {
      if (found.points[i].timed) by_size[points_[i][at]] = i;
    }
    const size_t first = points_.size();
    for (auto it = by_size.begin(); it != by_size.end() && std::next(it) != by_size.end(); ++it) {
      const auto& [size, point] = *it;
      const auto& [next_size, next] = *std::next(it);
      const int64_t middle = middle_of(size, next_size);
      if (middle <= size || next_size - size < 4) continue;
      SymbolValues values = points_[point];
      values[at] = middle;
      if (allowed_at(plan_, values) && (differ(found, point, next) || others_likely(values, point, next))) points_.push_back(values);
    }
    if (points_.size() == first) return ok_status();
    search.costs.clear();
    search.needed_gain = [gain = search.needed_gain, first](size_t i, size_t p, size_t c) { return gain(first + i, p, c); };
    for (size_t i = first; i < points_.size(); ++i) {
      choices_.push_back(chosen_anywhere(found));
      add_likely(choices_.back(), points_[i]);
      search.costs.push_back(static_cast<double>(points_[i][at]));
    }
    Later later(profiler, first);
    TRY(tune::SearchResult more, tune::search(counts(first), later, search));
    std::move(more.points.begin(), more.points.end(), std::back_inserter(found.points));
    found.runs += more.runs;
    return ok_status();
  }

  bool differ(const tune::SearchResult& found, size_t a, size_t b) const {
    for (size_t p = 0; p < problems_.size(); ++p) {
      if (choices_[a][p][found.points[a].problems[p].chosen] != choices_[b][p][found.points[b].problems[p].chosen]) return true;
    }
    return false;
  }

  // By the target's own order.
  std::vector<Choice> likely(size_t p, const SymbolValues& values, size_t most) const {
    return is_known(p) || depends_on_data(choice_key(p)) ? std::vector<Choice>{Choice{}}
                                                         : target_.candidates(first(p), lookup(plan_, values, target_.workers()), most);
  }

  bool others_likely(const SymbolValues& between, size_t a, size_t b) const {
    for (size_t p = 0; p < problems_.size(); ++p) {
      const std::vector<Choice> best = likely(p, between, 2);
      if (best != likely(p, points_[a], 2) && best != likely(p, points_[b], 2)) return true;
    }
    return false;
  }

  void add_likely(std::vector<std::vector<Choice>>& lists, const SymbolValues& values) const {
    for (size_t p = 0; p < problems_.size(); ++p) {
      const auto built = [&](const Choice& c) {
        return std::any_of(choices_.begin(), choices_.end(), [&](const auto& row) { return std::find(row[p].begin(), row[p].end(), c) != row[p].end(); });
      };
      for (const Choice& c : likely(p, values, kFastCandidates)) {
        if (built(c) && std::find(lists[p].begin(), lists[p].end(), c) == lists[p].end()) lists[p].push_back(c);
      }
    }
  }

  std::vector<std::vector<Choice>> chosen_anywhere(const tune::SearchResult& found) const {
    std::vector<std::vector<Choice>> out;
    for (size_t p = 0; p < problems_.size(); ++p) {
      std::vector<Choice>& list = out.emplace_back(1, Choice{});
      for (size_t i = 0; i < found.points.size(); ++i) {
        const Choice c = choices_[i][p][found.points[i].problems[p].chosen];
        if (std::find(list.begin(), list.end(), c) == list.end()) list.push_back(c);
      }
    }
    return out;
  }

  // The profiler's points from `first` on.
  class Later : public tune::Profiler {
   public:
    Later(tune::Profiler& profiler, size_t first) : profiler_(profiler), first_(first) {}
    Result<tune::RunTimes> run(const Call& call) override {
      Call later = call;
      later.point += first_;
      return profiler_.run(later);
    }

   private:
    tune::Profiler& profiler_;
    const size_t first_;
  };

  void write_record(const tune::SearchResult& found) {
    for (size_t i = 0; i < found.points.size(); ++i) {
      const tune::PointResult& r = found.points[i];
      if (r.timed) record_.whole.push_back({names_of(plan_, points_[i]), r.untuned * 1e6, r.tuned * 1e6, r.kept});
    }
    for (size_t p = 0; p < problems_.size(); ++p) {
      if (is_known(p)) {
        record_.entries.push_back(known_.at(p));
        continue;
      }
      tune::Entry e;
      e.problem = problems_[p].text;
      e.kernel = plan_.kernels[first(p)].name;
      e.kernels = static_cast<int>(problems_[p].kernels.size());
      e.key = size_text(choice_key(p));
      if (record_.untimed) {
        e.to_time = to_time(p);
        record_.entries.push_back(std::move(e));
        continue;
      }
      std::map<int64_t, Chosen> by_key;
      for (size_t i = 0; i < found.points.size(); ++i) {
        const tune::ProblemResult& r = found.points[i].problems[p];
        const Choice chosen = choices_[i][p][r.chosen];
        const int64_t key = depends_on_data(choice_key(p)) ? 0 : key_at(p, i);
        if (found.points[i].timed) by_key.try_emplace(key, Chosen{chosen, points_[i]});  // of several points with one key the more important counts
        if (choices_[i][p].size() > 1 && found.points[i].timed) e.measured.push_back(measured(i, p, key, r));
      }
      e.rows = rows_of(p, by_key);
      const auto& timed = found.points;
      const bool complete = timed.empty() ? !anything_to_time() : std::all_of(timed.begin(), timed.end(), [](const tune::PointResult& r) { return r.timed; });
      if (cache_ && complete) keep_entry(*cache_, cache_key(p), record_.hardware, e);
      record_.entries.push_back(std::move(e));
    }
  }

  std::vector<tune::NamedChoice> to_time(size_t p) const {
    std::vector<tune::NamedChoice> out;
    for (const auto& row : choices_) {
      for (const Choice& c : row[p]) {
        const tune::NamedChoice choice = named(target_.names(first(p)), c);
        if (!choice.empty() && std::find(out.begin(), out.end(), choice) == out.end()) out.push_back(choice);
      }
    }
    return out;
  }

  tune::MeasuredPoint measured(size_t i, size_t p, int64_t key, const tune::ProblemResult& r) const {
    tune::MeasuredPoint m{names_of(plan_, points_[i]), key, {}, text(p, choices_[i][p][r.chosen]), r.reason};
    add_timings(m, r, [&](size_t c) { return text(p, choices_[i][p][c]); });
    return m;
  }

  std::vector<tune::Row> rows_of(size_t p, const std::map<int64_t, Chosen>& by_key) const {
    std::vector<tune::Row> rows;
    const auto add = [&](int64_t up_to, const Choice& c) {
      tune::Row row{up_to, named(target_.names(first(p)), c), text(p, c)};
      if (!rows.empty() && rows.back().choice == row.choice) rows.back().up_to = up_to;
      else rows.push_back(std::move(row));
    };
    for (auto it = by_key.begin(); it != by_key.end(); ++it) {
      const auto next = std::next(it);
      add(next == by_key.end() ? INT64_MAX : last_key_of(target_, first(p), it->second, next->second), it->second.choice);
    }
    if (rows.empty()) add(INT64_MAX, Choice{});
    return rows;
  }

  TuningTarget& target_;
  const KernelPlan& plan_;
  const std::vector<TuningProblem>& problems_;
  const TuneOptions& options_;
  cache::Cache* cache_;
  const double begin_;
  tune::Record record_;
  std::map<size_t, tune::Entry> known_;  // by problem
  std::vector<SymbolValues> points_;
  TuningTarget::Candidates choices_;
};

}  // namespace

std::optional<tune::Entry> cached_entry(cache::Cache& cache, const cache::Key& key) {
  const std::optional<cache::Bytes> bytes = cache.get(key);
  if (!bytes) return std::nullopt;
  const Result<tune::Record> record = tune::parse_record({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, "cache");
  return record.ok() && record.value().entries.size() == 1 ? std::optional(record.value().entries[0]) : std::nullopt;
}

void keep_entry(cache::Cache& cache, const cache::Key& key, const tune::Hardware& hardware, const tune::Entry& entry) {
  tune::Record one;
  one.hardware = hardware;
  one.entries = {entry};
  const std::string text = tune::record_text(one);
  cache.put(key, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void add_timings(tune::MeasuredPoint& point, const tune::ProblemResult& result, const std::function<std::string(size_t)>& text) {
  for (size_t c = 0; c < result.candidates.size(); ++c) {
    const tune::CandidateTimes& t = result.candidates[c];
    if (t.samples == 0 && !t.wrong) continue;
    point.timings.push_back({text(c), t.median * 1e6, t.low * 1e6, t.high * 1e6, t.samples, t.wrong ? "wrong result" : ""});
  }
}

double tuning_clock() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<tune::Record> run_tuner(TuningTarget& target, const TuneOptions& options, cache::Cache* cache, double begin) {
  return Tuner(target, options, cache, begin).run();
}

}  // namespace coil
