#include "base/hash.h"

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace coil {
namespace {

std::string hex_digits(uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) text[static_cast<size_t>(i)] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace

uint64_t hash64(std::span<const uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
uint64_t hash64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Hash128 hash128(std::span<const uint8_t> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}
Hash128 hash128(std::string_view text) { return hash128(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())); }

std::string hex(uint64_t value) { return hex_digits(value); }
std::string hex(const Hash128& value) { return hex_digits(value.high) + hex_digits(value.low); }

StreamHash64::StreamHash64() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}
StreamHash64::~StreamHash64() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void StreamHash64::update(std::span<const uint8_t> bytes) { XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size()); }
uint64_t StreamHash64::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

}  // namespace coil
