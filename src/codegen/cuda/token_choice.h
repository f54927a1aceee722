// Programs that generate text choose their tokens on the device too: kernels behind the program's own, which its host program offers as CoilModel::sample.
#pragma once

#include "codegen/cuda/cuda_kernels.h"

namespace coil::cuda {

// Adds them to a program that has the form of one that generates text (src/runtime/generation_form.h) and keeps a state; other programs stay as they are.
void add_token_choice(const KernelPlan& plan, const CudaSettings& settings, CudaProgram& program);

}  // namespace coil::cuda
