// What CUDA's plans say of their templates' arithmetic (KernelPlan::arithmetic): which float32 factors may be rounded to TensorFloat-32.
#pragma once

#include <string>

#include "loop/tf32.h"
#include "schedule/kernel_plan.h"

namespace coil::cuda {

inline constexpr std::string_view kTf32Arithmetic = "tf32_";  // and of what: "tf32_products", "tf32_all"

inline std::string arithmetic_of(Tf32 tf32) { return tf32.any() ? std::string(kTf32Arithmetic).append(name(tf32)) : ""; }

// None of the factors in plans of other targets.
inline Tf32 tf32_of(const KernelPlan& plan) {
  const std::string_view text = plan.arithmetic;
  return text.starts_with(kTf32Arithmetic) ? tf32_by_name(text.substr(kTf32Arithmetic.size())).value_or(Tf32()) : Tf32();
}

}  // namespace coil::cuda
