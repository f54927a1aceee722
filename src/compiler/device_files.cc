#include "compiler/device_files.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "codegen/cpu/host/host_program.h"
#include "toolchain/embedded.h"

namespace coil {
namespace {

constexpr std::string_view kFolder = "device/", kCuda = "cuda/", kCpu = "kernels/";

std::string_view embedded_text(const std::string& path) {
  for (const toolchain::EmbeddedFile& f : toolchain::embedded_files()) {
    if (f.path.substr(kFolder.size()) == path) return f.text();
  }
  return {};
}

// The names behind #include "..." at the beginnings of lines.
std::vector<std::string> includes_of(std::string_view text) {
  constexpr std::string_view kWord = "#include \"";
  std::vector<std::string> out;
  for (size_t at = text.find(kWord); at != std::string_view::npos; at = text.find(kWord, at + 1)) {
    const size_t begin = at + kWord.size(), end = text.find('"', begin);
    if (end == std::string_view::npos) break;
    if (at == 0 || text[at - 1] == '\n') out.emplace_back(text.substr(begin, end - begin));
  }
  return out;
}

// As the compilers look for it: beside the file that includes it, then from device/ on.
std::string found_from(const std::string& file, const std::string& included) {
  const std::string beside = file.substr(0, file.find_last_of('/') + 1) + included;
  if (!embedded_text(beside).empty()) return beside;
  return included.starts_with(kFolder) ? included.substr(kFolder.size()) : included;
}

void reach(const std::vector<KernelReplacement>& replacements, const std::string& file, std::set<std::string>& seen) {
  if (!seen.insert(file).second) return;
  std::string_view text = embedded_text(file);
  for (const KernelReplacement& r : replacements) {
    if (r.device == file) text = r.text;
  }
  for (const std::string& included : includes_of(text)) reach(replacements, found_from(file, included), seen);
}

// The file that has the entry of a template's object.
std::string entry_file(const std::string& object) { return fmt::format("kernels/{}.cc", object == "gemm_bytes" ? "gemm_byte_groups" : object); }

void mark(TargetContents& t, size_t kernel, const KernelReplacement& r) {
  t.replaced.resize(t.plan.kernels.size());
  t.replaced[kernel].add(r.kernel, r.file_name());
}

}  // namespace

Result<std::string> device_file(const std::string& name) {
  if (name.find('/') == std::string::npos) return std::string();
  const std::string path = name.starts_with(kFolder) ? name.substr(kFolder.size()) : name;
  const bool of_kernels = path.starts_with(kCuda) || path.starts_with(kCpu);
  if (of_kernels && !embedded_text(path).empty()) return path;
  std::string files;
  for (const toolchain::EmbeddedFile& f : toolchain::embedded_files()) {
    const std::string_view file = f.path.substr(kFolder.size());
    const bool same = path.starts_with(kCpu) ? file.starts_with(kCpu) && file.ends_with(".cc") : file.starts_with(kCuda);
    if (same) files += fmt::format("{}{}", files.empty() ? "" : ", ", file);
  }
  return Error{ErrorCode::bad_option, fmt::format("the device library has no file '{}' of kernels", shown(name)), "", "it has " + files};
}

std::string device_file_text(const std::string& file) { return std::string(embedded_text(file)); }

std::vector<std::string> template_files(const KernelPlan& plan) {
  std::vector<std::string> out;
  for (const Kernel& k : plan.kernels) {
    const auto* made = std::get_if<TemplateKernel>(&k.def);
    out.push_back(made ? entry_file(device_object(plan, *made)) : "");
  }
  return out;
}

EditedFiles edited_files(const std::vector<KernelReplacement>& replacements, std::span<const std::string> first) {
  EditedFiles out;
  if (std::none_of(replacements.begin(), replacements.end(), [](const KernelReplacement& r) { return !r.device.empty(); })) return out;
  std::set<std::string> seen;
  for (const std::string& file : first) reach(replacements, file, seen);
  for (const KernelReplacement& r : replacements) {
    if (!r.device.empty() && seen.contains(r.device)) out.push_back(&r);
  }
  return out;
}

std::vector<toolchain::VirtualFile> headers_of(const EditedFiles& files) {
  std::vector<toolchain::VirtualFile> out;
  for (const KernelReplacement* r : files) out.push_back({r->device, r->text});
  return out;
}

std::string edited_hint(const EditedFiles& files) {
  std::string names;
  for (const KernelReplacement* r : files) names += fmt::format("{}{} is that of --replace-kernel {}", names.empty() ? "" : ", ", r->device, shown(r->file));
  return names;
}

LibraryRequests edited_library(const HostMachine& machine, const std::vector<std::string>& levels, const std::vector<KernelReplacement>& replacements) {
  LibraryRequests out;
  for (const toolchain::EmbeddedObject& o : toolchain::embedded_objects(machine)) {
    if (std::find(levels.begin(), levels.end(), o.isa) == levels.end()) continue;
    const std::string source = fmt::format("kernels/{}.cc", o.name);
    const EditedFiles edited = edited_files(replacements, std::span(&source, 1));
    if (edited.empty()) continue;
    toolchain::CompileRequest r;
    r.name = source;
    r.source = fmt::format("#include \"{}\"\n", source);
    r.cpu = machine.level(std::string(o.isa))->full_name;
    r.opt_level = 3;  // as the library was compiled, whatever the program's level is
    r.headers = headers_of(edited);
    for (const toolchain::EmbeddedFile& f : toolchain::embedded_files()) {
      const std::string path(f.path.substr(kFolder.size()));
      const bool given = std::any_of(edited.begin(), edited.end(), [&](const KernelReplacement* e) { return e->device == path; });
      if (path.starts_with(kCpu) && path.ends_with(".cc") && !given) r.headers.push_back({path, std::string(f.text())});
    }
    for (toolchain::VirtualFile& f : r.headers) f.path = std::string(kFolder) + f.path;
    r.user_kernel = source;
    r.user_hint = edited_hint(edited);
    out.requests.push_back(std::move(r));
    out.names.push_back(fmt::format("{}_{}", o.name, o.isa));
  }
  return out;
}

void mark_edited(const cuda::CudaProgram& program, const std::vector<KernelReplacement>& replacements, TargetContents& t) {
  for (size_t k = 0; k < program.calls.size(); ++k) {
    std::set<int> functions;
    const cuda::CudaCall& call = program.calls[k];
    for (const std::vector<cuda::CudaLaunch>* list : {&call.launches, &call.further, call.together ? &call.together->launches : nullptr}) {
      if (!list) continue;
      for (const cuda::CudaLaunch& l : *list) functions.insert(l.function);
    }
    std::set<const KernelReplacement*> files;
    for (const int f : functions) {
      if (f < 0) continue;
      for (const KernelReplacement* r : edited_files(replacements, program.functions[static_cast<size_t>(f)].headers)) files.insert(r);
    }
    for (const KernelReplacement& r : replacements) {
      if (files.contains(&r)) mark(t, k, r);
    }
  }
}

void mark_edited(const std::vector<KernelReplacement>& replacements, TargetContents& t) {
  for (const KernelReplacement& r : replacements) {
    if (!r.device.starts_with(kCpu)) continue;
    const auto has = [&](const std::string& object) {
      const std::string entry = entry_file(object);
      const EditedFiles files = edited_files(replacements, std::span(&entry, 1));
      return std::find(files.begin(), files.end(), &r) != files.end();
    };
    // What no entry includes is another object that entries call, such as the microkernels: any template may.
    const std::vector<std::string> all = all_device_objects();
    const bool shared = std::none_of(all.begin(), all.end(), has);
    for (size_t k = 0; k < t.plan.kernels.size(); ++k) {
      const auto* made = std::get_if<TemplateKernel>(&t.plan.kernels[k].def);
      if (made && (shared || has(device_object(t.plan, *made)))) mark(t, k, r);
    }
  }
}

std::vector<KernelReplacement> used_files(const std::vector<KernelReplacement>& replacements, const TargetContents& t) {
  std::vector<KernelReplacement> out;
  for (const KernelReplacement& r : replacements) {
    const auto has = [&](const TargetContents::Replaced& k) { return std::find(k.names.begin(), k.names.end(), r.kernel) != k.names.end(); };
    if (!r.device.empty() && std::any_of(t.replaced.begin(), t.replaced.end(), has)) out.push_back(r);
  }
  return out;
}

void add_sources(const std::vector<KernelReplacement>& replacements, TargetContents& t) {
  for (const KernelReplacement& r : used_files(replacements, t)) t.sources.push_back({r.device, r.text});
}

}  // namespace coil
