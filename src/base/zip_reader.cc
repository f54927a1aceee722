#include "base/zip_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "base/crc32.h"
#include "base/zip_format.h"

namespace coil {

// Fills a ZipReader from its bytes, or says what is wrong with them.
class ZipParser {
 public:
  ZipParser(ZipReader* reader, const ZipLimits& limits) : reader_(reader), bytes_(reader->bytes_), limits_(limits) {}

  Status run() {
    TRY_STATUS(find_directory());
    TRY_STATUS(read_directory());
    for (ZipEntry& entry : reader_->entries_) TRY_STATUS(read_local_header(entry));
    TRY_STATUS(check_overlaps());
    return index_names();
  }

 private:
  Error bad(std::string message) const { return {ErrorCode::bad_archive, std::move(message), reader_->name_, ""}; }
  Error limit(std::string message) const { return {ErrorCode::archive_limit, std::move(message), reader_->name_, ""}; }
  Error unsupported(std::string message) const { return {ErrorCode::unsupported_archive, std::move(message), reader_->name_, ""}; }
  const uint8_t* at(uint64_t offset) const { return bytes_.data() + offset; }
  bool fits(uint64_t offset, uint64_t size, uint64_t end) const { return offset <= end && size <= end - offset; }

  Status find_directory() {
    if (bytes_.size() < zip::kEndBytes) return bad("not a zip archive: the file is shorter than an empty archive");
    const uint64_t last = bytes_.size() - zip::kEndBytes;
    const uint64_t first = last > zip::kMax16 ? last - zip::kMax16 : 0;
    uint64_t end = last + 1;
    // The end record is last but for a comment, whose length it gives.
    for (uint64_t i = last + 1; i-- > first;) {
      if (zip::load<uint32_t>(at(i)) == zip::kEndSignature && i + zip::kEndBytes + zip::load<uint16_t>(at(i) + 20) == bytes_.size()) {
        end = i;
        break;
      }
    }
    if (end > last) return bad("not a zip archive, or truncated: it has no end-of-directory record");
    const uint8_t* p = at(end);
    if (zip::load<uint16_t>(p + 4) != 0 || zip::load<uint16_t>(p + 6) != 0) return unsupported("the archive spans several disks");
    count_ = zip::load<uint16_t>(p + 10);
    directory_bytes_ = zip::load<uint32_t>(p + 12);
    directory_ = zip::load<uint32_t>(p + 16);
    directory_end_ = end;
    if (end >= zip::kLocator64Bytes && zip::load<uint32_t>(at(end - zip::kLocator64Bytes)) == zip::kLocator64Signature) {
      TRY_STATUS(read_end64(end - zip::kLocator64Bytes));
    }
    if (count_ > limits_.max_entries) return limit(fmt::format("{} entries, the limit is {}", count_, limits_.max_entries));
    if (!fits(directory_, directory_bytes_, directory_end_) || count_ > directory_bytes_ / zip::kCentralBytes) {
      return bad("the archive's directory lies outside of the file");
    }
    return ok_status();
  }

  Status read_end64(uint64_t locator) {
    const uint64_t end64 = zip::load<uint64_t>(at(locator) + 8);
    if (!fits(end64, zip::kEnd64Bytes, locator) || zip::load<uint32_t>(at(end64)) != zip::kEnd64Signature) {
      return bad("the zip64 end record lies outside of the file");
    }
    const uint8_t* p = at(end64);
    if (zip::load<uint32_t>(p + 16) != 0 || zip::load<uint32_t>(p + 20) != 0) return unsupported("the archive spans several disks");
    count_ = zip::load<uint64_t>(p + 32);
    directory_bytes_ = zip::load<uint64_t>(p + 40);
    directory_ = zip::load<uint64_t>(p + 48);
    directory_end_ = end64;
    return ok_status();
  }

