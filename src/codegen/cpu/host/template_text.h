// The description of a template's call on the CPU: "CoilGemm t = {}; t.m = ...", but for what a choice or an epilogue decides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/interface/fixed_place.h"
#include "schedule/kernel_plan.h"

namespace coil {

// What one field of it gets.
struct CallField {
  std::string name;
  std::string value;                // an expression of `run`
  bool number = false;              // that is a number, or null, which the compiler of the program knows
  std::optional<FixedPlace> place;  // of a pointer that lies at such a place
};

struct CallFields {
  const char* type;  // "CoilGemm"
  std::vector<CallField> fields;
};

// The scratch of a product or convolution is a field by itself: it comes after those that choices and epilogues decide.
CallFields template_fields(const KernelPlan& plan, const TemplateKernel& kernel);
CallField scratch_field(const KernelPlan& plan, const TemplateKernel& kernel);

// "    CoilGemm t = {};\n    t.m = 4;\n"
std::string fields_text(const CallFields& call);
// "    t.scratch = nullptr;\n"
std::string field(const char* name, const std::string& value);

// The constant that a buffer is, if it is packed; null: it is not.
const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id);

}  // namespace coil
