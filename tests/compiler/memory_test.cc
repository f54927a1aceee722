// A compile in which memory is not to be had, or a thread: each allocation of it fails once. It says COIL-E401 or is done without, and the next compile in
// the same process gives the package that it always gives. COIL_FAULT_POINTS: how many of the allocations to try.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "compiler/compile.h"
#include "compiler/target.h"
#include "frontend/program_reader.h"
#include "tests/paths.h"
#include "toolchain/compile.h"
#include "toolchain/link.h"
#include "toolchain/llvm_guard.h"
#include "tests/runtime/allocations.h"
#include "tests/runtime/sanitized.h"

namespace coil::testing {
namespace {

using runtime_test::count_allocations;
using runtime_test::count_failures;
using runtime_test::fail;
using runtime_test::Fault;
using runtime_test::LossIsKnown;

long points() {
  const char* wish = std::getenv("COIL_FAULT_POINTS");
  return wish ? std::atol(wish) : 40;
}

// Each of `all` calls of a kind fails once, or as many of them as points() says; work() gives a Result, and is right afterwards.
template <class F>
std::map<int, long> sweep(Fault kind, bool onwards, long all, const F& work) {
  std::map<int, long> codes;
  const auto expected = work();
  EXPECT_TRUE(expected.ok());
  const long step = std::max(1l, all / points());
  long tried = 0;
  for (long n = 1; n <= all; n += step, ++tried) {
    fail(kind, n, onwards);
    const auto result = work();
    const bool met = count_failures() > 0;
    fail(Fault::none, 0, false);
    if (!met) break;
    ++codes[result.ok() ? 0 : static_cast<int>(result.error().code)];
    if (result.ok()) {
      EXPECT_EQ(result.value(), expected.value()) << n;
    } else {
      EXPECT_TRUE(result.error().code == ErrorCode::out_of_memory || kind == Fault::file) << n << ": " << result.error().to_string();
    }
    if (tried % 4) continue;
    const auto next = work();
    if (next.ok() && next.value() == expected.value()) continue;
    ADD_FAILURE() << "after the failure of call " << n << (next.ok() ? ": another result" : next.error().to_string());
    break;
  }
  return codes;
}

template <class F>
void expect_met(bool onwards, bool told, const F& work) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  ASSERT_TRUE(work().ok());  // what is made once in a process is made now
  const long before = count_allocations();
  ASSERT_TRUE(work().ok());
  std::map<int, long> codes = sweep(Fault::allocation, onwards, count_allocations() - before, work);
  EXPECT_GT(codes[told ? 401 : 0], 0);
}

constexpr const char* kSource = R"(#include "simd.h"
extern "C" __attribute__((visibility("default"))) void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] * 2 + 1 : -x[i];
})";

TEST(LlvmFaults, InClang) {
  const toolchain::CompileRequest request = {.source = kSource};
  for (const bool onwards : {false, true}) expect_met(onwards, true, [&] { return toolchain::compile_cpp(request); });
}

// What fails once in lld, or in coil's own code, has another try with what is kept apart.
TEST(LlvmFaults, InLld) {
  const toolchain::Bytes object = toolchain::compile_cpp({.source = kSource}).value();
  const toolchain::LinkRequest request = {.inputs = {{"a", object}}, .soname = "model.so", .exports = {"run"}, .needed = {"libm.so.6"}};
  expect_met(false, false, [&] { return toolchain::link_shared(request); });
}

// Where LLVM is left while it holds locks, others get them: its list of passes allocates under one, and the next that registers a pass waits for it.
TEST(LlvmFaults, LocksAreGivenBack) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  std::mutex plain, before;
  std::shared_mutex read, written;
  auto work = [&] {
    plain.lock();
    before.lock();
    read.lock_shared();
    plain.unlock();
    written.lock();
    plain.lock();
    before.unlock();
    fail(Fault::allocation, 1, true);
    void* volatile data = std::malloc(100);
    std::free(data);
  };
  std::string reason;
  const toolchain::Ending ending = toolchain::guarded(work, reason);
  fail(Fault::none, 0, false);
  EXPECT_EQ(ending, toolchain::Ending::no_memory);
  EXPECT_TRUE(plain.try_lock());
  EXPECT_TRUE(before.try_lock());
  EXPECT_TRUE(read.try_lock());
  EXPECT_TRUE(written.try_lock());
}

