// Files: mapped for reading, replaced atomically for writing. Errors name the path and say what the system said.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace coil {

// A whole file mapped read-only and private; the pages are shared with other processes until the file changes. Movable.
// The bytes are valid while the object lives. (A file truncated by others while mapped makes access fault: as with any mmap.)
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// The whole file in memory. More than max_bytes is an archive_limit error.
Result<std::vector<uint8_t>> read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 32);
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// A file that appears under its name complete or not at all. It is written without a name where the file system can do that
// (nothing is left even after SIGKILL), else under a temporary name in the same folder, which is removed on destruction.
class AtomicFile {
 public:
  enum class Place {
    output,  // named by the user, written as a compiler writes its output: through links, and an existing file keeps its mode and its owner
             // and must be writable. (What else hangs on it, hard links and access lists, stays with the old file.)
    own,     // ours, of nobody else's concern: mode 0600, a link under this name is replaced
    shared,  // the same with the mode that the umask gives
  };
  static Result<AtomicFile> create(const std::string& path, Place place = Place::output);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  Status write(std::span<const uint8_t> bytes);                      // appends
  Status write_at(uint64_t offset, std::span<const uint8_t> bytes);  // overwrites what was written before
  uint64_t size() const { return size_; }
  // Flushes to disk and gives the file its name, replacing an existing one. The object is finished after that. flush: false for what
  // may as well be lost, or come back cut off, when the machine stops.
  Status commit(bool flush = true);

 private:
  AtomicFile() = default;
  Status find_output();
  void take_mode();
  void discard();
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_;
  struct Former {
    unsigned mode, owner, group;
  };
  std::optional<Former> former_;  // of the file that is replaced
  std::string temporary_;         // empty while the file has no name
};

Status write_file(const std::string& path, std::span<const uint8_t> bytes, bool flush = true);
Status write_file(const std::string& path, std::string_view text);

}  // namespace coil
