#include "tune/profiling.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coil {
namespace {

constexpr size_t kMostReferences = 1 << 16;
constexpr int64_t kSamples = 512;  // of a buffer

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

// How far results may be from the reference's, as a part of the largest: roundings of what came before count as well.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 0.1 : dtype == DType::f16 ? 2e-2 : dtype == DType::f32 ? 3e-3 : dtype == DType::f64 ? 1e-6 : 0; }
}  // namespace

bool is_checked(const Kernel& kernel, DType dtype) { return is_float(dtype) || std::holds_alternative<UserCallKernel>(kernel.def); }

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
      const int exponent = bits >> 10 & 31, fraction = bits & 1023;
      const double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
      return bits >> 15 ? -magnitude : magnitude;
    }
    case DType::i64: return static_cast<double>(read(int64_t{}));
    case DType::i32: return read(int32_t{});
    case DType::i16: return read(int16_t{});
    case DType::i8: return read(int8_t{});
    default: return read(uint8_t{});
  }
}

std::vector<ProgramInput> random_inputs(const KernelPlan& plan, const std::function<int64_t(Expr)>& size_of) {
  std::vector<ProgramInput> inputs;
  Random random;
  for (const LoopInput& in : plan.inputs) {
    ProgramInput& input = inputs.emplace_back();
    if (!in.buffer.valid()) {
      const int64_t value = size_of(in.symint);
      input.bytes.resize(sizeof value);
      std::memcpy(input.bytes.data(), &value, sizeof value);
      continue;
    }
    const BufferInfo& b = plan.buffer(in.buffer).info;
    const TensorFace f = face(b);
    int64_t last = 0;
    bool empty = false;
    for (size_t d = 0; d < f.sizes.size(); ++d) {
      input.sizes.push_back(size_of(f.sizes[d]));
      input.strides.push_back(size_of(f.strides[d]));
      last += (input.sizes[d] - 1) * input.strides[d];
      empty = empty || input.sizes[d] <= 0;
    }
    input.bytes.resize(empty ? 0 : static_cast<size_t>(last + 1) * static_cast<size_t>(info(f.dtype).bytes));
    fill(b.dtype, random, input.bytes);
    input.bytes.reserve(64);
    for (const LoopOutput& o : plan.outputs) input.overwritten |= o.kind == LoopOutput::Kind::input_write && o.target == in.buffer;
  }
  return inputs;
}

CoilTensorView view_of(const KernelPlan& plan, size_t input, ProgramInput& values) {
  const LoopInput& in = plan.inputs[input];
  CoilTensorView view = {};
  view.dtype = in.buffer.valid() ? info(face(plan.buffer(in.buffer).info).dtype).shim_number : COIL_INT64;
  view.data = values.bytes.data();
  view.sizes = values.sizes.data();
  view.strides = values.strides.data();
  view.ndim = static_cast<int32_t>(values.sizes.size());
  return view;
}

std::vector<SampleRun> sample_runs(int64_t elements, int64_t neighbours) {
  if (elements <= kSamples) return {{0, elements}};
  std::vector<SampleRun> runs;
  const int64_t count = kSamples / neighbours;
  for (int64_t i = 0; i < count; ++i) runs.push_back({i * (elements - neighbours) / (count - 1), neighbours});
  return runs;
}

// 0: it is empty, or there are gaps between its elements.
static int64_t dense_elements(const CoilTensorView& view) {
  int64_t elements = 1, last = 0;
  for (int32_t d = 0; d < view.ndim; ++d) {
    elements *= view.sizes[d];
    last += (view.sizes[d] - 1) * view.strides[d];
  }
  return elements > 0 && last + 1 == elements ? elements : 0;
}

std::optional<std::vector<ResultSamples>> result_samples(const KernelPlan& plan, const std::vector<CoilTensorView>& views,
                                                         const std::function<bool(void* to, const void* from, int64_t bytes)>& read) {
  constexpr int64_t kNeighbours = 16;
  std::vector<ResultSamples> out;
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind != LoopOutput::Kind::user || out.size() >= views.size()) continue;
    const CoilTensorView& view = views[out.size()];
    ResultSamples& samples = out.emplace_back();
    samples.dtype = plan.buffer(o.source).info.dtype;
    const int64_t elements = is_float(samples.dtype) && view.data ? dense_elements(view) : 0, item = byte_size(samples.dtype);
    if (elements == 0) continue;
    std::vector<uint8_t> bytes;
    for (const SampleRun& r : sample_runs(elements, kNeighbours)) {
      bytes.resize(static_cast<size_t>(r.count * item));
      if (!read(bytes.data(), static_cast<const char*>(view.data) + r.first * item, r.count * item)) return std::nullopt;
      for (int64_t s = 0; s < r.count; ++s) samples.values.push_back(value_at(samples.dtype, bytes.data(), s));
    }
  }
  return out;
}

void ResultCheck::begin() {
  fills_ = reference_.empty();
  next_ = 0;
}

bool ResultCheck::matches(DType dtype, std::vector<double> samples) {
  if (fills_) {
    if (reference_.size() < kMostReferences) reference_.push_back(std::move(samples));
    return true;
  }
  if (next_ >= reference_.size()) return true;
  const std::vector<double>& expected = reference_[next_++];
  if (expected.size() != samples.size()) return true;
  double scale = 0;
  for (double v : expected) scale = std::isfinite(v) ? std::max(scale, std::fabs(v)) : scale;
  for (size_t s = 0; s < samples.size(); ++s) {
    const bool same = expected[s] == samples[s] || (std::isnan(expected[s]) && std::isnan(samples[s]));
    if (!same && !(std::fabs(samples[s] - expected[s]) <= tolerance(dtype) * scale)) return false;
  }
  return true;
}

}  // namespace coil
