// coil inspect --source: the generated code of a package's files and kernels.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "inspect.h"

namespace coil::tool {
namespace {

constexpr std::string_view kSourceFolder = "/data/coil/src/";
constexpr uint64_t kMaxSource = uint64_t{1} << 28;

Result<std::vector<std::pair<std::string, std::string>>> read_sources(const ZipReader& zip, const Json& m) {
  const std::string folder = std::string(kSourceFolder) + (m.contains("program") ? m["program"].get<std::string>() + "/" : "");
  std::vector<std::pair<std::string, std::string>> sources;
  for (const ZipEntry& e : zip.entries()) {
    const size_t at = e.name.find(folder);
    if (at == std::string::npos) continue;
    TRY(std::string text, zip.read_text(e, kMaxSource));
    sources.emplace_back(e.name.substr(at + folder.size()), std::move(text));
  }
  return sources;
}

// The generated function `name` within a file of them: from the comment above it to the closing brace in column 0.
std::string function_text(const std::string& text, const std::string& name) {
  size_t at = text.find("COIL_NAME(" + name + ")(");
  if (at == std::string::npos) at = text.find(" " + name + "(const __grid_constant__ ");  // on CUDA, with its structs above it
  if (at == std::string::npos) return "";
  size_t begin = text.rfind("\n\n", at);
  begin = begin == std::string::npos ? 0 : begin + 2;
  const size_t end = text.find("\n}\n", at);
  return text.substr(begin, end == std::string::npos ? std::string::npos : end + 3 - begin);
}

// The kernels that `wanted` names: by their whole names, otherwise by a part of them.
std::vector<Json> kernels_named(const Json& m, const std::string& wanted) {
  std::vector<Json> whole, part;
  std::vector<Json> all = m.at("kernels").get<std::vector<Json>>();
  for (const Json& t : m.value("targets", Json::array())) {  // later targets have kernels of their own
    if (!t.is_object() || !t.contains("kernels")) continue;
    for (const Json& k : t["kernels"]) all.push_back(k);
  }
  for (const Json& k : all) {
    const std::string function = k.at("function").is_string() ? k["function"].get<std::string>() : "", name = k.at("name").get<std::string>();
    if (function == wanted || name == wanted) whole.push_back(k);
    if (function.find(wanted) != std::string::npos || name.find(wanted) != std::string::npos) part.push_back(k);
  }
  return whole.empty() ? part : whole;
}

// Where the code of a kernel is that has no generated text.
std::string elsewhere(const Json& k) {
  const std::string kind = k.at("kind").get<std::string>();
  if (kind == "control") return "control flow of the host program, host.cc";
  if (kind == "copy") return "a copy, which the host program makes (host.cc)";
  if (kind == "library") return "a routine of a library; its arguments are in host.cc";
  return "code of the device library alone; its arguments are in host.cc";
}

// "; with code of kernels/gemm.cc", on CUDA the files that the text includes beside those that every kernel includes.
std::string device_files_of(const Json& k, const std::string& source) {
  std::string names = k.value("device", "");
  constexpr std::string_view kWord = "#include \"cuda/";
  for (size_t at = source.find(kWord); at != std::string::npos; at = source.find(kWord, at + 1)) {
    const size_t begin = at + kWord.size() - 5, end = source.find('"', begin);
    if (end == std::string::npos) break;
    names += (names.empty() ? "" : ", ") + source.substr(begin, end - begin);
  }
  return names.empty() ? "" : "; includes " + names;
}

}  // namespace

Result<std::string> source_text(const ZipReader& zip, const Json& m, const std::string& wanted, const std::string& device_text) {
  TRY(const auto sources, read_sources(zip, m));
  std::string text, names;
  for (const auto& [file, content] : sources) {
    names += (names.empty() ? "" : ", ") + file;
    if (!device_text.empty() && (file == wanted || file.ends_with("/" + wanted))) return content;  // edited
    if (file == wanted || wanted.empty()) text += fmt::format("// {}\n{}\n", file, content);
  }
  if (!device_text.empty()) return device_text;
  if (!text.empty()) return text;
  std::vector<std::string> done;
  for (const Json& k : kernels_named(m, wanted)) {
    const bool has_text = k.at("function").is_string();
    const std::string function = has_text ? k["function"].get<std::string>() : k.at("name").get<std::string>();
    if (std::find(done.begin(), done.end(), function) != done.end()) continue;
    done.push_back(function);
    const size_t before = text.size();
    for (const auto& [file, content] : sources) {
      if (const std::string code = function_text(content, function); has_text && !code.empty())
        text += fmt::format("// {}{}\n{}\n", file, device_files_of(k, content), code);
    }
    if (text.size() == before) text += fmt::format("// {}: {}{}\n", function, elsewhere(k), device_files_of(k, ""));
  }
  if (!text.empty()) return text;
  return Error{ErrorCode::bad_option, fmt::format("--source '{}': no kernel and no generated file has this name", shown(wanted)), "",
               "see --kernels for the kernels; the files are " + names};
}

}  // namespace coil::tool
