// The entries of an exported program's archive, without the root folder that torch puts around them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json_read.h"
#include "base/zip_reader.h"

namespace coil {

class ProgramArchive {
 public:
  explicit ProgramArchive(const ZipReader& zip);

  bool has(std::string_view entry) const { return find(entry) != nullptr; }
  // Entries (without the root) that start with `prefix`, in the archive's order.
  std::vector<std::string_view> list(std::string_view prefix) const;
  Result<std::string> text(std::string_view entry, uint64_t max_bytes) const;
  Result<JsonDoc> json(std::string_view entry) const;

  struct Bytes {
    std::shared_ptr<const void> owner;
    std::span<const uint8_t> bytes;
    uint64_t file_bytes = 0;  // of the file that all of it is from
  };
  // In place for stored entries, inflated otherwise. `check`: compare with the checksum.
  Result<Bytes> bytes(std::string_view entry, bool check) const;

  const std::string& file_name() const { return zip_->name(); }
  uint64_t file_bytes() const { return zip_->file_bytes(); }

 private:
  const ZipEntry* find(std::string_view entry) const;

  std::shared_ptr<const ZipReader> zip_;
  std::string root_;  // "model/", or empty
};

}  // namespace coil
