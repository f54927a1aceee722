#include "compiler/interface.h"

#include "compiler/build_target.h"
#include "compiler/target.h"
#include "loop/loop_text.h"
#include "lower/lower.h"
#include "package/package_writer.h"

namespace coil {

Result<std::string> interface_text(const Graph& graph, const CompileOptions& options) {
  const TargetChoice& choice = options.targets[0];
  TRY(const Graph plain, simplified(with_own_pool(graph), options));
  TRY(const LoopProgram loops, lower(plain, choice.target->lowering(options)));
  TargetContents target = contents_of(*choice.target, choice.architectures);
  KernelPlan& plan = target.plan;
  plan.pool = loops.pool;
  plan.workers = loops.pool->add_symbol({kWorkersSymbol, "workers", 1, 1 << 16});
  for (const BufferInfo& b : loops.buffers) plan.buffers.push_back({b, {}});
  plan.inputs = loops.inputs;
  plan.outputs = loops.outputs;
  plan.none_results = loops.none_results;
  plan.arena_bytes = loops.pool->index(0);
  PackageContents contents;
  contents.fixed_inputs = fixed_arguments(plain);
  contents.argument_names = plain.forward_arg_names;
  contents.torch_version = plain.torch_version;
  contents.targets.push_back(std::move(target));
  return manifest_text(contents);
}

}  // namespace coil
