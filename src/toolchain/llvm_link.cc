// The one place that talks to lld. lld knows only paths, so the inputs are memory files under /proc/self/fd and the output is a
// pipe: nothing is written to a disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <lld/Common/Driver.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "toolchain/link.h"

LLD_HAS_DRIVER(elf)

namespace coil::toolchain {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
};

Error system_error(const char* what) {
  return {ErrorCode::out_of_memory, fmt::format("cannot make {} for the linker: {}", what, std::strerror(errno)), "", ""};
}

Result<Descriptor> memory_file(std::span<const uint8_t> bytes) {
  Descriptor file(::memfd_create("coil", MFD_CLOEXEC));
  if (file.get() < 0) return system_error("a memory file");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error("a memory file");
    done += static_cast<size_t>(n);
  }
  return file;
}

std::string version_script(const std::vector<std::string>& exports) {
  std::string script = "{ ";
  if (!exports.empty()) {
    script += "global: ";
    for (const std::string& name : exports) script += name + "; ";
  }
  return script + "local: *; };\n";
}

// All that comes through `fd`. False: there was no memory for it; it is read nevertheless, since the writer waits.
bool drain(int fd, std::vector<uint8_t>& bytes) noexcept {
  size_t size = 0;
  bool complete = true;
  uint8_t dropped[4096];
  for (;;) {
    try {
      if (complete && bytes.size() - size < 65536) bytes.resize(std::max<size_t>(bytes.size() * 2, 131072));
    } catch (const std::bad_alloc&) {
      complete = false;
    }
    const ssize_t n = complete ? ::read(fd, bytes.data() + size, bytes.size() - size) : ::read(fd, dropped, sizeof dropped);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (complete) size += static_cast<size_t>(n);
  }
  if (complete) bytes.resize(size);  // smaller
  return complete;
}

bool run_lld(const std::vector<std::string>& args, std::string& messages) {
  static std::mutex mutex;  // lld's configuration and symbol table are globals
  const std::lock_guard lock(mutex);
  std::vector<const char*> pointers;
  for (const std::string& arg : args) pointers.push_back(arg.c_str());
  llvm::raw_string_ostream stream(messages);
  const lld::Result result = lld::lldMain(pointers, stream, stream, {{lld::Gnu, &lld::elf::link}});
  stream.flush();
  return result.retCode == 0;
}

std::span<const uint8_t> as_bytes(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

// What somebody writes to a path, taken in by a thread. (lld takes a regular file for one beside which it can make others.)
class Output {
 public:
  Output(int read_end, int write_end) : read_end_(read_end), write_end_(write_end) {}
  ~Output() { finish(); }
  void start() {
    reader_ = std::thread([this] { complete_ = drain(read_end_.get(), bytes_); });
  }
  std::string path() const { return write_end_.path(); }
  void finish() {
    write_end_.close();
    if (reader_.joinable()) reader_.join();
  }
  // After it is finished. False: there was no memory for it.
  bool complete() const { return complete_; }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  Descriptor read_end_, write_end_;
  std::vector<uint8_t> bytes_;
  bool complete_ = true;
  std::thread reader_;
};

Result<std::unique_ptr<Output>> make_output() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("a pipe");
  auto output = std::make_unique<Output>(ends[0], ends[1]);
  try {
    output->start();
  } catch (const std::system_error& problem) {
    return Error{ErrorCode::out_of_memory, fmt::format("cannot start a thread for the linker: {}", problem.what()), "", "raise the limit of processes and threads (ulimit -u, pids.max)"};
  }
  return output;
}

// Runs lld with `args` and gives what it wrote; map (may be null): and its map of that.
Result<std::vector<uint8_t>> link_to_memory(std::vector<std::string> args, std::string& messages, std::string* map = nullptr) {
  TRY(const std::unique_ptr<Output> result, make_output());
  std::unique_ptr<Output> map_output;
  if (map) {
    TRY(map_output, make_output());
    args.insert(args.begin(), "-Map=" + map_output->path());
  }
  args.insert(args.begin(), {"ld.lld", "-shared", "--threads=1", "-o", result->path()});
  const bool ok = run_lld(args, messages);
  result->finish();
  if (map) {
    map_output->finish();
    map->assign(map_output->bytes().begin(), map_output->bytes().end());
  }
  if (!result->complete() || (map && !map_output->complete())) return Error{ErrorCode::out_of_memory, "no memory for the linked code", "", ""};
  std::vector<uint8_t> output = std::move(result->bytes());
  if (!ok) output.clear();
  return output;
}

