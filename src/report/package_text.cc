// See package_text.h.
#include "report/package_text.h"

#include "runtime/programs.h"

namespace coil::report {
namespace {

Result<Json> document(const ZipReader& zip, const ZipEntry& entry) {
  TRY(const std::string text, zip.read_text(entry, runtime::kMaxManifest));
  std::optional<Json> json = Json::try_parse(text);
  if (!json) return Error{ErrorCode::bad_json, entry.name.substr(entry.name.find('/') + 1) + " is malformed", zip.name(), ""};
  return std::move(*json);
}

void add(Json& part, const Json& decisions) {
  for (const char* key : {"kernels", "not_fused", "layouts"}) {
    if (decisions.contains(key)) part[key] = decisions.at(key);
  }
  if (decisions.contains("arena") && part.contains("memory") && part.at("memory").is_object()) part["memory"]["arena"] = decisions.at("arena");
}

}  // namespace

Result<Json> package_text(const ZipReader& zip, const ZipEntry& manifest) {
  TRY(Json all, document(zip, manifest));
  const ZipEntry* entry = runtime::kernels_entry(zip, manifest.name);
  if (!entry || !all.is_object()) return all;
  TRY(const Json kernels, document(zip, *entry));
  if (!kernels.is_object()) return all;
  add(all, kernels);
  const Json others = kernels.value("targets", Json::array()), targets = all.value("targets", Json::array());
  for (size_t i = 0; targets.is_array() && i < targets.size(); ++i) {
    if (!targets[i].is_object() || !others.is_array()) continue;
    for (const Json& other : others) {
      if (other.is_object() && other.contains("model") && other.at("model") == targets[i].value("model", Json())) add(all["targets"][i], other);
    }
  }
  return all;
}

}  // namespace coil::report
