// Constant weights in the layouts that templates read: rows of the plan's constants that say how their bytes are made.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/kernel_plan.h"
#include "schedule/target.h"

namespace coil {

// Adds buffers and constants to `plan`. All three must outlive it.
class WeightPacker {
 public:
  WeightPacker(KernelPlan& plan, const LoopProgram& program, const TargetTraits& target) : plan_(plan), program_(program), target_(target) {}

  // A constant b as the target wants it: operand 1 of the kernel, which is b as the program has it, then names the packed buffer. False: it stays as it is.
  bool pack_gemm_weight(TemplateKernel& kernel, const Gemm& gemm);
  // Scales or zero points of a product's groups, a constant [groups, n] of f32 (of several matrices: [matrices, groups, n]), as the target packs them; in 16
  // bits where these say the same. A number of 4 bits of a weight has a share of them: of groups of 32 a quarter of a byte in 16 bits.
  BufferId packed_table(BufferId table);
  // The weight as the kernel's next operand: a constant one packed, also in the other ways that choices want; another one over its own coordinates.
  void add_conv_weight(TemplateKernel& kernel, const Conv2d& conv);
  // A buffer of the plan that is a constant packed as `row` says: products of the same weight read it too.
  void add_packed(BufferId buffer, const PlanConstant& row);

 private:
  ExprPool& pool() { return *program_.pool; }
  std::optional<PlanConstant> place_of(const TemplateKernel& k, const Gemm& g);
  std::optional<Packing> product_packing(const TemplateKernel& k, const Gemm& g, const PlanConstant& place) const;
  bool pad_lines(TemplateKernel& k, const Gemm& g);
  BufferId packed_buffer(BufferId source, PlanConstant c);
  BufferId narrow_buffer(BufferId table, DType type);

  KernelPlan& plan_;
  const LoopProgram& program_;
  const TargetTraits& target_;
  std::vector<std::pair<BufferId, PlanConstant>> packed_;
  std::map<BufferId, BufferId> narrow_;  // tables in 16 bits
};

}  // namespace coil
