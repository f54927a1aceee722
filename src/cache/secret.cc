#include "cache/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include "base/env.h"
#include "base/files.h"
#include "cache/trust.h"

namespace coil::cache {

Result<Secret> Secret::from_text(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kLeastBytes) {
    return Error{ErrorCode::bad_option, fmt::format("the key of COIL_CACHE_KEY has {} characters, which others can guess", text.size()), "",
                 "make one: openssl rand -hex 32"};
  }
  return Secret(std::move(text));
}

Result<std::optional<Secret>> Secret::from_env() {
  const std::optional<std::string> text = env("COIL_CACHE_KEY");
  if (!text) return std::optional<Secret>();
  constexpr std::string_view kFile = "file:";
  std::string key = *text;
  if (text->starts_with(kFile)) {
    const std::string path = text->substr(kFile.size());
    if (const std::string problem = secret_problem(path); !problem.empty()) {
      return Error{ErrorCode::bad_option, fmt::format("the key of COIL_CACHE_KEY: {}", problem), "", fmt::format("make it yours alone: chmod 600 {}", path)};
    }
    Result<std::string> content = read_text_file(path, 1 << 16);
    if (!content.ok()) return Error{ErrorCode::bad_option, "the key of COIL_CACHE_KEY: " + content.error().message, "", "give file:PATH, or the key itself"};
    key = std::move(content).value();
  }
  TRY(Secret secret, from_text(std::move(key)));
  return std::optional<Secret>(std::move(secret));
}

Secret::Code Secret::code_of(std::span<const uint8_t> bytes) const {
  Code code{};
  unsigned size = code.size();
  const unsigned char* made = HMAC(EVP_sha256(), text_.data(), static_cast<int>(text_.size()), bytes.data(), bytes.size(), code.data(), &size);
  CHECK(made != nullptr && size == code.size(), "libcrypto has SHA-256");
  return code;
}

bool Secret::matches(std::span<const uint8_t> bytes, std::span<const uint8_t> code) const {
  const Code wanted = code_of(bytes);
  return code.size() == wanted.size() && CRYPTO_memcmp(wanted.data(), code.data(), wanted.size()) == 0;
}

}  // namespace coil::cache
