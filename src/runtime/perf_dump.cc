// See perf_dump.h.
#include "runtime/perf_dump.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/env.h"
#include "base/host_machine.h"
#include "base/json_read.h"
#include "runtime/kernel_table.h"
#include "runtime/model.h"

namespace coil::runtime {
namespace {

constexpr uint64_t kMostMapBytes = uint64_t{1} << 28;
constexpr size_t kLongestName = 400;
// perf puts the code behind the header of an ELF file that it makes, and takes the addresses of lines for places in that file.
constexpr uint64_t kBeforeCode = sizeof(Elf64_Ehdr);

struct Line {
  uint64_t address;
  int64_t file, line;
};
struct DumpedFunction {
  std::string name;
  uint64_t address, size;  // in the library
  std::vector<Line> lines;
};
struct Functions {
  std::vector<std::string> files;
  std::vector<DumpedFunction> functions;
};

// The bytes of one record, or of the file's head.
class Bytes {
 public:
  template <class T>
  Bytes& add(T value) {
    const auto* at = reinterpret_cast<const char*>(&value);
    data_.append(at, sizeof value);
    return *this;
  }
  Bytes& text(const std::string& value) { return data_.append(value).push_back('\0'), *this; }
  Bytes& raw(const void* bytes, size_t size) { return data_.append(static_cast<const char*>(bytes), size), *this; }
  const std::string& data() const { return data_; }

 private:
  std::string data_;
};

uint64_t now() {
  timespec t = {};
  clock_gettime(CLOCK_MONOTONIC, &t);  // perf record -k mono
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// Both files of this process.
struct Files {
  std::mutex mutex;
  pid_t process = 0;
  int dump = -1, map = -1;
  uint64_t index = 0;
};
// Never destroyed: models may be opened while the process ends.
Files& files() {
  static Files* f = new Files;
  return *f;
}

Status put(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{ErrorCode::file_unwritable, std::string("COIL_PERF: ") + std::strerror(errno), "", "make room, or unset COIL_PERF"};
    done += static_cast<size_t>(n);
  }
  return ok_status();
}

Result<int> open_file(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file >= 0) return file;
  return Error{ErrorCode::bad_option, "COIL_PERF: cannot write " + path + ": " + std::strerror(errno), "",
               "name a folder that can be written to, or unset COIL_PERF"};
}

// A process that was forked has files of its own.
Status open_files(const std::string& folder) {
  Files& f = files();
  if (f.process == getpid()) return ok_status();
  const std::string pid = std::to_string(getpid());
  TRY(const int dump, open_file(folder + "/jit-" + pid + ".dump"));
  auto map = open_file(folder + "/perf-" + pid + ".map");
  if (!map.ok()) {
    close(dump);
    return std::move(map).error();
  }
  f.dump = dump, f.map = map.value(), f.process = getpid(), f.index = 0;
  Bytes head;
  head.add(uint32_t{0x4A695444}).add(uint32_t{1}).add(uint32_t{40}).add(uint32_t{this_machine().elf_machine}).add(uint32_t{0});
  head.add(static_cast<uint32_t>(getpid())).add(now()).add(uint64_t{0});
  TRY_STATUS(put(f.dump, head.data()));
  // perf finds the file by this mapping of it, which it records; it stays for the life of the process.
  (void)mmap(nullptr, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE, f.dump, 0);
  return ok_status();
}

// What of the library is code: as its headers say, which Code::load has checked.
std::vector<std::pair<uint64_t, uint64_t>> code_ranges(std::span<const uint8_t> library) {
  std::vector<std::pair<uint64_t, uint64_t>> out;
  Elf64_Ehdr header;
  memcpy(&header, library.data(), sizeof header);
  for (uint16_t i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, library.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X)) out.emplace_back(segment.p_vaddr, segment.p_filesz);
  }
  return out;
}

std::optional<int64_t> number_at(const JsonArray& list, size_t i) {
  if (i >= list.size()) return std::nullopt;
  auto number = list.at(i).as_int();
  return number.ok() && number.value() >= 0 ? std::optional(number.value()) : std::nullopt;
}

// ["softmax_v4", address, bytes, [[address, file, line], ...]]; what is not of this form is left out.
std::optional<DumpedFunction> function_of(JsonValue row) {
  auto parts = row.as_array();
  if (!parts.ok() || parts.value().size() < 4) return std::nullopt;
  auto name = parts.value().at(0).as_string();
  const auto address = number_at(parts.value(), 1), size = number_at(parts.value(), 2);
  auto lines = parts.value().at(3).as_array();
  if (!name.ok() || !address || !size || !lines.ok()) return std::nullopt;
  DumpedFunction f = {std::string(name.value()), static_cast<uint64_t>(*address), static_cast<uint64_t>(*size), {}};
  for (JsonValue value : lines.value()) {
    auto line = value.as_array();
    if (!line.ok()) continue;
    const auto at = number_at(line.value(), 0), file = number_at(line.value(), 1), number = number_at(line.value(), 2);
    if (at && file && number) f.lines.push_back({static_cast<uint64_t>(*at), *file, *number});
  }
  return f;
}

