// A key that all who may write to a shared cache hold. Entries carry an authentication code made with it (HMAC-SHA256): who does not know the
// key can neither make an entry nor change one. By OpenSSL's libcrypto, which connections by TLS need as well.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace coil::cache {

class Secret {
 public:
  using Code = std::array<uint8_t, 32>;
  static constexpr size_t kLeastBytes = 16;

  // bad_option for a key that is too short to be one.
  static Result<Secret> from_text(std::string text);
  // COIL_CACHE_KEY: the key itself, or file:PATH, a file that only its owner may read. Nothing when it is unset; bad_option.
  static Result<std::optional<Secret>> from_env();

  Code code_of(std::span<const uint8_t> bytes) const;
  bool matches(std::span<const uint8_t> bytes, std::span<const uint8_t> code) const;  // in a time that says nothing of the code

 private:
  explicit Secret(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

}  // namespace coil::cache
