#include "codegen/cpu/host/images_text.h"

#include <fmt/format.h>

#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"

namespace coil {

std::string images_function(const KernelPlan& plan, const std::string& name, const std::string& kernels, const std::string& attributes) {
  return fmt::format(
      "{0}static void {1}(void* context, int64_t begin, int64_t end, int32_t worker) {{\n"
      "  const cd::Images* all = (const cd::Images*)context;\n  const cd::TracedCall* call = all->call;\n  const CoilHost one_thread = {{1, nullptr, nullptr}};\n"
      "  const CoilHost* host = all->host ? all->host : &one_thread;\n  uint8_t* part = all->memory + worker * all->part_bytes;\n"
      "  const long* s = all->s;\n  long own[{2}];\n  for (int i = 0; i < {2}; ++i) own[i] = s[i];\n  own[{3}] = host->num_workers;\n  (void)call, (void)part;\n"
      "  for (long image = begin; image < end; ++image) {{\n{4}  }}\n}}\n\n",
      attributes, name, plan.pool->num_symbols(), plan.workers.index, kernels);
}

// As many images as make full rounds are spread, one thread each; the others come one after the other on all threads.
std::string images_call(const KernelPlan& plan, const ControlMark& mark, const std::string& name, bool apart) {
  return fmt::format(
      "  {{  // image by image\n    const long images = {0}, even = {1};\n    cd::Images all = {{call, s, nullptr, {2}, {3}}};\n"
      "    if (even > 0 && host->num_workers == 1) {4}(&all, 0, even, 0);\n    else if (even > 0) host->parallel_for(host->pool, even, 1, {4}, &all);\n"
      "    all.host = host;\n    {4}(&all, even, images, 0);\n  }}\n",
      host_index(mark.steps), apart ? "images - images % host->num_workers" : "0", buffer_address(plan, mark.scratch), host_index(mark.part_bytes), name);
}

}  // namespace coil
