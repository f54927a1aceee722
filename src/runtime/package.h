// A package's bytes, in place: where its code, constants and manifest are. Reads the archive, runs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/zip_reader.h"
#include "runtime/manifest.h"

namespace coil::runtime {

// Whether the checksum of stored constants is checked: of those that cost next to nothing beside the loading of code (64 KiB: 50 us), of all, of none.
enum class Verify : int32_t { small = 0, all = 1, none = 2 };

// The part for one of the manifest's targets.
struct PackagePart {
  std::span<const uint8_t> code;                    // the shared object
  std::span<const uint8_t> constants;               // the blob with its trailer, if any; starts at a multiple of 64 bytes; may be empty
  std::vector<std::shared_ptr<const void>> owners;  // the archive, entries that had to be decompressed or moved
};

struct Package {
  std::string name;                   // the archive's root folder
  std::vector<std::string> programs;  // never empty; a single one without a name is "model"
  std::string program;                // of them, the one that the manifest is of
  bool several = false;               // the programs have names, manifests of their own, and their weights in common
  std::string manifest_entry;
  Manifest manifest;
  std::shared_ptr<const ZipReader> zip;

  // Constants that are stored and aligned are used in place. The checksum of the code is checked; that of the constants, which reads
  // all of them, where `verify` says so. Errors: COIL-E301; COIL-E010 when a checksum is wrong.
  Result<PackagePart> part(const Target& target, Verify verify = Verify::small) const;
  // Tells packages of several programs apart: by the checksums of their manifests, which name their weights.
  uint64_t identity() const;
};

// Maps the file and reads the manifest of the program of that name; empty: of the first one. COIL-E402 where there is none of it. A file that is open
// already is not mapped again.
Result<Package> open_package(const std::string& path, const std::string& program = "");
// The same of bytes that stay valid and unchanged as long as the package is used.
Result<Package> read_package(std::span<const uint8_t> bytes, const std::string& program = "");
// Another program of the same package.
Result<Package> read_package(std::shared_ptr<const ZipReader> zip, const std::string& program);

}  // namespace coil::runtime
