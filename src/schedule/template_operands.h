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
      : program_(program), weights_(weights), past_keys_(past_keys) {}

  // Those of a loop that is a template, to a kernel that has its definition.
  void add(TemplateKernel& kernel, int loop);

 private:
  ExprPool& pool() const { return *program_.pool; }
  void one(TemplateKernel& k, const Operand& x);
#define X(T) void of(TemplateKernel& k, const T& def, int loop);
  COIL_TEMPLATES(X)
#undef X
  PastKeys past_of(const PastKeysPlan::Join& join);
  // The tables that follow a and b; zero points of 0 are none.
  void add_scales(TemplateKernel& k, const Gemm::Quantised& q);

  const LoopProgram& program_;
  WeightPacker& weights_;
  const PastKeysPlan& past_keys_;
};

}  // namespace coil
