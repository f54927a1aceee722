// See package.h.
#include "runtime/package.h"

#include <sys/stat.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/hash.h"
#include "runtime/buffer.h"
#include "runtime/manifest.h"
#include "runtime/programs.h"

namespace coil::runtime {
namespace {

constexpr std::string_view kModelFolder = "/data/aotinductor/";
constexpr uint64_t kMaxCode = uint64_t{1} << 31;
constexpr uint64_t kSmallConstants = uint64_t{64} << 10;

// Why an archive without an entry is not a package that we can run: it may be another kind of .pt2.
Error missing_entry(const ZipReader& zip, const std::string& root, const std::string& entry) {
  Error error{ErrorCode::bad_package, "the package lacks " + entry, zip.name(), "compile the program again with coil"};
  if (zip.find(root + "/data/coil/manifest.json")) return error;
  if (zip.find(root + "/models/model.json")) {
    error.message = "this is an exported program, not a package (it lacks " + entry + ")";
    error.hint = "compile it first: coil compile " + zip.name();
  } else {
    error.message += "; it was not made by coil";
  }
  return error;
}

// The content of a stored entry in place, checked; a deflated one is decompressed and kept by the package.
Result<std::span<const uint8_t>> checked(const ZipReader& zip, const ZipEntry& entry, uint64_t max_bytes, std::vector<std::shared_ptr<const void>>* owners) {
  if (!entry.deflated) {
    TRY_STATUS(zip.verify(entry));
    return zip.data_span(entry);
  }
  TRY(std::vector<uint8_t> bytes, zip.read(entry, max_bytes));
  auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  owners->push_back(owner);
  return std::span<const uint8_t>(*owner);
}

// The constants in place if they are stored and aligned, else a copy.
Result<std::span<const uint8_t>> constants_of(const ZipReader& zip, const ZipEntry& entry, Verify verify, std::vector<std::shared_ptr<const void>>* owners) {
  std::vector<uint8_t> inflated;
  std::span<const uint8_t> bytes;
  if (entry.deflated) {
    TRY(inflated, zip.read(entry, UINT64_MAX));
    bytes = inflated;
  } else {
    if (verify == Verify::all || (verify == Verify::small && entry.size <= kSmallConstants)) TRY_STATUS(zip.verify(entry));
    TRY(bytes, zip.data_span(entry));
    if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment == 0) return bytes;
  }
  auto owner = std::make_shared<Buffer>();
  CoilError error;
  if (!owner->reserve(static_cast<int64_t>(bytes.size()), &error))
    return Error{ErrorCode::out_of_memory, "no memory for " + std::to_string(bytes.size()) + " bytes of constants", zip.name()};
  std::memcpy(owner->data(), bytes.data(), bytes.size());
  owners->push_back(owner);
  return std::span<const uint8_t>(owner->data(), bytes.size());
}

// What is open, by the file: whoever has it open keeps it; here are only ways to find it.
struct OpenFiles {
  using Key = std::tuple<std::string, uint64_t, uint64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  std::mutex mutex;
  std::map<Key, std::weak_ptr<const ZipReader>> files;

  static OpenFiles& all() {
    static OpenFiles* const made = new OpenFiles;  // models may outlive the statics of this library
    return *made;
  }
};

Result<std::shared_ptr<const ZipReader>> open_archive(const std::string& path) {
  struct stat s;
  std::optional<OpenFiles::Key> key;
  if (stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode))
    key = OpenFiles::Key{path, s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec};
  OpenFiles& open = OpenFiles::all();
  if (key) {
    const std::lock_guard lock(open.mutex);
    const auto known = open.files.find(*key);
    if (known != open.files.end()) {
      if (auto zip = known->second.lock()) return zip;
    }
  }
  TRY(ZipReader archive, ZipReader::open(path));
  auto zip = std::make_shared<const ZipReader>(std::move(archive));
  if (key) {
    const std::lock_guard lock(open.mutex);
    std::erase_if(open.files, [](const auto& entry) { return entry.second.expired(); });
    open.files[*key] = zip;
  }
  return zip;
}

// The weights of all programs of a package, for one target.
std::string shared_constants_entry(const std::string& root, const Target& target) {
  const std::string kind = target.device_type == COIL_CUDA ? "cuda" : target.machine == "x86-64" ? "cpu" : target.machine;
  return root + "/data/constants/coil_" + kind + ".constants";
}

}  // namespace

Result<Package> read_package(std::shared_ptr<const ZipReader> archive, const std::string& program) {
  Package package;
  package.zip = std::move(archive);
  const ZipReader& zip = *package.zip;
  if (zip.entries().empty()) return Error{ErrorCode::bad_package, "the archive is empty", zip.name()};
  const std::string& first = zip.entries().front().name;
  package.name = first.substr(0, first.find('/'));
  // The manifest says which versions can read the rest.
  TRY(const ZipEntry* manifest, program_manifest(zip, package.name, program, &package.programs, &package.program));
  if (!manifest) return missing_entry(zip, package.name, "data/coil/manifest.json");
  package.manifest_entry = manifest->name;
  package.several = package.manifest_entry != package.name + "/data/coil/manifest.json";
  TRY(const std::string text, zip.read_text(*manifest, kMaxManifest));
  TRY(package.manifest, parse_manifest(text));
  return package;
}

uint64_t Package::identity() const {
  std::string text;
  for (const ZipEntry& e : zip->entries()) {
    if (e.name.ends_with("/manifest.json") || e.name.ends_with("/kernels.json")) text += e.name + " " + std::to_string(e.crc) + "\n";
  }
  return hash64(text);
}

Result<PackagePart> Package::part(const Target& target, Verify verify) const {
  PackagePart part;
  part.owners.push_back(zip);
  const std::string stem = name + std::string(kModelFolder) + target.model + "/m.wrapper";
  const ZipEntry* code = zip->find(stem + ".so");
  if (!code) return missing_entry(*zip, name, stem.substr(name.size() + 1) + ".so");
  TRY(part.code, checked(*zip, *code, kMaxCode, &part.owners));
  if (const ZipEntry* constants = zip->find(several ? shared_constants_entry(name, target) : stem + ".constants")) {
    TRY(part.constants, constants_of(*zip, *constants, verify, &part.owners));
  }
  return part;
}

Result<Package> open_package(const std::string& path, const std::string& program) {
  TRY(std::shared_ptr<const ZipReader> zip, open_archive(path));
  auto package = read_package(std::move(zip), program);
  if (!package.ok() && package.error().where.empty()) package.error().where = path;
  return package;
}

Result<Package> read_package(std::span<const uint8_t> bytes, const std::string& program) {
  TRY(ZipReader zip, ZipReader::from_bytes(bytes, "package in memory"));
  return read_package(std::make_shared<const ZipReader>(std::move(zip)), program);
}

}  // namespace coil::runtime
