#include "cache/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

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

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t b : bytes) text += fmt::format("{:02x}", b);
  return text;
}

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

// One folder, 64 threads, each with an object of its own or one that all share: entries are whole or absent.
TEST_F(CacheTest, SixtyFourThreads) {
  std::atomic<int> errors{0}, found{0};
  const auto work = [&](int t) {
    const std::shared_ptr<Cache> own = t % 2 ? reopened() : cache_;
    for (int round = 0; round < 20; ++round) {
      const int which = (t + round) % 16;
      const Bytes expected(static_cast<size_t>(1000 + which), static_cast<uint8_t>(which));
      const Key k = key("entry " + std::to_string(which));
      if (const std::optional<Bytes> known = own->get(k)) ++found, errors += *known != expected;
      else own->put(k, expected);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_GT(found, 600);
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
  EXPECT_EQ(other->unpack(ZipReader::open(file).value(), true).value().entries, 2u);
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
    const auto unpacked = cache_->unpack(ZipReader::from_bytes(archive, "all.zip").value(), true);
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
  for (const char* bad :
       {"redis://", "redis://:6379", "redis://host:0", "redis://host:x", "redis://host:6379/x", "ftp://host", "rediss://", "rediss://host:x",
        "redis://[::1:6379", "redis://user@host", "redis://user:@host", "redis://user:p%4@host", "shared:", "shared:ftp://host", "shared:redis://:1"}) {
    const auto opened = Cache::open(bad);
    ASSERT_FALSE(opened.ok()) << bad;
    EXPECT_EQ(opened.error().code, ErrorCode::bad_option);
  }
  const auto nobody = Cache::open("shared:redis://127.0.0.1:1").value();  // no server there
  EXPECT_FALSE(nobody->get(key("a")));
  nobody->put(key("a"), kPayload);
  EXPECT_NE(nobody->problem().find("redis://127.0.0.1:1/0"), std::string::npos) << nobody->problem();
  const auto login = Cache::open("shared:rediss://me:p%40ss@[::1]:1/2").value();
  EXPECT_EQ(login->place(), "rediss://[::1]:1/2") << "no password";
  const auto bad = Cache::open("redis://me:secret@host:x");
  EXPECT_EQ(bad.error().to_string().find("secret"), std::string::npos) << bad.error().to_string();
}

// Modes and links that let others write: of the folder, a folder above, the folders inside, an entry. Each is refused and told; "shared:" takes it.
TEST_F(CacheTest, PlacesThatOthersCanWrite) {
  cache_->put(key("a"), kPayload);
  ASSERT_EQ(cache_->distrust(), "");
  EXPECT_EQ(fs::status(folder_ / "cache").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(file_of(key("a"))).permissions() & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);
  const fs::path entry = file_of(key("a"));
  for (const fs::path& place : {folder_, folder_ / "cache", entry.parent_path().parent_path(), entry.parent_path(), entry}) {
    const fs::perms before = fs::status(place).permissions();
    fs::permissions(place, fs::perms::others_write, fs::perm_options::add);
    const auto cache = reopened();
    EXPECT_FALSE(cache->get(key("a"))) << place;
    EXPECT_NE(cache->distrust().find(place.string()), std::string::npos) << place << ": " << cache->distrust();
    const auto shared = Cache::open("shared:" + (folder_ / "cache").string()).value();
    EXPECT_TRUE(shared->get(key("a"))) << place;
    EXPECT_EQ(shared->distrust(), "");
    fs::permissions(place, before);
    EXPECT_TRUE(reopened()->get(key("a"))) << place;
  }
  fs::rename(entry, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", entry);
  EXPECT_FALSE(reopened()->get(key("a"))) << "an entry is no link";
  reopened()->put(key("a"), kPayload);
  EXPECT_FALSE(fs::is_symlink(entry));
  EXPECT_TRUE(reopened()->get(key("a"))) << "and is mended by the next compile";
  // A link on the way that others could change: it lies in a folder that they can write to.
  fs::create_directory(folder_ / "open");
  fs::permissions(folder_ / "open", fs::perms::all);
  fs::create_directory_symlink(folder_ / "cache", folder_ / "open" / "link");
  EXPECT_FALSE(Cache::open(folder_ / "open" / "link").value()->get(key("a")));
}

TEST_F(CacheTest, EntriesAndFoldersOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away; modes are tested above";
  cache_->put(key("a"), kPayload);
  const fs::path entry = file_of(key("a"));
  for (const fs::path& place : {folder_, folder_ / "cache", entry.parent_path(), entry}) {
    ASSERT_EQ(::lchown(place.c_str(), 12345, 12345), 0);
    const auto cache = reopened();
    EXPECT_FALSE(cache->get(key("a"))) << place;
    EXPECT_NE(cache->distrust().find("user 12345"), std::string::npos) << cache->distrust();
    ASSERT_EQ(::lchown(place.c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(reopened()->get(key("a")));
}

TEST_F(CacheTest, ARefusedFolderIsNotWrittenToEither) {
  fs::create_directories(folder_ / "cache");
  fs::permissions(folder_ / "cache", fs::perms::all);
  cache_->put(key("a"), kPayload);
  EXPECT_TRUE(fs::is_empty(folder_ / "cache"));
  EXPECT_NE(cache_->distrust().find("shared:"), std::string::npos) << "it says what to do: " << cache_->distrust();
  EXPECT_EQ(cache_->totals().error().code, ErrorCode::bad_option);
}

std::optional<Secret> secret(const std::string& text) { return Secret::from_text(text).value(); }

// Only what was made with the key counts, byte for byte; without one, what a key signed counts as well.
TEST_F(CacheTest, Keys) {
  const std::string place = folder_ / "cache", text = "0123456789abcdef0123";
  const auto with = [&](const std::string& k) { return Cache::open(place, secret(k)).value(); };
  with(text)->put(key("a"), kPayload);
  EXPECT_EQ(with(text)->get(key("a")), kPayload);
  EXPECT_EQ(cache_->get(key("a")), kPayload);
  const auto other = with(text + "4");
  EXPECT_FALSE(other->get(key("a")));
  EXPECT_NE(other->distrust().find("COIL_CACHE_KEY"), std::string::npos) << other->distrust();
  EXPECT_EQ(other->explain(key("a")), "its entry lacks the code of COIL_CACHE_KEY");
  const Bytes good = read_file(file_of(key("a"))).value();
  for (size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 1;
    ASSERT_TRUE(write_file(file_of(key("a")), bad).ok());
    EXPECT_FALSE(with(text)->get(key("a"))) << "byte " << i;
  }
  cache_->put(key("a"), kPayload);  // without a code, as anyone could
  const auto cache = with(text);
  EXPECT_FALSE(cache->get(key("a")));
  EXPECT_NE(cache->distrust(), "");
  cache->put(key("a"), kPayload);
  EXPECT_EQ(with(text)->get(key("a")), kPayload);
}

TEST_F(CacheTest, UnpackAsksWhoPacked) {
  const std::string file = folder_ / "all.zip", key_text = "0123456789abcdef";
  cache_->put(key("a"), kPayload);
  ASSERT_TRUE(cache_->pack(file).ok());
  const ZipReader plain = ZipReader::open(file).value();
  const auto other = Cache::open(folder_ / "other").value();
  EXPECT_EQ(other->unpack(plain, false).error().code, ErrorCode::bad_option);
  const auto keyed = Cache::open(folder_ / "keyed", secret(key_text)).value();
  EXPECT_EQ(keyed->unpack(plain, false).error().code, ErrorCode::bad_archive);
  EXPECT_FALSE(fs::exists(folder_ / "other") || fs::exists(folder_ / "keyed")) << "nothing was written";
  EXPECT_EQ(keyed->unpack(plain, true).value().entries, 1u);
  EXPECT_EQ(keyed->get(key("a")), kPayload) << "what the user trusts is signed";
  ASSERT_TRUE(keyed->pack(folder_ / "keyed.zip").ok());
  const ZipReader packed = ZipReader::open(folder_ / "keyed.zip").value();
  EXPECT_EQ(Cache::open(folder_ / "same", secret(key_text)).value()->unpack(packed, false).value().entries, 1u);
  EXPECT_EQ(Cache::open(folder_ / "wrong", secret(key_text + "!")).value()->unpack(packed, false).error().code, ErrorCode::bad_archive);
}

TEST(Secret, Texts) {
  EXPECT_EQ(Secret::from_text("short").error().code, ErrorCode::bad_option);
  EXPECT_EQ(Secret::from_text(std::string(15, 'x') + "\n").error().code, ErrorCode::bad_option);
  // RFC 4231, test case 3's data under a key of 20 bytes.
  const Secret secret = Secret::from_text(std::string(20, '\xaa')).value();
  const Bytes data(50, 0xdd);
  EXPECT_EQ(hex(secret.code_of(data)), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

}  // namespace
}  // namespace coil::cache
