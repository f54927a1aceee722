// Writes the `.pt2` that coil's runtime and stock PyTorch load: code, constants, manifest, metadata. Same input, same bytes.
#pragma once

#include <string>
#include <vector>

#include "base/zip_writer.h"
#include "codegen/host/host_program.h"

namespace coil {

struct GeneratedSource {
  std::string name;  // "kernels_0.cc", "host.cc"
  std::string text;
};

struct FixedArgument {
  int position = 0;  // among all flattened inputs
  std::string name;
  std::string value_json;  // "true", "3", "\"mean\""
};

// Everything that goes into a package.
struct PackageContents {
  std::string name = "model";       // the archive's root folder
  const KernelPlan* plan = nullptr;
  const cpu::CpuProgram* kernels = nullptr;
  std::vector<uint8_t> code;        // the shared object
  uint64_t constants_hash = 0;
  std::vector<std::string> isas;
  std::vector<GeneratedSource> sources;
  std::vector<FixedArgument> fixed_inputs;
  std::string in_spec, out_spec, torch_version;
};

Status write_package(ZipWriter& zip, const PackageContents& contents);

// data/coil/manifest.json; the part that the runtime reads is described in runtime/manifest.h.
std::string manifest_text(const PackageContents& contents);

// Identity of the constants blob: of its sources' bytes and how they are packed.
uint64_t constants_identity(const KernelPlan& plan);

}  // namespace coil
