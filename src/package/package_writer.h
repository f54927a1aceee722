// Writes the `.pt2` that coil's runtime and stock PyTorch load: code, constants, manifest, metadata. Same input, same bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/zip_writer.h"
#include "codegen/hint.h"
#include "package/notice.h"
#include "schedule/kernel_plan.h"

namespace coil {

class SharedConstants;

struct GeneratedSource {
  std::string name;  // "kernels_0.cc", "host.cc"
  std::string text;
};

struct FixedArgument {
  int position = 0;  // among all flattened inputs
  std::string name;
  std::string value_json;  // "true", "3", "\"mean\""
};

// The code for one kind of device.
struct TargetContents {
  std::string name;             // "cpu": of the target, as --target calls it; no two targets of a package have one name
  std::string device;           // "cpu", "cuda"
  std::string machine;          // of code for processors: as base/host_machine.h calls it; empty for CUDA
  std::string model = "model";  // the folder below data/aotinductor
  KernelPlan plan;
  std::vector<std::string> functions;     // of each kernel of the plan; empty: none of its own
  std::vector<std::string> device_files;  // of each kernel of the plan, the device library's file that it calls: "kernels/gemm.cc"; empty: none
  size_t num_functions = 0;               // distinct ones
  std::vector<KernelHint> hints;          // of each kernel of the plan
  struct Replaced {
    std::vector<std::string> names;  // that --replace-kernel gave; none: the kernel is as it was generated
    std::string file;                // the files, without folders
    void add(const std::string& name, const std::string& from) {
      names.push_back(name);
      file += (file.empty() ? "" : ", ") + from;
    }
  };
  std::vector<Replaced> replaced;  // of each kernel, or none: nothing is replaced
  std::vector<uint8_t> code;       // the shared object
  std::string code_map;            // with debug information: where its functions are (compiler/debug_info.h); empty: without
  uint64_t constants_hash = 0;
  std::string architectures_key;           // "isas", "architectures": the manifest's word for the next
  std::vector<std::string> architectures;  // "v3", "v4"; "sm_90"
  std::vector<std::string> needs;          // libraries of the machine beside libc
  std::vector<std::string> uses;           // libraries that make it faster; without them it works too
  bool graphs = false;                     // repeated calls may become CUDA graphs
  std::string tuned_isa;                   // the one that the kernels' choices are for; empty: not tuned
  std::vector<GeneratedSource> sources;
  std::vector<std::string> members;  // of the library's archive, that are in the code: notice.h knows whose they are
};

// Everything that goes into a package, or into one with several programs for one of them.
struct PackageContents {
  std::string name = "model";           // the archive's root folder
  std::string program;                  // what the package calls the program; empty: it is the only one, and has no name
  std::vector<TargetContents> targets;  // at least one; the first is the one that stock PyTorch finds by itself
  std::vector<FixedArgument> fixed_inputs;
  std::vector<std::string> argument_names;  // of the program's call, positional ones first
  std::string torch_version;
};

// Constants are packed on up to `threads` threads.
Status write_package(ZipWriter& zip, const PackageContents& contents, int threads = 1);
// A package of named programs, which have the same targets in the same order, each with its constants in one blob (codegen/constants.h).
Status write_package(ZipWriter& zip, std::span<const PackageContents> programs, int threads = 1);

// What programs of a package may be called, and how many there may be; the runtime has the same rules. bad_option.
Status check_program_names(std::span<const std::string> names);

// Whose code is in it.
std::vector<const LicensedPart*> parts_of(const PackageContents& contents);

// data/coil/manifest.json; the part that the runtime reads is described in runtime/manifest.h.
std::string manifest_text(const PackageContents& contents);
// kernels.json beside it: what people and profiles are told of the kernels, which running them does not need.
std::string kernels_text(const PackageContents& contents);
// The manifest of a package of several programs, each of which has a manifest of its own: data/coil/programs/NAME/manifest.json.
std::string programs_text(std::span<const PackageContents> programs);

// Identity of the constants blob: of its sources' bytes and how they are packed. `constants`: which knows some of those bytes' hashes.
uint64_t constants_identity(const KernelPlan& plan, SharedConstants& constants);

}  // namespace coil
