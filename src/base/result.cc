#include "base/result.h"

#include <fmt/format.h>

#include "base/text.h"

namespace coil {
namespace {

struct CodeRow {
  int number;
  int exit;
};

constexpr CodeRow kCodes[] = {
#define X(number, name, exit_code, text) {number, exit_code},
#include "base/error_codes.def"
#undef X
};

const CodeRow& row(ErrorCode code) {
  for (const CodeRow& r : kCodes) {
    if (r.number == static_cast<int>(code)) return r;
  }
  return kCodes[std::size(kCodes) - 1];
}

}  // namespace

std::string error_name(ErrorCode code) { return fmt::format("COIL-E{:03}", static_cast<int>(code)); }
int exit_code(ErrorCode code) { return row(code).exit; }

std::string Error::to_string() const {
  // Names in it are of files that anyone wrote. Only compilers' messages have lines of their own.
  const bool compilers = code == ErrorCode::internal || code == ErrorCode::user_source;
  std::string text = error_name(code) + ": " + shown(message, compilers ? Lines::keep : Lines::escape);
  if (!where.empty()) text += "\n  at " + shown(where);
  if (!hint.empty()) text += "\n  hint: " + shown(hint);
  return text;
}

Error Error::with_context(std::string_view context) && {
  message = fmt::format("{}: {}", context, message);
  return std::move(*this);
}

InternalError::InternalError(const char* file, int line, std::string text) : text_(fmt::format("{}:{}: {}", file, line, text)) {}

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  throw InternalError(file, line, fmt::format("check failed: {}{}{}", condition, detail.empty() ? "" : ": ", detail));
}

}  // namespace coil
