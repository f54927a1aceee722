// Zip reader and writer: round trips, Python's and PyTorch's view is in test_interop.py; and archives made to do harm.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>

#include "base/zip_format.h"
#include "base/zip_reader.h"
#include "base/zip_writer.h"
#include "tests/base/temp_folder.h"

namespace coil {
namespace {

using Bytes = std::vector<uint8_t>;
Bytes archived(std::string_view text) { return Bytes(text.begin(), text.end()); }

Bytes small_archive() {
  ZipWriter writer = ZipWriter::in_memory();
  EXPECT_TRUE(writer.add("m/first.txt", "hello").ok());
  EXPECT_TRUE(writer.add("m/empty", "").ok());
  EXPECT_TRUE(writer.add("m/data/weights", std::string(1000, 'w')).ok());
  return writer.finish_in_memory();
}

// An archive in which every field can be wrong.
struct RawEntry {
  std::string name;
  Bytes data;
  uint16_t method = 0;
  uint16_t flags = 0;
  uint64_t size = UINT64_MAX;    // default: that of data
  uint64_t offset = UINT64_MAX;  // default: the true one
  uint32_t crc = 0;
};

Bytes raw_archive(const std::vector<RawEntry>& entries) {
  Bytes out, directory;
  for (const RawEntry& entry : entries) {
    const uint32_t offset = static_cast<uint32_t>(entry.offset == UINT64_MAX ? out.size() : entry.offset);
    const uint32_t size = static_cast<uint32_t>(entry.size == UINT64_MAX ? entry.data.size() : entry.size);
    const auto common = [&](Bytes& to) {
      zip::append<uint16_t>(to, 20);
      zip::append<uint16_t>(to, entry.flags);
      zip::append<uint16_t>(to, entry.method);
      zip::append<uint32_t>(to, 0);
      zip::append<uint32_t>(to, entry.crc);
      zip::append<uint32_t>(to, static_cast<uint32_t>(entry.data.size()));
      zip::append<uint32_t>(to, size);
      zip::append<uint16_t>(to, static_cast<uint16_t>(entry.name.size()));
      zip::append<uint16_t>(to, 0);
    };
    zip::append(out, zip::kLocalSignature);
    common(out);
    out.insert(out.end(), entry.name.begin(), entry.name.end());
    out.insert(out.end(), entry.data.begin(), entry.data.end());
    zip::append(directory, zip::kCentralSignature);
    zip::append<uint16_t>(directory, 20);
    common(directory);
    zip::append<uint16_t>(directory, 0);
    zip::append<uint32_t>(directory, 0);
    zip::append<uint32_t>(directory, 0);
    zip::append(directory, offset);
    directory.insert(directory.end(), entry.name.begin(), entry.name.end());
  }
  const uint32_t begin = static_cast<uint32_t>(out.size());
  out.insert(out.end(), directory.begin(), directory.end());
  zip::append(out, zip::kEndSignature);
  zip::append<uint32_t>(out, 0);
  zip::append<uint16_t>(out, static_cast<uint16_t>(entries.size()));
  zip::append<uint16_t>(out, static_cast<uint16_t>(entries.size()));
  zip::append<uint32_t>(out, static_cast<uint32_t>(directory.size()));
  zip::append<uint32_t>(out, begin);
  zip::append<uint16_t>(out, 0);
  return out;
}

Bytes deflated(const Bytes& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

uint32_t crc_of(const Bytes& bytes) { return static_cast<uint32_t>(crc32(0, bytes.data(), static_cast<uInt>(bytes.size()))); }

ErrorCode open_error(const Bytes& bytes) {
  const auto reader = ZipReader::from_bytes(bytes, "test.zip");
  return reader.ok() ? ErrorCode{} : reader.error().code;
}

TEST(Zip, RoundTripAligned) {
  const Bytes archive = small_archive();
  const auto reader = ZipReader::from_bytes(archive, "test.zip");
  ASSERT_TRUE(reader.ok()) << reader.error().to_string();
  ASSERT_EQ(reader.value().entries().size(), 3u);
  for (const ZipEntry& entry : reader.value().entries()) {
    EXPECT_EQ(entry.data_offset % 64, 0u) << entry.name;
    EXPECT_TRUE(reader.value().verify(entry).ok());
  }
  const ZipEntry* first = reader.value().find("m/first.txt");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reader.value().read_text(*first, 100).value(), "hello");
  EXPECT_EQ(reader.value().data_span(*first).value().size(), 5u);
  EXPECT_EQ(reader.value().read(*first, 4).error().code, ErrorCode::archive_limit);
  EXPECT_EQ(reader.value().find("m/first"), nullptr);
  EXPECT_EQ(reader.value().get("nothing").error().code, ErrorCode::bad_archive);
  EXPECT_TRUE(reader.value().read(*reader.value().find("m/empty"), 0).value().empty());
}

TEST(Zip, SameCallsSameBytes) { EXPECT_EQ(small_archive(), small_archive()); }

TEST(Zip, FileEqualsMemory) {
  const TempFolder folder;
  auto writer = ZipWriter::create(folder.file("a.zip"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().add("m/first.txt", "hello").ok());
  ASSERT_TRUE(writer.value().begin("m/empty", 0).ok());
  ASSERT_TRUE(writer.value().end().ok());
  ASSERT_TRUE(writer.value().begin("m/data/weights", 1000).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(writer.value().append(Bytes(100, 'w')).ok());
  ASSERT_TRUE(writer.value().end().ok());
  ASSERT_TRUE(writer.value().finish().ok());
  EXPECT_EQ(read_file(folder.file("a.zip")).value(), small_archive());
  const auto reader = ZipReader::open(folder.file("a.zip"));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader.value().entries().size(), 3u);
}

TEST(Zip, WriterChecksItsCaller) {
  ZipWriter writer = ZipWriter::in_memory();
  ASSERT_TRUE(writer.add("a", "1").ok());
  EXPECT_THROW((void)writer.add("a", "2"), InternalError);
  EXPECT_THROW((void)writer.add("/a", "2"), InternalError);
  ASSERT_TRUE(writer.begin("b", 3).ok());
  EXPECT_THROW((void)writer.append(Bytes(4)), InternalError);
  EXPECT_THROW((void)writer.end(), InternalError);
}

TEST(Zip, Deflated) {
  Bytes plain(100000);
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<uint8_t>(i * i / 1000);
  const Bytes archive = raw_archive({{.name = "x", .data = deflated(plain), .method = 8, .size = plain.size(), .crc = crc_of(plain)},
                                     {.name = "none", .data = deflated({}), .method = 8, .size = 0}});
  const auto reader = ZipReader::from_bytes(archive, "test.zip");
  ASSERT_TRUE(reader.ok()) << reader.error().to_string();
  EXPECT_EQ(reader.value().read(*reader.value().find("x"), plain.size()).value(), plain);
  EXPECT_TRUE(reader.value().read(*reader.value().find("none"), 0).value().empty());
  EXPECT_EQ(reader.value().data_span(*reader.value().find("x")).error().code, ErrorCode::unsupported_archive);
}

TEST(Zip, DeflatedDataThatLies) {
  const Bytes plain(1000, 'a'), packed = deflated(plain);
  for (const uint64_t size : {999, 1001, 0, 5000}) {
    const Bytes archive = raw_archive({{.name = "x", .data = packed, .method = 8, .size = size, .crc = crc_of(plain)}});
    const auto reader = ZipReader::from_bytes(archive, "test.zip");
    ASSERT_TRUE(reader.ok()) << size;
    EXPECT_EQ(reader.value().read(reader.value().entries()[0], 10000).error().code, ErrorCode::bad_archive) << size;
  }
  Bytes cut = packed;
  cut.resize(cut.size() - 3);
  const Bytes archive = raw_archive({{.name = "x", .data = cut, .method = 8, .size = 1000, .crc = crc_of(plain)}});
  EXPECT_FALSE(ZipReader::from_bytes(archive, "t").value().read(ZipReader::from_bytes(archive, "t").value().entries()[0], 1000).ok());
  const Bytes bomb = raw_archive({{.name = "x", .data = packed, .method = 8, .size = 0xfffffff0u}});
  EXPECT_EQ(open_error(bomb), ErrorCode::archive_limit);
}

TEST(Zip, WrongChecksum) {
  Bytes archive = small_archive();
  const auto before = ZipReader::from_bytes(archive, "t");
  ASSERT_TRUE(before.ok());
  archive[before.value().find("m/first.txt")->data_offset] ^= 1;
  const auto reader = ZipReader::from_bytes(archive, "t");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader.value().read(*reader.value().find("m/first.txt"), 100).error().code, ErrorCode::bad_archive);
  EXPECT_EQ(reader.value().verify(*reader.value().find("m/first.txt")).error().code, ErrorCode::bad_archive);
}

TEST(Zip, HostileNames) {
  for (const char* name : {"/etc/passwd", "../x", "a/../b", "a/..", "..", ".", "./a", "a//b", "a/./b", "a\\b", "a\nb", "C:\\x", "//"}) {
    EXPECT_EQ(open_error(raw_archive({{.name = name}})), ErrorCode::archive_limit) << name;
  }
  EXPECT_EQ(open_error(raw_archive({{.name = std::string("a\0b", 3)}})), ErrorCode::archive_limit);
  EXPECT_EQ(open_error(raw_archive({{.name = ""}})), ErrorCode::bad_archive);
  EXPECT_EQ(open_error(raw_archive({{.name = std::string(5000, 'x')}})), ErrorCode::archive_limit);
  for (const char* name : {"..a", "a..", "a/...", "folder/", "x y", "\xc3\xa9"}) {
    EXPECT_EQ(open_error(raw_archive({{.name = name}})), ErrorCode{}) << name;
  }
  EXPECT_EQ(open_error(raw_archive({{.name = "folder/", .data = archived("x")}})), ErrorCode::bad_archive);
}

TEST(Zip, HostileStructure) {
  EXPECT_EQ(open_error(raw_archive({{.name = "a"}, {.name = "a"}})), ErrorCode::archive_limit);
  EXPECT_EQ(open_error(raw_archive({{.name = "a", .data = archived("xyz")}, {.name = "a2", .offset = 0}})), ErrorCode::bad_archive);
  EXPECT_EQ(open_error(raw_archive({{.name = "a", .flags = 1}})), ErrorCode::unsupported_archive);
  EXPECT_EQ(open_error(raw_archive({{.name = "a", .method = 99}})), ErrorCode::unsupported_archive);
  EXPECT_EQ(open_error(raw_archive({{.name = "a", .offset = 0x7fffffff}})), ErrorCode::bad_archive);
  EXPECT_EQ(open_error(raw_archive({{.name = "a", .data = archived("x"), .size = 100}})), ErrorCode::bad_archive);
  // Two entries that share their data: the quine's trick.
  Bytes nested = raw_archive({{.name = "a"}});
  const Bytes overlapping = raw_archive({{.name = "b", .data = nested}, {.name = "a", .offset = 31}});
  EXPECT_EQ(open_error(overlapping), ErrorCode::archive_limit);
}

TEST(Zip, LimitOnEntries) {
  ZipLimits limits;
  limits.max_entries = 2;
  EXPECT_EQ(ZipReader::from_bytes(small_archive(), "t", limits).error().code, ErrorCode::archive_limit);
}

TEST(Zip, EveryTruncationIsAnError) {
  const Bytes archive = small_archive();
  for (size_t size = 0; size < archive.size(); ++size) {
    EXPECT_FALSE(ZipReader::from_bytes(std::span(archive).first(size), "t").ok()) << size;
  }
}

// Any change of bytes gives an error or a reader whose entries lie within the archive.
TEST(Zip, RandomDamage) {
  const Bytes plain(3000, 'q');
  Bytes original = raw_archive({{.name = "x", .data = deflated(plain), .method = 8, .size = plain.size(), .crc = crc_of(plain)},
                                {.name = "folder/y", .data = archived("stored"), .crc = crc_of(archived("stored"))}});
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Bytes archive = original;
    for (int i = 0; i < 1 + round % 4; ++i) {
      // Mostly the headers: the last bytes and the first.
      const size_t at = random() % 4 == 0 ? random() % archive.size() : archive.size() - 1 - random() % std::min<size_t>(archive.size(), 180);
      archive[at] = static_cast<uint8_t>(random() % 3 == 0 ? 0xff : random());
    }
    const auto reader = ZipReader::from_bytes(archive, "t");
    if (!reader.ok()) continue;
    for (const ZipEntry& entry : reader.value().entries()) {
      ASSERT_LE(entry.data_offset + entry.packed_size, archive.size());
      (void)reader.value().read(entry, 1 << 20).ok();
    }
  }
}

TEST(Zip, Zip64AsPyTorchWrites) {
  // The end records of PyTorch: zip64 always, the 32-bit fields right as well.
  Bytes archive = small_archive();
  const uint8_t* end = archive.data() + archive.size() - zip::kEndBytes;
  const uint64_t count = zip::load<uint16_t>(end + 10), size = zip::load<uint32_t>(end + 12), offset = zip::load<uint32_t>(end + 16);
  const Bytes last(archive.end() - zip::kEndBytes, archive.end());
  archive.resize(archive.size() - zip::kEndBytes);
  const uint64_t end64 = archive.size();
  zip::append(archive, zip::kEnd64Signature);
  zip::append<uint64_t>(archive, 44);
  zip::append<uint32_t>(archive, 0);
  zip::append<uint64_t>(archive, 0);
  for (const uint64_t value : {count, count, size, offset}) zip::append(archive, value);
  zip::append(archive, zip::kLocator64Signature);
  zip::append<uint32_t>(archive, 0);
  zip::append(archive, end64);
  zip::append<uint32_t>(archive, 1);
  archive.insert(archive.end(), last.begin(), last.end());
  const auto reader = ZipReader::from_bytes(archive, "t");
  ASSERT_TRUE(reader.ok()) << reader.error().to_string();
  EXPECT_EQ(reader.value().entries().size(), 3u);
  for (const size_t at : {size_t{32}, size_t{40}, size_t{48}}) {  // count, size and place of the directory, made huge
    Bytes damaged = archive;
    std::memset(damaged.data() + end64 + at, 0xff, 8);
    EXPECT_FALSE(ZipReader::from_bytes(damaged, "t").ok()) << at;
  }
}

// More than 4 GiB in one entry: the sizes and the directory move to zip64. The file is sparse-like zeros, so it costs time, not care.
TEST(Zip, LargeEntriesUseZip64) {
  const TempFolder folder;
  const auto space = std::filesystem::space(folder.path());
  if (space.available < (uint64_t{10} << 30) || std::getenv("COIL_TEST_LARGE") == nullptr) GTEST_SKIP() << "set COIL_TEST_LARGE=1";
  constexpr uint64_t kSize = (uint64_t{4} << 30) + 5;
  auto writer = ZipWriter::create(folder.file("big.zip"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().begin("big", kSize).ok());
  const Bytes piece(size_t{1} << 24, 7);
  for (uint64_t done = 0; done < kSize;) {
    const uint64_t now = std::min<uint64_t>(piece.size(), kSize - done);
    ASSERT_TRUE(writer.value().append(std::span(piece).first(now)).ok());
    done += now;
  }
  ASSERT_TRUE(writer.value().end().ok());
  ASSERT_TRUE(writer.value().add("after", "small").ok());
  ASSERT_TRUE(writer.value().finish().ok());
  const auto reader = ZipReader::open(folder.file("big.zip"));
  ASSERT_TRUE(reader.ok()) << reader.error().to_string();
  EXPECT_EQ(reader.value().find("big")->size, kSize);
  EXPECT_EQ(reader.value().find("after")->data_offset % 64, 0u);
  EXPECT_EQ(reader.value().read_text(*reader.value().find("after"), 10).value(), "small");
  EXPECT_TRUE(reader.value().verify(*reader.value().find("big")).ok());
}

}  // namespace
}  // namespace coil
