#include "compiler/cpu_profiler.h"

#include <algorithm>
#include <cstring>

#include "codegen/interface/call_text.h"

namespace coil {

CpuProfiler::CpuProfiler(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                         const std::vector<SymbolValues>& points, const std::vector<std::vector<std::vector<Choice>>>& choices)
    : model_(std::move(model)),
      plan_(plan),
      problems_(problems),
      points_(points),
      choices_(choices),
      context_(model_),
      problem_of_(plan.kernels.size(), -1),
      numbers_(plan.kernels.size() + 1),
      outputs_(static_cast<size_t>(model_->code().num_outputs)) {
  for (size_t p = 0; p < problems.size(); ++p) {
    for (const size_t k : problems[p].kernels) problem_of_[k] = static_cast<int>(p);
  }
}

CpuProfiler::~CpuProfiler() {
  if (tuning_) tuning_->hook = nullptr;
}

Result<std::unique_ptr<CpuProfiler>> CpuProfiler::make(std::shared_ptr<runtime::Model> model, const KernelPlan& plan,
                                                       const std::vector<TuningProblem>& problems, const std::vector<SymbolValues>& points,
                                                       const std::vector<std::vector<std::vector<Choice>>>& choices) {
  std::unique_ptr<CpuProfiler> p(new CpuProfiler(std::move(model), plan, problems, points, choices));
  p->tuning_ = static_cast<CoilTuning*>(p->model_->symbol(COIL_TUNING_SYMBOL));
  CHECK(p->tuning_, "a build for tuning exports its table");
  static_assert(sizeof p->numbers_[0] == sizeof(int32_t[4]));
  p->tuning_->choices = reinterpret_cast<const int32_t(*)[4]>(p->numbers_.data());
  p->tuning_->owner = p.get();
  return p;
}

int64_t CpuProfiler::size_of(Expr e) const {
  const SymbolValues& values = points_[point_];
  return evaluate_index(e, [&](SymbolId id) { return id == plan_.workers ? model_->host().num_workers : values[static_cast<size_t>(id.index)]; });
}

void CpuProfiler::begin_point(size_t point) {
  point_ = point;
  check_.forget();
  inputs_ = random_inputs(plan_, [this](Expr e) { return size_of(e); });
  kept_.assign(inputs_.size(), {});
  views_.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].overwritten) kept_[i] = inputs_[i].bytes;
    views_.push_back(view_of(plan_, i, inputs_[i]));
  }
}

void CpuProfiler::restore_inputs() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!kept_[i].empty()) std::memcpy(inputs_[i].bytes.data(), kept_[i].data(), kept_[i].size());
  }
}

void CpuProfiler::hook(void* owner, int32_t kernel, void* const* results) {
  CpuProfiler& self = *static_cast<CpuProfiler*>(owner);
  if (!results) {
    self.begin_ = tuning_clock();
    return;
  }
  const double end = tuning_clock();
  double& seconds = self.seconds_[static_cast<size_t>(self.problem_of_[static_cast<size_t>(kernel)])];
  seconds = std::max(seconds, 0.0) + end - self.begin_;
  if (self.checking_) self.check(static_cast<size_t>(kernel), results);
}

void CpuProfiler::check(size_t kernel, void* const* results) {
  const std::vector<BufferId> written = written_buffers(plan_.kernels[kernel]);
  for (size_t i = 0; i < written.size() && results[i]; ++i) {
    const BufferInfo& b = plan_.buffer(written[i]).info;
    if (!is_checked(plan_.kernels[kernel], b.dtype)) continue;
    int64_t elements = 1;
    for (Expr e : b.sizes) {
      if (depends_on_data(e)) return;
      elements *= size_of(e);
    }
    if (elements <= 0) continue;
    std::vector<double> samples;
    for (const SampleRun& r : sample_runs(elements, 1)) {
      for (int64_t s = 0; s < r.count; ++s) samples.push_back(value_at(b.dtype, results[i], r.first + s));
    }
    if (!check_.matches(b.dtype, std::move(samples)) && wrong_ < 0) wrong_ = problem_of_[kernel];
  }
}

Result<tune::RunTimes> CpuProfiler::run(const Call& call) {
  if (call.point != point_) begin_point(call.point);
  for (size_t k = 0; k < problem_of_.size(); ++k) {
    if (problem_of_[k] < 0) continue;
    const auto p = static_cast<size_t>(problem_of_[k]);
    numbers_[k] = choices_[call.point][p][call.choice[p]].values;
  }
  seconds_.assign(problems_.size(), -1);
  checking_ = call.check;
  if (checking_) check_.begin();
  wrong_ = -1;
  tuning_->hook = call.kernels || call.check ? hook : nullptr;
  restore_inputs();
  if (plan_.state_bytes > 0) TRY_STATUS(model_->reset_state());  // so that every run computes the same
  for (CoilTensorView& o : outputs_) o.data = nullptr;
  CoilError error = {};
  const double begin = tuning_clock();
  const int32_t code = context_.run(views_.data(), static_cast<int32_t>(views_.size()), outputs_.data(), static_cast<int32_t>(outputs_.size()), &error);
  tune::RunTimes times;
  times.seconds = tuning_clock() - begin;
  tuning_->hook = nullptr;
  if (code != 0) return Error{static_cast<ErrorCode>(code), error.message, "", ""};
  times.problems = seconds_;
  times.wrong = wrong_;
  return times;
}

Result<std::vector<ResultSamples>> CpuProfiler::results() {
  return *result_samples(plan_, outputs_,
                         [](void* to, const void* from, int64_t bytes) { return std::memcpy(to, from, static_cast<size_t>(bytes)) != nullptr; });
}

}  // namespace coil
