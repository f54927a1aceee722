// Files of the device library that a person edited (`--replace-kernel cuda/gemm_wgmma.h=FILE`): products, convolutions and attention are its code, and the
// generated text of such a kernel, if it has any, only calls it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_machine.h"
#include "base/result.h"
#include "codegen/cuda/cuda_kernels.h"
#include "codegen/replaced_text.h"
#include "package/package_writer.h"
#include "toolchain/compile.h"
#include "toolchain/link.h"

namespace coil {

// "cuda/gemm_wgmma.h" of that and of "device/cuda/gemm_wgmma.h"; empty: kernels have such names. bad_option for a file that there is not, or that is no
// kernel's: what all code includes stays as it is.
Result<std::string> device_file(const std::string& name);

std::string device_file_text(const std::string& file);

// Of each kernel of a plan for the CPU, the file that has the template's entry; empty: it is no template.
std::vector<std::string> template_files(const KernelPlan& plan);

// Those of the edited files that a text reads which includes `first`, directly or by what these include. Null-free.
using EditedFiles = std::vector<const KernelReplacement*>;
EditedFiles edited_files(const std::vector<KernelReplacement>& replacements, std::span<const std::string> first);

// For a compile of text that reads them.
std::vector<toolchain::VirtualFile> headers_of(const EditedFiles& files);
std::string edited_hint(const EditedFiles& files);

// The kernels' objects of the device library for a level of `machine`: those whose files were edited are compiled, the others are as they are embedded.
struct LibraryRequests {
  std::vector<toolchain::CompileRequest> requests;
  std::vector<std::string> names;  // of the objects that they take the places of: "attention_v4"
};
LibraryRequests edited_library(const HostMachine& machine, const std::vector<std::string>& levels, const std::vector<KernelReplacement>& replacements);

// Marks the kernels whose code the edited files are part of. On the CPU a template's code is known by the object that the host program calls.
void mark_edited(const cuda::CudaProgram& program, const std::vector<KernelReplacement>& replacements, TargetContents& t);
void mark_edited(const std::vector<KernelReplacement>& replacements, TargetContents& t);

// Those that are code of a kernel of the program, as mark_edited found.
std::vector<KernelReplacement> used_files(const std::vector<KernelReplacement>& replacements, const TargetContents& t);

// What was edited is part of the package's sources, by the library's names.
void add_sources(const std::vector<KernelReplacement>& replacements, TargetContents& t);

}  // namespace coil
