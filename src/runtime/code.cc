// See code.h.
#include "runtime/code.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace coil::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#endif

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_RISCV:
      return "riscv";
    default:
      return "machine number " + std::to_string(machine);
  }
}

// What the loader takes on trust: that the headers lie inside the file.
Status check_elf(std::span<const uint8_t> bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return Error{ErrorCode::bad_package, "the package's code is empty or cut off"};
  memcpy(&header, bytes.data(), sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    return Error{ErrorCode::bad_package, "the package's code is not a shared object"};
  if (header.e_machine != kMachine)
    return Error{ErrorCode::wrong_machine,
                 "the package holds code for " + machine_name(header.e_machine) + "; this machine is " + machine_name(kMachine),
                 "", "compile the program for this machine with --target"};
  const uint64_t table = uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes.size() || table > bytes.size() - header.e_phoff)
    return Error{ErrorCode::bad_package, "the package's code is cut off"};
  for (uint16_t i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD && (segment.p_offset > bytes.size() || segment.p_filesz > bytes.size() - segment.p_offset))
      return Error{ErrorCode::bad_package, "the package's code is cut off"};
  }
  return ok_status();
}

Status write_all(int file, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Error{ErrorCode::load_failed, std::string("cannot hold the package's code in memory: ") + strerror(errno)};
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return ok_status();
}

// An executable anonymous file. Linux 6.3 wants to be told that it will be executed; earlier ones do not know the flag.
int anonymous_file(const std::string& name) {
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC
  const std::string label = name.substr(0, 200);
  const int file = memfd_create(label.c_str(), MFD_CLOEXEC | kExecutable);
  return file >= 0 || errno != EINVAL ? file : memfd_create(label.c_str(), MFD_CLOEXEC);
}

}  // namespace

Result<Code> Code::load(std::span<const uint8_t> shared_object, const std::string& name) {
  TRY_STATUS(check_elf(shared_object));
  Code code;
  code.file_ = anonymous_file(name);
  if (code.file_ < 0)
    return Error{ErrorCode::load_failed,
                 std::string("cannot make an anonymous file for the package's code: ") + strerror(errno), "",
                 "allow memfd_create (sysctl vm.memfd_noexec, seccomp) or raise the limit of open files"};
  TRY_STATUS(write_all(code.file_, shared_object));
  const std::string path = "/proc/self/fd/" + std::to_string(code.file_);
  code.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!code.handle_) {
    const char* reason = dlerror();
    return Error{ErrorCode::load_failed,
                 std::string("the system's loader refused the package's code: ") + (reason ? reason : "unknown")};
  }
  TRY_STATUS(code.choose());
  return code;
}

Status Code::choose() {
  const auto function = reinterpret_cast<CoilModelFn>(dlsym(handle_, COIL_MODEL_SYMBOL));
  if (!function)
    return Error{ErrorCode::bad_package, "the package's code does not export " COIL_MODEL_SYMBOL "; it was not made by coil",
                 "", "compile the exported program with coil"};
  const CoilModel* model = function();
  if (!model || model->abi_version != COIL_ABI_VERSION || model->struct_bytes < offsetof(CoilModel, count_graphs))
    return Error{ErrorCode::package_version,
                 "the package's code has boundary version " + std::to_string(model ? model->abi_version : 0) +
                     ", this runtime has version " + std::to_string(COIL_ABI_VERSION),
                 "", "compile the program again with this version of coil, or use its runtime"};
  const bool gpu = model->device_type == COIL_CUDA;
  if (model->device_type != COIL_CPU && !gpu)
    return Error{ErrorCode::bad_package, "the package's code is for an unknown kind of device"};
  if (gpu && (!model->load_device || !model->unload_device))
    return Error{ErrorCode::bad_package, "the package's code lacks a part of the boundary"};
  const bool complete = model->select && model->bind && model->output_shape && model->arena_bytes && model->run &&
                        model->num_inputs >= 0 && model->num_outputs >= 0 && model->num_symbols >= 0;
  if (!complete) return Error{ErrorCode::bad_package, "the package's code lacks a part of the boundary"};
  CoilError error;
  error.message[0] = 0;
  if (model->select(&isa_, &error) != 0) return Error{static_cast<ErrorCode>(error.code), error.message};
  memcpy(&model_, model, std::min<size_t>(model->struct_bytes, sizeof model_));
  return ok_status();
}

void* Code::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

Code::Code(Code&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      handle_(std::exchange(other.handle_, nullptr)),
      model_(other.model_),
      isa_(other.isa_) {}

Code::~Code() {
  if (handle_) dlclose(handle_);
  if (file_ >= 0) close(file_);
}

}  // namespace coil::runtime
