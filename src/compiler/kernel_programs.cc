#include "compiler/kernel_programs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/files.h"
#include "base/host_machine.h"
#include "base/text.h"
#include "codegen/foreign_text.h"
#include "compiler/call_memory.h"
#include "compiler/cuda_kernel_call.h"
#include "compiler/kernel_program_texts.h"
#include "toolchain/embedded.h"

namespace coil {
namespace {

constexpr std::string_view kAbout = "// Runs the kernel on what it was given in the program, and compares what it writes with what it wrote there.\n";

class Writer {
 public:
  Writer(const WatchedBuild& build, const std::vector<std::string>& architectures, PackageWords words, std::string folder)
      : build_(build),
        architectures_(architectures),
        isa_(build.cuda ? "" : level_here(architectures).name),
        full_name_(build.cuda ? "" : level_here(architectures).full_name),
        words_(std::move(words)),
        folder_(std::move(folder)) {}

  Status headers() {
    for (const toolchain::EmbeddedFile& f : toolchain::embedded_files()) {
      const bool user = f.path.starts_with("device/user/");  // of both targets
      if (!f.path.starts_with("device/") || !f.path.ends_with(".h") || (!user && f.path.starts_with("device/cuda/") != build_.cuda)) continue;
      TRY_STATUS(write(folder_ + "/include/" + std::string(f.path.substr(7)), f.text()));
    }
    return ok_status();
  }

  void input(BufferId id, TensorData data) { contents_[id] = std::move(data); }

  Status after(size_t k, const std::vector<int64_t>& symbols, const std::vector<Written>& written) {
    const Kernel& kernel = build_.plan.kernels[k];
    if (const cuda::CudaCall* call = cuda_call(k)) TRY_STATUS(cuda_program(*call, k, symbols, written));
    else if (runs_alone(k)) TRY_STATUS(program(k, symbols, written));
    else if (!std::holds_alternative<ControlMark>(kernel.def) && !written.empty()) add_part(k, written[0].buffer);
    for (const Written& w : written) {
      contents_[w.buffer] = w.data;
      computed_.insert(w.buffer);
    }
    return ok_status();
  }

  KernelPrograms done() { return std::move(programs_); }

 private:
  bool runs_alone(size_t k) const {
    if (build_.cuda) return false;
    const cpu::CpuLaunch& launch = build_.program.launches[k];
    const auto& def = build_.plan.kernels[k].def;
    return launch.function >= 0 && launch.items && !std::holds_alternative<TemplateKernel>(def) && !std::holds_alternative<UserCallKernel>(def);
  }

  // Of a kernel for CUDA whose launches need nothing but its arguments and sizes; null: it has others, or is code of the library.
  const cuda::CudaCall* cuda_call(size_t k) const {
    if (!build_.cuda || std::holds_alternative<TemplateKernel>(build_.plan.kernels[k].def)) return nullptr;
    const cuda::CudaCall& call = build_.cuda_program.calls[k];
    if (call.joined || call.together || call.launches.size() != 1 || !call.launches[0].condition.empty()) return nullptr;
    const auto plain = [&](const cuda::CudaLaunch& l) {
      const bool asks_device = (l.grid_x + l.grid_y + l.grid_z).find("cd::") != std::string::npos;
      return l.args.size() == 1 && !l.image && l.setup.empty() && !asks_device && !build_.cuda_program.functions[static_cast<size_t>(l.function)].user &&
             l.args[0].buffers == call.launches[0].args[0].buffers;
    };
    return plain(call.launches[0]) && std::all_of(call.further.begin(), call.further.end(), plain) ? &call : nullptr;
  }

  void add_part(size_t k, BufferId value) {
    KernelPart part;
    part.name = build_.plan.kernels[k].name;
    part.function = build_.functions[k];
    std::string plain = part.function.empty() ? part.name : part.function;
    for (char& c : plain) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    part.folder = fmt::format("kernels/{:03}_{}", k, plain);
    part.value = build_.plan.buffer(value).info.name;
    for (BufferId id : computed_) part.given.emplace_back(build_.plan.buffer(id).info.name, contents_.at(id));
    programs_.parts.push_back(std::move(part));
  }

  static Status write(const std::string& path, std::string_view text) {
    std::error_code wrong;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), wrong);
    if (wrong) return Error{ErrorCode::file_unwritable, fmt::format("cannot make a folder for '{}': {}", shown(path), wrong.message()), "", ""};
    return write_file(path, text);
  }