  Status read_directory() {
    uint64_t offset = directory_;
    const uint64_t end = directory_ + directory_bytes_;
    reader_->entries_.reserve(count_);
    for (uint64_t i = 0; i < count_; ++i) {
      if (!fits(offset, zip::kCentralBytes, end) || zip::load<uint32_t>(at(offset)) != zip::kCentralSignature) {
        return bad(fmt::format("entry {} of the archive's directory is damaged", i));
      }
      const uint8_t* p = at(offset);
      const uint64_t name_bytes = zip::load<uint16_t>(p + 28), extra_bytes = zip::load<uint16_t>(p + 30);
      const uint64_t comment_bytes = zip::load<uint16_t>(p + 32);
      if (!fits(offset, zip::kCentralBytes + name_bytes + extra_bytes + comment_bytes, end)) {
        return bad(fmt::format("entry {} of the archive's directory is damaged", i));
      }
      TRY_STATUS(read_central(p, name_bytes, extra_bytes));
      offset += zip::kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    }
    return ok_status();
  }

  Status read_central(const uint8_t* p, uint64_t name_bytes, uint64_t extra_bytes) {
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(p) + zip::kCentralBytes, name_bytes);
    TRY_STATUS(check_name(entry.name));
    const uint16_t flags = zip::load<uint16_t>(p + 8), method = zip::load<uint16_t>(p + 10);
    if ((flags & 0x2041) != 0) return unsupported(fmt::format("entry '{}' is encrypted", entry.name));
    if (method != 0 && method != 8) {
      return unsupported(fmt::format("entry '{}' uses compression method {}; only stored and deflated are supported", entry.name, method));
    }
    entry.deflated = method == 8;
    entry.crc = zip::load<uint32_t>(p + 16);
    entry.packed_size = zip::load<uint32_t>(p + 20);
    entry.size = zip::load<uint32_t>(p + 24);
    entry.header_offset = zip::load<uint32_t>(p + 42);
    TRY_STATUS(read_zip64_extra(entry, p + zip::kCentralBytes + name_bytes, extra_bytes));
    if (!entry.deflated && entry.size != entry.packed_size) {
      return bad(fmt::format("stored entry '{}' has two sizes: {} and {}", entry.name, entry.size, entry.packed_size));
    }
    if (entry.packed_size > bytes_.size()) return bad(fmt::format("entry '{}' is larger than the file", entry.name));
    if (entry.deflated) {
      // Deflate cannot do better than 1032:1, so more is a lie made to have memory reserved.
      if (entry.size / 1032 > entry.packed_size + 1) {
        return limit(fmt::format("entry '{}' claims an impossible compression: {} bytes from {}", entry.name, entry.size, entry.packed_size));
      }
      inflated_ += entry.size;
      if (const uint64_t most = ZipLimits::max_inflated_bytes(reader_->file_bytes_); inflated_ > most) {
        return Error{ErrorCode::archive_limit,
                     fmt::format("the deflated entries hold more than {} bytes, which is the limit for a file of {}", most, reader_->file_bytes_),
                     reader_->name_, "write the archive without compression (numpy.savez, not savez_compressed; zip -0)"};
      }
    }
    if (entry.name.back() == '/') {
      if (entry.size != 0) return bad(fmt::format("folder entry '{}' has data", entry.name));
      return ok_status();
    }
    reader_->entries_.push_back(std::move(entry));
    return ok_status();
  }

