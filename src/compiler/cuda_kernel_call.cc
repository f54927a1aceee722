#include "compiler/cuda_kernel_call.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/index_text.h"
#include "compiler/kernel_program_texts.h"
#include "device/cuda/limits.h"

namespace coil {
namespace {

constexpr const char* kHelpers = R"cc(
  static void check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    exit(2);
  }

  static void launch(const void* kernel, int64_t x, int64_t y, int64_t z, int threads, int64_t shared, const Args* args, const int64_t* number) {
    if (x == 0 || y == 0 || z == 0) return;
    if (shared > kSharedWithoutAsking) check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "too much shared memory");
    void* values[] = {(void*)args, (void*)number};
    check(cudaLaunchKernel(kernel, dim3((unsigned)x, (unsigned)y, (unsigned)z), dim3((unsigned)threads), values, (size_t)shared, 0), "cannot launch it");
  }
)cc";

// One launch, with the grid as an expression of the sizes `s`.
std::string launch_text(const cuda::CudaFunction& f, const cuda::CudaLaunch& l, bool always) {
  std::string wide, out = "  {\n";
  for (const auto& [buffer, bytes] : l.args[0].aligned) {
    const auto& buffers = l.args[0].buffers;
    wide += fmt::format("aligned(p[{}], {}) && ", std::find(buffers.begin(), buffers.end(), buffer) - buffers.begin(), bytes);
  }
  for (const std::string& e : l.args[0].divisible) wide += fmt::format("({}) == 0 && ", e);
  if (!always) out = fmt::format("  if ({}) {{\n", l.condition);
  out += fmt::format("    static_assert(sizeof(Args) == sizeof({}_args), \"the kernel's arguments\");\n    args.wide = {}true;\n", f.name, wide);
  if (l.number) out += fmt::format("    const int64_t number = {};\n", *l.number);
  return out + fmt::format("    launch((const void*){}, {}, {}, {}, {}, {}, &args, {});\n  }}\n", f.name, l.grid_x, l.grid_y, l.grid_z, f.threads,
                           f.shared_bytes, l.number ? "&number" : "0");
}

}  // namespace

std::string cuda_call_text(const WatchedBuild& build, const std::vector<const cuda::CudaLaunch*>& launches, size_t k, const std::vector<int64_t>& symbols,
                           const std::string& files) {
  const auto& functions = build.cuda_program.functions;
  const size_t count = std::max<size_t>(launches[0]->args[0].buffers.size(), 1), num_sizes = static_cast<size_t>(build.cuda_program.arg_symbols);
  std::string sizes, calls;
  for (const int64_t s : symbols) sizes += fmt::format("{}, ", s);
  for (const cuda::CudaLaunch* l : launches) calls += launch_text(functions[static_cast<size_t>(l->function)], *l, l == launches[0] || l->condition.empty());
  return fmt::format(
             "// The call of the kernel in the program.\n#include <stdint.h>\n\n#include \"{}\"\n\n"
             "static const char kName[] = \"{}\";\nstatic const int64_t kSizes[] = {{{}0}};\n{}",
             kIndexHeader, functions[static_cast<size_t>(launches[0]->function)].name, sizes, files) +
         std::string(kKernelData) +
         fmt::format(
             "\nstruct Args {{\n  void* p[{}];\n  int64_t s[{}];\n  int* flag;\n  int kernel, wide;\n}};\nstatic const int64_t kSharedWithoutAsking = {};\n",
             count, num_sizes, int{cd::kSharedWithoutAsking}) +
         kHelpers + kUsesIndex +
         fmt::format(
             "\nstatic void call(void* const* p, int* flag) {{\n  const int64_t* s = kSizes;\n  (void)s;\n  Args args = {{}};\n"
             "  for (int i = 0; i < kBuffers; ++i) args.p[i] = p[i];\n  for (int i = 0; i < {}; ++i) args.s[i] = s[i];\n"
             "  args.flag = flag;\n  args.kernel = {};\n{}}}\n",
             std::min(num_sizes, symbols.size()), k + 1, calls);
}

}  // namespace coil
