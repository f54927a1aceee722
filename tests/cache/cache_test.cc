#include "cache/cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/zip_writer.h"

namespace coil::cache {
namespace {

namespace fs = std::filesystem;

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("coil_cache_test_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    cache_ = Cache::open(folder_ / "cache").value();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file_of(const Key& key) const { return folder_ / "cache" / key.name(); }
  std::shared_ptr<Cache> reopened() const { return Cache::open(folder_ / "cache").value(); }

  fs::path folder_;
  std::shared_ptr<Cache> cache_;
};

Key key(const std::string& subject, const std::string& cpu = "v4") { return {"object", subject, {{"cpu", cpu}, {"compiler", "clang 19"}}}; }
const Bytes kPayload = {1, 2, 3, 0, 255};

TEST_F(CacheTest, KeepsAndFinds) {
  EXPECT_FALSE(cache_->get(key("a")));
  cache_->put(key("a"), kPayload);
  cache_->put(key("b"), {});
  EXPECT_EQ(reopened()->get(key("a")), kPayload);
  EXPECT_EQ(reopened()->get(key("b")), Bytes{});
  EXPECT_FALSE(reopened()->get(key("a", "v3")));
  ASSERT_EQ(cache_->lookups().size(), 1u);
  EXPECT_FALSE(cache_->lookups()[0].hit);
  EXPECT_EQ(cache_->problem(), "");
}

TEST_F(CacheTest, DamagedEntriesCountAsAbsent) {
  cache_->put(key("a"), kPayload);
  const Bytes good = read_file(file_of(key("a"))).value();
  for (size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 0x40;
    ASSERT_TRUE(write_file(file_of(key("a")), bad).ok());
    EXPECT_FALSE(cache_->get(key("a"))) << "byte " << i;
    bad = good;
    bad.resize(i);
    ASSERT_TRUE(write_file(file_of(key("a")), bad).ok());
    EXPECT_FALSE(cache_->get(key("a"))) << "cut at " << i;
  }
  ASSERT_TRUE(write_file(file_of(key("a")), good).ok());
  EXPECT_EQ(cache_->get(key("a")), kPayload);
  // A sound entry of another key under this name.
  cache_->put(key("b"), kPayload);
  ASSERT_TRUE(write_file(file_of(key("a")), read_file(file_of(key("b"))).value()).ok());
  EXPECT_FALSE(cache_->get(key("a")));
}

TEST_F(CacheTest, ExplainsByTheField) {
  EXPECT_EQ(cache_->explain(key("a")), "subject: there is no entry for it");
  cache_->put({"object", "a", {{"cpu", "v3"}, {"compiler", "clang 18"}}}, kPayload);
  cache_->put(key("a", "v3"), kPayload);
  EXPECT_EQ(cache_->explain(key("a", "v4")), "cpu is 'v4', the nearest entry has 'v3'");
}

TEST_F(CacheTest, PacksAndUnpacks) {
  cache_->put(key("a"), kPayload);
  cache_->put(key("b"), kPayload);
  std::ofstream(folder_ / "cache" / "notes.txt") << "not ours";
  std::ofstream(folder_ / "cache" / "object" / "bad.entry") << "cut off";
  const std::string file = folder_ / "all.zip";
  EXPECT_EQ(cache_->pack(file).value().entries, 2u);
  const auto other = Cache::open(folder_ / "other").value();
  EXPECT_EQ(other->unpack(ZipReader::open(file).value()).value().entries, 2u);
  EXPECT_EQ(other->get(key("b")), kPayload);
  EXPECT_EQ(other->clear().value().entries, 2u);
  EXPECT_FALSE(other->get(key("b")));
  cache_->clear().value();
  EXPECT_TRUE(fs::exists(folder_ / "cache" / "notes.txt")) << "what is not the cache's stays";
}

// Keeps what is put in a string.
struct OneEntry : Store {
  explicit OneEntry(Bytes& kept) : kept(kept) {}
  std::string place() const override { return "memory"; }
  Result<std::optional<Bytes>> get(const std::string&) override { return std::optional<Bytes>(kept); }
  Status put(const std::string&, std::span<const uint8_t> bytes) override {
    kept.assign(bytes.begin(), bytes.end());
    return ok_status();
  }
  Status remove(const std::string&) override { return ok_status(); }
  Result<std::vector<std::string>> list(const std::string&) override { return std::vector<std::string>(); }
  Bytes& kept;
};

TEST_F(CacheTest, NoEntryLeadsOutOfThePlace) {
  for (const char* kind : {"../outside", "..", "/tmp/outside", "", "a/b"}) {
    Bytes entry;
    Cache(std::make_unique<OneEntry>(entry)).put({kind, "a", {}}, kPayload);
    ASSERT_FALSE(entry.empty());
    ZipWriter zip = ZipWriter::in_memory();
    ASSERT_TRUE(zip.add("object/a.entry", entry).ok());
    const std::vector<uint8_t> archive = zip.finish_in_memory();
    const auto unpacked = cache_->unpack(ZipReader::from_bytes(archive, "all.zip").value());
    ASSERT_FALSE(unpacked.ok()) << kind;
    EXPECT_EQ(unpacked.error().code, ErrorCode::bad_archive);
    EXPECT_FALSE(fs::exists(folder_)) << kind << ": nothing was written";
  }
}

TEST_F(CacheTest, FailuresAreNoted) {
  std::ofstream(folder_.string() + "_file") << "a file where the folder should be";
  const auto cache = Cache::open(folder_.string() + "_file").value();
  cache->put(key("a"), kPayload);
  EXPECT_FALSE(cache->get(key("a")));
  EXPECT_NE(cache->problem(), "");
  fs::remove(folder_.string() + "_file");
}

TEST_F(CacheTest, AddressesOfServers) {
  for (const char* bad : {"redis://", "redis://:6379", "redis://host:0", "redis://host:x", "redis://host:6379/x", "ftp://host", "rediss://host:6379"}) {
    const auto opened = Cache::open(bad);
    ASSERT_FALSE(opened.ok()) << bad;
    EXPECT_EQ(opened.error().code, ErrorCode::bad_option);
  }
  const auto nobody = Cache::open("redis://127.0.0.1:1").value();  // no server there
  EXPECT_FALSE(nobody->get(key("a")));
  nobody->put(key("a"), kPayload);
  EXPECT_NE(nobody->problem().find("redis://127.0.0.1:1/0"), std::string::npos) << nobody->problem();
}

}  // namespace
}  // namespace coil::cache
