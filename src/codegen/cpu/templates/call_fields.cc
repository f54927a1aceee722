#include "codegen/cpu/templates/call_fields.h"

#include <fmt/format.h>

#include "codegen/index_text.h"
#include "codegen/interface/call_text.h"

namespace coil::cpu {

void CallWriter::add(const std::string& name, Expr value) {
  call_.fields.push_back({.name = name, .value = host_index(value), .number = value->is_constant(), .place = {}});
}

void CallWriter::number(const std::string& name, std::string text) {
  call_.fields.push_back({.name = name, .value = std::move(text), .number = true, .place = {}});
}

void CallWriter::text(const std::string& name, std::string expression) { call_.fields.push_back({.name = name, .value = std::move(expression), .place = {}}); }

void CallWriter::pointer(const std::string& name, BufferId id) {
  call_.fields.push_back({.name = name, .value = buffer_address(plan, id), .place = fixed_place(plan, id)});
}

void CallWriter::element(const std::string& name, const PlanOperand& x, int vars) {
  call_.fields.push_back({.name = name, .value = element_address(plan, x, vars), .place = fixed_element(plan, x, vars)});
}

std::string field(const char* name, const std::string& value) { return fmt::format("    t.{} = {};\n", name, value); }

std::string fields_text(const CallFields& call) {
  std::string text = fmt::format("    {} t = {{}};\n", call.type);
  for (const CallField& f : call.fields) text += field(f.name.c_str(), f.value);
  return text;
}

CallField scratch_field(const KernelPlan& plan, const TemplateKernel& t) {
  if (!t.scratch.valid()) return {.name = "scratch", .value = "nullptr", .number = true, .place = {}};
  return {.name = "scratch", .value = buffer_address(plan, t.scratch), .place = fixed_place(plan, t.scratch)};
}

const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  if (b.placement.kind != Placement::Kind::constant) return nullptr;
  const PlanConstant& c = plan.constants[static_cast<size_t>(b.placement.index)];
  return c.packing == kPlain ? nullptr : &c;
}

CallFields template_fields(const KernelPlan& plan, const TemplateKernel& t) {
  CallWriter writer(plan, t);
  visit_template(t.def, [&](const auto& def) { add_fields(writer, def); });
  return writer.taken();
}

}  // namespace coil::cpu
