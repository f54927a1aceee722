// What the scheduler should know of the CPU and its device library.
#include "codegen/cpu/cpu_kernels.h"
#include "device/kernels.h"
#include "schedule/schedule.h"

namespace coil::cpu {
namespace {

constexpr int64_t kGemmUnblockedK = 256;

// As device/kernels.h states it.
Expr template_scratch(const KernelPlan& plan, const TemplateKernel& k) {
  ExprPool& pool = *plan.pool;
  const Expr workers = pool.symbol(plan.workers), partial_sums = workers * COIL_GEMM_WORKER_BYTES;
  if (const auto* gemm = std::get_if<Gemm>(&k.def)) {
    return provably_less(product(pool, gemm->k), pool.index(kGemmUnblockedK + 1)) ? Expr() : partial_sums;
  }
  if (std::holds_alternative<Attention>(k.def)) return workers * COIL_ATTENTION_WORKER_BYTES;
  const auto& conv = std::get<Conv2d>(k.def);
  const BufferInfo& w = plan.buffer(k.operands[1].buffer).info;
  const bool depthwise = conv.groups > 1 && w.sizes[0]->as_int() == conv.groups && w.sizes[1]->as_int() == 1;
  if (depthwise) return Expr();
  Expr bytes = pool.index(0);
  if (w.sizes[1]->as_int() * conv.kernel[0] * conv.kernel[1] > kGemmUnblockedK) bytes = partial_sums;
  if (!(as_affine(k.operands[0].offset, 1)->coefficient == pool.index(1))) {
    bytes = bytes + ceil_div(product(pool, conv.x_sizes) * 4, pool.index(64)) * 64;
  }
  return bytes == pool.index(0) ? Expr() : bytes;
}

}  // namespace

TargetTraits traits() {
  TargetTraits t;
  t.template_scratch = template_scratch;
  t.parallel_points = 16;  // results of their own keep some 8 threads busy
  t.split_points = 1 << 16;
  t.split_parts = 64;
  return t;
}

}  // namespace coil::cpu
