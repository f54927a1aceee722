// Debug output of the compiler (the runtime does not log). A Log is a value that is handed down; there is no global one.
// COIL_DEBUG=level or level@name, see env.cc. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace coil {

// The levels of COIL_DEBUG.
enum class LogLevel { off = 0, stages = 1, kernels = 2, decisions = 3, code = 4, ir = 5 };

class Log {
 public:
  Log() = default;                                                                        // silent
  Log(LogLevel level, std::string filter) : level_(level), filter_(std::move(filter)) {}  // writes to stderr
  // From COIL_DEBUG; bad_option when it is malformed.
  static Result<Log> from_env();

  // `name` is the pass, kernel or stage that the text belongs to; the filter keeps equal names, and everything when empty.
  bool enabled(LogLevel level, std::string_view name) const { return level <= level_ && (filter_.empty() || filter_ == name); }
  template <class... Args>
  void write(LogLevel level, std::string_view name, fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(level, name)) put(level, name, fmt::vformat(text, fmt::make_format_args(args...)));
  }

 private:
  void put(LogLevel level, std::string_view name, const std::string& text) const;
  LogLevel level_ = LogLevel::off;
  std::string filter_;
};

}  // namespace coil
