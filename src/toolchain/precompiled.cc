#include "toolchain/precompiled.h"

#include <fmt/format.h>

#include <string>

#include "toolchain/llvm_clang.h"

namespace coil::toolchain {
namespace {

// All that kernels may include (src/codegen/cpu): what a text does not name costs it nothing.
constexpr std::string_view kKernelHeaders = "#include \"kernel_args.h\"\n#include \"math_all.h\"\n#include \"sort.h\"\n";
constexpr std::string_view kKernelBegin = "#include \"kernel_args.h\"\n";

// The host program's headers are no set: they take a millisecond, as reading their parsed form does.
constexpr HeaderSet kSets[] = {
    {"kernels_v3", "x86-64-v3", 2, kKernelBegin, kKernelHeaders},
    {"kernels_v4", "x86-64-v4", 2, kKernelBegin, kKernelHeaders},
    {"kernels_neon", "aarch64-neon", 2, kKernelBegin, kKernelHeaders},
    {"kernels_i8mm", "aarch64-i8mm", 2, kKernelBegin, kKernelHeaders},
};

}  // namespace

std::span<const HeaderSet> header_sets() { return kSets; }

const HeaderSet* header_set_for(const CompileRequest& request) {
  // Without optimisation other macros are predefined.
  if (!request.precompiled || request.opt_level == 0 || !request.defines.empty() || !request.flags.empty() || !request.headers.empty()) return nullptr;
  for (const HeaderSet& set : kSets) {
    if (request.cpu == set.cpu && request.source.starts_with(set.begin)) return &set;
  }
  return nullptr;
}

Result<Bytes> precompile(const HeaderSet& set) {
  CompileRequest request;
  request.name = set.name;
  request.source = set.text;
  request.cpu = set.cpu;
  request.opt_level = set.opt_level;
  Bytes bytes;
  std::string messages;
  if (!precompile_by_clang(request, bytes, messages)) {
    return Error{ErrorCode::internal, fmt::format("the headers '{}' do not compile:\n{}", set.name, messages), "", "this is a bug in coil: please report it"};
  }
  return bytes;
}

}  // namespace coil::toolchain
