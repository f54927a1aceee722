#include "codegen/cuda/templates/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "codegen/index_text.h"
#include "schedule/schedule.h"

namespace coil::cuda {

Expr base_of(const KernelPlan& plan, const PlanOperand& o) { return substitute_vars(o.offset, std::vector<Expr>(64, plan.pool->index(0))); }

Expr coefficient(Expr offset, int var) {
  const auto a = as_affine(offset, var);
  CHECK(a.has_value(), "a template operand that is not affine");
  return a->coefficient;
}

int64_t alignment_of(const KernelPlan& plan, const PlanOperand& o) {
  const BufferInfo& b = plan.buffer(o.buffer).info;
  const int64_t item = byte_size(b.dtype);
  const bool output = std::any_of(plan.outputs.begin(), plan.outputs.end(), [&](const LoopOutput& out) { return out.source == o.buffer; });
  if (b.kind == BufferInfo::Kind::input || output) return item;
  const Expr base = base_of(plan, o);
  if (!base->is_constant()) return item;
  return base->as_int() == 0 ? cd::kPlacedAlignment : std::gcd(base->as_int() * item, cd::kPlacedAlignment);
}

std::string size_texts(const std::vector<Expr>& sizes) {
  std::vector<std::string> parts;
  for (Expr e : sizes) parts.push_back(size_text(e));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void Params::set(const std::string& field, const std::string& value) { text += fmt::format("    {}.{} = {};\n", place_, field, value); }

void Params::set(const std::string& field, Expr value) { set(field, host_index(value)); }

void Params::operand(const std::string& field, const PlanOperand& o) {
  const Expr base = base_of(use_.plan, o);
  const std::string start = address_(o.buffer);
  const int64_t item = byte_size(use_.plan.buffer(o.buffer).info.dtype);
  set(field, base == use_.pool().index(0) ? start : fmt::format("(void*)((char*)({}) + {} * {})", start, host_index(base), item));
}

}  // namespace coil::cuda
