// The checksum of archives' entries (CRC-32 as ZIP has it), by libdeflate: its loops by carry-less products take a third of the time of zlib's tables,
// and the checksums of a large model are a part of what opening it takes.
#pragma once

#include <libdeflate.h>

#include <cstdint>
#include <span>

namespace coil {

// Of what `before` is the checksum of, followed by these bytes; 0: of nothing.
inline uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t before = 0) {
  return bytes.empty() ? before : libdeflate_crc32(before, bytes.data(), bytes.size());  // (its result for a null address is that of nothing)
}

}  // namespace coil
