// A template of a plan as the loop program's definition: a program of one definition that reads the kernel's operands as vectors, at their linear offsets.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "schedule/interpret_memory.h"

namespace coil {

class TemplateRun {
 public:
  // Both are borrowed.
  TemplateRun(PlanMemory& memory, const TemplateKernel& kernel);

  // The result, dense. dtype: of its elements.
  Result<TensorData> run(DType dtype);

  // --- for the templates (schedule/templates)
  const TemplateKernel& kernel() const { return kernel_; }
  ExprPool& pool() const { return memory_.pool(); }
  std::vector<int64_t> values(const std::vector<Expr>& sizes) const { return memory_.values(sizes); }
  const BufferInfo& info(BufferId id) const { return plan_.buffer(id).info; }
  // The constant that an operand's numbers are packed from; null: they lie as the operand's offset says.
  const PlanConstant* packed(const PlanOperand& o) const;
  // The numbers of a constant, dense, as the program has them.
  const std::vector<uint8_t>& plain(BufferId id) const { return memory_.plain(id); }

  // Bytes as a buffer of these sizes, dense; the bytes stay where they are.
  BufferId add_dense(DType dtype, const std::vector<int64_t>& sizes, std::span<const uint8_t> bytes, std::shared_ptr<const void> owner = {});
  // What is in a buffer's memory as a buffer of these sizes, dense.
  BufferId add_as(BufferId id, const std::vector<int64_t>& sizes);
  BufferId add_vector(BufferId id);
  Operand linear(const PlanOperand& o) { return {add_vector(o.buffer), {o.offset}}; }
  // The right operand of a product, which may be a weight in panels.
  Operand right(const PlanOperand& o, const Gemm& product);
  // An expression with linear loads of the plan's buffers, at all points of a domain.
  BufferId gathered(Expr body, DType dtype, const std::vector<int64_t>& domain);

 private:
  BufferId add(BufferInfo info, TensorData data);
  Operand unpacked(const PlanConstant& c, const Gemm& g);

  PlanMemory& memory_;
  const KernelPlan& plan_;
  const TemplateKernel& kernel_;
  LoopDef def_;
  LoopProgram program_;
  std::vector<TensorData> contents_;
};

}  // namespace coil
