// The CPU's tuner: a build of the program that can run every candidate.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/host_machine.h"
#include "base/machine.h"
#include "base/zip_writer.h"
#include "compiler/cpu_profiler.h"
#include "device/onednn_open.h"
#include "package/package_writer.h"

namespace coil {
namespace {

constexpr double kCpuBuildSeconds = 0.05;

int threads_of(const TuneOptions& options) { return options.threads > 0 ? options.threads : allowed_cpus(); }

// The instruction set that the runtime would choose.
std::string isa_of(const std::vector<std::string>& architectures) { return std::string(level_here(architectures).name); }

// "2.6.3"; empty: it is not there, or not to be used.
std::string onednn_version(const CompileOptions& options) {
  const cd::OneDnnVersion* v = nullptr;
  if (!options.libraries || !cd::open_onednn(&v)) return "";
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

Result<std::shared_ptr<runtime::Model>> load_build(CpuPlan plan, const std::vector<TuningProblem>& problems, const std::vector<std::vector<Choice>>& choices,
                                                   std::vector<uint8_t>& package, const TargetJob& job, int threads) {
  plan.program = cpu::generate_kernels(plan.plan, choices);
  HostOptions host;
  host.timed.resize(plan.plan.kernels.size());
  for (const TuningProblem& p : problems) {
    for (const size_t k : p.kernels) host.timed[k] = true;
  }
  PackageContents contents;
  contents.name = "tuning";
  contents.fixed_inputs = fixed_arguments(job.graph);
  contents.argument_names = job.graph.forward_arg_names;
  TRY(TargetContents target, build_plan(std::move(plan), job, std::move(host), Dump("", job.options.log), [](const std::string&) {}));
  contents.targets.push_back(std::move(target));
  ZipWriter zip = ZipWriter::in_memory();
  TRY_STATUS(write_package(zip, contents));
  package = zip.finish_in_memory();
  runtime::ModelOptions model;
  model.num_threads = threads;
  model.device = "cpu";
  return runtime::Model::open_memory(package, model);
}

class CpuTuningTarget : public TuningTarget {
 public:
  CpuTuningTarget(CpuPlan plan, const TargetJob& job)
      : plan_(std::move(plan)),
        problems_(problems_of(problem_texts(plan_))),
        job_(job),
        options_(job.options),
        isa_(isa_of(job.architectures)),
        onednn_(onednn_version(options_)),
        threads_(threads_of(options_.tune)) {
    find_onednn();
  }

  const KernelPlan& plan() const override { return plan_.plan; }
  const std::vector<TuningProblem>& problems() const override { return problems_; }
  tune::Hardware hardware() const override { return {cpu_name(), isa_, threads_}; }
  int64_t workers() const override { return threads_; }
  Expr choice_key(size_t k) const override { return cpu::choice_key(plan(), kernel(k), launch(k)); }
  const ChoiceNames& names(size_t k) const override { return cpu::value_names(kernel(k)); }
  std::string choice_text(size_t k, const Choice& c) const override { return cpu::choice_text(kernel(k), c); }

  std::vector<Choice> candidates(size_t k, const std::function<int64_t(SymbolId)>& sizes, size_t most) const override {
    std::vector<Choice> out = cpu::candidates(plan(), kernel(k), launch(k), sizes, {threads_, find_level(isa_).level->lanes, onednn_serves_[k]}, most);
    std::erase_if(out, [&](const Choice& c) { return !cpu::can_run(plan(), kernel(k), c); });
    return out;
  }

  std::vector<cache::Field> cache_fields() const override { return {{"winograd", options_.winograd ? "yes" : "no"}, {"onednn", onednn_}}; }
  double needed_gain(size_t k, const Choice& c) const override { return cpu::needed_gain(kernel(k), c); }

  double ready_seconds() const override { return kCpuBuildSeconds + load_seconds(plan()); }

  // One build serves all candidates: they are numbers that its code reads.
  Result<std::unique_ptr<ProgramProfiler>> profiler(const std::vector<SymbolValues>& points, Candidates& candidates, double) override {
    TRY(std::shared_ptr<runtime::Model> model, load_build(plan_, problems_, united_choices(plan(), problems_, candidates), package_, job_, threads_));
    CHECK(model->isa() == find_level(isa_).level->full_name, "the runtime chooses another instruction set");
    TRY(std::unique_ptr<CpuProfiler> profiler, CpuProfiler::make(std::move(model), plan(), problems_, points, candidates));
    return std::unique_ptr<ProgramProfiler>(std::move(profiler));
  }

 private:
  // Which kernels the library may compute: its copies of their weights, the small ones first, have to fit what --tune-memory leaves beside the scratch memory.
  void find_onednn() {
    const size_t n = plan().kernels.size();
    onednn_serves_.assign(n, !onednn_.empty());
    if (onednn_.empty() || options_.tune.memory == 0) return;
    uint64_t used = most_scratch(plan(), options_.tune, threads_);
    std::vector<std::pair<uint64_t, size_t>> copies;
    for (size_t k = 0; k < n; ++k) copies.emplace_back(cpu::onednn_copy(plan(), kernel(k)).bytes, k);
    std::sort(copies.begin(), copies.end());
    std::set<BufferId> counted;
    for (const auto& [bytes, k] : copies) {
      const BufferId weight = cpu::onednn_copy(plan(), kernel(k)).weight;
      if (!weight.valid() || counted.contains(weight)) continue;
      onednn_serves_[k] = used + bytes <= options_.tune.memory;
      if (!onednn_serves_[k]) continue;
      used += bytes;
      counted.insert(weight);
    }
  }

  const Kernel& kernel(size_t k) const { return plan_.plan.kernels[k]; }
  const cpu::CpuLaunch& launch(size_t k) const { return plan_.program.launches[k]; }

  CpuPlan plan_;
  std::vector<TuningProblem> problems_;
  const TargetJob& job_;
  const CompileOptions& options_;
  std::string isa_, onednn_;
  int threads_;
  std::vector<bool> onednn_serves_;  // of each kernel
  std::vector<uint8_t> package_;
};

}  // namespace

Result<tune::Record> tune_cpu(const TargetJob& job) {
  const LoopProgram& loops = job.loops;
  const CompileOptions& options = job.options;
  const double begin = tuning_clock();
  const PlanOneWay one_way = [&](const FusionWay* way) -> Result<std::unique_ptr<TuningTarget>> {
    TRY(CpuPlan plan, plan_cpu(this_machine(), loops, options, {}, way));
    TRY_STATUS(check_warm(plan.plan, options.tune));
    return std::unique_ptr<TuningTarget>(std::make_unique<CpuTuningTarget>(std::move(plan), job));
  };
  TRY(FusionChoice fusion, tune_fusion(loops, one_way, options, begin));
  TRY(CpuPlan plan, plan_cpu(this_machine(), loops, options, [](const std::string&, const std::vector<Packing>& possible) { return possible; }, fusion.way));
  if (options.tune.memory > 0 && most_scratch(plan.plan, options.tune, threads_of(options.tune)) > options.tune.memory) {
    TRY(plan, plan_cpu(this_machine(), loops, options, {}, fusion.way));
  }
  CpuTuningTarget target(std::move(plan), job);
  TRY(tune::Record record, run_tuner(target, options.tune, options.cache.get(), begin));
  if (fusion.entry) record.entries.insert(record.entries.begin(), std::move(*fusion.entry));
  return record;
}

}  // namespace coil
