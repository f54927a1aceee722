// See code.h.
#include "runtime/code.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/env.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/host_machine.h"
#include "device/cuda/sample_rules.h"

namespace coil::runtime {
namespace {

std::string machine_name(uint16_t machine) {
  const HostMachine* known = machine_of_elf(machine);
  return known ? std::string(known->name) : "machine number " + std::to_string(machine);
}

// What the loader takes on trust: that the headers lie inside the file.
Status check_elf(std::span<const uint8_t> bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return Error{ErrorCode::bad_package, "the package's code is empty or cut off"};
  memcpy(&header, bytes.data(), sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    return Error{ErrorCode::bad_package, "the package's code is not a shared object"};
  if (header.e_machine != this_machine().elf_machine)
    return Error{ErrorCode::wrong_machine,
                 "the package holds code for " + machine_name(header.e_machine) + "; this machine is " + std::string(this_machine().name), "",
                 "compile the program for this machine with --target"};
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
    if (n <= 0) return Error{ErrorCode::out_of_memory, std::string("cannot hold the package's code in memory: ") + strerror(errno)};
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

struct File {
  int number;
  ~File() {
    if (number >= 0) close(number);
  }
};

// A path of the open file that no other loaded code has: the loader takes an object of a known path for that object, and numbers of
// descriptors come again. The number of the file's inode is written into it as slashes (0) and dots (1), which mean nothing there: a
// loaded object keeps its inode, so it is its own, whichever of several copies of this runtime in the process loads it.
Result<std::string> path_of(int file) {
  struct stat status;
  if (fstat(file, &status) != 0) return Error{ErrorCode::load_failed, std::string("cannot read the package's code's file: ") + strerror(errno)};
  std::string path = "/proc/self/fd";
  for (uint64_t n = status.st_ino; n; n >>= 1) path += n & 1 ? "/." : "/";
  return path + "/" + std::to_string(file);
}

// The code as a file for others to open. One that is loaded keeps its own: the loader knows files by their paths.
Result<std::string> kept_file(const std::string& folder, std::span<const uint8_t> bytes, const std::string& name) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, int>;
  std::string stem = name.substr(name.rfind(':') + 1).substr(0, 100);
  std::replace_if(stem.begin(), stem.end(), [](char c) { return !(isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'); }, '_');
  std::string path = folder + "/" + stem + "-" + hex(hash128(bytes)).substr(0, 12);
  const std::lock_guard lock(mutex);
  if (const int times = (*loaded)[path]++; times > 0) path += "." + std::to_string(times + 1);
  path += ".so";
  if (const Status written = write_file(path, bytes); !written.ok())
    return Error{ErrorCode::bad_option, "COIL_CODE: " + written.error().message, path, "name a folder that can be written to, or unset COIL_CODE"};
  return path;
}

}  // namespace

// What is loaded, by its bytes. Whoever holds the code keeps it; here are only ways to find it.
struct Code::Registry {
  using Key = std::pair<Hash128, size_t>;
  std::mutex mutex;
  std::map<Key, std::weak_ptr<const Loaded>> loaded;

  std::shared_ptr<const Loaded> find(const Key& key) {
    const std::lock_guard lock(mutex);
    const auto it = loaded.find(key);
    return it == loaded.end() ? nullptr : it->second.lock();
  }
  void add(const Key& key, const std::shared_ptr<const Loaded>& code) {
    const std::lock_guard lock(mutex);
    std::erase_if(loaded, [](const auto& entry) { return entry.second.expired(); });
    loaded[key] = code;
  }
};

Code::Registry& Code::registry() {
  static Registry* const made = new Registry;  // models may outlive the statics of this library
  return *made;
}

Result<Code> Code::load(std::span<const uint8_t> shared_object, const std::string& name) {
  const Registry::Key key = {hash128(shared_object), shared_object.size()};
  if (auto known = registry().find(key)) return Code(std::move(known));
  TRY_STATUS(check_elf(shared_object));
  const auto loaded = std::make_shared<Loaded>();
  TRY_STATUS(loaded->open(shared_object, name));
  TRY_STATUS(loaded->choose());
  // A tuner's build is told by a variable of its own which choices to take.
  if (!dlsym(loaded->handle, COIL_TUNING_SYMBOL)) registry().add(key, loaded);
  return Code(loaded);
}

Status Code::Loaded::open(std::span<const uint8_t> shared_object, const std::string& name) {
  if (const auto folder = env("COIL_CODE")) {
    TRY(const std::string path, kept_file(*folder, shared_object, name));
    return load_file(path);
  }
  const File file{anonymous_file(name)};
  if (file.number < 0)
    return Error{ErrorCode::load_failed, std::string("cannot make an anonymous file for the package's code: ") + strerror(errno), "",
                 "allow memfd_create (sysctl vm.memfd_noexec, seccomp) or raise the limit of open files"};
  TRY_STATUS(write_all(file.number, shared_object));
  TRY(const std::string path, path_of(file.number));
  return load_file(path);
}

Status Code::Loaded::load_file(const std::string& path) {
  errno = 0;
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle) return ok_status();
  const char* reason = dlerror();
  const bool memory = errno == ENOMEM || !reason;  // the loader's own words for it are many
  return Error{memory ? ErrorCode::out_of_memory : ErrorCode::load_failed,
               std::string("the system's loader refused the package's code: ") + (reason ? reason : "unknown")};
}

Status Code::Loaded::choose() {
  const auto function = reinterpret_cast<CoilModelFn>(dlsym(handle, COIL_MODEL_SYMBOL));
  if (!function)
    return Error{ErrorCode::bad_package, "the package's code does not export " COIL_MODEL_SYMBOL "; it was not made by coil", "",
                 "compile the exported program with coil"};
  const CoilModel* table = function();
  if (!table || table->abi_version != COIL_ABI_VERSION || table->struct_bytes < offsetof(CoilModel, count_graphs))
    return Error{ErrorCode::package_version,
                 "the package's code has boundary version " + std::to_string(table ? table->abi_version : 0) + ", this runtime has version " +
                     std::to_string(COIL_ABI_VERSION),
                 "", "compile the program again with this version of coil, or use its runtime"};
  const bool gpu = table->device_type == COIL_CUDA;
  if (table->device_type != COIL_CPU && !gpu) return Error{ErrorCode::bad_package, "the package's code is for an unknown kind of device"};
  if (gpu && (!table->load_device || !table->unload_device)) return Error{ErrorCode::bad_package, "the package's code lacks a part of the boundary"};
  const bool complete = table->select && table->bind && table->output_shape && table->arena_bytes && table->run && table->num_inputs >= 0 &&
                        table->num_outputs >= 0 && table->num_symbols >= 0;
  if (!complete) return Error{ErrorCode::bad_package, "the package's code lacks a part of the boundary"};
  CoilError error;
  error.message[0] = 0;
  if (table->select(&isa, &error) != 0) return Error{static_cast<ErrorCode>(error.code), error.message};
  memcpy(&model, table, std::min<size_t>(table->struct_bytes, sizeof model));
  if (model.sample_row_bytes != sizeof(CudaSample)) model.sample = nullptr;  // of another version
  return ok_status();
}

void* Code::symbol(const char* name) const { return dlsym(loaded_->handle, name); }

uint64_t Code::address() const {
  link_map* map = nullptr;
  return dlinfo(loaded_->handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_addr : 0;
}

Code::Loaded::~Loaded() {
  if (handle) dlclose(handle);
}

}  // namespace coil::runtime
