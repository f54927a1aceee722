// How clang is called: its arguments, and the files that it sees. See compile.h.
#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Serialization/ASTWriter.h>
#include <clang/Serialization/PCHContainerOperations.h>
#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>

#include <iterator>
#include <mutex>

#include "base/host_machine.h"
#include "toolchain/embedded.h"
#include "toolchain/llvm_clang.h"

namespace coil::toolchain {
namespace {

// What C's own <stddef.h> and <stdint.h> give, from clang's built-in macros: there are no system headers on the machine.
constexpr std::string_view kStddef = R"(#pragma once
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
#define NULL __null
#define offsetof(type, member) __builtin_offsetof(type, member)
)";
constexpr std::string_view kStdint = R"(#pragma once
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT32_MAX 2147483647
#define INT64_MAX __INT64_MAX__
#define INT8_MIN (-INT8_MAX - 1)
#define INT16_MIN (-INT16_MAX - 1)
#define INT32_MIN (-INT32_MAX - 1)
#define INT64_MIN (-INT64_MAX - 1)
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX __UINT64_MAX__
#define SIZE_MAX __SIZE_MAX__
)";
// A folder that exists only in the compiler's file system.
constexpr std::string_view kRoot = "/coil/";

// The path of the text to compile, one for all requests, so that a kernel's name does not get into its object (equal texts, equal bytes);
// that of the text of parsed headers, and of these.
constexpr const char* kMainPath = "/coil/coil-kernel.cc";
constexpr const char* kHeadersPath = "/coil/coil-headers.h";
constexpr std::string_view kParsedPath = "/coil/coil-headers.pch";

#define COIL_INITIALISE(Name)           \
  [] {                                  \
    LLVMInitialize##Name##TargetInfo(); \
    LLVMInitialize##Name##Target();     \
    LLVMInitialize##Name##TargetMC();   \
    LLVMInitialize##Name##AsmPrinter(); \
    LLVMInitialize##Name##AsmParser();  \
  }
// LLVM's part for each of host_machines(), in its order: set up where a compile asks for it, so that it costs others nothing.
constexpr void (*kInitialise[])() = {COIL_INITIALISE(X86), COIL_INITIALISE(AArch64)};
#undef COIL_INITIALISE

void initialise_llvm(const HostMachine& machine) {
  static std::once_flag once[std::size(kInitialise)];
  const size_t i = static_cast<size_t>(&machine - host_machines().data());
  std::call_once(once[i], kInitialise[i]);
}

llvm::IntrusiveRefCntPtr<llvm::vfs::FileSystem> make_files(const CompileRequest& request, const char* path, const ParsedHeaders& parsed) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  const auto add = [&](const std::string& path, std::string_view text) {
    // Borrowed, not copied: the embedded tables end with a zero byte, and so do strings.
    files->addFile(path, 0, llvm::MemoryBuffer::getMemBuffer(llvm::StringRef(text.data(), text.size()), path));
  };
  // The first file of a name is the one that is read: the request's own come before those that are built in.
  for (const VirtualFile& file : request.headers) add(fmt::format("{}{}", kRoot, file.path), file.text);
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path.ends_with(".h")) add(fmt::format("{}{}", kRoot, file.path), file.text());
  }
  add(fmt::format("{}include/stddef.h", kRoot), kStddef);
  add(fmt::format("{}include/stdint.h", kRoot), kStdint);
  add(path, request.source);
  if (!parsed.bytes.empty()) add(kHeadersPath, parsed.text), add(std::string(kParsedPath), parsed.bytes);
  return files;
}

