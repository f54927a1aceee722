#include "codegen/cuda/host/routine_text.h"

#include <set>

#include <fmt/format.h>

#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "loop/join_rows.h"

namespace coil::cuda {

bool is_host_routine(const LibraryKernel& kernel) { return !JoinRows::of(kernel.def); }

std::vector<std::string> host_routines(const KernelPlan& plan) {
  std::set<std::string> names;
  for (const Kernel& k : plan.kernels) {
    if (const auto* l = std::get_if<LibraryKernel>(&k.def); l && is_host_routine(*l)) names.insert(l->def.routine);
  }
  return {names.begin(), names.end()};
}

std::string routine_declarations(const KernelPlan& plan) {
  const std::vector<std::string> names = host_routines(plan);
  std::string text = names.empty() ? "" : "#include \"cuda_routine.h\"\n";
  for (const std::string& name : names) text += fmt::format("COIL_LIBRARY_ROUTINE({});\n", name);
  return text;
}

std::string routine_text(const KernelPlan& plan, const LibraryKernel& l, const Kernel& kernel, const std::function<std::string(BufferId)>& address) {
  const auto bytes = [&](BufferId id) {
    const BufferInfo& b = plan.buffer(id).info;
    return host_index(product(*plan.pool, b.sizes) * byte_size(b.dtype));
  };
  const auto tensors = [&](const std::vector<BufferId>& ids) {
    std::string text;
    for (BufferId id : ids) text += fmt::format("{{(void*)({}), (uint64_t){}}}, ", address(id), bytes(id));
    return text;
  };
  std::string sizes, options;
  for (Expr size : l.def.sizes) sizes += host_index(size) + ", ";
  for (int64_t o : l.def.options) options += fmt::format("{}L, ", o);
  const std::string place = kernel.origins.empty() ? "" : kernel.origins[0].source;
  return fmt::format("    const cd::CudaTensorBytes in[] = {{{}{{}}}}, out[] = {{{}{{}}}};\n    const int64_t sizes[] = {{{}0}}, options[] = {{{}0}};\n",
                     tensors(l.def.inputs), tensors(l.results), sizes, options) +
         fmt::format("    const cd::CudaRoutine routine = {{coil_library_{}, in, out, {}, {}, sizes, options, {}, (uint64_t){}, {}, {}, {}}};\n", l.def.routine,
                     l.def.inputs.size(), l.results.size(), info(l.def.dtype).shim_number, l.scratch.valid() ? bytes(l.scratch) : "0",
                     host_index(l.def.worker_scratch ? l.def.worker_scratch : plan.pool->index(0)), c_string(l.def.subject), c_string(place)) +
         "    if (const int32_t failed = cd::cuda_routine(call, routine, flag_error, error)) return failed;\n";
}

}  // namespace coil::cuda
