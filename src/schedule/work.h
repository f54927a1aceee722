// What a kernel moves and computes, as formulas over the sizes: for tables of times, traces and rooflines.
#pragma once

#include "schedule/kernel_plan.h"

namespace coil {

// bytes: each buffer that the kernel reads or writes counts once, and no more of it than its loop has points. flops: operations on
// floating-point numbers that give such numbers; a sum's addition, an exp, each is one, and a product's element two for each pair.
// Null where nobody knows: the routines of libraries, users' kernels.
struct KernelWork {
  Expr bytes, flops;
  bool moves = false;                   // nothing is computed, of any type: elements are read, chosen by their places, converted and written
  std::vector<BufferId> reads, writes;  // each once, by number, without constants; what is written includes scratch space
};

// Control marks have none.
KernelWork kernel_work(const KernelPlan& plan, const Kernel& kernel);

}  // namespace coil
