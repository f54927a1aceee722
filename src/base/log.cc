#include "base/log.h"

#define SPDLOG_FMT_EXTERNAL
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/env.h"
#include "base/text.h"

namespace coil {

struct Log::Sink {
  spdlog::logger logger{"coil", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
};

Log::Log(LogLevel level, std::string filter) : level_(level), filter_(std::move(filter)), sink_(std::make_shared<Sink>()) {
  sink_->logger.set_pattern("%8T.%e %v");
  sink_->logger.set_level(spdlog::level::info);
}

Result<Log> Log::from_env() {
  const std::optional<std::string> text = env("COIL_DEBUG");
  if (!text.has_value() || *text == "0") return Log();
  const bool level_ok = (*text)[0] >= '0' && (*text)[0] <= '6' && (text->size() == 1 || (*text)[1] == '@');
  if (!level_ok) {
    return Error{ErrorCode::bad_option, fmt::format("COIL_DEBUG='{}' is not a level from 0 to 6, or level@name", *text), "", "see `coil env`"};
  }
  return Log(static_cast<LogLevel>((*text)[0] - '0'), text->size() > 2 ? text->substr(2) : "");
}

void Log::put(LogLevel level, std::string_view name, const std::string& text) const {
  if (sink_ != nullptr) sink_->logger.info("[{} {}] {}", static_cast<int>(level), shown(name), shown(text, Lines::keep));
}

}  // namespace coil
