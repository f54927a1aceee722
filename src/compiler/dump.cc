#include "compiler/dump.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/text.h"

namespace coil {

Status Dump::ready() const {
  if (folder_.empty()) return ok_status();
  std::error_code wrong;
  std::filesystem::create_directories(folder_, wrong);
  if (!wrong && std::filesystem::is_directory(folder_, wrong)) return ok_status();
  return Error{ErrorCode::file_unwritable, fmt::format("the folder '{}' for the stages cannot be made: {}", shown(folder_), wrong.message()), "",
               "it is that of COIL_DUMP, of the option dump, or of -o"};
}

void Dump::text(const std::string& stage, const std::function<std::string()>& make, LogLevel level) const {
  const bool log = log_.enabled(level, stage);
  if (!log && folder_.empty()) return;
  const std::string text = make();
  if (log) log_.write(level, stage, "{}", text);
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  const std::string path = fmt::format("{}/{:02}_{}{}", folder_, next_++, stage, stage.find('.') == std::string::npos ? ".txt" : "");
  std::ofstream file(path, std::ios::binary);
  const bool is_code = stage.find('.') != std::string::npos;  // texts of the program's file are in it as codegen/foreign_text.h lets them
  file << (is_code ? text : shown(text, Lines::keep));
  if (!file) log_.write(LogLevel::stages, "dump", "cannot write {}", path);
}

}  // namespace coil
