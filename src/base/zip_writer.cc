#include "base/zip_writer.h"

#include <algorithm>
#include <utility>

#include "base/crc32.h"
#include "base/zip_format.h"

namespace coil {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersion = 45;  // zip64; the same for every entry
constexpr uint16_t kUtf8Flag = 0x0800;
constexpr uint16_t kDate = 0x0021;  // 1980-01-01, the zero of zip: nothing of the clock gets in

uint32_t clamp32(uint64_t value) { return value >= zip::kMax32 ? zip::kMax32 : static_cast<uint32_t>(value); }

// Fields that local header and directory share, from the version needed to the name's length.
void append_common(std::vector<uint8_t>& out, uint32_t crc, uint64_t size, size_t name_bytes) {
  zip::append<uint16_t>(out, kVersion);
  zip::append<uint16_t>(out, kUtf8Flag);
  zip::append<uint16_t>(out, 0);  // stored
  zip::append<uint16_t>(out, 0);  // time
  zip::append<uint16_t>(out, kDate);
  zip::append<uint32_t>(out, crc);
  zip::append<uint32_t>(out, clamp32(size));
  zip::append<uint32_t>(out, clamp32(size));
  zip::append<uint16_t>(out, static_cast<uint16_t>(name_bytes));
}

void append_text(std::vector<uint8_t>& out, std::string_view text) { out.insert(out.end(), text.begin(), text.end()); }

}  // namespace

Result<ZipWriter> ZipWriter::create(const std::string& path) {
  TRY(AtomicFile file, AtomicFile::create(path));
  ZipWriter writer;
  writer.file_.emplace(std::move(file));
  return writer;
}

ZipWriter ZipWriter::in_memory() { return ZipWriter(); }

Status ZipWriter::put(std::span<const uint8_t> bytes) {
  if (file_.has_value()) {
    TRY_STATUS(file_->write(bytes));
  } else {
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
  }
  offset_ += bytes.size();
  return ok_status();
}

Status ZipWriter::put_at(uint64_t offset, std::span<const uint8_t> bytes) {
  if (file_.has_value()) return file_->write_at(offset, bytes);
  std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<ptrdiff_t>(offset));
  return ok_status();
}

Status ZipWriter::add(std::string_view name, std::span<const uint8_t> content) {
  TRY_STATUS(begin(name, content.size()));
  TRY_STATUS(append(content));
  return end();
}

Status ZipWriter::add(std::string_view name, std::string_view content) {
  return add(name, std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size()));
}

Status ZipWriter::begin(std::string_view name, uint64_t size) {
  CHECK(!open_, "the entry before is not ended");
  CHECK(!name.empty() && name.size() < zip::kMax16 && name.front() != '/', "an entry needs a relative name");
  const auto place = std::lower_bound(names_.begin(), names_.end(), name);
  CHECK(place == names_.end() || *place != name, "an entry's name occurs twice");
  names_.emplace(place, name);

  std::vector<uint8_t> extra;
  if (size >= zip::kMax32) {
    zip::append<uint16_t>(extra, zip::kZip64Extra);
    zip::append<uint16_t>(extra, 16);
    zip::append<uint64_t>(extra, size);
    zip::append<uint64_t>(extra, size);
  }
  const uint64_t unpadded = offset_ + zip::kLocalBytes + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  zip::append<uint16_t>(extra, zip::kPaddingExtra);
  zip::append<uint16_t>(extra, static_cast<uint16_t>(padding));
  extra.resize(extra.size() + padding, 'Z');

  std::vector<uint8_t> header;
  zip::append<uint32_t>(header, zip::kLocalSignature);
  append_common(header, 0, size, name.size());
  zip::append<uint16_t>(header, static_cast<uint16_t>(extra.size()));
  append_text(header, name);
  header.insert(header.end(), extra.begin(), extra.end());
  entries_.push_back({std::string(name), offset_, size, 0});
  open_ = true;
  left_ = size;
  if (!file_.has_value()) memory_.reserve(memory_.size() + header.size() + size);
  return put(header);
}

