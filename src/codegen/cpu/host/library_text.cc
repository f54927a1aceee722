#include "codegen/cpu/host/library_text.h"

#include <fmt/format.h>

#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/call_text.h"

namespace coil {

std::string library_call_text(const KernelPlan& plan, const LibraryKernel& l, const Kernel& kernel, const std::string& flag_checks) {
  const auto address = [&](BufferId id) { return buffer_address(plan, id); };
  std::string in, out, sizes, options;
  for (BufferId id : l.def.inputs) in += address(id) + ", ";
  for (BufferId id : l.results) out += address(id) + ", ";
  for (Expr size : l.def.sizes) sizes += host_index(size) + ", ";
  for (int64_t o : l.def.options) options += fmt::format("{}L, ", o);
  const Expr per_worker = l.def.worker_scratch ? l.def.worker_scratch : plan.pool->index(0);
  std::string text =
      fmt::format("    const void* in[] = {{{}nullptr}};\n    void* out[] = {{{}nullptr}};\n    const int64_t sizes[] = {{{}0}}, options[] = {{{}0}};\n", in,
                  out, sizes, options);
  text += fmt::format("    const CoilLibraryCall t = {{in, out, sizes, options, {}, (uint8_t*)({}), {}, host, {}, error}};\n", info(l.def.dtype).shim_number,
                      l.scratch.valid() ? address(l.scratch) : "nullptr", host_index(per_worker), c_string(l.def.subject));
  const std::string place = kernel.origins.empty() ? "" : kernel.origins[0].source;
  return text + fmt::format("    if (coil_library_{}(&t)) {{\n{}      return cd::fail_at(error, {});\n    }}\n", l.def.routine, flag_checks, c_string(place));
}

}  // namespace coil
