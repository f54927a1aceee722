// The interpreter of kernel plans: kernel by kernel, on memory that is laid out as the plan says. One arena holds what shares it, so that a value which is
// overwritten too early gives wrong numbers; memory begins as NaN, and a kernel's own memory is NaN again when it ends. Slow; finds what the scheduler does
// wrong without generating code.
//
// What stands for a kernel's code: a loop kernel runs its statements, each for a number of points at once; a template is evaluated as the loop program's
// definition, from the operands that the kernel names. Packed constants are read from where their row says that the numbers come from.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "schedule/interpret_memory.h"
#include "schedule/kernel_buffers.h"

namespace coil {

class PlanInterpreter {
 public:
  // The plan is borrowed and must not change. after: called when a kernel has run (a mark that ends something: when that is over), as often as it does.
  // instead: asked for a kernel that has no reference; true: what it computes has been put into memory.
  PlanInterpreter(const KernelPlan& plan, PlanSettings settings, std::function<void(size_t kernel)> after = {},
                  std::function<bool(size_t kernel)> instead = {});

  // Inputs in the order of plan.inputs, results in that of plan.outputs, without those of kind check: what is in the results' memory, or in that of the state
  // or input that is written. States keep what a call left there. Errors: those of a call, and unsupported_feature for a kernel that has no reference (a
  // user's, most of the library's).
  Result<std::vector<TensorData>> run(std::span<const TensorData> inputs);

  // What is in a buffer's memory now, by its sizes and strides.
  TensorData contents(BufferId id);
  // The same, in the other direction: elements of the same sizes and strides.
  void put(BufferId id, const TensorData& data);

 private:
  Status run_range(size_t begin, size_t end);
  Status run_region(size_t begin, size_t end);
  Status run_branch(size_t begin, size_t end, const ControlMark& mark);
  Status run_loop(size_t begin, size_t end, const ControlMark& mark);
  Status run_images(size_t first, size_t end, const ControlMark& mark);
  Status run_kernel(size_t n);
  void spoil_results(const KernelBuffers& used);
  Status run_copy(const CopyKernel& k);
  void copy_elements(const CopyKernel& k, const PlanMemory::Piece& from, const PlanMemory::Piece& to);
  Status run_read(const ReadKernel& k);
  Status check_sizes();
  bool is_true(BufferId predicate);
  Result<std::vector<TensorData>> results();

  const KernelPlan& plan_;
  const PlanSettings settings_;
  const std::function<void(size_t)> after_;
  const std::function<bool(size_t)> instead_;
  const std::vector<int> ends_;  // of marks
  std::unique_ptr<PlanMemory> memory_;
  std::vector<uint8_t> states_;  // between calls
  std::vector<char> due_;        // checks of sizes that are not made yet
  std::vector<SymbolId> read_;   // sizes from data that are known
  bool stopped_ = false;         // the loop that runs has found its end
};

// The kernels themselves, each in the memory of a call.
Status run_loop_kernel(PlanMemory& memory, const LoopKernel& kernel);
Status run_sort_kernel(PlanMemory& memory, const SortKernel& kernel);
Status run_template_kernel(PlanMemory& memory, const TemplateKernel& kernel);
Status run_library_kernel(PlanMemory& memory, const LibraryKernel& kernel);

// A temp that is known before the statements run: dense, over the axes.
struct KnownTemp {
  TempId temp;
  DType dtype = DType::f32;
  std::vector<uint8_t> bytes;
};
// The statements at points of axes that are all outer ones.
Status run_statements(PlanMemory& memory, const std::vector<Expr>& sizes, const std::vector<Stmt>& stmts, KnownTemp known);

}  // namespace coil
