// See debug_info.h.
#include "compiler/debug_info.h"

#include <fmt/format.h>

#include <filesystem>
#include "base/json.h"

#include "base/files.h"
#include "base/hash.h"

namespace coil {
namespace {

// As a string of C++.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

DebugInfo::DebugInfo(const std::string& folder, const std::vector<GeneratedSource>& sources) {
  if (folder.empty()) return;
  std::string all;
  for (const GeneratedSource& s : sources) all += fmt::format("{} {}\n{}", s.name, s.text.size(), s.text);
  std::error_code ignored;
  folder_ = std::filesystem::absolute(folder, ignored).lexically_normal().string() + "/" + hex(hash128(all)).substr(0, 12);
}

std::string DebugInfo::path(const std::string& name) const { return folder_ + "/" + name; }

Status DebugInfo::write(const std::vector<GeneratedSource>& sources) const {
  if (!wanted()) return ok_status();
  std::error_code problem;
  std::filesystem::create_directories(folder_, problem);
  if (problem)
    return Error{ErrorCode::file_unwritable, "cannot make the folder for the generated texts: " + problem.message(), folder_,
                 "choose another place for the package, or for COIL_DEBUG_INFO"};
  for (const GeneratedSource& s : sources) TRY_STATUS(write_file(path(s.name), std::string_view(s.text)));
  return ok_status();
}

std::string DebugInfo::placed(const GeneratedSource& source) const {
  return wanted() ? fmt::format("#line 1 {}\n{}", quoted(path(source.name)), source.text) : source.text;
}

void DebugInfo::add_to(toolchain::CompileRequest& request) const {
  if (!wanted()) return;
  request.source = placed({request.name, request.source});
  request.flags.insert(request.flags.end(),
                       {"-w", "-debug-info-kind=limited", "-dwarf-version=5", "-debugger-tuning=gdb", "-fdebug-compilation-dir=" + folder_});
}

std::string code_map_text(const toolchain::CodeMap& map) {
  Json functions = Json::array();
  for (const toolchain::CodeFunction& f : map.functions) {
    Json lines = Json::array();
    for (const toolchain::CodeLine& l : f.lines) lines.push_back({l.address, l.file, l.line});
    functions.push_back({f.name, f.address, f.size, std::move(lines)});
  }
  const Json all = {{"files", map.files}, {"functions", std::move(functions)}};
  return all.dump();
}

}  // namespace coil
