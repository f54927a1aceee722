#include "compiler/cpu_profiler.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "codegen/host/call_text.h"
#include "expr/estimate.h"

namespace coil {
namespace {

constexpr int64_t kSamples = 512;  // of a buffer, spread over it
constexpr size_t kMostReferences = 1 << 16;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A fixed sequence: the same inputs in every run.
class Random {
 public:
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 32);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15;
};

// Between -1 and 1; integers and booleans 0 or 1, which are in range of any index.
void fill(DType dtype, Random& random, std::vector<uint8_t>& bytes) {
  const auto item = static_cast<size_t>(byte_size(dtype));
  for (size_t i = 0; i + item <= bytes.size(); i += item) {
    const uint32_t r = random.next();
    const float f = static_cast<float>(static_cast<int32_t>(r)) * 0x1p-31F;
    const double d = f;
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    const auto bf16 = static_cast<uint16_t>(bits >> 16);
    const auto f16 = static_cast<uint16_t>((r & 0x8000) | ((11 + (r >> 16) % 4) << 10) | (r & 0x3ff));
    switch (dtype) {
      case DType::f32: std::memcpy(&bytes[i], &f, item); break;
      case DType::f64: std::memcpy(&bytes[i], &d, item); break;
      case DType::bf16: std::memcpy(&bytes[i], &bf16, item); break;
      case DType::f16: std::memcpy(&bytes[i], &f16, item); break;
      default: bytes[i] = static_cast<uint8_t>(r >> 31);
    }
  }
}

double value_at(DType dtype, const void* data, int64_t index) {
  const auto bytes = static_cast<const uint8_t*>(data) + index * byte_size(dtype);
  const auto read = [&](auto v) {
    std::memcpy(&v, bytes, sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::f32: return read(float{});
    case DType::f64: return read(double{});
    case DType::bf16: {
      const uint32_t bits = static_cast<uint32_t>(read(uint16_t{})) << 16;
      float f;
      std::memcpy(&f, &bits, sizeof f);
      return f;
    }
    case DType::f16: {
      const uint16_t bits = read(uint16_t{});
      const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
      const double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
      return bits & 0x8000 ? -size : size;
    }
    case DType::i64: return static_cast<double>(read(int64_t{}));
    case DType::i32: return read(int32_t{});
    case DType::i16: return read(int16_t{});
    case DType::i8: return read(int8_t{});
    default: return read(uint8_t{});
  }
}

// How far results may be from the reference's, as a part of the largest: roundings of what came before count as well.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 0.1 : dtype == DType::f16 ? 0.02 : dtype == DType::f32 ? 3e-3 : dtype == DType::f64 ? 1e-6 : 0; }
// Whole numbers of our own kernels come from roundings; users' may be wrong.
bool is_checked(const Kernel& kernel, DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64 || std::holds_alternative<UserCallKernel>(kernel.def);
}

}  // namespace

struct CpuProfiler::Input {
  std::vector<int64_t> sizes, strides;
  std::vector<uint8_t> bytes, kept;  // kept: what the program overwrites
};

CpuProfiler::CpuProfiler(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                         const std::vector<SymbolValues>& points, const std::vector<std::vector<std::vector<Choice>>>& choices)
    : model_(std::move(model)), plan_(plan), problems_(problems), points_(points), choices_(choices), context_(model_), problem_of_(plan.kernels.size(), -1),
      numbers_(plan.kernels.size() + 1), outputs_(static_cast<size_t>(model_->code().num_outputs)) {
  for (size_t p = 0; p < problems.size(); ++p) {
    for (const size_t k : problems[p].kernels) problem_of_[k] = static_cast<int>(p);
  }
}

CpuProfiler::~CpuProfiler() {
  if (tuning_) tuning_->hook = nullptr;
}

Result<std::unique_ptr<CpuProfiler>> CpuProfiler::make(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                                                       const std::vector<SymbolValues>& points, const std::vector<std::vector<std::vector<Choice>>>& choices) {
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
  reference_.clear();
  inputs_.clear();
  views_.clear();
  Random random;
  for (const LoopInput& in : plan_.inputs) {
    auto input = std::make_unique<Input>();
    CoilTensorView view = {};
    if (in.buffer.valid()) {
      const BufferInfo& b = plan_.buffer(in.buffer).info;
      const TensorFace f = face(b);
      int64_t last = 0;
      bool empty = false;
      for (size_t d = 0; d < f.sizes.size(); ++d) {
        input->sizes.push_back(size_of(f.sizes[d]));
        input->strides.push_back(size_of(f.strides[d]));
        last += (input->sizes[d] - 1) * input->strides[d];
        empty = empty || input->sizes[d] <= 0;
      }
      const auto item = static_cast<size_t>(info(f.dtype).bytes);
      input->bytes.resize(empty ? 0 : static_cast<size_t>(last + 1) * item);
      fill(b.dtype, random, input->bytes);
      for (const LoopOutput& o : plan_.outputs) {
        if (o.kind == LoopOutput::Kind::input_write && o.target == in.buffer) input->kept = input->bytes;
      }
      view.dtype = info(f.dtype).shim_number;
    } else {
      const int64_t value = size_of(in.symint);
      input->bytes.resize(sizeof value);
      std::memcpy(input->bytes.data(), &value, sizeof value);
      view.dtype = COIL_INT64;
    }
    input->bytes.reserve(64);  // never null
    view.data = input->bytes.data();
    view.sizes = input->sizes.data();
    view.strides = input->strides.data();
    view.ndim = static_cast<int32_t>(input->sizes.size());
    views_.push_back(view);
    inputs_.push_back(std::move(input));
  }
}

void CpuProfiler::restore_inputs() {
  for (const auto& in : inputs_) {
    if (!in->kept.empty()) std::memcpy(in->bytes.data(), in->kept.data(), in->kept.size());
  }
}

void CpuProfiler::hook(void* owner, int32_t kernel, void* const* results) {
  CpuProfiler& self = *static_cast<CpuProfiler*>(owner);
  if (!results) {
    self.begin_ = now();
    return;
  }
  const double end = now();
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
    for (int64_t s = 0; s < std::min(elements, kSamples); ++s) samples.push_back(value_at(b.dtype, results[i], elements <= kSamples ? s : s * (elements - 1) / (kSamples - 1)));
    if (fills_reference_) {
      if (reference_.size() < kMostReferences) reference_.push_back(std::move(samples));
      continue;
    }
    if (next_sample_ >= reference_.size()) return;
    const std::vector<double>& expected = reference_[next_sample_++];
    if (wrong_ >= 0 || expected.size() != samples.size()) continue;
    double scale = 0;
    for (double v : expected) scale = std::isfinite(v) ? std::max(scale, std::fabs(v)) : scale;
    for (size_t s = 0; s < samples.size(); ++s) {
      const bool same = expected[s] == samples[s] || (std::isnan(expected[s]) && std::isnan(samples[s]));
      if (!same && !(std::fabs(samples[s] - expected[s]) <= tolerance(b.dtype) * scale)) wrong_ = problem_of_[kernel];
    }
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
  fills_reference_ = call.check && reference_.empty();
  wrong_ = -1;
  next_sample_ = 0;
  tuning_->hook = call.kernels || call.check ? hook : nullptr;
  restore_inputs();
  if (plan_.state_bytes > 0) TRY_STATUS(model_->reset_state());  // so that every run computes the same
  for (CoilTensorView& o : outputs_) o.data = nullptr;
  CoilError error = {};
  const double begin = now();
  const int32_t code = context_.run(views_.data(), static_cast<int32_t>(views_.size()), outputs_.data(), static_cast<int32_t>(outputs_.size()), &error);
  tune::RunTimes times;
  times.seconds = now() - begin;
  tuning_->hook = nullptr;
  if (code != 0) return Error{static_cast<ErrorCode>(code), error.message, "", ""};
  times.problems = seconds_;
  times.wrong = wrong_;
  return times;
}

}  // namespace coil
