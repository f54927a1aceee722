// Neighbours of a plan that are products of the same few rows (Kernel::joins), as one launch, with the kernel that makes the rows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/cuda_kernels.h"

namespace coil::cuda {

struct JoinedProducts {
  KernelText text;             // @NAME@ in place of its name
  std::vector<CudaArgs> args;  // members of the kernel's arguments
  std::string params;          // see CudaTogether
  std::string condition;
  int64_t rows = 0;     // serves all calls of 1 to so many rows, 0: not for certain
  bool always = false;  // all calls of the program are such
};

// Whether a kernel is such a product by itself (schedule/products/join_products.h), of constants: its weights' first bytes are asked for before the kernel in
// front is done. Of bytes: of a single row.
bool joins_itself(const KernelPlan& plan, const Kernel& kernel);

// `first`: the number of the first of these kernels in the plan. Null: they have no kernel in common.
std::optional<JoinedProducts> joined_products(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine);

// The text of a kernel that may be a small one between products of few rows (a token's step): a loop, or attention. Where they have few rows in a call, the
// kernel behind it may start early.
void let_next_start(const KernelPlan& plan, const Kernel& kernel, std::string& body);

// What serves products of bytes (joined_bytes.cc).
std::optional<JoinedProducts> joined_bytes(const KernelPlan& plan, size_t first, size_t count, const CudaMachine& machine);

}  // namespace coil::cuda
