// The operands of a template's kernel: as the loop program has them, packed where they are constant weights, and in place where attention reads a cache.
#pragma once

#include "loop/templates/template.h"
#include "schedule/past_keys.h"
#include "schedule/weights.h"

namespace coil {

class TemplateOperands {
 public:
  // All outlive it; what past_keys says may be found later.
  TemplateOperands(const LoopProgram& program, WeightPacker& weights, const PastKeysPlan& past_keys)
      : weights(weights), program_(program), past_keys_(past_keys) {}

  // Those of a loop that is a template, to a kernel that has its definition.
  void add(TemplateKernel& kernel, int loop);

  // --- for the templates (schedule/templates)
  ExprPool& pool() const { return *program_.pool; }
  const BufferInfo& buffer(BufferId id) const { return program_.buffer(id); }
  // What the operand reads, at its linear offset; within the template's ranges, or anywhere.
  void one(TemplateKernel& kernel, const Operand& x) const { kernel.operands.push_back(linear(x, {operand_ranges(kernel.def)})); }
  PlanOperand linear(const Operand& x, const VarRanges& ranges) const;
  // The keys and values that a loop joins; null: it reads them as they are.
  const PastKeysPlan::Join* join(int loop) const;

  WeightPacker& weights;

 private:
  const LoopProgram& program_;
  const PastKeysPlan& past_keys_;
};

}  // namespace coil
