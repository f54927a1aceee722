// Bytes as text, as JSON holds them (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coil {

// nullopt: the text is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace coil
