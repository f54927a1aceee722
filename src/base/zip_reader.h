// Reads zip archives from anyone: every offset, size, name and count is checked when the archive is opened, so that later
// accesses are within bounds. Supported: stored and deflated entries, zip64, data descriptors, extra fields. Refused: encryption,
// other methods, several disks, data before the archive, absolute or climbing paths, duplicate names, overlapping entries.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace coil {

struct ZipEntry {
  std::string name;          // relative, '/'-separated, without "." and ".." parts
  uint64_t size = 0;         // of the content
  uint64_t packed_size = 0;  // in the file
  uint64_t data_offset = 0;  // of the (packed) content in the file
  uint64_t header_offset = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

// What a file may make its reader hold is bounded by the file's own size: a thousandth of the bytes can be deflated zeros.
struct ZipLimits {
  uint64_t max_entries = 1'000'000;
  uint64_t max_name_bytes = 4096;
  uint64_t file_bytes = 0;  // of the file that the archive is from, where it is an entry of another one; 0: the archive is the file

  // Of all deflated entries together; and of one that is read as text, which takes up to 25 times its size once it is parsed.
  static constexpr uint64_t max_inflated_bytes(uint64_t file) { return (uint64_t{96} << 20) + 24 * file; }
  static constexpr uint64_t max_inflated_text(uint64_t file) { return (uint64_t{4} << 20) + file; }
};

// Immutable after opening; all const members may be called by several threads. Cheap to move; copies share the mapping.
class ZipReader {
 public:
  // Maps the file.
  static Result<ZipReader> open(const std::string& path, const ZipLimits& limits = {});
  // Borrows `bytes`, which must outlive the reader. `name` is for messages.
  static Result<ZipReader> from_bytes(std::span<const uint8_t> bytes, std::string name, const ZipLimits& limits = {});

  // In the order of the central directory; folders (names ending in '/') are left out.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;         // null when there is none
  Result<const ZipEntry*> get(std::string_view name) const;  // bad_archive when there is none

  // The content in place, without a copy or a checksum. Only for stored entries; unsupported_archive otherwise.
  Result<std::span<const uint8_t>> data_span(const ZipEntry& entry) const;
  // The content, inflated and checked against its CRC. archive_limit when it is larger than max_bytes.
  Result<std::vector<uint8_t>> read(const ZipEntry& entry, uint64_t max_bytes) const;
  // The same of what will be parsed; deflated text is bounded more closely.
  Result<std::string> read_text(const ZipEntry& entry, uint64_t max_bytes) const;
  // Checks the CRC of a stored entry in place, of a deflated one by inflating it.
  Status verify(const ZipEntry& entry) const;

  std::span<const uint8_t> bytes() const { return bytes_; }
  uint64_t file_bytes() const { return file_bytes_; }  // see ZipLimits
  const std::string& name() const { return name_; }    // the path, or the name given

 private:
  friend class ZipParser;
  ZipReader() = default;
  template <class Content>
  Result<Content> read_as(const ZipEntry& entry, uint64_t max_bytes) const;
  uint64_t file_bytes_ = 0;
  std::shared_ptr<const MappedFile> file_;  // null when the bytes are borrowed
  std::span<const uint8_t> bytes_;
  std::string name_;
  std::vector<ZipEntry> entries_;
  std::vector<uint32_t> by_name_;  // indices of entries_, sorted by name
};

}  // namespace coil
