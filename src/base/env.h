// Every environment variable that coil reads, in one table; `coil env` prints it. Read through these functions only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace coil {

struct EnvVar {
  std::string_view name;
  std::string_view default_text;  // what holds when it is unset, in words or as a value
  std::string_view help;
};

std::span<const EnvVar> env_vars();

// The value if set and not empty. The name must be in the table (CHECK).
std::optional<std::string> env(std::string_view name);
// The same as an integer within [low, high]; bad_option otherwise. `fallback` when unset.
Result<int64_t> env_int(std::string_view name, int64_t low, int64_t high, int64_t fallback);
// Set to anything but "0", "off", "no", "false".
bool env_flag(std::string_view name);

}  // namespace coil
