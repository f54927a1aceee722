// Kernels around functions that users wrote.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/index_text.h"
#include "codegen/user_text.h"

namespace coil::cuda {

// A kernel that calls the source's function, which may be written as a __global__ one: the kernel itself comes first, since afterwards the
// word means something else.
KernelText user_kernel_text(const KernelPlan& plan, const UserCallKernel& k, size_t config) {
  const UserText u = user_text(plan, k, *k.def.kernel->cuda, config, "");
  const UserCall::Launch& launch = k.def.launches[config];
  KernelText t;
  t.body = fmt::format("struct @NAME@_args {{\n  void* p[{}];\n  cd::i64 s[{}];\n  cd::i32* flag;\n  cd::i32 kernel, wide;\n}};\n",
                       std::max<size_t>(u.buffers.size(), 1), std::max<size_t>(plan.pool->num_symbols() - 1, 1));
  t.body += "template <class Args>\n__device__ void @NAME@_body(const Args& a);\n";
  t.body += fmt::format(
      "COIL_KERNEL void __launch_bounds__({}) @NAME@(const __grid_constant__ @NAME@_args a) {{\n  cd::begin_kernel();\n  @NAME@_body(a);\n}}\n", launch.block);
  t.body += "#undef __global__\n#undef __launch_bounds__\n#define __global__ __device__\n#define __launch_bounds__(...)\n";
  t.body += hoisted_includes(*k.def.kernel->cuda) + u.constants + "namespace @NAME@_source {\n" + u.source + "}  // namespace\n" + u.undefine;
  t.body += "template <class Args>\n__device__ void @NAME@_body(const Args& a) {\n  using namespace cd::index;\n  const auto& s = a.s;\n  (void)s;\n" +
            u.arguments + "  @NAME@_source" + u.call + ";\n}\n";
  t.headers = {"cuda/base.h", "user/kernel.h", kIndexHeader};
  t.buffers = u.buffers;
  t.threads = static_cast<int>(launch.block);
  t.shared_bytes = launch.shared;
  t.grid_x = host_index(launch.grid[0]), t.grid_y = host_index(launch.grid[1]), t.grid_z = host_index(launch.grid[2]);
  return t;
}

}  // namespace coil::cuda
