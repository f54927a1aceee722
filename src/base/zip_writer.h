// Writes zip archives as packages need them: entries stored, data 64-byte aligned (an extra field pads), checksums in place, zero
// dates, zip64 where sizes ask for it. The same calls give the same bytes. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace coil {

class ZipWriter {
 public:
  // The file appears under `path` when finish() succeeds; see AtomicFile.
  static Result<ZipWriter> create(const std::string& path);
  // Keeps the archive in memory: finish_in_memory() hands it over.
  static ZipWriter in_memory();

  // Names are unique (CHECK), relative, '/'-separated. Errors: file_unwritable; then the file is gone.
  Status add(std::string_view name, std::span<const uint8_t> content);
  Status add(std::string_view name, std::string_view content);

  // An entry in pieces: begin with its exact size, append all of it, end.
  Status begin(std::string_view name, uint64_t size);
  Status append(std::span<const uint8_t> piece);
  Status end();

  Status finish();
  std::vector<uint8_t> finish_in_memory();

 private:
  struct Entry {
    std::string name;
    uint64_t offset;
    uint64_t size;
    uint32_t crc;
  };
  ZipWriter() = default;
  Status put(std::span<const uint8_t> bytes);
  Status put_at(uint64_t offset, std::span<const uint8_t> bytes);
  Status write_directory();

  std::optional<AtomicFile> file_;  // empty: in memory
  std::vector<uint8_t> memory_;
  std::vector<Entry> entries_;
  std::vector<std::string> names_;  // sorted
  uint64_t offset_ = 0;
  uint64_t left_ = 0;  // of the open entry
  bool open_ = false;
};

}  // namespace coil
