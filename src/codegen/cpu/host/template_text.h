// The description of a template's call in `run` on the CPU: "CoilGemm t = {}; t.m = ...", but for what a choice or an epilogue decides.
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

std::string template_fields(const KernelPlan& plan, const TemplateKernel& kernel);
// "    t.scratch = nullptr;\n"
std::string field(const char* name, const std::string& value);
std::string field(const char* name, Expr value);

// The constant that a buffer is, if it is packed; null: it is not.
const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id);

}  // namespace coil
