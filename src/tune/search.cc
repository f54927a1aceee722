#include "tune/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace coil::tune {
namespace {

constexpr int kFewSamples = 3, kSomeSamples = 6;
constexpr double kFarOff = 1.15, kOff = 1.04;  // medians beyond these times the best are given up after few and some samples
constexpr double kLeastGain = 0.015;           // of a candidate over the own rule
constexpr double kWholeGain = 0.003;           // of the program
constexpr double kProbePart = 0.15;            // of all time, to find out what a call takes
constexpr double kFewestRuns = 30;             // of a point, for it to be worth beginning
constexpr double kLargePart = 0.25;            // of the largest saving: what is kept if all choices together are not faster
constexpr int kFewestPairs = 6, kMostPairs = 40;
constexpr double kSearchPart = 0.7;  // of a point's time; the rest is for the whole program
constexpr double kCheckPart = 0.4;

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}

struct Candidate {
  std::vector<double> samples;
  bool checked = false, alive = true, wrong = false;
};

class PointSearch {
 public:
  PointSearch(size_t point, const std::vector<size_t>& counts, Profiler& profiler, const SearchOptions& options, double end)
      : point_(point), profiler_(profiler), options_(options), end_(end), problems_(counts.size()) {
    for (size_t p = 0; p < counts.size(); ++p) problems_[p].resize(counts[p]);
  }

  Result<PointResult> run() {
    PointResult result;
    const double begin = options_.now(), search_end = begin + (end_ - begin) * kSearchPart;
    TRY_STATUS(call(own(), false, true));  // makes the reference, warms up
    TRY_STATUS(check_candidates(begin + (end_ - begin) * kCheckPart));
    result.timed = true;
    TRY_STATUS(sample(search_end));
    for (size_t p = 0; p < problems_.size(); ++p) result.problems.push_back(decide(p));
    TRY_STATUS(settle(result));
    return result;
  }

  int runs() const { return runs_; }

 private:
  std::vector<size_t> own() const { return std::vector<size_t>(problems_.size(), 0); }

  Result<RunTimes> call(std::vector<size_t> choice, bool kernels, bool check) {
    ++runs_;
    return profiler_.run({point_, std::move(choice), kernels, check});
  }

  // Every candidate once against the reference. Whoever is found unlike it is run alone: what came before may be to blame.
  // What there was no time to check is given up.
  Status check_candidates(double end) {
    size_t most = 1;
    for (const auto& p : problems_) most = std::max(most, p.size());
    for (size_t c = 1; c < most; ++c) {
      for (bool again = true; again;) {
        again = false;
        std::vector<size_t> choice = own();
        for (size_t p = 0; p < problems_.size(); ++p) {
          if (c < problems_[p].size() && !problems_[p][c].wrong) choice[p] = c;
        }
        TRY(const RunTimes times, call(choice, false, true));
        if (times.wrong < 0) {
          for (size_t p = 0; p < problems_.size(); ++p) problems_[p][choice[p]].checked = true;
          continue;
        }
        const auto p = static_cast<size_t>(times.wrong);
        std::vector<size_t> alone = own();
        alone[p] = choice[p];
        // An own rule, or one that is right alone: it is the rounding of earlier ones that it makes much of. They stay unchecked.
        if (choice[p] == 0) break;
        TRY(const RunTimes checked, call(alone, false, true));
        if (checked.wrong != times.wrong) break;
        problems_[p][c].wrong = true;
        again = true;
      }
      if (options_.now() > end) break;
    }
    for (auto& candidates : problems_) {
      for (size_t c = 1; c < candidates.size(); ++c) candidates[c].alive = candidates[c].checked && !candidates[c].wrong;
    }
    return ok_status();
  }

  std::vector<size_t> alive(size_t p) const {
    std::vector<size_t> out;
    for (size_t c = 0; c < problems_[p].size(); ++c) {
      if (problems_[p][c].alive) out.push_back(c);
    }
    return out;
  }

