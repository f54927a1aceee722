// See programs.h.
#include "runtime/programs.h"

#include <algorithm>

#include "base/json_read.h"
#include "base/text.h"
#include "device/dtype_names.h"
#include "runtime/manifest.h"

namespace coil::runtime {
namespace {

constexpr int64_t kFormatOfPrograms = 2;
constexpr size_t kMostNamed = 12;  // in a message

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostNamed; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kMostNamed ? text + ", and " + std::to_string(names.size() - kMostNamed) + " more" : text;
}

std::string described(const ManifestState& s) {
  std::string text;
  for (const int64_t size : s.sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  const char* dtype = cd::dtype_name(s.dtype);
  return std::string(dtype ? dtype : "unknown") + " [" + text + "]";
}

}  // namespace

Result<std::vector<std::string>> read_program_names(std::string_view manifest) {
  TRY(const JsonDoc document, JsonDoc::parse(manifest, "data/coil/manifest.json"));
  const JsonValue root = document.root();
  TRY(const int64_t format, root.get_int("format"));
  if (format != kFormatOfPrograms)
    return Error{ErrorCode::package_version,
                 "the package of several programs has format " + std::to_string(format) + ", this runtime reads format " + std::to_string(kFormatOfPrograms),
                 "", "compile the programs again with this version of coil, or use its runtime"};
  std::vector<std::string> names;
  TRY(const JsonArray list, root.get_array("programs"));
  for (JsonValue item : list) {
    TRY(const std::string_view name, item.as_string());
    if (names.size() == kMostPrograms) return item.error("more than " + std::to_string(kMostPrograms) + " programs");
    if (!is_folder_name(name) || name.size() > 64) return item.error("'" + shown(name.substr(0, 100)) + "' is no name of a program");
    if (std::find(names.begin(), names.end(), name) != names.end()) return item.error("two programs are called '" + std::string(name) + "'");
    names.emplace_back(name);
  }
  if (names.empty()) return root.error("the package has no program");
  return names;
}

Result<const ZipEntry*> program_manifest(const ZipReader& zip, const std::string& root, const std::string& program, std::vector<std::string>* names,
                                         std::string* chosen) {
  const std::string folder = root + "/data/coil/";
  const ZipEntry* manifest = zip.find(folder + "manifest.json");
  if (!manifest) return static_cast<const ZipEntry*>(nullptr);
  // The manifest of a single program is long, and read once.
  const auto& entries = zip.entries();
  const bool several = std::any_of(entries.begin(), entries.end(), [&](const ZipEntry& e) { return e.name.starts_with(folder + "programs/"); });
  names->assign({"model"});
  if (several) {
    TRY(const std::string text, zip.read_text(*manifest, kMaxManifest));
    TRY(*names, read_program_names(text));
  }
  *chosen = program.empty() ? names->front() : program;
  if (std::find(names->begin(), names->end(), *chosen) == names->end())
    return Error{ErrorCode::bad_option, "the package has no program '" + shown(program.substr(0, 100)) + "'; it has " + listed(*names), "",
                 "choose one of these"};
  if (!several) return manifest;
  const ZipEntry* own = zip.find(folder + "programs/" + *chosen + "/manifest.json");
  if (!own)
    return Error{ErrorCode::bad_package,
                 "the package lacks data/coil/programs/" + *chosen + "/manifest.json, the program '" + *chosen + "' that its manifest names", zip.name(),
                 "compile the programs again with coil"};
  return own;
}

const ZipEntry* kernels_entry(const ZipReader& zip, std::string_view manifest) {
  return zip.find(std::string(manifest.substr(0, manifest.rfind('/') + 1)) + "kernels.json");
}

Status same_states(const std::string& program, const std::vector<ManifestState>& states, const std::string& other, const std::vector<ManifestState>& others) {
  const auto fail = [&](const std::string& why) {
    return Error{ErrorCode::state_mismatch, "the state belongs to the program '" + other + "', and '" + program + "' cannot go on with it: " + why, "",
                 "programs go on with each other's states where these have the same names, dtypes and shapes"};
  };
  if (states.empty()) return fail("it keeps no state");
  for (const ManifestState& mine : states) {
    const auto its = std::find_if(others.begin(), others.end(), [&](const ManifestState& s) { return s.name == mine.name; });
    if (its == others.end()) return fail("the other one's has no '" + shown(mine.name) + "'");
    if (its->dtype != mine.dtype || its->sizes != mine.sizes)
      return fail("'" + shown(mine.name) + "' is " + described(mine) + ", the other one's is " + described(*its));
    if (its->offset != mine.offset) return fail("'" + shown(mine.name) + "' lies elsewhere");
  }
  return others.size() == states.size() ? ok_status() : Status(fail("the other one's has more"));
}

}  // namespace coil::runtime
