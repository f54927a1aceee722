// Text to an object or to assembly. See compile.h.
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>

#include "toolchain/compile.h"
#include "toolchain/embedded.h"
#include "toolchain/llvm_clang.h"
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
  if (!request.user_kernel.empty()) return {ErrorCode::user_source, fmt::format("the source of user kernel '{}' does not compile:\n{}", request.user_kernel, messages), "", request.user_hint};
  return {ErrorCode::internal, fmt::format("generated code '{}' does not compile:\n{}", request.name, messages), "",
          "this is a bug in coil: please report it with the model, or with the files of COIL_DUMP"};
}

// What `action` writes.
Result<llvm::SmallVector<char, 0>> output_of(clang::FrontendAction& action, const CompileRequest& request) {
  llvm::SmallVector<char, 0> output;
  std::string messages;
  const bool ok = run_clang(request, kMainPath, action, parsed_for(request), std::make_unique<llvm::raw_svector_ostream>(output), messages);
  if (!ok) return clang_error(request, messages);
  return output;
}

}  // namespace

Result<Bytes> compile_cpp(const CompileRequest& request) {
  clang::EmitObjAction action;
  TRY(const auto output, output_of(action, request));
  return Bytes(output.begin(), output.end());
}

Result<std::string> compile_to_assembly(const CompileRequest& request) {
  clang::EmitAssemblyAction action;
  TRY(const auto output, output_of(action, request));
  return std::string(output.begin(), output.end());
}

std::string compiler_version() { return "clang " CLANG_VERSION_STRING; }

}  // namespace coil::toolchain
