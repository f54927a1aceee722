// The description of a template's call on the CPU: "CoilGemm t = {}; t.m = ...", but for what a choice or an epilogue decides. Each template says in a file of
// its own what its fields get (parts.h: add_fields).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/templates/parts.h"
#include "codegen/interface/fixed_place.h"

namespace coil::cpu {

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

class CallWriter {
 public:
  CallWriter(const KernelPlan& plan, const TemplateKernel& kernel) : plan(plan), kernel(kernel) {}

  void set_type(const char* type) { call_.type = type; }
  void add(const std::string& name, Expr value);
  void add(const std::string& name, int64_t value) { number(name, std::to_string(value)); }
  void number(const std::string& name, std::string text);  // that the compiler of the program knows
  void text(const std::string& name, std::string expression);
  void pointer(const std::string& name, BufferId id);
  // That of the operand's first element; vars: how many coordinates its offset has.
  void element(const std::string& name, const PlanOperand& x, int vars);

  ExprPool& pool() const { return *plan.pool; }
  int64_t dtype(BufferId id) const { return info(plan.buffer(id).info.dtype).shim_number; }
  CallFields taken() { return std::move(call_); }

  const KernelPlan& plan;
  const TemplateKernel& kernel;

 private:
  CallFields call_ = {};
};

// The constant that a buffer is, if it is packed; null: it is not.
const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id);

// "    t.scratch = nullptr;\n"
std::string field(const char* name, const std::string& value);
// The scratch is a field by itself: it comes after those that choices and epilogues decide.
CallFields template_fields(const KernelPlan& plan, const TemplateKernel& kernel);
CallField scratch_field(const KernelPlan& plan, const TemplateKernel& kernel);
// "    CoilGemm t = {};\n    t.m = 4;\n"
std::string fields_text(const CallFields& call);

}  // namespace coil::cpu
