// XXH3 hashes: of constants blobs, kernel sources and cache keys. Not cryptographic; stable across machines and versions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace coil {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

uint64_t hash64(std::span<const uint8_t> bytes);
uint64_t hash64(std::string_view text);
Hash128 hash128(std::span<const uint8_t> bytes);
Hash128 hash128(std::string_view text);

std::string hex(uint64_t value);        // 16 lower-case digits
std::string hex(const Hash128& value);  // 32 lower-case digits, high half first

// Hash of bytes that arrive in pieces; equals hash64 of their concatenation.
class StreamHash64 {
 public:
  StreamHash64();
  ~StreamHash64();
  StreamHash64(const StreamHash64&) = delete;
  StreamHash64& operator=(const StreamHash64&) = delete;
  void update(std::span<const uint8_t> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

}  // namespace coil
