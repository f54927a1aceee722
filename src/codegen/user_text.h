// The text of a user's kernel around its source: the configuration's constants before it, and a call with the tensors and numbers of one
// kernel of the plan after it. Shared by the targets.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

struct UserText {
  std::string constants;          // "#define BLOCK 64"
  std::string source;             // with a #line before it
  std::string undefine;           // the constants again
  std::string arguments;          // statements that define what the call passes; they read the pointers `a.p` and the sizes `s`
  std::string call;               // "::fused_gelu(arg_x, arg_alpha, arg_out" and `more`
  std::vector<BufferId> buffers;  // a.p
};

// more: further arguments of the call. pointer: the address of buffer number i as text.
UserText user_text(const KernelPlan& plan, const UserCallKernel& kernel, const UserKernelCode& code, size_t config, const std::string& more);

// "fused_gelu(coil::Tensor<const float, 2> x, double alpha, coil::Tensor<float, 2> out, coil::Range range)": how coil calls it. more: what a target passes
// behind the rest ("coil::Range range"), or empty.
std::string user_call_text(const KernelPlan& plan, const UserCallKernel& kernel, const UserKernelCode& code, std::string_view more);

// The lines of a source that include something else than the headers that come with it.
std::string hoisted_includes(const UserKernelCode& code);

// What equal problems share: the operator, its tensors' types and sizes, its numbers, and the registration itself (as a hash).
std::string user_problem_text(const KernelPlan& plan, const UserCallKernel& kernel, const std::string& function);

// The number that a tuner's choices differ by.
Expr user_key(const UserCallKernel& kernel);

}  // namespace coil
