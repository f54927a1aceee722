// The CPU's tuner: a build of the program that can run every candidate, the search over it, and the record of what was found.
#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/env.h"
#include "base/machine.h"
#include "base/zip_writer.h"
#include "compiler/cpu_profiler.h"
#include "package/package_writer.h"
#include "runtime/cpu_limits.h"

namespace coil {
namespace {

using Mode = TuneOptions::Mode;

constexpr double kFastSeconds = 10, kMaxSeconds = 60;
constexpr int kFastSamples = 10, kMaxSamples = 30;
constexpr double kFastLeast = 0.1, kMaxLeast = 0.5;  // seconds of a point
constexpr size_t kFastCandidates = 5, kMaxCandidates = 12;
constexpr size_t kFastPoints = 6, kMaxPoints = 16;
constexpr int64_t kMostUnbounded = 512;  // sizes to try of a dimension without a bound

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Dimensions that a caller chooses.
std::vector<SymbolId> free_symbols(const KernelPlan& plan) {
  std::vector<SymbolId> out;
  for (size_t i = 0; i < plan.pool->num_symbols(); ++i) {
    const SymbolId id(i);
    if (id != plan.workers && !plan.pool->symbol_info(id).from_data) out.push_back(id);
  }
  return out;
}

// Sizes of one dimension to try: its least, its greatest and powers of two between; what the user named comes first.
std::vector<int64_t> sizes_to_try(const Symbol& s, const std::vector<int64_t>& warm) {
  const int64_t low = std::max<int64_t>(s.min, 1), high = s.max == INT64_MAX ? std::max(kMostUnbounded, low) : std::max(s.max, low);
  std::vector<int64_t> out = warm;
  const auto add = [&](int64_t v) {
    if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  add(low);
  for (int64_t v = 2; v < high && v <= kMostUnbounded * 16; v *= 2) {
    if (v > low) add(v);
  }
  add(high);
  return out;
}

Status check_warm(const KernelPlan& plan, const std::map<std::string, std::vector<int64_t>>& warm) {
  for (const auto& [name, values] : warm) {
    const std::vector<SymbolId> symbols = free_symbols(plan);
    const auto it = std::find_if(symbols.begin(), symbols.end(), [&, &wanted = name](SymbolId id) { return plan.pool->symbol_info(id).label == wanted; });
    if (it == symbols.end()) return Error{ErrorCode::bad_option, fmt::format("--warm names '{}', which is no dynamic dimension of the program", name), "", "`coil inspect` lists them"};
    const Symbol& s = plan.pool->symbol_info(*it);
    for (const int64_t v : values) {
      if (v < s.min || v > s.max) return Error{ErrorCode::bad_option, fmt::format("--warm {}={} is not in the dimension's range, {} to {}", name, v, s.min, s.max), "", ""};
    }
  }
  return ok_status();
}

bool allowed(const KernelPlan& plan, const SymbolValues& values) {
  for (const SizeCheck& c : plan.checks) {
    if (depends_on_data(c.condition)) continue;
    if (evaluate_index(holds(*plan.pool, c.condition), [&](SymbolId id) { return id == plan.workers ? 1 : values[static_cast<size_t>(id.index)]; }) != 1) return false;
  }
  return true;
}

// Up to `most` points: each dimension through its sizes, the others at a middle one; sizes that matter to the user before others.
std::vector<SymbolValues> points_of(const KernelPlan& plan, const TuneOptions& options, size_t most) {
  const std::vector<SymbolId> symbols = free_symbols(plan);
  SymbolValues middle(plan.pool->num_symbols(), 1);
  std::vector<std::vector<int64_t>> sizes;
  for (const SymbolId id : symbols) {
    const Symbol& s = plan.pool->symbol_info(id);
    const auto warm = options.warm.find(s.label);
    sizes.push_back(sizes_to_try(s, warm == options.warm.end() ? std::vector<int64_t>() : warm->second));
    std::vector<int64_t> sorted = sizes.back();
    std::sort(sorted.begin(), sorted.end());
    middle[static_cast<size_t>(id.index)] = warm == options.warm.end() ? sorted[sorted.size() / 2] : warm->second[0];
  }
  std::vector<SymbolValues> out;
  const auto add = [&](const SymbolValues& v) {
    if (out.size() < most && allowed(plan, v) && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  add(middle);
  const auto along = [&](size_t i, int64_t value) {
    SymbolValues v = middle;
    v[static_cast<size_t>(symbols[i].index)] = value;
    add(v);
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    const auto warm = options.warm.find(plan.pool->symbol_info(symbols[i]).label);
    for (size_t k = 0; warm != options.warm.end() && k < warm->second.size(); ++k) along(i, warm->second[k]);
  }
  // Ends first, then between.
  size_t longest = 0;
  for (const auto& s : sizes) longest = std::max(longest, s.size());
  for (size_t k = 0; k < longest; ++k) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      const size_t n = sizes[i].size();
      if (k < n) along(i, sizes[i][k % 2 == 0 ? k / 2 : n - 1 - k / 2]);
    }
  }
  return out;
}

size_t most_points(const TuneOptions& options) { return options.mode == Mode::fast ? kFastPoints : kMaxPoints; }

int threads_of(const TuneOptions& options) { return options.threads > 0 ? options.threads : runtime::allowed_cpus(); }

// Bytes of scratch memory of a call, at the largest of the sizes that are tried.
uint64_t most_scratch(const KernelPlan& plan, const TuneOptions& options) {
  uint64_t most = 0;
  for (const SymbolValues& point : points_of(plan, options, most_points(options))) {
    const auto value = [&](SymbolId id) { return id == plan.workers ? threads_of(options) : point[static_cast<size_t>(id.index)]; };
    most = std::max(most, static_cast<uint64_t>(evaluate_index(plan.arena_bytes, value)));
  }
  return most;
}

// What is tuned; once something has to be timed, a tuner's build of it, loaded.
struct Build {
  CpuPlan plan;
  std::vector<CpuProblem> problems;
  std::vector<uint8_t> package;
  std::shared_ptr<runtime::Model> model;
};

// The instruction set that the runtime would choose.
std::string isa_of(const CompileOptions& options) {
  const std::optional<std::string> wanted = env("COIL_ISA");
  const bool v4 = __builtin_cpu_supports("x86-64-v4") && wanted != "v3";
  return v4 && std::find(options.isas.begin(), options.isas.end(), "v4") != options.isas.end() ? "v4" : "v3";
}

Status load_build(Build* b, const Graph& graph, const CompileOptions& options, int threads) {
  HostOptions host;
  host.timed.resize(b->plan.plan.kernels.size());
  for (const CpuProblem& p : b->problems) {
    for (const size_t k : p.kernels) host.timed[k] = true;
  }
  PackageContents contents;
  contents.name = "tuning";
  contents.fixed_inputs = fixed_arguments(graph);
  contents.argument_names = graph.forward_arg_names;
  CompileOptions quiet = options;
  quiet.dump_folder.clear();
  TRY(TargetContents target, build_plan(b->plan, graph, quiet, std::move(host), Dump("", options.log), [](const std::string&) {}));
  contents.targets.push_back(std::move(target));
  ZipWriter zip = ZipWriter::in_memory();
  TRY_STATUS(write_package(zip, contents));
  b->package = zip.finish_in_memory();
  runtime::ModelOptions model;
  model.num_threads = threads;
  model.device = "cpu";
  TRY(b->model, runtime::Model::open_memory(b->package, model));
  return ok_status();
}

std::map<std::string, int64_t> names_of(const KernelPlan& plan, const SymbolValues& values) {
  std::map<std::string, int64_t> out;
  for (const SymbolId id : free_symbols(plan)) out[plan.pool->symbol_info(id).label] = values[static_cast<size_t>(id.index)];
  return out;
}

std::function<int64_t(SymbolId)> lookup(const KernelPlan& plan, const SymbolValues& values, int64_t workers) {
  return [&plan, &values, workers](SymbolId id) { return id == plan.workers ? workers : values[static_cast<size_t>(id.index)]; };
}

class Tuner {
 public:
  Tuner(Build& build, const Graph& graph, const CompileOptions& options, double begin)
      : build_(build), graph_(graph), plan_(build.plan.plan), all_(options), options_(options.tune), begin_(begin) {
    record_.hardware = {cpu_name(), isa_of(options), threads_of(options.tune)};
  }

  Result<tune::Record> run() {
    const bool fast = options_.mode == Mode::fast;
    points_ = points_of(plan_, options_, most_points(options_));
    reuse_known();
    find_candidates(fast ? kFastCandidates : kMaxCandidates);
    tune::SearchResult found;
    if (!points_.empty() && anything_to_time()) {
      TRY_STATUS(load_build(&build_, graph_, all_, record_.hardware.threads));
      CHECK(build_.model->isa() == "x86-64-" + record_.hardware.isa, "the runtime chooses another instruction set");
      TRY(const std::unique_ptr<CpuProfiler> profiler, CpuProfiler::make(build_.model, plan_, build_.problems, points_, choices_));
      tune::SearchOptions search;
      search.samples = fast ? kFastSamples : kMaxSamples;
      search.least = fast ? kFastLeast : kMaxLeast;
      const double budget = options_.seconds > 0 ? options_.seconds : fast ? kFastSeconds : kMaxSeconds;
      search.seconds = std::max(0.0, budget - (now() - begin_));
      search.now = now;
      for (const SymbolValues& point : points_) {
        double cost = 1;
        for (const SymbolId id : free_symbols(plan_)) cost *= static_cast<double>(std::max<int64_t>(point[static_cast<size_t>(id.index)], 1));
        search.costs.push_back(cost);
      }
      search.progress = options_.progress;
      TRY(found, tune::search(counts(), *profiler, search));
    }
    write_record(found);
    record_.seconds = now() - begin_;
    record_.runs = found.runs;
    record_.least_seconds = found.least_seconds;
    return std::move(record_);
  }

 private:
  const Kernel& first_kernel(size_t p) const { return plan_.kernels[build_.problems[p].kernels[0]]; }
  const cpu::CpuLaunch& first_launch(size_t p) const { return build_.plan.program.launches[build_.problems[p].kernels[0]]; }

  bool is_known(size_t p) const { return known_.contains(p); }

  // From the caller's record, then from the cache.
  void reuse_known() {
    const bool fits = options_.known && options_.known->hardware == record_.hardware;
    for (size_t p = 0; p < build_.problems.size(); ++p) {
      const tune::Entry* entry = fits ? options_.known->find(build_.problems[p].text) : nullptr;
      if (entry) {
        known_[p] = *entry;
      } else if (std::optional<cache::Bytes> bytes = all_.cache ? all_.cache->get(cache_key(p)) : std::nullopt) {
        const Result<tune::Record> record = tune::parse_record({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, "cache");
        if (record.ok() && record.value().entries.size() == 1) known_[p] = record.value().entries[0];
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
    return {"tuning", build_.problems[p].text,
            {{"processor", h.cpu}, {"instruction set", h.isa}, {"threads", std::to_string(h.threads)}, {"mode", options_.mode == Mode::fast ? "fast" : "max"}, {"dimensions", ranges},
             {"sizes that matter", warm}, {"memory", std::to_string(options_.memory)}, {"winograd", all_.winograd ? "yes" : "no"}, {"coil", COIL_VERSION}}};
  }

  void keep(size_t p, const tune::Entry& entry, bool complete) const {
    if (!all_.cache || !complete) return;
    tune::Record one;
    one.hardware = record_.hardware;
    one.entries = {entry};
    const std::string text = tune::record_text(one);
    all_.cache->put(cache_key(p), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }

  bool usable(size_t p, const Choice& c) const {
    const auto* t = std::get_if<TemplateKernel>(&first_kernel(p).def);
    return !t || !std::holds_alternative<Conv2d>(t->def) || cpu::weight_of(plan_, *t, c.values[cpu::kMethod]);
  }

  void find_candidates(size_t most) {
    const cpu::Machine machine = {record_.hardware.threads, record_.hardware.isa == "v3" ? 8 : 16};
    for (const SymbolValues& point : points_) {
      auto& row = choices_.emplace_back();
      for (size_t p = 0; p < build_.problems.size(); ++p) {
        row.push_back(is_known(p) || depends_on_data(choice_key(p)) ? std::vector<Choice>{Choice{}}
                                                                    : cpu::candidates(plan_, first_kernel(p), first_launch(p), lookup(plan_, point, record_.hardware.threads), machine, most));
        std::erase_if(row.back(), [&](const Choice& c) { return !usable(p, c); });
      }
    }
  }

  Expr choice_key(size_t p) const { return cpu::choice_key(plan_, first_kernel(p), first_launch(p)); }

  bool anything_to_time() const {
    for (const auto& row : choices_) {
      for (const auto& c : row) {
        if (c.size() > 1) return true;
      }
    }
    return false;
  }

  std::vector<std::vector<size_t>> counts() const {
    std::vector<std::vector<size_t>> out;
    for (const auto& row : choices_) {
      auto& n = out.emplace_back();
      for (const auto& c : row) n.push_back(c.size());
    }
    return out;
  }

  void write_record(const tune::SearchResult& found) {
    for (size_t i = 0; i < found.points.size(); ++i) {
      const tune::PointResult& r = found.points[i];
      if (r.timed) record_.whole.push_back({names_of(plan_, points_[i]), r.untuned * 1e6, r.tuned * 1e6, r.kept});
    }
    for (size_t p = 0; p < build_.problems.size(); ++p) {
      if (is_known(p)) {
        record_.entries.push_back(known_.at(p));
        continue;
      }
      tune::Entry e;
      e.problem = build_.problems[p].text;
      e.kernel = first_kernel(p).name;
      e.kernels = static_cast<int>(build_.problems[p].kernels.size());
      e.key = size_text(choice_key(p));
      std::map<int64_t, Choice> by_key;
      for (size_t i = 0; i < found.points.size(); ++i) {
        const tune::ProblemResult& r = found.points[i].problems[p];
        const Choice chosen = choices_[i][p][r.chosen];
        const int64_t key = depends_on_data(choice_key(p)) ? 0 : evaluate_index(choice_key(p), lookup(plan_, points_[i], record_.hardware.threads));
        if (found.points[i].timed) by_key.try_emplace(key, chosen);  // of several points with one key the more important counts
        if (choices_[i][p].size() > 1 && found.points[i].timed) e.measured.push_back(measured(i, p, key, r));
      }
      e.rows = rows_of(p, by_key);
      keep(p, e, std::all_of(found.points.begin(), found.points.end(), [](const tune::PointResult& r) { return r.timed; }));
      record_.entries.push_back(std::move(e));
    }
  }

  tune::MeasuredPoint measured(size_t i, size_t p, int64_t key, const tune::ProblemResult& r) const {
    const Kernel& kernel = first_kernel(p);
    tune::MeasuredPoint m{names_of(plan_, points_[i]), key, {}, cpu::choice_text(kernel, choices_[i][p][r.chosen]), r.reason};
    for (size_t c = 0; c < r.candidates.size(); ++c) {
      const tune::CandidateTimes& t = r.candidates[c];
      if (t.samples == 0 && !t.wrong) continue;
      m.timings.push_back({cpu::choice_text(kernel, choices_[i][p][c]), t.median * 1e6, t.low * 1e6, t.high * 1e6, t.samples, t.wrong ? "wrong result" : ""});
    }
    return m;
  }

  // Between two sizes that were tried the change is at their geometric mean.
  std::vector<tune::Row> rows_of(size_t p, const std::map<int64_t, Choice>& by_key) const {
    const Kernel& kernel = first_kernel(p);
    std::vector<tune::Row> rows;
    const auto add = [&](int64_t up_to, const Choice& c) {
      tune::Row row{up_to, named(kernel, c), cpu::choice_text(kernel, c)};
      if (!rows.empty() && rows.back().choice == row.choice) rows.back().up_to = up_to;
      else rows.push_back(std::move(row));
    };
    for (auto it = by_key.begin(); it != by_key.end(); ++it) {
      const auto next = std::next(it);
      add(next == by_key.end() ? INT64_MAX : static_cast<int64_t>(std::sqrt(static_cast<double>(it->first) * static_cast<double>(next->first))), it->second);
    }
    if (rows.empty()) add(INT64_MAX, Choice{});
    return rows;
  }

  Build& build_;
  const Graph& graph_;
  const KernelPlan& plan_;
  const CompileOptions& all_;
  const TuneOptions& options_;
  const double begin_;
  tune::Record record_;
  std::map<size_t, tune::Entry> known_;  // by problem
  std::vector<SymbolValues> points_;
  std::vector<std::vector<std::vector<Choice>>> choices_;  // [point][problem]
};

}  // namespace

Result<tune::Record> tune_cpu(const LoopProgram& loops, const Graph& graph, const CompileOptions& options) {
  const double begin = now();
  Build build;
  TRY(build.plan, plan_cpu(loops, options, [](const std::string&, const std::vector<PlanConstant::Packing>& possible) { return possible; }));
  TRY_STATUS(check_warm(build.plan.plan, options.tune.warm));
  if (options.tune.memory > 0 && most_scratch(build.plan.plan, options.tune) > options.tune.memory) {
    TRY(build.plan, plan_cpu(loops, options));
  }
  build.problems = problems_of(build.plan);
  return Tuner(build, graph, options, begin).run();
}

}  // namespace coil
