#include "base/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/env.h"
#include "base/text.h"

namespace coil {
namespace {

constexpr char kHighestLevel = '0' + static_cast<char>(LogLevel::ir);

// Of the day, where the machine is: 17:03:59.042.
std::string time_of_day() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec, milliseconds);
}

}  // namespace

Result<Log> Log::from_env() {
  const std::optional<std::string> text = env("COIL_DEBUG");
  if (!text.has_value() || *text == "0") return Log();
  const bool level_ok = (*text)[0] >= '0' && (*text)[0] <= kHighestLevel && (text->size() == 1 || (*text)[1] == '@');
  if (!level_ok) {
    return Error{ErrorCode::bad_option, fmt::format("COIL_DEBUG='{}' is not a level from 0 to {}, or level@name", *text, kHighestLevel), "", "see `coil env`"};
  }
  return Log(static_cast<LogLevel>((*text)[0] - '0'), text->size() > 2 ? text->substr(2) : "");
}

// In one call, so that lines of several threads do not mix.
void Log::put(LogLevel level, std::string_view name, const std::string& text) const {
  const std::string line = fmt::format("{} [{} {}] {}\n", time_of_day(), static_cast<int>(level), shown(name), shown(text, Lines::keep));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace coil
