// The runs of lld in this process; for link.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "toolchain/llvm_guard.h"

namespace coil::toolchain {

// One run with its arguments, of which the first is "ld.lld". ok: it made its output; messages: what it said. Runs come one after the other.
// input_bytes: of its inputs together.
Ending run_lld(const std::vector<std::string>& args, size_t input_bytes, bool& ok, std::string& messages);

// The dynamic symbols that `library`, which lld made, leaves to others.
Ending undefined_symbols(std::span<const uint8_t> library, std::vector<std::string>& names);

}  // namespace coil::toolchain