std::vector<std::string> make_arguments(const CompileRequest& request, const LevelOfMachine& on, const char* path, bool parsed) {
  std::vector<std::string> args = {"-triple",
                                   std::string(on.machine->triple),
                                   "-mrelocation-model",
                                   "pic",
                                   "-pic-level",
                                   "2",
                                   "-mframe-pointer=none",
                                   "-ffp-contract=on",
                                   "-fwrapv",
                                   "-fno-rtti",
                                   "-fvisibility=hidden",
                                   "-fno-threadsafe-statics",
                                   "-ffunction-sections",
                                   "-fdata-sections",
                                   "-nostdsysteminc",
                                   "-nobuiltininc",
                                   "-std=c++20",
                                   "-fgnuc-version=4.2.1",
                                   "-clear-ast-before-backend",
                                   "-discard-value-names",
                                   "-disable-llvm-verifier",
                                   "-ferror-limit",
                                   "5",
                                   fmt::format("-O{}", request.opt_level),
                                   "-target-cpu",
                                   std::string(on.level->cpu),
                                   "-tune-cpu",
                                   "generic"};
  if (!on.machine->abi.empty()) args.insert(args.end(), {"-target-abi", std::string(on.machine->abi)});
  if (request.opt_level >= 2) args.insert(args.end(), {"-vectorize-loops", "-vectorize-slp"});
  args.insert(args.end(), on.level->flags.begin(), on.level->flags.end());
  for (const std::string& define : request.defines) args.push_back("-D" + define);
  for (const char* folder : {"", "device", "include"}) args.push_back(fmt::format("-I{}{}", kRoot, folder));
  if (parsed) args.insert(args.end(), {"-include-pch", std::string(kParsedPath)});
  if (request.flags.empty()) args.push_back("-w");
  args.insert(args.end(), request.flags.begin(), request.flags.end());
  args.insert(args.end(), {"-x", "c++", path});
  return args;
}

// Our own paths would only puzzle.
void name_files(const CompileRequest& request, std::string_view path, std::string& messages) {
  for (size_t at = 0; (at = messages.find(path, at)) != std::string::npos; at += request.name.size()) {
    messages.replace(at, path.size(), request.name);
  }
  const std::string from_parsed = fmt::format("In file included from {}:", kHeadersPath);
  for (size_t at; (at = messages.find(from_parsed)) != std::string::npos;) messages.erase(at, messages.find('\n', at) + 1 - at);
  for (size_t at; (at = messages.find(kRoot)) != std::string::npos;) messages.erase(at, kRoot.size());
}

// Does `action` with the text of `request`, which is at `path`. output: where the action writes to, null when it keeps its result.
bool run_clang(const CompileRequest& request, const char* path, clang::FrontendAction& action, const ParsedHeaders& parsed,
               std::unique_ptr<llvm::raw_pwrite_stream> output, std::string& messages) {
  const LevelOfMachine on = find_level(request.cpu);
  if (!on.machine) {
    messages = fmt::format("there is no machine '{}'", request.cpu);
    return false;
  }
  initialise_llvm(*on.machine);
  const std::vector<std::string> args = make_arguments(request, on, path, !parsed.bytes.empty());
  std::vector<const char*> arg_pointers;
  for (const std::string& arg : args) arg_pointers.push_back(arg.c_str());

  llvm::raw_string_ostream message_stream(messages);
  auto options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  options->ShowColors = false;
  options->ShowPresumedLoc = true;  // #line counts
  clang::TextDiagnosticPrinter printer(message_stream, options.get());
  clang::DiagnosticsEngine argument_errors(new clang::DiagnosticIDs(), options, &printer, false);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  bool ok = clang::CompilerInvocation::CreateFromArgs(*invocation, arg_pointers, argument_errors);
  if (ok) {
    clang::CompilerInstance compiler;
    compiler.setInvocation(invocation);
    compiler.createDiagnostics(&printer, false);
    compiler.setVerboseOutputStream(message_stream);  // else "1 error generated" goes to stderr
    compiler.createFileManager(make_files(request, path, parsed));
    if (output) compiler.setOutputStream(std::move(output));
    ok = compiler.ExecuteAction(action);
  }
  message_stream.flush();
  name_files(request, path, messages);
  return ok;
}

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

bool compile_by_clang(const CompileRequest& request, bool assembly, const ParsedHeaders& parsed, Bytes& output, std::string& messages) {
  clang::EmitObjAction to_object;
  clang::EmitAssemblyAction to_assembly;
  clang::FrontendAction& action = assembly ? static_cast<clang::FrontendAction&>(to_assembly) : to_object;
  llvm::SmallVector<char, 0> written;
  if (!run_clang(request, kMainPath, action, parsed, std::make_unique<llvm::raw_svector_ostream>(written), messages)) return false;
  output.assign(written.begin(), written.end());
  return true;
}

bool precompile_by_clang(const CompileRequest& request, Bytes& output, std::string& messages) {
  PrecompileAction action;
  if (!run_clang(request, kHeadersPath, action, {}, nullptr, messages) || !action.buffer->IsComplete) return false;
  output.assign(action.buffer->Data.begin(), action.buffer->Data.end());
  return true;
}

}  // namespace coil::toolchain
