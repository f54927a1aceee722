#include "compiler/cuda_profiler.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "codegen/interface/call_text.h"

namespace coil {
namespace {

constexpr double kGateSeconds = 0.25;
// The driver takes some 1000 launches and events before it makes the host wait.
constexpr size_t kMostGatedKernels = 250;
constexpr int64_t kNeighbours = 16;

using runtime::error_of;

}  // namespace

StreamGate::StreamGate(const cd::CudaDriver& driver) : driver_(driver) {
  void* word = nullptr;
  const bool works = driver.wait_value && driver.allocate_host(&word, sizeof(uint32_t), cd::kCudaHostPortable | cd::kCudaHostMapped) == cd::kCudaSuccess &&
                     driver.host_address(&address_, word, 0) == cd::kCudaSuccess;
  word_ = static_cast<volatile uint32_t*>(word);
  broken_ = !works;
  if (word_) *word_ = 0;
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    broken_ = true;  // a gate that nobody watches could hold up the device
  }
}

StreamGate::~StreamGate() {
  {
    const std::lock_guard lock(mutex_);
    release();
    done_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (word_) driver_.free_host(const_cast<uint32_t*>(word_));
}

void StreamGate::release() {
  if (closed_) __atomic_store_n(word_, ticket_, __ATOMIC_SEQ_CST);
  closed_ = false;
}

void StreamGate::watch() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    wake_.wait_for(lock, std::chrono::milliseconds(50));
    if (!closed_ || tuning_clock() - since_ < kGateSeconds) continue;
    broken_ = true;
    release();
  }
}

void StreamGate::close(void* stream) {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  ++ticket_;
  closed_ = true;
  since_ = tuning_clock();
  if (driver_.wait_value(stream, address_, ticket_, 0) != cd::kCudaSuccess) {  // until the word is at least that
    broken_ = true;
    release();
  }
}

void StreamGate::open() {
  const std::lock_guard lock(mutex_);
  release();
}

CudaProfiler::CudaProfiler(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                           const std::vector<SymbolValues>& points, const TuningTarget::Candidates& candidates)
    : model_(std::move(model)),
      device_(static_cast<const runtime::CudaDevice&>(model_->device())),
      plan_(plan),
      problems_(problems),
      points_(points),
      candidates_(candidates),
      context_(model_),
      problem_of_(plan.kernels.size(), -1),
      numbers_(plan.kernels.size() + 1),
      outputs_(static_cast<size_t>(model_->code().num_outputs)) {
  for (size_t p = 0; p < problems.size(); ++p) {
    for (const size_t k : problems[p].kernels) problem_of_[k] = static_cast<int>(p);
  }
}

CudaProfiler::~CudaProfiler() {
  if (tuning_) tuning_->hook = nullptr;
  const cd::CudaScope scope(&device_.driver(), device_.context());
  gate_.reset();
  device_.driver().synchronise();
  for (void* e : events_) device_.driver().delete_event(e);
  if (stream_) device_.driver().delete_stream(stream_);
}

Result<std::unique_ptr<CudaProfiler>> CudaProfiler::make(std::shared_ptr<runtime::Model> model, const KernelPlan& plan,
                                                         const std::vector<TuningProblem>& problems, const std::vector<SymbolValues>& points,
                                                         const TuningTarget::Candidates& candidates) {
  std::unique_ptr<CudaProfiler> p(new CudaProfiler(std::move(model), plan, problems, points, candidates));
  p->tuning_ = static_cast<CoilTuning*>(p->model_->symbol(COIL_TUNING_SYMBOL));
  CHECK(p->tuning_, "a build for tuning exports its table");
  static_assert(sizeof p->numbers_[0] == sizeof(int32_t[4]));
  p->tuning_->choices = reinterpret_cast<const int32_t(*)[4]>(p->numbers_.data());
  p->tuning_->owner = p.get();
  const cd::CudaScope scope(&p->device_.driver(), p->device_.context());
  CoilError error = {};
  if (const cd::CudaResult result = p->device_.driver().make_stream(&p->stream_, cd::kCudaStreamNonBlocking)) {
    cd::cuda_fail(&p->device_.driver(), result, &error, "cannot make a stream");
    return error_of(error);
  }
  p->gate_ = std::make_unique<StreamGate>(p->device_.driver());
  return p;
}

int64_t CudaProfiler::size_of(Expr e) const { return evaluate_index(e, lookup(plan_, points_[point_], 1)); }

void* CudaProfiler::event(size_t i) {
  while (events_.size() <= i) {
    void* e = nullptr;
    device_.driver().make_event(&e, 0);
    events_.push_back(e);
  }
  return events_[i];
}

int32_t CudaProfiler::begin_point(size_t point, CoilError* error) {
  point_ = point;
  check_.forget();
  seen_.clear();
  memory_.clear();
  views_.clear();
  inputs_ = random_inputs(plan_, [this](Expr e) { return size_of(e); });
  for (size_t i = 0; i < inputs_.size(); ++i) {
    CoilTensorView view = view_of(plan_, i, inputs_[i]);
    if (plan_.inputs[i].buffer.valid()) {
      const auto bytes = static_cast<int64_t>(inputs_[i].bytes.size());
      memory_.emplace_back(device_);
      if (!memory_.back().reserve(bytes, error)) return error->code;
      if (const int32_t failed = device_.upload(memory_.back().data(), inputs_[i].bytes.data(), bytes, error)) return failed;
      view.data = memory_.back().data();
      view.device_type = COIL_CUDA;
      view.device_index = device_.id().index;
    }
    views_.push_back(view);
  }
  return device_.synchronise_all(error);
}

