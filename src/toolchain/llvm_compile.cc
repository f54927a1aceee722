// Text to an object or to assembly. See compile.h.
#include <clang/Basic/Version.h>
#include <fmt/format.h>

#include "base/without_memory.h"
#include "toolchain/compile.h"
#include "toolchain/embedded.h"
#include "toolchain/llvm_clang.h"
#include "toolchain/llvm_guard.h"
#include "toolchain/precompiled.h"

namespace coil::toolchain {
namespace {

// The parsed form of the headers that the text begins with, if the build made one.
ParsedHeaders parsed_for(const CompileRequest& request) {
  const HeaderSet* set = header_set_for(request);
  if (!set) return {};
  for (const EmbeddedHeaders& headers : embedded_headers()) {
    if (headers.name == set->name) return {set->text, {headers.data, headers.size}};
  }
  return {};
}

Error clang_error(const CompileRequest& request, const std::string& messages) {
  if (!request.user_kernel.empty())
    return {ErrorCode::user_source, fmt::format("the source of user kernel '{}' does not compile:\n{}", request.user_kernel, messages), "", request.user_hint};
  return {ErrorCode::internal, fmt::format("generated code '{}' does not compile:\n{}", request.name, messages), "",
          "this is a bug in coil: please report it with the model, or with the files of COIL_DUMP"};
}

Result<Bytes> output_of(const CompileRequest& request, bool assembly) {
  const ParsedHeaders parsed = parsed_for(request);
  Bytes output;
  std::string messages, reason;
  bool ok = false;
  auto work = [&] { ok = compile_by_clang(request, assembly, parsed, output, messages); };
  const Ending ending = guarded(work, reason);
  if (ending == Ending::no_memory) return no_memory();
  if (!ok) return clang_error(request, messages + reason);
  return output;
}

}  // namespace

Result<Bytes> compile_cpp(const CompileRequest& request) {
  return or_no_memory([&] { return output_of(request, false); });
}

Result<std::string> compile_to_assembly(const CompileRequest& request) {
  TRY(const Bytes output, output_of(request, true));
  return std::string(output.begin(), output.end());
}

std::string compiler_version() { return "clang " CLANG_VERSION_STRING; }

}  // namespace coil::toolchain