  static std::string_view text_of(const TensorData& t) { return {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}; }

  // Bytes that a buffer has without contents: scratch memory, and what the kernel is about to write.
  static int64_t bytes_of(const BufferInfo& b, const std::function<int64_t(Expr)>& size_of) {
    int64_t last = 0;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      if (size_of(b.sizes[d]) <= 0) return 0;
      last += (size_of(b.sizes[d]) - 1) * (b.strides.empty() ? 0 : size_of(b.strides[d]));
    }
    return (last + 1) * byte_size(b.dtype);
  }

  // Writes what the kernel's buffers held before and after it; rows of kFiles.
  Result<std::string> data_files(const std::string& at, const std::vector<BufferId>& buffers, const std::vector<int64_t>& symbols,
                                 const std::vector<Written>& written) const {
    const auto size_of = [&](Expr e) { return evaluate_index(e, [&](SymbolId s) { return symbols[static_cast<size_t>(s.index)]; }); };
    std::string files;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const BufferId id = buffers[i];
      const BufferInfo& b = build_.plan.buffer(id).info;
      const auto before = contents_.find(id);
      const auto now = std::find_if(written.begin(), written.end(), [&](const Written& w) { return w.buffer == id; });
      const TensorData* data = before != contents_.end()                                                   ? &before->second
                               : b.kind == BufferInfo::Kind::constant || b.kind == BufferInfo::Kind::state ? &b.data
                                                                                                           : nullptr;
      if (data) TRY_STATUS(write(at + fmt::format("p{}.bin", i), text_of(*data)));
      if (now != written.end()) TRY_STATUS(write(at + fmt::format("p{}_after.bin", i), text_of(now->data)));
      const auto bytes = now != written.end() ? static_cast<int64_t>(now->data.bytes.size())
                         : data               ? static_cast<int64_t>(data->bytes.size())
                                              : bytes_of(b, size_of);
      const std::string own = data ? fmt::format("\"p{}.bin\"", i) : "0", then = now != written.end() ? fmt::format("\"p{}_after.bin\"", i) : "0";
      const bool floats = b.dtype == DType::f32 || b.dtype == DType::f64;
      files += fmt::format("    {{{}, {}, {}, {}, {}, {}}},\n", c_string(b.name), own, then, bytes, byte_size(b.dtype), floats ? byte_size(b.dtype) : 0);
    }
    return fmt::format(
        "enum {{ kBuffers = {} }};\n"
        "static const struct {{\n  const char *value, *before, *after;\n  unsigned long bytes, element;\n  int floats;\n}} kFiles[] = "
        "{{\n{}    {{0}}}};\n",
        buffers.size(), files);
  }

  Status program(size_t k, const std::vector<int64_t>& symbols, const std::vector<Written>& written) {
    const cpu::CpuLaunch& launch = build_.program.launches[k];
    const cpu::CpuFunction& function = build_.program.functions[static_cast<size_t>(launch.function)];
    const int64_t items = evaluate_index(launch.items, [&](SymbolId s) { return symbols[static_cast<size_t>(s.index)]; });
    const std::string place = fmt::format("kernels/{:03}_{}", k, function.name), at = folder_ + "/" + place + "/";
    TRY(const std::string files, data_files(at, launch.buffers, symbols, written));
    std::string sizes;
    for (int64_t s : symbols) sizes += fmt::format("{}, ", s);
    const std::string call = fmt::format(
        "// The call of the kernel in the program.\nextern \"C\" void {0}_{1}(void* context, long begin, long end, int worker);\n#define KERNEL {2}\n"
        "static const char kName[] = \"{0}\";\nstatic const long kItems = {3};\nstatic const long kSizes[] = {{{4}0}};\n{5}",
        function.name, isa_, "COIL_JOIN(COIL_ISA)", items, sizes, files);
    std::string text = "#include \"kernel_args.h\"\n";
    for (const std::string& h : function.headers) text += "#include \"" + h + "\"\n";
    TRY_STATUS(write(at + "kernel.cc", text + "\n" + function.text));
    TRY_STATUS(write(at + "call.h", joined(call, function.name)));
    TRY_STATUS(write(at + "main.cc", std::string(kAbout) + "#include \"call.h\"\n" + std::string(kKernelData) + std::string(kCpuMain)));
    const std::string march = full_name_.substr(0, full_name_.size() - std::min(full_name_.size(), isa_.size()));
    TRY_STATUS(write(at + "Makefile", fmt::format(fmt::runtime(kCpuMakefile), fmt::arg("isa", isa_), fmt::arg("march", march), fmt::arg("model", words_.model),
                                                  fmt::arg("options", words_.options), fmt::arg("function", function.name))));
    programs_.folders.push_back(place);
    return ok_status();
  }

  Status cuda_program(const cuda::CudaCall& call, size_t k, const std::vector<int64_t>& symbols, const std::vector<Written>& written) {
    const auto& functions = build_.cuda_program.functions;
    const cuda::CudaLaunch& first = call.launches[0];
    const std::string name = functions[static_cast<size_t>(first.function)].name;
    const std::string place = fmt::format("kernels/{:03}_{}", k, name), at = folder_ + "/" + place + "/";
    TRY(const std::string files, data_files(at, first.args[0].buffers, symbols, written));
    std::vector<const cuda::CudaLaunch*> launches = {&first};
    for (const cuda::CudaLaunch& l : call.further) launches.push_back(&l);
    std::string includes, edited;
    std::set<int> met;
    for (const cuda::CudaLaunch* l : launches) {
      const cuda::CudaFunction& f = functions[static_cast<size_t>(l->function)];
      if (!met.insert(l->function).second) continue;
      const std::string file = met.size() == 1 ? "kernel.cu" : fmt::format("kernel_{}.cu", met.size());
      std::string text;
      for (const std::string& h : f.headers) text += "#include \"" + h + "\"\n";
      TRY_STATUS(write(at + file, text + "\n" + f.text));
      includes += "#include \"" + file + "\"\n";
      edited += fmt::format("{}--replace-kernel {}={}", edited.empty() ? "" : " ", f.name, file);
    }
    TRY_STATUS(write(at + "call.h", cuda_call_text(build_, launches, k, symbols, files)));
    TRY_STATUS(write(at + "main.cu", std::string(kAbout) + includes + "#include \"call.h\"\n" + std::string(kCudaMain)));
    const std::string architecture = architectures_[0], arch = architecture == "sm_90" ? "sm_90a" : architecture;
    TRY_STATUS(write(at + "Makefile", fmt::format(fmt::runtime(kCudaMakefile), fmt::arg("arch", arch), fmt::arg("model", words_.model),
                                                  fmt::arg("options", words_.options), fmt::arg("edited", edited))));
    programs_.folders.push_back(place);
    return ok_status();
  }

  // The function's name for the instruction set that the Makefile chooses.
  static std::string joined(std::string text, const std::string& function) {
    const std::string name = "extern \"C\" void " + function;
    const size_t at = text.find(name), end = text.find('(', at);
    const std::string macro = fmt::format("#define COIL_JOIN2(isa) {}_##isa\n#define COIL_JOIN(isa) COIL_JOIN2(isa)\n", function);
    text.replace(at, end - at, macro + "extern \"C\" void COIL_JOIN(COIL_ISA)");
    return text;
  }

  const WatchedBuild& build_;
  const std::vector<std::string>& architectures_;
  const std::string isa_, full_name_;
  const PackageWords words_;
  const std::string folder_;
  std::map<BufferId, TensorData> contents_;
  std::set<BufferId> computed_;  // those of them that kernels wrote
  KernelPrograms programs_;
};

}  // namespace

Result<KernelPrograms> write_kernel_programs(const WatchedBuild& build, const std::vector<std::string>& architectures, std::span<const CoilTensorView> inputs,
                                             const PackageWords& words, const std::string& folder) {
  Writer writer(build, architectures, words, folder);
  TRY_STATUS(writer.headers());
  for (size_t i = 0; i < build.plan.inputs.size(); ++i) {
    if (build.plan.inputs[i].buffer.valid()) writer.input(build.plan.inputs[i].buffer, copy_of(inputs[i]));
  }
  OwnInputs own(inputs);
  Status written = ok_status();
  TRY_STATUS(run_watched(build, own.views, Order::threads, 1, [&](size_t k, const std::vector<int64_t>& symbols, std::vector<Written> w) {
    if (written.ok()) written = writer.after(k, symbols, w);
  }));
  TRY_STATUS(written);
  return writer.done();
}

}  // namespace coil
