// Packages of several programs: what they are called, and whether one goes on with the state of another.
//
//   data/coil/manifest.json                   {"format": 2, "name": "llama", "programs": ["prefill", "decode"]}
//   data/coil/programs/NAME/kernels.json
//   data/coil/programs/NAME/manifest.json     as that of a package of one program (manifest.h), and
//     "program": "decode",
//     "states": [{"name": "k", "dtype": "float32", "shape": [1, 2, 64, 8], "offset": 0}, ...]    a later target may have its own
//   data/constants/coil_cpu.constants         the weights of all programs for a target
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/zip_reader.h"
#include "runtime/manifest.h"

namespace coil::runtime {

inline constexpr size_t kMostPrograms = 64;

// Their names, out of the manifest of a package of several. COIL-E302 for other formats.
Result<std::vector<std::string>> read_program_names(std::string_view manifest);

// The entry with the manifest of `program`, or of the first one where it is empty; COIL-E402, with the names that there are, for another one.
// *chosen: what it is called; "model" in a package of a single program.
Result<const ZipEntry*> program_manifest(const ZipReader& zip, const std::string& root, const std::string& program, std::vector<std::string>* names,
                                         std::string* chosen);

// kernels.json beside a manifest (manifest.h); null: the package is from before there was one.
const ZipEntry* kernels_entry(const ZipReader& zip, std::string_view manifest);

// COIL-E213, with the reason, where these states are not the same: same names, dtypes, shapes and places.
Status same_states(const std::string& program, const std::vector<ManifestState>& states, const std::string& other, const std::vector<ManifestState>& others);

}  // namespace coil::runtime
