// Kernels around functions that are there already: sorts of the device library, and users' kernels.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/index_text.h"
#include "codegen/user_text.h"

namespace coil::cuda {

KernelText sort_text(const KernelPlan& plan, const SortKernel& k) {
  ExprPool& pool = *plan.pool;
  KernelContext c(plan);
  const auto dim = static_cast<size_t>(k.def.dim);
  Expr rows = pool.index(1);
  for (size_t d = 0; d < std::max<size_t>(k.sizes.size(), 1); ++d) {
    c.vars.push_back(d == dim ? "j" : "i" + std::to_string(d));
    c.sizes.push_back(k.sizes.empty() ? pool.index(1) : k.sizes[d]);
    if (d != dim) rows = rows * k.sizes[d];
  }
  std::map<int, TempText> temps;
  std::string fill;
  const auto index = [&](Expr e) { return index_text(c, e); };
  const std::string scratch = c.names.pointer(k.scratch), values = c.names.pointer(k.values), indices = c.names.pointer(k.indices);
  const std::string type = memory_type(k.dtype), n = index(k.def.length), kept = k.sizes.empty() ? "1" : index(k.sizes[dim]);
  std::string rest;
  for (size_t d = k.sizes.size(); d-- > 0;) {
    if (d == dim) continue;
    rest += fmt::format("  const cd::i64 i{0} = rest % {1};\n  rest /= {1};\n", d, index(k.sizes[d]));
  }
  Emitter emitter(c, {&fill, &fill, "    ", "    ", -1, 1}, temps);
  const std::string value = emitter.value(k.body).text;
  const std::string store = fmt::format("    {}[{}] = from_v[j];\n    {}[{}] = from_o[j];\n", values, index(k.values_offset), indices, index(k.indices_offset));
  std::string text = fmt::format(
      "  const cd::i64 n = {}, row = blockIdx.x, rows = gridDim.x;\n  cd::i64* const o = (cd::i64*){} + row * n;\n  cd::i64* const o2 = o + rows * n;\n"
      "  {}* const v = ({}*)((cd::i64*){} + 2 * rows * n) + row * n;\n  {}* const v2 = v + rows * n;\n  [[maybe_unused]] cd::i64 rest = row;\n",
      n, scratch, type, type, scratch, type);
  text += rest + fmt::format("  for (cd::i64 j = threadIdx.x; j < n; j += blockDim.x) {{\n{}    cd::store1(v + j, {});\n    o[j] = j;\n  }}\n", fill, value);
  text += fmt::format(
      "  const bool moved = cd::block_sort(v, o, v2, o2, n, {});\n  const {}* const from_v = moved ? v2 : v;\n  const cd::i64* const from_o = moved ? o2 : o;\n",
      k.def.descending ? "true" : "false", type);
  text += fmt::format("  for (cd::i64 j = threadIdx.x; j < {}; j += blockDim.x) {{\n{}  }}\n", kept, store);
  KernelText t = finish(c, kernel_frame(c, {k.values, k.indices, k.scratch}, "__launch_bounds__(512)") + text + "}\n");
  t.headers = {"cuda/sort.h"};
  t.threads = 512;
  t.grid_x = host_index(rows);
  return t;
}

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
  t.body += "namespace @NAME@_call {\n" + index_functions() + "}\n";
  t.body += "template <class Args>\n__device__ void @NAME@_body(const Args& a) {\n  using namespace @NAME@_call;\n  const auto& s = a.s;\n  (void)s;\n" +
            u.arguments + "  @NAME@_source" + u.call + ";\n}\n";
  t.headers = {"cuda/base.h", "user/kernel.h"};
  t.buffers = u.buffers;
  t.threads = static_cast<int>(launch.block);
  t.shared_bytes = launch.shared;
  t.grid_x = host_index(launch.grid[0]), t.grid_y = host_index(launch.grid[1]), t.grid_z = host_index(launch.grid[2]);
  return t;
}

}  // namespace coil::cuda
