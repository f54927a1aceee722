// Reads the lines below "kernel NAME".
#pragma once

#include <functional>
#include <map>

#include "loop/loop_reader.h"
#include "schedule/kernel_plan.h"

namespace coil {

class KernelReader {
 public:
  // Both are borrowed; the program has the plan's buffers.
  KernelReader(const LoopProgram& program, const BuffersByName& buffers) : program_(program), buffers_(buffers) {}

  // The first line says what kind of kernel it is, the others what belongs to it.
  void first_line(LoopReader& words, Kernel& kernel);
  void further_line(LoopReader& words, Kernel& kernel);
  // What follows from the lines together.
  static void finish(Kernel& kernel);

  // To be asked for each line: temps have the types that the lines before gave them, and worker scratch is no buffer.
  void explain_names(LoopReader& words, const Kernel& kernel);

 private:
  void read_axes(LoopReader& words, LoopKernel& k);
  void read_loop_or_images(LoopReader& words, Kernel& kernel);
  void read_template(LoopReader& words, Kernel& kernel);
  void read_sort(LoopReader& words, Kernel& kernel);
  void read_library(LoopReader& words, Kernel& kernel);
  void read_user(LoopReader& words, Kernel& kernel);
  void read_copy(LoopReader& words, Kernel& kernel);
  void read_read(LoopReader& words, Kernel& kernel);
  void of_loop(LoopReader& words, LoopKernel& k);
  void of_template(LoopReader& words, TemplateKernel& k);
  void of_sort(LoopReader& words, SortKernel& k);
  void read_statement(LoopReader& words, std::vector<Stmt>& stmts, const std::vector<WorkerScratch>* scratch);
  PlanOperand operand(LoopReader& words);

  const LoopProgram& program_;
  const BuffersByName& buffers_;
  std::map<int32_t, DType> temps_;
};

}  // namespace coil
