// Bytes as a relocatable ELF object: how images for other processors get into a package's shared object.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coil::toolchain {

// An x86-64 object with one section .rodata.<symbol>, aligned to 64 bytes, that holds `bytes` under the hidden global `symbol`.
std::vector<uint8_t> data_object(const std::string& symbol, std::span<const uint8_t> bytes);

}  // namespace coil::toolchain