  Status check_name(const std::string& name) const {
    if (name.empty()) return bad("an entry has no name");
    if (name.size() > limits_.max_name_bytes) return limit(fmt::format("an entry's name has {} bytes", name.size()));
    for (const char c : name) {
      if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7f) {
        return limit("an entry's name holds a control character or a backslash");
      }
    }
    size_t begin = 0;
    while (begin <= name.size()) {
      size_t end = name.find('/', begin);
      if (end == std::string::npos) end = name.size();
      const std::string_view part = std::string_view(name).substr(begin, end - begin);
      const bool trailing = begin == name.size() && begin > 0;  // "folder/"
      if ((part.empty() && !trailing) || part == "." || part == "..") {
        return limit(fmt::format("entry '{}' has an absolute or climbing path", name));
      }
      begin = end + 1;
    }
    return ok_status();
  }

  Status read_zip64_extra(ZipEntry& entry, const uint8_t* extra, uint64_t bytes) const {
    uint64_t* const wanted[] = {&entry.size, &entry.packed_size, &entry.header_offset};
    bool missing = std::any_of(std::begin(wanted), std::end(wanted), [](const uint64_t* v) { return *v == zip::kMax32; });
    for (uint64_t i = 0; missing && i + 4 <= bytes;) {
      const uint16_t id = zip::load<uint16_t>(extra + i);
      const uint64_t length = zip::load<uint16_t>(extra + i + 2);
      if (length > bytes - i - 4) break;
      if (id == zip::kZip64Extra) {
        uint64_t at = i + 4;
        missing = false;
        for (uint64_t* value : wanted) {
          if (*value != zip::kMax32) continue;
          if (at + 8 > i + 4 + length) return bad(fmt::format("entry '{}' has a damaged zip64 field", entry.name));
          *value = zip::load<uint64_t>(extra + at);
          at += 8;
        }
      }
      i += 4 + length;
    }
    // 0xffffffff without the field is a real value only for a file of that size, which we map as well.
    return ok_status();
  }

  Status read_local_header(ZipEntry& entry) const {
    const uint64_t offset = entry.header_offset;
    if (!fits(offset, zip::kLocalBytes, directory_) || zip::load<uint32_t>(at(offset)) != zip::kLocalSignature) {
      return bad(fmt::format("entry '{}' points outside of the file or not at an entry", entry.name));
    }
    const uint8_t* p = at(offset);
    const uint64_t name_bytes = zip::load<uint16_t>(p + 26), extra_bytes = zip::load<uint16_t>(p + 28);
    if (!fits(offset, zip::kLocalBytes + name_bytes + extra_bytes, directory_)) {
      return bad(fmt::format("entry '{}' points outside of the file", entry.name));
    }
    const std::string_view name(reinterpret_cast<const char*>(p) + zip::kLocalBytes, name_bytes);
    if (name != entry.name || zip::load<uint16_t>(p + 8) != (entry.deflated ? 8 : 0)) {
      return bad(fmt::format("entry '{}': the directory and the entry contradict each other", entry.name));
    }
    entry.data_offset = offset + zip::kLocalBytes + name_bytes + extra_bytes;
    if (!fits(entry.data_offset, entry.packed_size, directory_)) {
      return bad(fmt::format("the data of entry '{}' reaches beyond the file", entry.name));
    }
    return ok_status();
  }

  Status check_overlaps() const {
    std::vector<const ZipEntry*> order;
    for (const ZipEntry& entry : reader_->entries_) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const ZipEntry* a, const ZipEntry* b) { return a->header_offset < b->header_offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i]->header_offset < order[i - 1]->data_offset + order[i - 1]->packed_size) {
        return limit(fmt::format("entries '{}' and '{}' overlap", order[i - 1]->name, order[i]->name));
      }
    }
    return ok_status();
  }

  Status index_names() {
    const std::vector<ZipEntry>& entries = reader_->entries_;
    std::vector<uint32_t>& index = reader_->by_name_;
    index.resize(entries.size());
    std::iota(index.begin(), index.end(), 0u);
    std::sort(index.begin(), index.end(), [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
    for (size_t i = 1; i < index.size(); ++i) {
      if (entries[index[i]].name == entries[index[i - 1]].name) {
        return limit(fmt::format("entry '{}' occurs twice", entries[index[i]].name));
      }
    }
    return ok_status();
  }

  ZipReader* reader_;
  std::span<const uint8_t> bytes_;
  const ZipLimits& limits_;
  uint64_t count_ = 0, directory_ = 0, directory_bytes_ = 0, directory_end_ = 0, inflated_ = 0;
};

Result<ZipReader> ZipReader::open(const std::string& path, const ZipLimits& limits) {
  TRY(MappedFile file, MappedFile::open(path));
  ZipReader reader;
  reader.file_ = std::make_shared<const MappedFile>(std::move(file));
  reader.bytes_ = reader.file_->bytes();
  reader.file_bytes_ = reader.bytes_.size();
  reader.name_ = path;
  TRY_STATUS(ZipParser(&reader, limits).run());
  return reader;
}

Result<ZipReader> ZipReader::from_bytes(std::span<const uint8_t> bytes, std::string name, const ZipLimits& limits) {
  ZipReader reader;
  reader.bytes_ = bytes;
  reader.file_bytes_ = limits.file_bytes > 0 ? limits.file_bytes : bytes.size();
  reader.name_ = std::move(name);
  TRY_STATUS(ZipParser(&reader, limits).run());
  return reader;
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](uint32_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  return it != by_name_.end() && entries_[*it].name == name ? &entries_[*it] : nullptr;
}

Result<const ZipEntry*> ZipReader::get(std::string_view name) const {
  const ZipEntry* entry = find(name);
  if (entry == nullptr) return Error{ErrorCode::bad_archive, fmt::format("the archive has no entry '{}'", name), name_, ""};
  return entry;
}

Result<std::span<const uint8_t>> ZipReader::data_span(const ZipEntry& entry) const {
  if (entry.deflated) {
    return Error{ErrorCode::unsupported_archive, fmt::format("entry '{}' is compressed and cannot be used in place", entry.name), name_, ""};
  }
  return bytes_.subspan(entry.data_offset, entry.size);
}

namespace {

// Inflates raw deflate data into exactly `out`; false when the data does not give exactly that.
bool inflate_into(std::span<const uint8_t> packed, std::span<uint8_t> out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  constexpr size_t kChunk = size_t{1} << 30;  // zlib counts in 32 bits
  size_t in_done = 0, out_done = 0;
  int code = Z_OK;
  uint8_t spare = 0;  // an empty output still needs an address, and tells data that is too long
  while (code == Z_OK) {
    const size_t in_now = std::min(kChunk, packed.size() - in_done), out_now = std::min(kChunk, out.size() - out_done);
    stream.next_in = const_cast<uint8_t*>(packed.data()) + in_done;
    stream.avail_in = static_cast<uInt>(in_now);
    stream.next_out = out_now > 0 ? out.data() + out_done : &spare;
    stream.avail_out = static_cast<uInt>(out_now > 0 ? out_now : 1);
    const size_t room = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    const size_t read = in_now - stream.avail_in, written = room - stream.avail_out;
    if (out_now == 0 && written > 0) code = Z_DATA_ERROR;
    in_done += read;
    out_done += written;
    if (code == Z_OK && read == 0 && written == 0) code = Z_BUF_ERROR;
  }
  inflateEnd(&stream);
  return code == Z_STREAM_END && out_done == out.size() && in_done == packed.size();
}

}  // namespace

template <class Content>
Result<Content> ZipReader::read_as(const ZipEntry& entry, uint64_t max_bytes) const {
  if (entry.size > max_bytes) {
    return Error{ErrorCode::archive_limit, fmt::format("entry '{}' has {} bytes, the limit here is {}", entry.name, entry.size, max_bytes), name_, ""};
  }
  const std::span<const uint8_t> packed = bytes_.subspan(entry.data_offset, entry.packed_size);
  Content content;
  try {
    content.resize(entry.size);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, fmt::format("no memory for the {} bytes of entry '{}'", entry.size, entry.name), name_, ""};
  }
  const std::span<uint8_t> out(reinterpret_cast<uint8_t*>(content.data()), content.size());
  if (!entry.deflated) {
    std::copy(packed.begin(), packed.end(), out.begin());
  } else if (!inflate_into(packed, out)) {
    return Error{ErrorCode::bad_archive, fmt::format("the compressed data of entry '{}' is damaged", entry.name), name_, ""};
  }
  if (crc32_of(out) != entry.crc) {
    return Error{ErrorCode::bad_archive, fmt::format("the checksum of entry '{}' is wrong: the file is damaged", entry.name), name_, ""};
  }
  return content;
}

Result<std::vector<uint8_t>> ZipReader::read(const ZipEntry& entry, uint64_t max_bytes) const { return read_as<std::vector<uint8_t>>(entry, max_bytes); }

Result<std::string> ZipReader::read_text(const ZipEntry& entry, uint64_t max_bytes) const {
  if (const uint64_t most = ZipLimits::max_inflated_text(file_bytes_); entry.deflated && entry.size > most) {
    return Error{ErrorCode::archive_limit,
                 fmt::format("entry '{}' inflates to {} bytes of text, the limit for a file of {} is {}", entry.name, entry.size, file_bytes_, most), name_,
                 "write the archive without compression (zip -0)"};
  }
  return read_as<std::string>(entry, max_bytes);
}

Status ZipReader::verify(const ZipEntry& entry) const {
  if (entry.deflated) {
    TRY_STATUS(read(entry, entry.size));
    return ok_status();
  }
  if (crc32_of(bytes_.subspan(entry.data_offset, entry.size)) != entry.crc) {
    return Error{ErrorCode::bad_archive, fmt::format("the checksum of entry '{}' is wrong: the file is damaged", entry.name), name_, ""};
  }
  return ok_status();
}

}  // namespace coil