// The first compile of a process, which makes what is made once; one allocation of it fails. In processes of their own.
TEST(LlvmFaults, InTheFirstCompile) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  for (long n : {1l, 40l, 700l, 1904l, 3000l, 6000l, 9000l, 12000l}) {
    const std::string command =
        "COIL_FAULT_AT=" + std::to_string(n) + " timeout 60 " + self + " --gtest_also_run_disabled_tests --gtest_filter=LlvmFaults.DISABLED_First > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << n;
  }
}

TEST(LlvmFaults, DISABLED_First) {
  const char* at = std::getenv("COIL_FAULT_AT");
  if (!COIL_COUNTS_ALLOCATIONS || !at) return;
  const toolchain::CompileRequest request = {.source = kSource};
  fail(Fault::allocation, std::atol(at), false);
  const auto first = toolchain::compile_cpp(request);
  fail(Fault::none, 0, false);
  EXPECT_TRUE(first.ok() || first.error().code == ErrorCode::out_of_memory);
  for (int i = 0; i < 2; ++i) {
    const auto next = toolchain::compile_cpp(request);
    ASSERT_TRUE(next.ok()) << next.error().to_string();
    EXPECT_TRUE(!first.ok() || first.value() == next.value());
  }
}

// lld ends the process where it meets what it calls fatal.
TEST(LlvmFaults, FatalErrorsOfLldEndTheLink) {
  const toolchain::Bytes object = toolchain::compile_cpp({.source = kSource}).value();
  const toolchain::Bytes cut(object.begin(), object.begin() + static_cast<long>(object.size() / 2));
  for (int i = 0; i < 2; ++i) {
    const auto bad = [&] {
      const LossIsKnown known;  // lld is left where it stands, with what it held (docs/reliability.md, "What remains")
      return toolchain::link_shared({.inputs = {{"cut.o", cut}}, .exports = {"run"}});
    }();
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().code, ErrorCode::internal);
    EXPECT_NE(bad.error().message.find("cut.o"), std::string::npos) << bad.error().message;
    EXPECT_TRUE(toolchain::link_shared({.inputs = {{"a.o", object}}, .exports = {"run"}}).ok());
  }
}

struct Way {
  const char* program;
  Fault kind;
  int threads;
};

// Compiles a program; nothing of its own while faults are on.
class Compile {
 public:
  explicit Compile(const Way& way) : path_(std::string(COIL_SOURCE_DIR "/tests/fuzz/") + way.program + ".pt2") {
    options_.targets = parse_targets("cpu:x86-64-v3").value();
    options_.opt_level = 1;
    options_.threads = way.threads;
  }
  Result<std::vector<uint8_t>> operator()() const {
    TRY(const Graph graph, read_program_file(path_));
    return compile_to_memory(graph, options_);
  }

 private:
  std::string path_;
  CompileOptions options_;
};

class CompileFaults : public ::testing::TestWithParam<Way> {};

TEST_P(CompileFaults, AreErrorsThatLeaveNothing) {
  const Way way = GetParam();
  const Compile work(way);
  if (way.kind == Fault::allocation) return expect_met(false, true, work);
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  for (const bool onwards : {false, true}) EXPECT_GE(sweep(way.kind, onwards, 12, work).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, CompileFaults,
                         ::testing::Values(Way{"programs/apart", Fault::allocation, 1}, Way{"seeds/reader/mlp_dynamic", Fault::allocation, 2},
                                           Way{"programs/apart", Fault::thread, 3}, Way{"programs/apart", Fault::file, 1}));

long address_space() {
  std::ifstream pages("/proc/self/statm");
  long count = 0;
  pages >> count;
  return count * sysconf(_SC_PAGESIZE);
}

// As it is in truth: a process that may have so much memory and no more.
TEST(CompileFaults, UnderALimitOfMemory) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer takes address space of its own";
  const Compile work({"programs/apart", Fault::none, 2});
  const auto expected = work();
  ASSERT_TRUE(expected.ok());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const rlim_t old = limit.rlim_cur;
  long refused = 0, done = 0;
  for (long i = 0; i < points() / 4 + 10; ++i) {
    // From what the process holds (there is free memory in its heap), in steps that grow from 4 KiB to 64 MiB.
    limit.rlim_cur = static_cast<rlim_t>(address_space() + (4096l << (i % 15)) + i * 4096);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    const auto result = work();
    limit.rlim_cur = old;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    ++(result.ok() ? done : refused);
    if (result.ok()) {
      ASSERT_EQ(result.value(), expected.value()) << i;
    } else {
      ASSERT_EQ(result.error().code, ErrorCode::out_of_memory) << i << ": " << result.error().to_string();
    }
    ASSERT_EQ(work().value(), expected.value()) << i;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(done, 0);
}

}  // namespace
}  // namespace coil::testing
