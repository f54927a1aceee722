#include "archive_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "report/package_text.h"
#include "runtime/manifest.h"
#include "runtime/programs.h"

namespace coil::tool {
namespace {

constexpr std::string_view kManifest = "/data/coil/manifest.json";

const ZipEntry* manifest_entry(const ZipReader& zip) {
  for (const ZipEntry& e : zip.entries()) {
    if (e.name.ends_with(kManifest) && e.name.find('/') + kManifest.size() == e.name.size()) return &e;
  }
  return nullptr;
}

}  // namespace

// ASCII alone: a name can hold what a terminal obeys, or what is no UTF-8.
std::string json_text(const Json& json) { return json.dump(2, true) + "\n"; }

Json shown_texts(const Json& json) {
  if (json.is_string()) return shown(json.as_string());
  if (!json.is_structured()) return json;
  Json out = json.is_array() ? Json::array() : Json::object();
  if (json.is_array()) {
    for (const Json& element : json) out.push_back(shown_texts(element));
  } else {
    for (const auto& [key, value] : json.items()) out[shown(key)] = shown_texts(value);
  }
  return out;
}

ArchiveKind archive_kind(const ZipReader& zip) {
  bool compiled = false, program = false;
  for (const ZipEntry& e : zip.entries()) {
    compiled = compiled || e.name.find("/data/aotinductor/") != std::string::npos;
    program = program || e.name.find("/models/") != std::string::npos;
  }
  return manifest_entry(zip) || (compiled && !program) ? ArchiveKind::package : ArchiveKind::program;
}

std::string root_folder(const ZipReader& zip) {
  if (zip.entries().empty()) return "model";
  const std::string& first = zip.entries().front().name;
  const std::string root = first.substr(0, first.find('/'));
  const bool plain = !root.empty() && root.size() <= 100 && root != first && root[0] != '.' &&
                     std::all_of(root.begin(), root.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
  return plain ? root : "model";
}

namespace {

struct ChosenManifest {
  const ZipEntry* entry = nullptr;
  std::vector<std::string> names;
};

Result<ChosenManifest> chosen_manifest(const ZipReader& zip, const std::string& program) {
  const ZipEntry* entry = manifest_entry(zip);
  if (!entry)
    return Error{ErrorCode::bad_package, "the package lacks data/coil/manifest.json: it was not made by coil", zip.name(), "compile the program with coil"};
  ChosenManifest chosen;
  std::string name;
  TRY(chosen.entry, runtime::program_manifest(zip, entry->name.substr(0, entry->name.size() - kManifest.size()), program, &chosen.names, &name));
  return chosen;
}

}  // namespace

Result<std::vector<std::string>> program_names(const ZipReader& zip) {
  TRY(ChosenManifest chosen, chosen_manifest(zip, ""));
  return std::move(chosen.names);
}

Result<Json> read_manifest(const ZipReader& zip, const std::string& program) {
  TRY(const ChosenManifest chosen, chosen_manifest(zip, program));
  TRY(const std::string text, zip.read_text(*chosen.entry, runtime::kMaxManifest));
  TRY_STATUS(runtime::parse_manifest(text));
  return report::package_text(zip, *chosen.entry);
}

Json manifest_of_target(const Json& manifest, const Json& target) {
  Json own = manifest;
  if (!target.is_object()) return own;
  for (const char* key : {"symbols", "memory", "constants_hash", "kernels", "not_fused", "layouts", "states"}) {
    if (target.contains(key)) own[key] = target[key];
  }
  return own;
}

}  // namespace coil::tool
