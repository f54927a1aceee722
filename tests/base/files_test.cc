// Mapped files and atomic files, their failures included.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

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

unsigned mode_of(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(AtomicFile, NewOnesRespectTheUmaskOldOnesKeepTheirMode) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  const mode_t before = ::umask(027);
  ASSERT_TRUE(write_file(path, "old").ok());
  EXPECT_EQ(mode_of(path), 0640u);
  for (const unsigned mode : {0600u, 0755u, 0666u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(write_file(path, "new").ok());
    EXPECT_EQ(mode_of(path), mode);
    EXPECT_EQ(read_text_file(path).value(), "new");
  }
  ::umask(before);
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, KeepsTheOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TempFolder folder;
  const std::string path = folder.file("out");
  ASSERT_TRUE(write_file(path, "old").ok());
  ASSERT_EQ(::chown(path.c_str(), 1234, 4321), 0);
  ASSERT_TRUE(write_file(path, "new").ok());
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 1234u);
  EXPECT_EQ(info.st_gid, 4321u);
}

// As `gcc -o link` does: relative and absolute ones, links to links, and those that lead to nothing yet.
TEST(AtomicFile, WritesThroughLinks) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("inner"));
  std::filesystem::create_symlink("inner/real", folder.file("relative"));
  std::filesystem::create_symlink(folder.file("relative"), folder.file("absolute"));
  ASSERT_TRUE(write_file(folder.file("absolute"), "first").ok());
  EXPECT_EQ(read_text_file(folder.file("inner/real")).value(), "first");
  ASSERT_EQ(::chmod(folder.file("inner/real").c_str(), 0600), 0);
  ASSERT_TRUE(write_file(folder.file("relative"), "second").ok());
  EXPECT_EQ(read_text_file(folder.file("inner/real")).value(), "second");
  EXPECT_EQ(mode_of(folder.file("inner/real")), 0600u);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("relative")) && std::filesystem::is_symlink(folder.file("absolute")));
  EXPECT_EQ(folder.count(), 3u) << "nothing is left beside the links";
  std::filesystem::create_symlink("circle", folder.file("circle"));
  EXPECT_EQ(AtomicFile::create(folder.file("circle")).error().code, ErrorCode::file_unwritable);
  // What is ours replaces a link instead.
  auto own = AtomicFile::create(folder.file("relative"), AtomicFile::Place::own);
  ASSERT_TRUE(own.ok() && own.value().write(bytes_of("own")).ok() && own.value().commit(false).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(folder.file("relative")));
  EXPECT_EQ(mode_of(folder.file("relative")), 0600u);
  EXPECT_EQ(read_text_file(folder.file("inner/real")).value(), "second");
}

// In a folder like /tmp somebody else's link may lead to a file of ours.
TEST(AtomicFile, TrapsOfOthersAreNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user's";
  const TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  ASSERT_TRUE(write_file(folder.file("mine"), "mine").ok());
  std::filesystem::create_symlink("mine", folder.file("out"));
  ASSERT_EQ(::lchown(folder.file("out").c_str(), 1234, 1234), 0);
  EXPECT_EQ(write_file(folder.file("out"), "theirs").error().code, ErrorCode::file_unwritable);
  EXPECT_EQ(read_text_file(folder.file("mine")).value(), "mine");
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
