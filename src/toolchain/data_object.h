// Bytes as a relocatable ELF object: how images for other processors get into a package's shared object.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host_machine.h"

namespace coil::toolchain {

// An object for `machine` with one section .rodata.<symbol>, aligned to 64 bytes, that holds `bytes` under the hidden global `symbol`.
std::vector<uint8_t> data_object(const HostMachine& machine, const std::string& symbol, std::span<const uint8_t> bytes);

}  // namespace coil::toolchain
