// A build of a program that shows what each kernel wrote, beside the loops that its plan comes from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cuda/cuda_kernels.h"
#include "compiler/compile.h"
#include "loop/loop.h"
#include "runtime/context.h"
#include "schedule/kernel_plan.h"

namespace coil {

struct WatchedBuild {
  Graph graph;        // after the passes
  LoopProgram loops;  // as it was fused: its buffers are the plan's first ones
  KernelPlan plan;
  std::vector<std::string> functions;  // of each kernel; empty: none
  std::vector<size_t> launched_with;   // of each kernel, the last one that its launch computes: itself, or on CUDA one of those beside it
  bool cuda = false;                   // it runs there
  cpu::CpuProgram program;             // for the CPU: as it was generated
  cuda::CudaProgram cuda_program;      // for CUDA: the same
  std::vector<uint8_t> package;        // what a model is opened from
};

// The program for the first target of the options: this machine's CPU, or CUDA (bad_option otherwise). Kernels run one after the other, never image by
// image. Errors as of a compile. The dump gets all stages but the graph itself.
Result<WatchedBuild> build_watched(const Graph& graph, const CompileOptions& options, const Dump& dump);
Result<WatchedBuild> build_watched(const Graph& graph, const CompileOptions& options);
// The same of loops that no graph is known of: those that parse_loops reads. They go through the loop passes first.
Result<WatchedBuild> build_watched(LoopProgram loops, const CompileOptions& options, const Dump& dump);
// The same of a plan that no loops are known of, for this machine's CPU: one that parse_plan reads. bad_program where no code can be made of it.
Result<WatchedBuild> build_watched(KernelPlan plan, const CompileOptions& options, const Dump& dump);

// What a kernel wrote into a buffer: a copy.
struct Written {
  BufferId buffer;
  TensorData data;
  std::function<void(uint8_t* to)> read_again;  // what is there now; until the call ends
};

// How the loops of a call are handed out to the CPU's threads.
enum class Order : uint8_t { threads, backwards, crowded };

// Calls the program on these inputs. after: of each kernel (of control flow as a whole, by its last mark), with the sizes' values.
using AfterKernel = std::function<void(size_t kernel, const std::vector<int64_t>& symbols, std::vector<Written> written)>;
Status run_watched(const WatchedBuild& build, std::span<const CoilTensorView> inputs, Order order, int threads, const AfterKernel& after);

}  // namespace coil
