// Convolutions on the CPU: how their weights are packed.
#pragma once

#include "codegen/cpu/templates/parts.h"

namespace coil::cpu {

// A convolution's weight for a method; null: the kernel does not have it.
const PlanOperand* weight_of(const KernelPlan& plan, const TemplateKernel& kernel, int32_t method);

// The text of its problem, known before there is a kernel.
std::string conv_problem_text(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight);

// The packings of a constant weight that make sense, the default's first. winograd: those for Winograd's filtering among them.
std::vector<PlanConstant::Packing> conv_packings(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight,
                                                 bool winograd);
// Whether its kernels read the plain weight in pairs of k.
bool reads_pairs(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight);
// Machines with a matrix unit for bfloat16 have no use for transformed weights: adds the plain ones, an eighth of their size,
// beside them.
void add_direct(std::vector<PlanConstant::Packing>& kept, DType dtype);

}  // namespace coil::cpu
