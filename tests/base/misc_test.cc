// Hashes, checksums, environment, parallel loops, the log and the progress line.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/crc32.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"

namespace coil {
namespace {

TEST(Hash, KnownValuesAndStreams) {
  EXPECT_EQ(hex(hash64("")), "2d06800538d394c2");  // XXH3_64bits of nothing, from its specification
  EXPECT_EQ(hex(hash128("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash64("a"), hash64("b"));
  std::string text(10000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i);
  const std::span bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  StreamHash64 stream;
  for (size_t at = 0; at < text.size(); at += 777) stream.update(bytes.subspan(at, std::min<size_t>(777, text.size() - at)));
  EXPECT_EQ(stream.digest(), hash64(text));
  EXPECT_EQ(hash64(bytes), hash64(text));
  EXPECT_EQ(hash128(bytes), hash128(text));
  EXPECT_EQ(hex(uint64_t{0xabc}), "0000000000000abc");
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Env, TableAndValues) {
  std::set<std::string_view> names;
  for (const EnvVar& variable : env_vars()) {
    EXPECT_TRUE(variable.name.starts_with("COIL_") || variable.name == "ATEN_CPU_CAPABILITY" || variable.name == "NVTX_INJECTION64_PATH");
    EXPECT_FALSE(variable.help.empty());
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
  }
  EXPECT_THROW((void)env("COIL_NO_SUCH"), InternalError);
  ::unsetenv("COIL_THREADS");
  EXPECT_FALSE(env("COIL_THREADS").has_value());
  EXPECT_EQ(env_int("COIL_THREADS", 1, 8, 3).value(), 3);
  for (const char* bad : {"0", "9", "x", "2x", " 2", "1e1", "99999999999999999999"}) {
    const Variable set("COIL_THREADS", bad);
    EXPECT_EQ(env_int("COIL_THREADS", 1, 8, 3).error().code, ErrorCode::bad_option) << bad;
  }
  const Variable set("COIL_THREADS", "5");
  EXPECT_EQ(env_int("COIL_THREADS", 1, 8, 3).value(), 5);
  EXPECT_TRUE(env_flag("COIL_THREADS"));
  const Variable off("COIL_COLOR", "off");
  EXPECT_FALSE(env_flag("COIL_COLOR"));
  const Variable empty("COIL_DUMP", "");
  EXPECT_FALSE(env("COIL_DUMP").has_value());
}

TEST(Parallel, EachOnceOnSeveralThreads) {
  for (const int threads : {-1, 0, 1, 3, 50}) {
    std::vector<std::atomic<int>> calls(100);
    parallel_each(calls.size(), threads, [&](size_t i) { ++calls[i]; });
    for (const auto& n : calls) EXPECT_EQ(n.load(), 1);
  }
  parallel_each(0, 4, [](size_t) { FAIL(); });
  std::atomic<int> inside{0}, most{0};
  parallel_each(4, 2, [&](size_t) {
    most = std::max(most.load(), ++inside);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    --inside;
  });
  EXPECT_EQ(most.load(), 2);
  EXPECT_GE(usable_cpus(), 1);
}

TEST(Parallel, RethrowsTheFirstException) {
  for (const int threads : {1, 3}) {
    EXPECT_THROW(parallel_each(20, threads,
                               [](size_t i) {
                                 if (i == 5) throw std::runtime_error("five");
                               }),
                 std::runtime_error);
  }
}

TEST(Log, LevelsAndFilter) {
  EXPECT_FALSE(Log().enabled(LogLevel::stages, "x"));
  const Log log(LogLevel::decisions, "fuse");
  EXPECT_TRUE(log.enabled(LogLevel::stages, "fuse"));
  EXPECT_FALSE(log.enabled(LogLevel::code, "fuse"));
  EXPECT_FALSE(log.enabled(LogLevel::stages, "other"));
  testing::internal::CaptureStderr();
  log.write(LogLevel::kernels, "fuse", "joined {} and {}", "a", 7);
  log.write(LogLevel::kernels, "other", "hidden");
  Log().write(LogLevel::stages, "x", "silent");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("[2 fuse] joined a and 7"), std::string::npos) << text;
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_EQ(text.find("silent"), std::string::npos);
}

TEST(Log, FromEnvironment) {
  for (const char* good : {"0", "3", "5@fuse_pointwise"}) {
    const Variable set("COIL_DEBUG", good);
    EXPECT_TRUE(Log::from_env().ok()) << good;
  }
  for (const char* bad : {"6", "7", "x", "33", "@a", "5fuse"}) {
    const Variable set("COIL_DEBUG", bad);
    EXPECT_EQ(Log::from_env().error().code, ErrorCode::bad_option) << bad;
  }
  const Variable set("COIL_DEBUG", "5@fuse");
  EXPECT_TRUE(Log::from_env().value().enabled(LogLevel::ir, "fuse"));
  EXPECT_FALSE(Log::from_env().value().enabled(LogLevel::ir, "other"));
}

TEST(Progress, OneLineOrSilence) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Progress silent(Progress::Mode::automatic, ends[1]);  // a pipe is no terminal
    silent.begin("compiling", 3);
    silent.step("a");
    EXPECT_FALSE(silent.live());
  }
  {
    Progress progress(Progress::Mode::always, ends[1]);
    progress.begin("compiling", 2);
    progress.step("first");
    progress.step("second");
  }
  ::close(ends[1]);
  char buffer[4096] = {};
  const ssize_t n = ::read(ends[0], buffer, sizeof buffer - 1);
  ::close(ends[0]);
  const std::string text(buffer, n > 0 ? static_cast<size_t>(n) : 0);
  EXPECT_TRUE(text.starts_with("\r\033[Kcompiling  0/2")) << text;
  EXPECT_NE(text.find("compiling  2/2  second"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\033[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Crc32, IsThatOfZlibForAnyLengthAndPlace) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * i * 7 + i) >> 3);
  for (const size_t length : {0, 1, 15, 1023, 1024, 1025, 1087, 1088, 1100, 1200, 4096, 4999}) {
    for (const size_t begin : {0, 1}) {
      const std::span<const uint8_t> piece(bytes.data() + begin, length);
      for (const uint32_t before : {0u, 1u, 0xcbf43926u, ~0u}) {
        const auto want = length == 0 ? before : static_cast<uint32_t>(crc32_z(before, piece.data(), length));
        EXPECT_EQ(crc32_of(piece, before), want) << length << " " << begin;
      }
    }
  }
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32_of({reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0xcbf43926u);
}

}  // namespace
}  // namespace coil
