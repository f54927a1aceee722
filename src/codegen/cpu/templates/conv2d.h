// Convolutions on the CPU: how their weights are packed.
#pragma once

#include "codegen/cpu/templates/parts.h"
#include "codegen/packings.h"

namespace coil::cpu {

// A convolution's weight for a method; null: the kernel does not have it.
const PlanOperand* weight_of(const KernelPlan& plan, const TemplateKernel& kernel, int32_t method);

// The text of its problem, known before there is a kernel.
std::string conv_problem_text(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight);

// The packings of a constant weight that make sense, the default's first. winograd: those for Winograd's filtering among them.
std::vector<Packing> conv_packings(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight, bool winograd);
// The tile of Winograd's filtering for which each call transforms a weight that is no constant, where that pays; else 0.
int64_t call_winograd(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight);
// Whether its kernels read the plain weight in pairs of k.
bool reads_pairs(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight);
// Machines with a matrix unit for bfloat16 have no use for transformed weights: adds the plain ones, an eighth of their size,
// beside them.
void add_direct(std::vector<Packing>& kept, DType dtype);

}  // namespace coil::cpu
