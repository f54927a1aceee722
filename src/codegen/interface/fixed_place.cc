#include "codegen/interface/fixed_place.h"

#include <vector>

#include <fmt/format.h>

namespace coil {
namespace {

enum Base : int64_t { kArena, kConstants, kState, kFirstInput };  // inputs and outputs take turns from there on

}  // namespace

std::optional<FixedPlace> fixed_place(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  const Placement& p = b.placement;
  switch (p.kind) {
    case Placement::Kind::arena:
    case Placement::Kind::state:
      if (!p.offset->is_constant()) return std::nullopt;
      return FixedPlace{p.kind == Placement::Kind::arena ? kArena : kState, p.offset->as_int()};
    case Placement::Kind::constant: return FixedPlace{kConstants, static_cast<int64_t>(plan.constants[static_cast<size_t>(p.index)].offset)};
    case Placement::Kind::input: return FixedPlace{kFirstInput + 2 * static_cast<int64_t>(p.index), 0};
    case Placement::Kind::output:
      if (last_data_symbol(plan, b.info.sizes).valid()) return std::nullopt;
      return FixedPlace{kFirstInput + 2 * static_cast<int64_t>(p.index) + 1, 0};
    default: return std::nullopt;
  }
}

std::optional<FixedPlace> fixed_element(const KernelPlan& plan, const PlanOperand& operand, int vars) {
  auto place = fixed_place(plan, operand.buffer);
  const Expr first = substitute_vars(operand.offset, std::vector<Expr>(static_cast<size_t>(vars), plan.pool->index(0)));
  if (!place || !first->is_constant()) return std::nullopt;
  place->offset += first->as_int() * byte_size(plan.buffer(operand.buffer).info.dtype);
  return place;
}

std::string placed_function() {
  return fmt::format(
      "template <class Call>\nstatic inline void* placed(const Call* call, const int64_t* place) {{\n"
      "  switch (place[0]) {{\n"
      "    case {}: return call->arena + place[1];\n"
      "    case {}: return (uint8_t*)call->constants + place[1];\n"
      "    case {}: return call->state + place[1];\n"
      "  }}\n"
      "  const int64_t number = place[0] - {};\n"
      "  return (uint8_t*)(number & 1 ? call->outputs : call->inputs)[number >> 1] + place[1];\n}}\n",
      static_cast<int64_t>(kArena), static_cast<int64_t>(kConstants), static_cast<int64_t>(kState), static_cast<int64_t>(kFirstInput));
}

}  // namespace coil
