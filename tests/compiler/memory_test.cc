// A compile in which memory is not to be had, or a thread: each allocation of it fails once. It says COIL-E401 or is done without, and the next compile in
// the same process gives the package that it always gives. COIL_FAULT_POINTS: how many of the allocations to try.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "compiler/compile.h"
#include "frontend/program_reader.h"
#include "tests/paths.h"
#include "tests/runtime/allocations.h"

namespace coil::testing {
namespace {

using runtime_test::count_allocations;
using runtime_test::count_failures;
using runtime_test::fail;
using runtime_test::Fault;

Result<std::vector<uint8_t>> compiled(const std::string& path, int threads) {
  TRY(const Graph graph, read_program_file(path));
  CompileOptions options;
  options.isas = {"v3"};
  options.opt_level = 1;
  options.threads = threads;
  return compile_to_memory(graph, options);
}

long points() {
  const char* wish = std::getenv("COIL_FAULT_POINTS");
  return wish ? std::atol(wish) : 200;
}

struct Way {
  const char* program;
  Fault kind;
  bool onwards;
  int threads;
};

class CompileFaults : public ::testing::TestWithParam<Way> {};

TEST_P(CompileFaults, AreErrorsThatLeaveNothing) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  const Way way = GetParam();
  const std::string path = std::string(COIL_SOURCE_DIR "/tests/fuzz/") + way.program + ".pt2";
  const auto expected = compiled(path, way.threads);  // what is made once in a process is made now
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  const long before = count_allocations();
  ASSERT_EQ(compiled(path, way.threads).value(), expected.value());
  const long all = way.kind == Fault::allocation ? count_allocations() - before : 40, step = std::max(1l, all / points());
  std::map<int, long> codes;
  long tried = 0;
  for (long n = 1 + tried % step; n <= all; n += step, ++tried) {
    fail(way.kind, n, way.onwards);
    const auto result = compiled(path, way.threads);
    const bool met = count_failures() > 0;
    fail(Fault::none, 0, false);
    if (!met) break;
    ++codes[result.ok() ? 0 : static_cast<int>(result.error().code)];
    if (result.ok()) {
      ASSERT_EQ(result.value(), expected.value()) << n;
    } else {
      ASSERT_EQ(result.error().code, ErrorCode::out_of_memory) << n << ": " << result.error().to_string();
    }
    if (tried % 4) continue;
    const auto next = compiled(path, way.threads);
    ASSERT_TRUE(next.ok()) << n << ": " << next.error().to_string();
    ASSERT_EQ(next.value(), expected.value()) << n;
  }
  for (const auto& [code, count] : codes) std::printf("code %d: %ld\n", code, count);
  EXPECT_GT(codes[401], way.kind == Fault::allocation ? tried / 2 : -1);
}

INSTANTIATE_TEST_SUITE_P(All, CompileFaults, ::testing::Values(Way{"programs/apart", Fault::allocation, false, 1}, Way{"programs/apart", Fault::allocation, true, 1},
                                                               Way{"seeds/reader/mlp_dynamic", Fault::allocation, false, 2}, Way{"programs/apart", Fault::thread, false, 3},
                                                               Way{"programs/apart", Fault::thread, true, 3}, Way{"programs/apart", Fault::file, false, 1}));

}  // namespace
}  // namespace coil::testing
