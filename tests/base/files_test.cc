// Mapped files and atomic files, their failures included.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/base/temp_folder.h"

namespace coil {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

TEST(MappedFile, ReadsAndReportsErrors) {
  const TempFolder folder;
  ASSERT_TRUE(write_file(folder.file("a"), "hello").ok());
  const auto file = MappedFile::open(folder.file("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::string(file.value().bytes().begin(), file.value().bytes().end()), "hello");

  EXPECT_EQ(MappedFile::open(folder.file("missing")).error().code, ErrorCode::file_not_found);
  EXPECT_EQ(MappedFile::open(folder.file("a/b")).error().code, ErrorCode::file_not_found);
  EXPECT_EQ(MappedFile::open(folder.path()).error().code, ErrorCode::file_unreadable);
  EXPECT_EQ(MappedFile::open("/dev/null").error().code, ErrorCode::file_unreadable);
}

TEST(MappedFile, EmptyFileAndMoves) {
  const TempFolder folder;
  ASSERT_TRUE(write_file(folder.file("empty"), "").ok());
  auto empty = MappedFile::open(folder.file("empty"));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty.value().bytes().empty());
  ASSERT_TRUE(write_file(folder.file("x"), "x").ok());
  auto full = MappedFile::open(folder.file("x"));
  ASSERT_TRUE(full.ok());
  MappedFile moved = std::move(full).value();
  moved = std::move(empty).value();
  EXPECT_TRUE(moved.bytes().empty());
}

TEST(ReadFile, LimitsSize) {
  const TempFolder folder;
  ASSERT_TRUE(write_file(folder.file("a"), "hello").ok());
  EXPECT_EQ(read_text_file(folder.file("a")).value(), "hello");
  EXPECT_EQ(read_file(folder.file("a"), 4).error().code, ErrorCode::archive_limit);
  EXPECT_TRUE(read_file(folder.file("a"), 5).ok());
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().write(bytes_of("abcdef")).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(folder.count(), 0u);  // nothing is left of what was not committed
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value().write(bytes_of("abcdef")).ok());
  ASSERT_TRUE(file.value().write_at(1, bytes_of("XY")).ok());
  EXPECT_EQ(file.value().size(), 6u);
  ASSERT_TRUE(file.value().commit().ok());
  EXPECT_EQ(read_text_file(path).value(), "aXYdef");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, ReplacesAndRespectsUmask) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  ASSERT_TRUE(write_file(path, "old").ok());
  const mode_t before = ::umask(027);
  ASSERT_TRUE(write_file(path, "new").ok());
  ::umask(before);
  EXPECT_EQ(read_text_file(path).value(), "new");
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, UnwritablePlaces) {
  const TempFolder folder;
  EXPECT_EQ(AtomicFile::create(folder.file("no/such/folder")).error().code, ErrorCode::file_unwritable);
  EXPECT_EQ(AtomicFile::create(folder.path()).error().code, ErrorCode::file_unwritable);
  EXPECT_EQ(AtomicFile::create("/dev/null").error().code, ErrorCode::file_unwritable);
  EXPECT_EQ(AtomicFile::create("").error().code, ErrorCode::file_unwritable);
  EXPECT_EQ(AtomicFile::create("/proc/coil_test").error().code, ErrorCode::file_unwritable);
}

// A full disk, imitated by the limit on a file's size: write fails half-way with EFBIG.
TEST(AtomicFile, FailedWriteLeavesTheOldFile) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  ASSERT_TRUE(write_file(path, "old").ok());
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_file(path, std::string(20000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::file_unwritable);
  EXPECT_NE(status.error().message.find(path), std::string::npos);
  EXPECT_EQ(read_text_file(path).value(), "old");
  EXPECT_EQ(folder.count(), 1u);
}

}  // namespace
}  // namespace coil
