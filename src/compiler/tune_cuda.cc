// The CUDA tuner: problems and choices of a CUDA plan, and a build of the program that can run every candidate.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/parallel.h"
#include "base/zip_writer.h"
#include "compiler/cuda_profiler.h"
#include "compiler/cuda_target.h"
#include "compiler/this_machine.h"
#include "package/package_writer.h"

namespace coil {
namespace {

constexpr double kCudaBuildSeconds = 0.5;  // NVRTC's for one template kernel on one thread, roughly
constexpr double kLoopSeconds = 0.1;       // and for one loop
constexpr int kBuildThreads = 4;           // more of them bring nothing: on 16 a kernel was finished every 0.13 s
constexpr double kBuildShare = 0.5;        // of the time left that building may take
constexpr double kReadySeconds = 0.5;      // for the program's own kernels, on several threads

Choice library_choice() { return choice_of(templates::CudaWay{.kind = templates::kLibraryCall}); }

struct TunedDevice {
  tune::Hardware hardware;
  CudaMachine machine;
  int ordinal = -1;  // -1: there is none
};

// The first device that the targets have code for; where there is no device at all, the first target's architecture.
Result<TunedDevice> find_device(const std::vector<int>& chips) {
  TunedDevice d;
  const Result<runtime::CudaInfo> info = runtime::cuda_info();
  if (!info.ok() || info.value().devices.empty()) {
    d.machine = cuda_machine(chips.front());
    d.hardware = {"no device", fmt::format("sm_{}", d.machine.sm), 0};
    return d;
  }
  for (size_t i = 0; i < info.value().devices.size() && d.ordinal < 0; ++i) {
    const runtime::CudaDeviceInfo& device = info.value().devices[i];
    d.machine = machine_of(device);
    d.hardware = {device.name, fmt::format("sm_{}", d.machine.sm), device.multiprocessors};
    if (std::find(chips.begin(), chips.end(), d.machine.sm) != chips.end()) d.ordinal = static_cast<int>(i);
  }
  if (d.ordinal < 0) {
    return Error{ErrorCode::wrong_machine,
                 fmt::format("the tuner times kernels on this machine's {}, which is sm_{}: the target has no code for it", d.hardware.processor, d.machine.sm),
                 "", fmt::format("add cuda:sm_{} to --target, tune on a machine of the target, or take a record of one by --replay", d.machine.sm)};
  }
  return d;
}

class CudaTuningTarget : public TuningTarget {
 public:
  CudaTuningTarget(CudaPlan plan, const TunedDevice& device, const TargetJob& job)
      : plan_(std::move(plan)),
        problems_(problems_of(problem_texts(plan_))),
        device_(device),
        graph_(job.graph),
        options_(job.options),
        architectures_{fmt::format("sm_{}", device.machine.sm)},
        job_{job.loops, job.graph, job.options, architectures_} {}

  const KernelPlan& plan() const override { return plan_.plan; }
  const std::vector<TuningProblem>& problems() const override { return problems_; }
  tune::Hardware hardware() const override { return device_.hardware; }
  int64_t workers() const override { return 1; }
  Expr choice_key(size_t k) const override { return cuda::choice_key(plan(), plan().kernels[k]); }
  const ChoiceNames& names(size_t k) const override { return cuda::value_names(plan().kernels[k]); }
  std::string choice_text(size_t k, const Choice& c) const override { return cuda::choice_text(plan().kernels[k], c); }

  std::vector<Choice> candidates(size_t k, const std::function<int64_t(SymbolId)>& sizes, size_t most) const override {
    std::vector<Choice> out = cuda::candidates(plan(), plan().kernels[k], plan_.settings.machine(device_.machine.sm), plan_.settings.libraries, sizes, most);
    // Where there is no scratch memory for it.
    if (!is_template(k)) return out;
    const auto& possible = plan_.settings.choices(cuda::problem_text(plan(), plan().kernels[k]));
    if (possible.empty()) std::erase(out, library_choice());
    return out;
  }

  std::vector<cache::Field> cache_fields() const override {
    return {{"libraries", options_.libraries ? "yes" : "no"}, {"tf32", std::string(name(options_.tf32))}};
  }

  double ready_seconds() const override { return kReadySeconds + load_seconds(plan()); }

  Result<std::unique_ptr<ProgramProfiler>> profiler(const std::vector<SymbolValues>& points, Candidates& candidates, double seconds) override {
    shorten(candidates, seconds - load_seconds(plan()));
    CudaPlan build = plan_;
    build.settings.timed = united_choices(plan(), problems_, candidates);
    TRY(const std::shared_ptr<const toolchain::Nvrtc> nvrtc, toolchain::Nvrtc::load());
    build.settings.sms = {device_.machine.sm};
    if (device_.ordinal < 0) {
      TRY_STATUS(build_cubins(build, job_, *nvrtc));
      return std::unique_ptr<ProgramProfiler>();
    }
    std::vector<bool> timed(plan().kernels.size());
    for (const TuningProblem& p : problems_) {
      for (const size_t k : p.kernels) timed[k] = true;
    }
    PackageContents contents;
    contents.name = "tuning";
    contents.fixed_inputs = fixed_arguments(graph_);
    contents.argument_names = graph_.forward_arg_names;
    TRY(TargetContents target, build_plan(std::move(build), job_, *nvrtc, {std::move(timed)}, Dump("", options_.log), [](const std::string&) {}));
    contents.targets.push_back(std::move(target));
    ZipWriter zip = ZipWriter::in_memory();
    TRY_STATUS(write_package(zip, contents));
    package_ = zip.finish_in_memory();
    runtime::ModelOptions model;
    model.device = fmt::format("cuda:{}", device_.ordinal);
    TRY(std::shared_ptr<runtime::Model> loaded, runtime::Model::open_memory(package_, model));
    TRY(std::unique_ptr<CudaProfiler> profiler, CudaProfiler::make(std::move(loaded), plan(), problems_, points, candidates));
    return std::unique_ptr<ProgramProfiler>(std::move(profiler));
  }