Functions read_functions(const Model& model) {
  Functions out;
  const ZipReader& zip = model.archive();
  const ZipEntry* entry = zip.find(model.package().name + "/data/coil/debug/" + model.target().model + ".json");
  if (!entry) return out;
  auto text = zip.read_text(*entry, kMostMapBytes);
  if (!text.ok()) return out;
  auto doc = JsonDoc::parse(text.value(), "debug.json");
  if (!doc.ok()) return out;
  auto names = doc.value().root().get_array("files");
  auto rows = doc.value().root().get_array("functions");
  if (!names.ok() || !rows.ok()) return out;
  for (JsonValue name : names.value()) {
    auto word = name.as_string();
    out.files.emplace_back(word.ok() ? word.value() : "");
  }
  const auto ranges = code_ranges(model.code_bytes());
  for (JsonValue row : rows.value()) {
    auto f = function_of(row);
    const auto holds = [&](const auto& range) {
      return f->address >= range.first && f->size <= range.second && f->address - range.first <= range.second - f->size;
    };
    if (f && std::any_of(ranges.begin(), ranges.end(), holds)) out.functions.push_back(std::move(*f));
  }
  return out;
}

// "[encoder.layer.0.attn, model.py:12 in forward; and 5 more]": of the kernels that are this function.
std::map<std::string, std::string> origins(const KernelTable& table) {
  std::map<std::string, std::pair<std::string, int>> found;
  for (const KernelRow& row : table.kernels) {
    if (row.function.empty()) continue;
    auto& [text, count] = found[row.function];
    if (count++ == 0) text = row.module + (row.module.empty() || row.source.empty() ? "" : ", ") + row.source;
  }
  std::map<std::string, std::string> out;
  for (const auto& [function, origin] : found) {
    const auto& [text, count] = origin;
    const std::string more = count > 1 ? (text.empty() ? "" : "; and ") + std::to_string(count - 1) + " more" : "";
    if (!text.empty() || !more.empty()) out[function] = " [" + text + more + "]";
  }
  return out;
}

// As a profiler shows it, in one line.
std::string name_of(const DumpedFunction& f, const std::map<std::string, std::string>& origins) {
  const size_t level = f.name.rfind('_');  // softmax_b784c542_v4
  const auto origin = origins.find(f.name.substr(0, level));
  std::string name = (f.name + (origin == origins.end() ? "" : origin->second)).substr(0, kLongestName);
  std::replace_if(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  return name;
}

std::string line_record(const DumpedFunction& f, const Functions& all, uint64_t base) {
  Bytes entries;
  uint64_t count = 0;
  for (const Line& line : f.lines) {
    if (static_cast<size_t>(line.file) >= all.files.size() || line.address < f.address || line.address - f.address >= f.size) continue;
    entries.add(base + line.address + kBeforeCode)
        .add(static_cast<int32_t>(std::min<int64_t>(line.line, INT32_MAX)))
        .add(int32_t{0})
        .text(all.files[static_cast<size_t>(line.file)]);
    count++;
  }
  if (count == 0) return "";
  const size_t size = 16 + 16 + entries.data().size(), padding = (8 - size % 8) % 8;
  Bytes record;
  record.add(uint32_t{2})
      .add(static_cast<uint32_t>(size + padding))
      .add(now())
      .add(base + f.address)
      .add(count)
      .raw(entries.data().data(), entries.data().size());
  return record.data() + std::string(padding, '\0');
}

std::string code_record(const DumpedFunction& f, const std::string& name, uint64_t base, uint64_t index) {
  Bytes record;
  const auto address = base + f.address;
  record.add(uint32_t{0}).add(static_cast<uint32_t>(16 + 40 + name.size() + 1 + f.size)).add(now());
  record.add(static_cast<uint32_t>(getpid())).add(static_cast<uint32_t>(syscall(SYS_gettid))).add(address).add(address).add(f.size).add(index).text(name);
  return record.raw(reinterpret_cast<const void*>(address), f.size).data();  // as it was loaded
}

std::string hexadecimal(uint64_t value) {
  char text[17];
  snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Status tell_perf(const Model& model) {
  const auto folder = env("COIL_PERF");
  if (!folder || model.cuda()) return ok_status();
  const uint64_t base = model.code_address();
  if (base == 0) return ok_status();
  Functions all = read_functions(model);
  if (all.functions.empty()) {  // nothing is known of the parts
    for (const auto& [address, size] : code_ranges(model.code_bytes()))
      all.functions.push_back({"coil:" + model.name() + " (compile it with --debug-info to see its kernels)", address, size, {}});
  }
  const auto from = origins(*model.kernel_table());
  Files& f = files();
  const std::lock_guard lock(f.mutex);
  TRY_STATUS(open_files(*folder));
  std::string dump, map;
  for (const DumpedFunction& function : all.functions) {
    const std::string name = name_of(function, from);
    dump += line_record(function, all, base) + code_record(function, name, base, f.index++);
    map += hexadecimal(base + function.address) + " " + hexadecimal(function.size) + " " + name + "\n";
  }
  TRY_STATUS(put(f.dump, dump));
  return put(f.map, map);
}

}  // namespace coil::runtime