// A shared object that holds nothing but its name: linking with it makes the loader look for that library.
Result<Descriptor> stand_in(const std::string& soname) {
  TRY(const Descriptor archive, memory_file(as_bytes("!<arch>\n")));  // lld wants an input, if only an empty archive
  std::string messages;
  TRY(const std::vector<uint8_t> library, link_to_memory({"-m", "elf_x86_64", "-soname", soname, archive.path()}, messages));
  CHECK(!library.empty(), messages);
  return memory_file(library);
}

// The dynamic symbols that `library` leaves to others.
std::vector<std::string> undefined_symbols(std::span<const uint8_t> library) {
  const llvm::StringRef text(reinterpret_cast<const char*>(library.data()), library.size());
  auto object = llvm::object::ELFObjectFile<llvm::object::ELF64LE>::create(llvm::MemoryBufferRef(text, "linked"));
  std::vector<std::string> names;
  if (!object) {
    llvm::consumeError(object.takeError());
    return names;
  }
  for (const auto& symbol : object->getDynamicSymbolIterators()) {
    // lld wrote this table, so that an unreadable entry is a bug.
    const uint32_t flags = llvm::cantFail(symbol.getFlags());
    const llvm::StringRef name = llvm::cantFail(symbol.getName());
    if ((flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name.empty()) names.push_back(name.str());
  }
  return names;
}

// Of lld's map, lines like "    4a0     4a0       30    16         /proc/self/fd/9(library_fft.o):(.text.run)": address, address, size, alignment, section.
std::vector<std::string> members_in(const std::string& map) {
  std::set<std::string> names;
  for (size_t at = 0; at < map.size();) {
    const size_t end = std::min(map.find('\n', at), map.size());
    std::istringstream line(map.substr(at, end - at));
    at = end + 1;
    std::string address, load, size, alignment, section;
    if (!(line >> address >> load >> size >> alignment >> section) || size == "0") continue;
    const size_t open = section.find('('), close = section.find("):(");
    if (open < close && close != section.npos) names.insert(section.substr(open + 1, close - open - 1));
  }
  return {names.begin(), names.end()};
}

Error link_error(std::string messages) {
  return {ErrorCode::internal, fmt::format("generated code does not link:\n{}", messages), "",
          "this is a bug in coil: please report it with the model, or with the files of COIL_DUMP"};
}

}  // namespace

Result<std::vector<uint8_t>> link_shared(const LinkRequest& request, std::vector<std::string>* members) {
  TRY(const Descriptor script, memory_file(as_bytes(version_script(request.exports))));
  std::vector<std::string> args = {"--gc-sections", "--hash-style=gnu", "--build-id=none", "--no-rosegment", "-z", "noseparate-code",
                                   "-z", "relro", "-z", "now", "-z", "max-page-size=4096", "--version-script", script.path()};
  if (request.strip) args.push_back("--strip-all");
  if (!request.soname.empty()) args.insert(args.end(), {"-soname", request.soname});
  std::vector<Descriptor> files;
  for (const LinkInput& input : request.inputs) {
    TRY(Descriptor file, memory_file(input.object));
    args.push_back(file.path());
    files.push_back(std::move(file));
  }
  for (const std::string& library : request.needed) {
    TRY(Descriptor file, stand_in(library));
    args.push_back(file.path());
    files.push_back(std::move(file));
  }

  std::string messages, map;
  TRY(std::vector<uint8_t> output, link_to_memory(args, messages, members ? &map : nullptr));
  if (output.empty()) {
    for (size_t i = request.inputs.size(); i-- > 0;) {
      const std::string path = files[i].path();
      for (size_t at; (at = messages.find(path)) != std::string::npos;) messages.replace(at, path.size(), request.inputs[i].name);
    }
    return link_error(std::move(messages));
  }
  if (members) *members = members_in(map);
  if (!request.imports.empty()) {
    for (const std::string& name : undefined_symbols(output)) {
      if (std::find(request.imports.begin(), request.imports.end(), name) == request.imports.end()) {
        return link_error(fmt::format("undefined symbol: {}", name));
      }
    }
  }
  return output;
}

}  // namespace coil::toolchain
