// Errors of a program as it was read.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace coil {

inline Error bad_program(std::string message) { return Error{ErrorCode::bad_program, std::move(message), {}, {}}; }
inline Error unsupported(std::string message, std::string hint = {}) { return Error{ErrorCode::unsupported_feature, std::move(message), {}, std::move(hint)}; }

}  // namespace coil
