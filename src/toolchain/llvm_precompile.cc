// Headers to clang's serialised form. See precompiled.h.
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Serialization/ASTWriter.h>
#include <clang/Serialization/PCHContainerOperations.h>
#include <fmt/format.h>

#include "toolchain/llvm_clang.h"
#include "toolchain/precompiled.h"

namespace coil::toolchain {
namespace {

// clang's own action for this writes a file.
class PrecompileAction : public clang::ASTFrontendAction {
 public:
  std::shared_ptr<clang::PCHBuffer> buffer = std::make_shared<clang::PCHBuffer>();

 protected:
  bool BeginSourceFileAction(clang::CompilerInstance& compiler) override {
    compiler.getLangOpts().CompilingPCH = true;
    compiler.getLangOpts().PCHInstantiateTemplates = true;  // what headers' own functions need, once and for all
    return ASTFrontendAction::BeginSourceFileAction(compiler);
  }
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler, llvm::StringRef) override {
    return std::make_unique<clang::PCHGenerator>(compiler.getPreprocessor(), compiler.getModuleCache(), "", "", buffer,
                                                 compiler.getFrontendOpts().ModuleFileExtensions, false, /*IncludeTimestamps=*/false);
  }
  clang::TranslationUnitKind getTranslationUnitKind() override { return clang::TU_Prefix; }
  bool hasASTFileSupport() const override { return false; }
};

}  // namespace

Result<Bytes> precompile(const HeaderSet& set) {
  CompileRequest request;
  request.name = set.name;
  request.source = set.text;
  request.cpu = set.cpu;
  request.opt_level = set.opt_level;
  PrecompileAction action;
  std::string messages;
  if (!run_clang(request, kHeadersPath, action, {}, nullptr, messages) || !action.buffer->IsComplete) {
    return Error{ErrorCode::internal, fmt::format("the headers '{}' do not compile:\n{}", set.name, messages), "", "this is a bug in coil: please report it"};
  }
  return Bytes(action.buffer->Data.begin(), action.buffer->Data.end());
}

}  // namespace coil::toolchain
