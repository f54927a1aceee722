// A user's kernel in a plan that was read from text, which does not have its code: one that writes made-up numbers, so that the kernels around it
// run and can be compared.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

struct StandInTensor {
  PlanOperand operand;  // has_strides
  std::vector<Expr> sizes;
};
// Whether the operand's offset has one stride for each dimension, as what user kernels get.
bool has_strides(Expr offset, size_t rank);

UserCallKernel stand_in(ExprPool& pool, const std::string& name, std::vector<StandInTensor> tensors, std::vector<BufferId> results);
bool is_stand_in(const UserCallKernel& kernel);

}  // namespace coil
