// Scales and zero points of quantised weights as operands of a product's kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/templates/parts.h"

namespace coil {

// Appends the tables; zero points of 0 are none. Returns what the kernel has of them.
Gemm::Quantised add_scales(TemplateOperands& to, TemplateKernel& kernel, const Gemm::Quantised& quantised);

// Makes `quantised` name the tables, of these sizes, that a plan's kernel has from its operand `first` on.
void read_scales(TemplateRun& run, size_t first, const std::vector<int64_t>& sizes, Gemm::Quantised& quantised);

}  // namespace coil
