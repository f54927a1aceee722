// What lld gets and gives. It knows only paths, so the inputs are memory files under /proc/self/fd and the output is a
// pipe: nothing is written to a disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

#include "base/without_memory.h"
#include "toolchain/link.h"
#include "toolchain/llvm_lld.h"

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

// All that comes through `fd`, until it is `given_up` (and a byte comes). False: there was no memory for it; it is read nevertheless, since the writer waits.
bool drain(int fd, std::vector<uint8_t>& bytes, const std::atomic<bool>& given_up) noexcept {
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
    if (n <= 0 || given_up) break;
    if (complete) size += static_cast<size_t>(n);
  }
  if (complete) bytes.resize(size);  // smaller
  return complete;
}

std::span<const uint8_t> as_bytes(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

// What somebody writes to a path, taken in by a thread. (lld takes a regular file for one beside which it can make others.)
class Output {
 public:
  Output(int read_end, int write_end) : read_end_(read_end), write_end_(write_end) {}
  ~Output() { finish(); }
  void start() {
    reader_ = std::thread([this] { complete_ = drain(read_end_.get(), bytes_, given_up_); });
  }
  std::string path() const { return write_end_.path(); }
  void finish() {
    write_end_.close();
    if (reader_.joinable()) reader_.join();
  }
  // Nothing more comes, even if the writer was left with the pipe open.
  void give_up() {
    given_up_ = true;
    if (::write(write_end_.get(), "", 1) < 0) return;  // (the reader has ended)
  }
  // After it is finished. False: there was no memory for it.
  bool complete() const { return complete_; }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  Descriptor read_end_, write_end_;
  std::vector<uint8_t> bytes_;
  std::atomic<bool> given_up_ = false;
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
    return Error{ErrorCode::out_of_memory, fmt::format("cannot start a thread for the linker: {}", problem.what()), "",
                 "raise the limit of processes and threads (ulimit -u, pids.max)"};
  }
  return output;
}

// Runs lld with `args` and gives what it wrote; map (may be null): and its map of that.
Result<std::vector<uint8_t>> link_to_memory(std::vector<std::string> args, size_t input_bytes, std::string& messages, std::string* map = nullptr) {
  TRY(const std::unique_ptr<Output> result, make_output());
  std::unique_ptr<Output> map_output;
  if (map) {
    TRY(map_output, make_output());
    args.insert(args.begin(), "-Map=" + map_output->path());
  }
  args.insert(args.begin(), {"ld.lld", "-shared", "--threads=1", "-o", result->path()});
  bool ok = false;
  const Ending ending = run_lld(args, input_bytes, ok, messages);
  for (Output* output : {result.get(), map_output.get()}) {
    if (output && ending != Ending::finished) output->give_up();
    if (output) output->finish();
  }
  if (ending == Ending::no_memory) return no_memory();
  if (map) map->assign(map_output->bytes().begin(), map_output->bytes().end());
  if (!result->complete() || (map && !map_output->complete())) return no_memory();
  std::vector<uint8_t> output = std::move(result->bytes());
  if (!ok) output.clear();
  return output;
}

// A shared object that holds nothing but its name: linking with it makes the loader look for that library.
Result<Descriptor> stand_in(const HostMachine& machine, const std::string& soname) {
  TRY(const Descriptor archive, memory_file(as_bytes("!<arch>\n")));  // lld wants an input, if only an empty archive
  std::string messages;
  TRY(const std::vector<uint8_t> library, link_to_memory({"-m", std::string(machine.emulation), "-soname", soname, archive.path()}, 0, messages));
  CHECK(!library.empty(), messages);
  return memory_file(library);
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

static Result<std::vector<uint8_t>> link_objects(const LinkRequest& request, std::vector<std::string>* members) {
  TRY(const Descriptor script, memory_file(as_bytes(version_script(request.exports))));
  std::vector<std::string> args = {"--gc-sections",
                                   "--hash-style=gnu",
                                   "--build-id=none",
                                   "--no-rosegment",
                                   "-z",
                                   "noseparate-code",
                                   "-z",
                                   "relro",
                                   "-z",
                                   "now",
                                   "-z",
                                   fmt::format("max-page-size={}", request.machine->most_page_size),
                                   "--version-script",
                                   script.path()};
  if (request.strip) args.push_back("--strip-all");
  if (!request.soname.empty()) args.insert(args.end(), {"-soname", request.soname});
  std::vector<Descriptor> files;
  size_t input_bytes = 0;
  for (const LinkInput& input : request.inputs) {
    input_bytes += input.object.size();
    TRY(Descriptor file, memory_file(input.object));
    args.push_back(file.path());
    files.push_back(std::move(file));
  }
  for (const std::string& library : request.needed) {
    TRY(Descriptor file, stand_in(*request.machine, library));
    args.push_back(file.path());
    files.push_back(std::move(file));
  }

  std::string messages, map;
  TRY(std::vector<uint8_t> output, link_to_memory(args, input_bytes, messages, members ? &map : nullptr));
  if (output.empty()) {
    for (size_t i = request.inputs.size(); i-- > 0;) {
      const std::string path = files[i].path();
      for (size_t at; (at = messages.find(path)) != std::string::npos;) messages.replace(at, path.size(), request.inputs[i].name);
    }
    return link_error(std::move(messages));
  }
  if (members) *members = members_in(map);
  if (!request.imports.empty()) {
    std::vector<std::string> undefined;
    if (undefined_symbols(output, undefined) != Ending::finished) return no_memory();
    for (const std::string& name : undefined) {
      if (std::find(request.imports.begin(), request.imports.end(), name) == request.imports.end()) {
        return link_error(fmt::format("undefined symbol: {}", name));
      }
    }
  }
  return output;
}

Result<std::vector<uint8_t>> link_shared(const LinkRequest& request, std::vector<std::string>* members) {
  return or_no_memory([&] { return link_objects(request, members); });
}

}  // namespace coil::toolchain
