// One run of clang's front end in this process; shared by the files that compile and precompile. Includes clang: for llvm_*.cc only.
#pragma once

#include <clang/Frontend/FrontendAction.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/raw_ostream.h>

#include <memory>
#include <string>

#include "toolchain/compile.h"

namespace coil::toolchain {

// Headers in their parsed form, and the text that was parsed: clang compares it.
struct ParsedHeaders {
  llvm::StringRef text, bytes;
};

// The path of the text to compile, one for all requests, so that a kernel's name does not get into its object (equal texts, equal bytes);
// and that of the text of parsed headers.
inline constexpr const char* kMainPath = "/coil/coil-kernel.cc";
inline constexpr const char* kHeadersPath = "/coil/coil-headers.h";

// Does `action` with the text of `request`, which is at `path`. parsed: the first headers of the text; empty: none. output: where the
// action writes to, null when it keeps its result. `messages` gets what clang says, as a user may see it. Thread-safe.
bool run_clang(const CompileRequest& request, const char* path, clang::FrontendAction& action, const ParsedHeaders& parsed,
               std::unique_ptr<llvm::raw_pwrite_stream> output, std::string& messages);

// The object of `request`, or its assembly.
bool compile_by_clang(const CompileRequest& request, bool assembly, const ParsedHeaders& parsed, Bytes& output, std::string& messages);

}  // namespace coil::toolchain