  Status sample(double end) {
    const double enough = options_.now() + options_.least;
    for (int round = 0;; ++round) {
      std::vector<size_t> choice = own();
      bool open = false;
      const bool early = options_.now() < enough;
      for (size_t p = 0; p < problems_.size(); ++p) {
        const std::vector<size_t> left = alive(p);
        choice[p] = left[(static_cast<size_t>(round) + p) % left.size()];
        open = open || (left.size() > 1 && (early || problems_[p][choice[p]].samples.size() < static_cast<size_t>(options_.samples)));
      }
      if (!open || options_.now() > end) return ok_status();
      TRY(const RunTimes times, call(choice, true, false));
      for (size_t p = 0; p < problems_.size(); ++p) {
        if (times.problems[p] >= 0) problems_[p][choice[p]].samples.push_back(times.problems[p]);
        give_up(problems_[p]);
      }
      if (options_.progress) options_.progress(options_.now());
    }
  }

  // Those that will not win. The own rule stays: it is what the others are compared with.
  static void give_up(std::vector<Candidate>& candidates) {
    double best = 1e300;
    for (const Candidate& c : candidates) {
      if (c.samples.size() >= kFewSamples && c.alive) best = std::min(best, quantile(c.samples, 0.5));
    }
    for (size_t i = 1; i < candidates.size(); ++i) {
      Candidate& c = candidates[i];
      if (c.samples.size() < kFewSamples || !c.alive) continue;
      const double limit = best * (c.samples.size() >= kSomeSamples ? kOff : kFarOff);
      // The lower quartile: one disturbed run must not throw it out.
      if (quantile(c.samples, 0.25) > limit) c.alive = false;
    }
  }

  // The first candidate, in their fixed order, whose median is the lowest within the noise; the own rule unless it is beaten.
  // Those that must win clearly come last: they are compared with the best of the others.
  ProblemResult decide(size_t p) const {
    const std::vector<Candidate>& candidates = problems_[p];
    const auto needed = [&](size_t c) { return options_.needed_gain ? options_.needed_gain(point_, p, c) : 0.0; };
    std::vector<size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin() + 1, order.end(), [&](size_t a, size_t b) { return needed(a) < needed(b); });
    ProblemResult r;
    for (const Candidate& c : candidates) {
      r.candidates.push_back({quantile(c.samples, 0.5), quantile(c.samples, 0.25), quantile(c.samples, 0.75), static_cast<int>(c.samples.size()), c.wrong});
    }
    const CandidateTimes& own = r.candidates[0];
    r.reason = "nothing else was timed";
    if (own.samples < kFewSamples) return r;
    double best = own.median;
    for (size_t at = 1; at < order.size(); ++at) {
      const size_t i = order[at];
      const CandidateTimes& c = r.candidates[i];
      if (c.samples < kFewSamples || c.wrong) continue;
      const double gain = std::max(kLeastGain, needed(i));
      r.reason = r.chosen == 0 ? "within the noise of the default" : r.reason;
      // Half of the quartiles' distances, as far as so many samples can be off.
      const double noise = 0.5 * ((own.high - own.low) / std::sqrt(own.samples) + (c.high - c.low) / std::sqrt(c.samples));
      const bool beats_own = c.median < own.median - std::max(noise, gain * own.median);
      if (!beats_own || c.median >= best * (r.chosen == 0 ? 1 : 1 - gain)) continue;
      r.chosen = i;
      best = c.median;
      r.reason = fmt::format("faster by {:.1f} %", 100 * (1 - c.median / own.median));
    }
    return r;
  }

  struct Comparison {
    double untuned = 0, tuned = 0;
    bool faster = false;
  };

  // With the choices and without, in turns.
  Result<Comparison> compare(const std::vector<size_t>& chosen) {
    std::vector<double> untuned, tuned, ratios;
    while (static_cast<int>(ratios.size()) < kMostPairs && (static_cast<int>(ratios.size()) < kFewestPairs || options_.now() < end_)) {
      const bool first = ratios.size() % 2 == 0;
      TRY(const RunTimes a, call(first ? own() : chosen, false, false));
      TRY(const RunTimes b, call(first ? chosen : own(), false, false));
      untuned.push_back(first ? a.seconds : b.seconds);
      tuned.push_back(first ? b.seconds : a.seconds);
      ratios.push_back(tuned.back() / untuned.back());
      if (options_.progress) options_.progress(options_.now());
    }
    const auto faster = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r < 1; });
    return Comparison{quantile(untuned, 0.5), quantile(tuned, 0.5),
                      quantile(ratios, 0.5) < 1 - kWholeGain && static_cast<double>(faster) >= 0.6 * static_cast<double>(ratios.size())};
  }

  // All choices if the program is faster with them, else those that save most, else none.
  Status settle(PointResult& result) {
    std::vector<size_t> chosen = own();
    double most = 0;
    const auto saved = [&](size_t p) {
      const ProblemResult& r = result.problems[p];
      return r.candidates[0].median - r.candidates[r.chosen].median;
    };
    for (size_t p = 0; p < chosen.size(); ++p) {
      chosen[p] = result.problems[p].chosen;
      most = std::max(most, saved(p));
    }
    if (most <= 0) {
      TRY(const RunTimes once, call(own(), false, false));
      result.untuned = result.tuned = once.seconds;
      return ok_status();
    }
    TRY(Comparison c, compare(chosen));
    std::vector<size_t> few = chosen;
    for (size_t p = 0; p < few.size(); ++p) few[p] = saved(p) >= kLargePart * most ? few[p] : 0;
    if (!c.faster && few != chosen && options_.now() < end_) {
      chosen = few;
      TRY(c, compare(chosen));
    }
    result.untuned = c.untuned;
    result.tuned = c.tuned;
    result.kept = c.faster;
    for (size_t p = 0; p < chosen.size(); ++p) {
      ProblemResult& r = result.problems[p];
      if (r.chosen == 0 || (c.faster && chosen[p] == r.chosen)) continue;
      r.chosen = 0;
      r.reason += ", but the whole program was not surely faster";
    }
    return ok_status();
  }

  const size_t point_;
  Profiler& profiler_;
  const SearchOptions& options_;
  const double end_;
  std::vector<std::vector<Candidate>> problems_;
  int runs_ = 0;
};

