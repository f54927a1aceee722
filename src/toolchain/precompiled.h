// Device headers as clang has parsed them: done once, when coil is built, and embedded. A kernel's text includes the headers as ever;
// where a parsed form of them serves, including them costs nothing. The object has the same bytes either way.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "toolchain/compile.h"

namespace coil::toolchain {

// A set of headers for one kind of text. It serves requests for the same machine whose text begins with `begin`, and which have no
// defines, flags or headers of their own.
struct HeaderSet {
  std::string_view name;  // "kernels_v3"; also that of the embedded blob
  std::string_view cpu;   // "x86-64-v3"
  int opt_level;
  std::string_view begin;  // the line with which texts begin
  std::string_view text;   // what is parsed; begins with `begin`
};
std::span<const HeaderSet> header_sets();

// The set that serves a request; null: none.
const HeaderSet* header_set_for(const CompileRequest& request);

// clang's serialised form of a set. The same headers and clang give the same bytes. Thread-safe. Errors: internal.
Result<Bytes> precompile(const HeaderSet& set);

}  // namespace coil::toolchain
