#include "compiler/plan_diff.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "codegen/constants.h"
#include "codegen/packings.h"
#include "compiler/call_memory.h"
#include "ops/memory.h"
#include "schedule/interpret_plan.h"
#include "schedule/stand_in.h"

namespace coil {
namespace {

// Of the largest number that a kernel writes. Sums may be added up in any order, and what is between two operators may be rounded or not.
double allowed(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f32: return 1e-4;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

double number_at(DType dtype, const uint8_t* bytes, int64_t at) {
  return interpreter::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const T v = interpreter::read_element<T>(bytes, at);
    if constexpr (std::is_same_v<T, interpreter::Byte>) return static_cast<double>(static_cast<int64_t>(v));
    else return static_cast<double>(v);
  });
}

// Beyond it one order of a sum overflows and another one does not.
double nearly_infinite(DType dtype) { return dtype == DType::f16 ? 4e3 : dtype == DType::f64 ? 1e307 : 1e37; }

class PlanComparison {
 public:
  explicit PlanComparison(const WatchedBuild& build) : build_(build), inside_(build.plan.kernels.size(), false) {
    const std::vector<int> ends = matching_ends(build.plan);
    for (size_t n = 0; n < ends.size(); ++n) {
      for (size_t k = n; ends[n] >= 0 && k < static_cast<size_t>(ends[n]); ++k) inside_[k] = true;
    }
  }

  Result<PlanDiff> run(std::span<const CoilTensorView> inputs, const std::string& path) {
    std::vector<TensorData> tensors;
    for (const CoilTensorView& v : inputs) tensors.push_back(borrowed(v));
    TRY_STATUS(check(tensors, path));
    TRY_STATUS(run_watched(build_, inputs, Order::threads, 0, [this](size_t kernel, const std::vector<int64_t>&, std::vector<Written> written) {
      for (Written& w : written) w.read_again = {}, last_[w.buffer] = kernel;
      shown_[kernel] = std::move(written);
    }));
    PlanInterpreter interpreter(
        build_.plan, {1, constant_bytes}, [this](size_t kernel) { compare(kernel, true); },
        [this](size_t kernel) { return compare(kernel, false), !inside_[kernel]; });
    interpreter_ = &interpreter;
    const auto done = interpreter.run(tensors);
    if (!done.ok()) return done.error();
    return std::move(diff_);
  }

 private:
  // An edited plan may read or write what is not there: the interpreter looks before the code does not.
  Status check(const std::vector<TensorData>& inputs, const std::string& path) const {
    const auto wrong = [&](const std::string& what) {
      return Error{ErrorCode::bad_program, fmt::format("the plan cannot be run on these inputs: {}", what), path, ""};
    };
    try {
      const auto done = PlanInterpreter(build_.plan, {std::max(allowed_cpus(), 1), constant_bytes}).run(inputs);
      if (done.ok() || done.error().code == ErrorCode::unsupported_feature) return ok_status();
      return done.error().code == ErrorCode::internal ? wrong(done.error().message) : done.error();
    } catch (const InternalError& error) {
      return wrong(error.what());
    }
  }

  // computed: by the interpreter; else it has no reference for the kernel. What the code wrote is in memory then.
  void compare(size_t kernel, bool computed) {
    const auto found = shown_.find(kernel);
    if (inside_[kernel] || found == shown_.end()) return;
    const auto* user = std::get_if<UserCallKernel>(&build_.plan.kernels[kernel].def);
    const std::string why_not = user && is_stand_in(*user)
                                    ? fmt::format("the code of {} is not in the text, made-up numbers stand for its results", user->def.kernel->name)
                                    : "the interpreter of plans has no reference for it";
    KernelVerdict verdict{kernel, computed, computed ? "" : why_not, 0};
    for (const Written& w : found->second) {
      if (last_.at(w.buffer) != kernel) continue;  // a piece of a concatenation: what is beside it nobody has written yet
      if (computed) compare(w, verdict);
      interpreter_->put(w.buffer, w.data);
    }
    diff_.kernels.push_back(std::move(verdict));
    shown_.erase(found);
  }

  void compare(const Written& w, KernelVerdict& verdict) {
    const TensorData expected = interpreter_->contents(w.buffer);
    const std::vector<uint8_t> a = dense_bytes(expected), b = dense_bytes(w.data);
    const int64_t count = static_cast<int64_t>(std::min(a.size(), b.size())) / byte_size(expected.dtype);
    double scale = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double e = std::fabs(number_at(expected.dtype, a.data(), i));
      if (std::isfinite(e)) scale = std::max(scale, e);
    }
    const double most = allowed(expected.dtype) * (scale > 0 ? scale : 1);
    for (int64_t i = 0; i < count; ++i) {
      const double e = number_at(expected.dtype, a.data(), i), f = number_at(expected.dtype, b.data(), i);
      const bool huge = std::fabs(e) > nearly_infinite(expected.dtype) && std::fabs(f) > nearly_infinite(expected.dtype);
      if (e == f || (std::isnan(e) && std::isnan(f)) || (huge && is_float(expected.dtype))) continue;
      const double difference = std::isfinite(e) && std::isfinite(f) && most > 0 ? std::fabs(e - f) / most : std::numeric_limits<double>::infinity();
      verdict.largest_error = std::max(verdict.largest_error, difference);
      if (difference <= 1 || diff_.first) continue;
      diff_.first = PlanDifference{verdict.kernel, build_.plan.buffer(w.buffer).info.name, index_of(i, expected.sizes), f, e};
    }
  }

  const WatchedBuild& build_;
  std::vector<bool> inside_;                      // between marks: what a region gives is seen at its end
  std::map<size_t, std::vector<Written>> shown_;  // by the code
  std::map<BufferId, size_t> last_;               // the last kernel that writes a buffer
  PlanInterpreter* interpreter_ = nullptr;
  PlanDiff diff_;
};

}  // namespace

Result<PlanDiff> diff_plan(const WatchedBuild& build, std::span<const CoilTensorView> inputs, const std::string& path) {
  return PlanComparison(build).run(inputs, path);
}

}  // namespace coil
