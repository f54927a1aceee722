// C++ text to machine code, in this process: clang and LLVM 19 are linked in, no file is read or written.
//
// The text sees no system headers: only the device/ headers of this repository (embedded; include as "device/simd.h" or
// "simd.h"), <stddef.h> and <stdint.h>, and the headers of the request. Code may call libc's and libm's functions; anything
// else fails at link time.
//
// Fixed flags: -std=c++20 -fPIC -ffp-contract=on -fno-math-errno -fwrapv -fno-exceptions -fno-rtti -fvisibility=hidden
// -fno-threadsafe-statics -ffunction-sections -fdata-sections, and those of the level; never fast-math. COIL_ISA=v3 (or v4, neon, ...: the
// level's name) and COIL_ISA_V3=1 are defined, as for the device library.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "toolchain/made_once.h"

namespace coil::toolchain {

struct VirtualFile {
  std::string path;  // as it is included: "kernels/common.h"
  std::string text;
};

struct CompileRequest {
  std::string name = "kernel.cc";  // shown in diagnostics; not part of the object
  std::string source;
  std::string cpu = "x86-64-v3";     // a level of host_machines() by its full name, base levels included: "x86-64-v2"
  int opt_level = 2;                 // 0 to 3
  std::vector<std::string> defines;  // "NAME" or "NAME=value"
  std::vector<VirtualFile> headers;
  std::vector<std::string> flags;  // more flags of clang's front end (cc1), e.g. {"-Wall", "-Werror"}; warnings are off without
  std::string user_kernel;         // not empty: the text is a user's; what is wrong with it is user_source of that kernel
  std::string user_hint;
  bool precompiled = true;  // take the headers as the build parsed them, where they are embedded: the same bytes, sooner
};

// An ELF object, or internal with clang's messages (file:line:column, the source line, a caret) in Error::message: generated code
// that does not compile is a bug. The same request gives the same bytes. Thread-safe.
Result<Bytes> compile_cpp(const CompileRequest& request);

// The assembly of the same, as text, for `coil inspect` and for tests that look at the code.
Result<std::string> compile_to_assembly(const CompileRequest& request);

// Called as objects become ready, from any thread: requests that are done (those of equal requests count together), how many there
// are, and the name of the last.
using CompileProgress = std::function<void(size_t done, size_t total, std::string_view name)>;

// The objects of `requests`, in order, compiled on up to `threads` threads. Equal requests (names and comments aside) are compiled once; what is known
// already is not compiled, and what is compiled is known from then on. The error is that of the first request that fails.
Result<std::vector<Bytes>> compile_all(std::span<const CompileRequest> requests, int threads, const CompileProgress& progress = {}, const Known& known = {});

std::string compiler_version();     // of the clang inside: "clang 19.1.7"
std::string device_headers_hash();  // of the headers that generated code may include

// Identity of the object that a request gives: equal keys, equal bytes. 32 hex digits.
std::string compile_key(const CompileRequest& request);

}  // namespace coil::toolchain
