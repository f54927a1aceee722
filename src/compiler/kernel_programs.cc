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
#include "toolchain/embedded.h"

namespace coil {
namespace {

constexpr const char* kMain = R"cc(
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>

  static unsigned char* load(const char* name, size_t bytes) {
    unsigned char* memory = (unsigned char*)aligned_alloc(64, (bytes + 191) / 64 * 64);
    memset(memory, 0, (bytes + 191) / 64 * 64);
    if (!name) return memory;
    FILE* file = fopen(name, "rb");
    if (!file || fread(memory, 1, bytes, file) != bytes) {
      fprintf(stderr, "cannot read %s\n", name);
      exit(2);
    }
    fclose(file);
    return memory;
  }

  static double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
  }

  int main() {
    void* p[kBuffers + 1] = {};
    int flag = 0, different = 0;
    struct {
      void* const* p;
      const long* s;
      int* flag;
    } args = {p, kSizes, &flag};
    double best = 1e30;
    for (int run = 0; run < 20; ++run) {
      for (int i = 0; i < kBuffers; ++i) {
        free(p[i]);
        p[i] = load(kFiles[i].before, kFiles[i].bytes);
      }
      const double begin = now();
      KERNEL(&args, 0, kItems, 0);
      const double seconds = now() - begin;
      if (seconds < best) best = seconds;
    }
    printf("%s: %.3g us\n", kName, best * 1e6);
    if (flag) printf("  an index is out of range\n");
    for (int i = 0; i < kBuffers; ++i) {
      if (!kFiles[i].after) continue;
      const unsigned char *expected = load(kFiles[i].after, kFiles[i].bytes), *found = (const unsigned char*)p[i];
      if (memcmp(expected, found, kFiles[i].bytes) == 0) {
        printf("  p%d %s: same as in the program\n", i, kFiles[i].value);
        continue;
      }
      different = 1;
      double most = 0;
      size_t count = 0, first = 0;
      const size_t size = kFiles[i].element;
      for (size_t e = 0; e < kFiles[i].bytes / size; ++e) {
        if (memcmp(expected + e * size, found + e * size, size) == 0) continue;
        if (count++ == 0) first = e;
        if (kFiles[i].floats == 4) most = fmax(most, fabs(((const float*)found)[e] - ((const float*)expected)[e]));
        if (kFiles[i].floats == 8) most = fmax(most, fabs(((const double*)found)[e] - ((const double*)expected)[e]));
      }
      printf("  p%d %s: %zu elements differ, the first is number %zu", i, kFiles[i].value, count, first);
      printf(kFiles[i].floats ? ", by at most %.6g\n" : "\n", most);
    }
    return different;
  }
)cc";

constexpr const char* kMakefile = R"mk(# make run: builds the kernel and runs it on its inputs. make package: the model with this kernel.
CXX = $(shell for c in clang++-21 clang++-20 clang++-19 clang++-18 clang++; do command -v $$c && break; done)
ISA = {isa}
FLAGS = -std=c++20 -O2 -w -ffp-contract=on -fwrapv -fno-rtti -march={march}$(ISA) -DCOIL_ISA=$(ISA) -DCOIL_ISA_$(shell echo $(ISA) | tr a-z A-Z)=1 -I../../include

run: program
	./program

program: kernel.cc main.cc call.h
	$(CXX) $(FLAGS) kernel.cc main.cc -o program -lm

package:
	coil compile {model} --replace-kernel {function}=kernel.cc -o edited.coil.pt2

.PHONY: run package
)mk";

// In single quotes, for a shell in a Makefile.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : c == '$' ? "$$" : std::string(1, c);
  return out + "'";
}

class Writer {
 public:
  Writer(const WatchedBuild& build, const std::vector<std::string>& architectures, std::string model, std::string folder)
      : build_(build),
        isa_(level_here(architectures).name),
        full_name_(level_here(architectures).full_name),
        model_(std::move(model)),
        folder_(std::move(folder)) {}

  Status headers() {
    if (build_.cuda) return ok_status();
    for (const toolchain::EmbeddedFile& f : toolchain::embedded_files()) {
      if (!f.path.starts_with("device/") || !f.path.ends_with(".h") || f.path.starts_with("device/cuda/")) continue;
      TRY_STATUS(write(folder_ + "/include/" + std::string(f.path.substr(7)), f.text()));
    }
    return ok_status();
  }

  void input(BufferId id, TensorData data) { contents_[id] = std::move(data); }

  Status after(size_t k, const std::vector<int64_t>& symbols, const std::vector<Written>& written) {
    const Kernel& kernel = build_.plan.kernels[k];
    if (runs_alone(k)) TRY_STATUS(program(k, symbols, written));
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

  Status write(const std::string& path, std::string_view text) {
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

  Status program(size_t k, const std::vector<int64_t>& symbols, const std::vector<Written>& written) {
    const cpu::CpuLaunch& launch = build_.program.launches[k];
    const cpu::CpuFunction& function = build_.program.functions[static_cast<size_t>(launch.function)];
    const auto size_of = [&](Expr e) { return evaluate_index(e, [&](SymbolId s) { return symbols[static_cast<size_t>(s.index)]; }); };
    const std::string place = fmt::format("kernels/{:03}_{}", k, function.name), at = folder_ + "/" + place + "/";
    std::string files, sizes;
    for (size_t i = 0; i < launch.buffers.size(); ++i) {
      const BufferId id = launch.buffers[i];
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
    for (int64_t s : symbols) sizes += fmt::format("{}, ", s);
    const std::string call = fmt::format(
        "// The call of the kernel in the program.\nextern \"C\" void {0}_{1}(void* context, long begin, long end, int worker);\n#define KERNEL {2}\n"
        "static const char kName[] = \"{0}\";\nstatic const long kItems = {3};\nstatic const long kSizes[] = {{{4}0}};\nenum {{ kBuffers = {5} }};\n"
        "static const struct {{\n  const char *value, *before, *after;\n  unsigned long bytes, element;\n  int floats;\n}} kFiles[] = {{\n{6}    {{0}}}};\n",
        function.name, isa_, "COIL_JOIN(COIL_ISA)", size_of(launch.items), sizes, launch.buffers.size(), files);
    std::string text = "#include \"kernel_args.h\"\n";
    for (const std::string& h : function.headers) text += "#include \"" + h + "\"\n";
    TRY_STATUS(write(at + "kernel.cc", text + "\n" + function.text));
    TRY_STATUS(write(at + "call.h", joined(call, function.name)));
    const std::string head =
        "// Runs the kernel on what it was given in the program, and compares what it writes with what it wrote there.\n#include \"call.h\"\n";
    TRY_STATUS(write(at + "main.cc", head + kMain));
    const std::string march = full_name_.substr(0, full_name_.size() - std::min(full_name_.size(), isa_.size()));
    TRY_STATUS(write(at + "Makefile", fmt::format(fmt::runtime(kMakefile), fmt::arg("isa", isa_), fmt::arg("march", march), fmt::arg("model", quoted(model_)),
                                                  fmt::arg("function", function.name))));
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
  const std::string isa_, full_name_, model_, folder_;
  std::map<BufferId, TensorData> contents_;
  std::set<BufferId> computed_;  // those of them that kernels wrote
  KernelPrograms programs_;
};

}  // namespace

Result<KernelPrograms> write_kernel_programs(const WatchedBuild& build, const std::vector<std::string>& architectures, std::span<const CoilTensorView> inputs,
                                             const std::string& model, const std::string& folder) {
  Writer writer(build, architectures, model, folder);
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
