#include "part_program.h"

#include <fmt/format.h>

#include "base/files.h"
#include "command.h"
#include "inspect.h"
#include "load_model.h"
#include "make_words.h"
#include "save_difference.h"

namespace coil::tool {
namespace {

constexpr const char* kMakefile = R"mk(# make run: the part of the program that {name} computes, on its inputs, beside the reference; and how long a call takes.
{about}COIL ?= $(shell command -v coil || echo python3 -m coil)
OPTIONS = {options}
EDITED = {edited}
MODEL = {model}
PACKAGE = {package}

run:
	$(COIL) diff program.pt2 -i inputs.npz --kernels-only $(OPTIONS) $(EDITED)
	$(COIL) bench program.pt2 -i inputs.npz $(OPTIONS) $(EDITED)

package:
	$(COIL) compile $(MODEL) $(PACKAGE) {replaced} -o edited.coil.pt2

.PHONY: run package
)mk";

// Whether the part's own compile has the function, so that it can be replaced there too.
Result<bool> has_function(const std::string& program, const PartSource& from, const std::string& function) {
  TRY(const ZipReader zip, ZipReader::open(program));
  CompileArguments arguments = from.arguments;
  arguments.program.clear();
  arguments.dims.clear();
  arguments.replace_kernels.clear();
  TRY(const Json manifest, manifest_of_program(zip, arguments));
  for (const Json& k : manifest.at("kernels")) {
    if (k.at("function") == function) return true;
  }
  return false;
}

// Of a kernel that is code of the device library alone.
std::string device_file_of(const Json& manifest, const KernelPart& part) {
  if (!part.function.empty()) return "";
  for (const Json& k : manifest.at("kernels")) {
    if (k.at("name") == part.name && k.at("function").is_null() && k.contains("device")) return k["device"].get<std::string>();
  }
  return "";
}

}  // namespace

Status write_part(const PartSource& from, const KernelPart& part, const std::string& folder) {
  const std::string at = folder + "/" + part.folder;
  KernelDifference what;
  what.value = part.value;
  what.given = part.given;
  TRY_STATUS(save_difference(from.zip, from.arguments.program, from.graph, from.build, from.options, what, from.inputs, at));
  const bool cuda = from.build.cuda;
  const std::string file = cuda ? "kernel.cu" : "kernel.cc";
  std::string edited, replaced, about = "# It has no text to edit.\n";
  TRY(const ZipReader package, ZipReader::from_bytes(from.build.package, "the program"));
  TRY(const Json manifest, read_manifest(package));
  if (const std::string device = device_file_of(manifest, part); !device.empty()) {
    const std::string own = device.substr(device.rfind('/') + 1);
    TRY_STATUS(write_file(at + "/" + own, std::string_view(device_text(device))));
    replaced = edited = fmt::format("--replace-kernel {}={}", device, own);
    about = fmt::format("# {}: code of the device library, to be edited. make package: the model with it.\n", own);
  } else if (!part.function.empty()) {
    TRY(const std::string text, source_text(package, manifest, part.function));
    TRY_STATUS(write_file(at + "/" + file, std::string_view(text)));
    replaced = fmt::format("--replace-kernel {}={}", part.function, file);
    TRY(const bool same, has_function(at + "/program.pt2", from, part.function));
    if (same) edited = replaced;
    about = fmt::format("# {}: {}\n", file,
                        same ? "to be edited. make package: the model with it."
                             : "to be edited for make package, the model with it. The part alone is compiled to other text.");
  }
  return write_file(at + "/Makefile", std::string_view(fmt::format(fmt::runtime(kMakefile), fmt::arg("name", part.folder.substr(part.folder.rfind('/') + 1)),
                                                                   fmt::arg("about", about), fmt::arg("options", make_options(from.arguments, false)),
                                                                   fmt::arg("edited", edited), fmt::arg("model", make_word(from.model)),
                                                                   fmt::arg("package", make_options(from.arguments, true)), fmt::arg("replaced", replaced))));
}

}  // namespace coil::tool