void CudaProfiler::hook(void* owner, int32_t kernel, void* const* results) {
  CudaProfiler& self = *static_cast<CudaProfiler*>(owner);
  if (!results) {
    const size_t first = 2 + 2 * self.timed_.size();  // 0 and 1: the call's own begin and end
    self.timed_.push_back({self.problem_of_[static_cast<size_t>(kernel)], first});
    self.device_.driver().record_event(self.event(first), self.stream_);
    return;
  }
  self.device_.driver().record_event(self.event(self.timed_.back().event + 1), self.stream_);
  if (self.checking_ && self.failed_.code == 0) self.check(static_cast<size_t>(kernel), results);
}

int32_t CudaProfiler::check(size_t kernel, void* const* results) {
  if (const int32_t failed = device_.synchronise(stream_, &failed_)) return failed;
  const std::vector<BufferId> written = written_buffers(plan_.kernels[kernel]);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < written.size() && results[i]; ++i) {
    const BufferInfo& b = plan_.buffer(written[i]).info;
    if (!is_checked(plan_.kernels[kernel], b.dtype)) continue;
    int64_t elements = 1;
    for (Expr e : b.sizes) elements *= size_of(e);
    if (elements <= 0) continue;
    const int64_t item = byte_size(b.dtype);
    std::vector<double> samples;
    for (const SampleRun& r : sample_runs(elements, kNeighbours)) {
      bytes.resize(static_cast<size_t>(r.count * item));
      if (const int32_t failed = device_.copy(bytes.data(), static_cast<const char*>(results[i]) + r.first * item, r.count * item, stream_, &failed_))
        return failed;
      for (int64_t s = 0; s < r.count; ++s) samples.push_back(value_at(b.dtype, bytes.data(), s));
    }
    if (!check_.matches(b.dtype, std::move(samples)) && wrong_ < 0) wrong_ = problem_of_[kernel];
  }
  return 0;
}

int32_t CudaProfiler::enqueue(CoilError* error) {
  for (CoilTensorView& o : outputs_) o.data = nullptr;
  return context_.run(views_.data(), static_cast<int32_t>(views_.size()), outputs_.data(), static_cast<int32_t>(outputs_.size()), error, stream_);
}

Result<tune::RunTimes> CudaProfiler::run(const Call& call) {
  const cd::CudaDriver& driver = device_.driver();
  const cd::CudaScope scope(&driver, device_.context());
  CoilError error = {};
  if (call.point != point_ && begin_point(call.point, &error)) return error_of(error);
  bool fresh = false;
  for (size_t k = 0; k < problem_of_.size(); ++k) {
    if (problem_of_[k] < 0) continue;
    const auto p = static_cast<size_t>(problem_of_[k]);
    numbers_[k] = candidates_[call.point][p][call.choice[p]].values;
    fresh = seen_.emplace(k, numbers_[k]).second || fresh;
  }
  for (size_t i = 0, m = 0; i < inputs_.size(); ++i) {
    if (!plan_.inputs[i].buffer.valid()) continue;
    if (inputs_[i].overwritten && device_.upload(memory_[m].data(), inputs_[i].bytes.data(), static_cast<int64_t>(inputs_[i].bytes.size()), &error))
      return error_of(error);
    ++m;
  }
  if (plan_.state_bytes > 0) TRY_STATUS(model_->reset_state());  // so that every run computes the same
  // What runs for the first time may allocate, load code and ask libraries: it must not wait behind the gate.
  tuning_->hook = nullptr;
  if (fresh && !call.check && (enqueue(&error) || context_.synchronise(&error))) return error_of(error);
  timed_.clear();
  checking_ = call.check;
  if (checking_) check_.begin();
  wrong_ = -1;
  failed_ = {};
  const bool gated = !call.check && plan_.kernels.size() <= kMostGatedKernels;
  if (gated) gate_->close(stream_);
  tuning_->hook = call.kernels || call.check ? hook : nullptr;
  driver.record_event(event(0), stream_);
  const int32_t code = enqueue(&error);
  driver.record_event(event(1), stream_);
  tuning_->hook = nullptr;
  gate_->open();
  if (code != 0) return error_of(error);
  if (context_.synchronise(&error)) return error_of(error);
  if (failed_.code != 0) return error_of(failed_);
  const auto seconds = [&](size_t first) {
    float milliseconds = 0;
    driver.elapsed(&milliseconds, event(first), event(first + 1));
    return static_cast<double>(milliseconds) * 1e-3;
  };
  tune::RunTimes times;
  times.seconds = seconds(0);
  times.problems.assign(problems_.size(), -1);
  for (const Sampled& s : timed_) {
    double& sum = times.problems[static_cast<size_t>(s.problem)];
    sum = std::max(sum, 0.0) + seconds(s.event);
  }
  times.wrong = wrong_;
  return times;
}

Result<std::vector<ResultSamples>> CudaProfiler::results() {
  const cd::CudaScope scope(&device_.driver(), device_.context());
  CoilError error = {};
  const auto read = [&](void* to, const void* from, int64_t bytes) {
    return device_.copy(to, from, bytes, stream_, &error) == 0 && device_.synchronise(stream_, &error) == 0;
  };
  std::optional<std::vector<ResultSamples>> samples = result_samples(plan_, outputs_, read);
  if (!samples) return error_of(error);
  return std::move(*samples);
}

}  // namespace coil
