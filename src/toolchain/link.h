// Objects to a shared object, in this process: lld is linked in, no file is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host_machine.h"
#include "base/result.h"

namespace coil::toolchain {

struct LinkInput {
  std::string name;                 // shown in messages
  std::span<const uint8_t> object;  // a relocatable ELF object; borrowed during the call
};

struct LinkRequest {
  const HostMachine* machine = &this_machine();
  std::vector<LinkInput> inputs;     // order matters only for the layout
  std::string soname;                // may be empty
  std::vector<std::string> exports;  // the dynamic symbols; each must be defined with default visibility. "prefix*" works
  // Libraries for the loader to find the imports in, recorded as given: {"libm.so.6", "libc.so.6"}.
  std::vector<std::string> needed;
  // The imports that are allowed; another undefined symbol is an error. Empty: any is allowed.
  std::vector<std::string> imports;
  bool strip = true;  // no symbol table
};

// A small .so: unreferenced sections dropped, no build id, no padding to pages, nothing exported but `exports`. The same request
// gives the same bytes. Thread-safe, but links run one after the other: lld keeps global state.
// members (null: nobody asks): gets the names of those members of archives among the inputs of which something is in the result, sorted; lld's own map
// of the result says so.
// Errors: internal, with lld's messages.
Result<std::vector<uint8_t>> link_shared(const LinkRequest& request, std::vector<std::string>* members = nullptr);

}  // namespace coil::toolchain
