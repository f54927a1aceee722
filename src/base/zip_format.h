// Constants and byte order of the zip format (PKWARE APPNOTE 6.3), shared by reader and writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace coil::zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocator64Signature = 0x07064b50;
inline constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
inline constexpr uint16_t kZip64Extra = 0x0001;
inline constexpr uint16_t kPaddingExtra = 0x4246;  // "FB": what PyTorch uses to align data
inline constexpr uint32_t kMax32 = 0xffffffff;
inline constexpr uint16_t kMax16 = 0xffff;

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);  // the format and our machines are little-endian
  return value;
}

template <class T>
void append(std::vector<uint8_t>& out, T value) {
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

}  // namespace coil::zip