 private:
  bool is_template(size_t k) const { return std::holds_alternative<TemplateKernel>(plan().kernels[k].def); }

  // The dearest candidates of all problems are left out until the builds are done in time.
  void shorten(Candidates& candidates, double seconds) const {
    const double threads = std::min(options_.threads > 0 ? options_.threads : allowed_cpus(), kBuildThreads);
    const auto builds = [&] {
      const std::vector<std::vector<Choice>> all = united_choices(plan(), problems_, candidates);
      double sum = 0;
      for (const TuningProblem& p : problems_) {
        const size_t k = p.kernels[0];
        sum += static_cast<double>(all[k].size()) * (std::holds_alternative<LoopKernel>(plan().kernels[k].def) ? kLoopSeconds : kCudaBuildSeconds);
      }
      return sum;
    };
    size_t most = 0;
    for (const auto& row : candidates) {
      for (const auto& c : row) most = std::max(most, c.size());
    }
    for (; most > 2 && builds() / threads > seconds * kBuildShare; --most) {
      for (auto& row : candidates) {
        for (auto& c : row) {
          if (c.size() >= most) c.resize(most - 1);
        }
      }
    }
  }

  CudaPlan plan_;
  std::vector<TuningProblem> problems_;
  TunedDevice device_;
  const Graph& graph_;
  const CompileOptions& options_;
  const std::vector<std::string> architectures_;  // the device's
  const TargetJob job_;
  std::vector<uint8_t> package_;
};

}  // namespace

std::vector<std::string> problem_texts(const CudaPlan& plan) {
  std::vector<std::string> out;
  for (const Kernel& k : plan.plan.kernels) out.push_back(cuda::problem_text(plan.plan, k));
  return out;
}

std::optional<CudaMachine> record_machine(const tune::Record& record) {
  if (record.machine) return record.machine;
  if (!record.hardware.is_gpu()) return std::nullopt;
  int sm = 0;
  const std::string& isa = record.hardware.isa;
  std::from_chars(isa.data() + 3, isa.data() + isa.size(), sm);
  return cuda_machine(sm);
}

std::function<std::vector<Choice>(const std::string& problem)> choices_of(const tune::Record& record) {
  return [&record](const std::string& problem) {
    std::vector<Choice> out;
    const tune::Entry* entry = record.find(problem);
    for (size_t i = 0; entry && i < entry->rows.size(); ++i) {
      if (const auto c = choice_of(templates::CudaWay::kNames, entry->rows[i].choice)) out.push_back(*c);
    }
    return out;
  };
}

Status apply_record(CudaPlan& plan, const tune::Record& record) {
  std::vector<RecordedKernel> kernels;
  const std::vector<std::string> texts = problem_texts(plan);
  for (size_t k = 0; k < texts.size(); ++k) {
    if (texts[k].empty()) {
      kernels.emplace_back();
      continue;
    }
    const Kernel& kernel = plan.plan.kernels[k];
    kernels.push_back({texts[k], cuda::choice_key(plan.plan, kernel), &cuda::value_names(kernel),
                       [&plan, &kernel](const Choice& c) { return cuda::can_run(plan.plan, kernel, plan.settings.machine(plan.settings.tuned_sm), c); },
                       [&kernel](const Choice& c) { return cuda::choice_text(kernel, c); }});
  }
  return apply_record(plan.plan, kernels, record);
}

Result<tune::Record> tune_cuda(const TargetJob& job) {
  const LoopProgram& loops = job.loops;
  const CompileOptions& options = job.options;
  const double begin = tuning_clock();
  TRY(const TunedDevice device, find_device(cuda_architectures(job.architectures).chips));
  const auto no_library = [](const std::string&) { return std::vector<Choice>(); };
  const PlanOneWay one_way = [&](const FusionWay* way) -> Result<std::unique_ptr<TuningTarget>> {
    TRY(CudaPlan plan, plan_cuda(job, device.machine, no_library, way));
    TRY_STATUS(check_warm(plan.plan, options.tune));
    return std::unique_ptr<TuningTarget>(std::make_unique<CudaTuningTarget>(std::move(plan), device, job));
  };
  TRY(FusionChoice fusion, tune_fusion(loops, one_way, options, begin));
  TRY(CudaPlan plan, plan_cuda(job, device.machine, [](const std::string&) { return std::vector<Choice>{library_choice()}; }, fusion.way));
  if (options.tune.memory > 0 && most_scratch(plan.plan, options.tune, 1) > options.tune.memory) {
    TRY(plan, plan_cuda(job, device.machine, no_library, fusion.way));
  }
  const CudaMachine machine = plan.settings.machine(device.machine.sm);
  CudaTuningTarget target(std::move(plan), device, job);
  TRY(tune::Record record, run_tuner(target, options.tune, options.cache.get(), begin));
  if (fusion.entry) record.entries.insert(record.entries.begin(), std::move(*fusion.entry));
  if (machine != cuda_machine(machine.sm)) record.machine = machine;
  return record;
}

}  // namespace coil