Status ZipWriter::append(std::span<const uint8_t> piece) {
  CHECK(open_ && piece.size() <= left_, "more data than the entry was begun with");
  left_ -= piece.size();
  entries_.back().crc = crc32_of(piece, entries_.back().crc);
  return put(piece);
}

Status ZipWriter::end() {
  CHECK(open_ && left_ == 0, "less data than the entry was begun with");
  open_ = false;
  std::vector<uint8_t> crc;
  zip::append<uint32_t>(crc, entries_.back().crc);
  return put_at(entries_.back().offset + 14, crc);
}

Status ZipWriter::write_directory() {
  CHECK(!open_, "the last entry is not ended");
  std::vector<uint8_t> out;
  const uint64_t begin = offset_;
  for (const Entry& entry : entries_) {
    std::vector<uint8_t> extra;
    if (entry.size >= zip::kMax32 || entry.offset >= zip::kMax32) {
      zip::append<uint16_t>(extra, zip::kZip64Extra);
      zip::append<uint16_t>(extra, static_cast<uint16_t>((entry.size >= zip::kMax32 ? 16 : 0) + (entry.offset >= zip::kMax32 ? 8 : 0)));
      for (int i = 0; entry.size >= zip::kMax32 && i < 2; ++i) zip::append<uint64_t>(extra, entry.size);
      if (entry.offset >= zip::kMax32) zip::append<uint64_t>(extra, entry.offset);
    }
    zip::append<uint32_t>(out, zip::kCentralSignature);
    zip::append<uint16_t>(out, kVersion);
    append_common(out, entry.crc, entry.size, entry.name.size());
    zip::append<uint16_t>(out, static_cast<uint16_t>(extra.size()));
    zip::append<uint16_t>(out, 0);  // comment
    zip::append<uint16_t>(out, 0);  // disk
    zip::append<uint16_t>(out, 0);  // internal attributes
    zip::append<uint32_t>(out, 0);  // external attributes
    zip::append<uint32_t>(out, clamp32(entry.offset));
    append_text(out, entry.name);
    out.insert(out.end(), extra.begin(), extra.end());
  }
  const uint64_t bytes = out.size(), count = entries_.size();
  if (count >= zip::kMax16 || begin >= zip::kMax32 || bytes >= zip::kMax32) {
    zip::append<uint32_t>(out, zip::kEnd64Signature);
    zip::append<uint64_t>(out, zip::kEnd64Bytes - 12);
    zip::append<uint16_t>(out, kVersion);
    zip::append<uint16_t>(out, kVersion);
    zip::append<uint64_t>(out, 0);  // both disk numbers
    for (const uint64_t value : {count, count, bytes, begin}) zip::append<uint64_t>(out, value);
    zip::append<uint32_t>(out, zip::kLocator64Signature);
    zip::append<uint32_t>(out, 0);
    zip::append<uint64_t>(out, begin + bytes);
    zip::append<uint32_t>(out, 1);
  }
  zip::append<uint32_t>(out, zip::kEndSignature);
  zip::append<uint32_t>(out, 0);  // both disk numbers
  const uint16_t count16 = static_cast<uint16_t>(std::min<uint64_t>(count, zip::kMax16));
  zip::append<uint16_t>(out, count16);
  zip::append<uint16_t>(out, count16);
  zip::append<uint32_t>(out, clamp32(bytes));
  zip::append<uint32_t>(out, clamp32(begin));
  zip::append<uint16_t>(out, 0);  // comment
  return put(out);
}

Status ZipWriter::finish() {
  CHECK(file_.has_value(), "the archive is in memory");
  TRY_STATUS(write_directory());
  return file_->commit();
}

std::vector<uint8_t> ZipWriter::finish_in_memory() {
  CHECK(!file_.has_value(), "the archive is a file");
  CHECK(write_directory().ok());
  return std::move(memory_);
}

}  // namespace coil
