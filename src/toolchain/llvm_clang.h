// Runs of clang in this process. llvm_clang.cc alone includes clang's own headers: a file that does takes 20 s to compile.
#pragma once

#include <string>
#include <string_view>

#include "toolchain/compile.h"

namespace coil::toolchain {

// Headers in their parsed form, and the text that was parsed: clang compares it.
struct ParsedHeaders {
  std::string_view text, bytes;
};

// The object of `request`, or its assembly. parsed: the first headers of the text; empty: none. `messages` gets what clang says, as a user may see it.
// Thread-safe.
bool compile_by_clang(const CompileRequest& request, bool assembly, const ParsedHeaders& parsed, Bytes& output, std::string& messages);

// The text of `request` in clang's serialised form.
bool precompile_by_clang(const CompileRequest& request, Bytes& output, std::string& messages);

}  // namespace coil::toolchain