// The points that can have runs enough within the time, important ones before others. Each is called once or twice to know, the cheap
// ones first: what is dearer than one that is too dear is not called at all.
Result<std::vector<bool>> affordable(const std::vector<std::vector<size_t>>& counts, Profiler& profiler, const SearchOptions& options, SearchResult& result) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!options.costs.empty()) std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return options.costs[a] < options.costs[b]; });
  std::vector<double> seconds(counts.size(), -1);
  const double begin = options.now();
  for (const size_t i : order) {
    double once = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {  // the first one warms up
      TRY(const RunTimes times, profiler.run({i, std::vector<size_t>(counts[i].size(), 0), false, false}));
      ++result.runs;
      once = times.seconds;
      if (once * kFewestRuns > 2 * options.seconds) break;
    }
    if (once * kFewestRuns > options.seconds) {
      if (i == order[0]) result.least_seconds = std::ceil(once * kFewestRuns * 1.2);
      break;
    }
    seconds[i] = once;
    if (options.now() - begin > kProbePart * options.seconds) break;
  }
  std::vector<bool> usable(counts.size(), false);
  double left = options.seconds * (1 - kProbePart);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (seconds[i] < 0 || (seconds[i] * kFewestRuns > left && std::count(usable.begin(), usable.end(), true) > 0)) continue;
    usable[i] = true;
    left -= seconds[i] * kFewestRuns;
  }
  return usable;
}

}  // namespace

Result<SearchResult> search(const std::vector<std::vector<size_t>>& counts, Profiler& profiler, const SearchOptions& options) {
  SearchResult result;
  const double begin = options.now(), end = begin + options.seconds;
  SearchOptions inner = options;
  inner.progress = [&](double now) {
    if (options.progress) options.progress(std::clamp((now - begin) / std::max(options.seconds, 1e-9), 0.0, 1.0));
  };
  TRY(const std::vector<bool> usable, affordable(counts, profiler, options, result));
  size_t points = static_cast<size_t>(std::count(usable.begin(), usable.end(), true));
  for (size_t i = 0; i < counts.size(); ++i) {
    const double now = options.now();
    if (!usable[i] || now >= end) {  // the own rules serve it
      points -= usable[i];
      PointResult untimed;
      for (size_t n : counts[i]) {
        ProblemResult r;
        r.candidates.resize(n);
        r.reason = "no time was left";
        untimed.problems.push_back(std::move(r));
      }
      result.points.push_back(std::move(untimed));
      continue;
    }
    PointSearch point(i, counts[i], profiler, inner, now + (end - now) / static_cast<double>(points));
    --points;
    TRY(PointResult found, point.run());
    result.runs += point.runs();
    result.points.push_back(std::move(found));
  }
  return result;
}

}  // namespace coil::tune
