// Routines of the device library whose memory is not to be had: the call fails by COIL-E401, and the next one is right.
#include <gtest/gtest.h>

#include <cstring>

#include "coil/coil.h"
#include "compiler/compile.h"
#include "compiler/target.h"
#include "frontend/program_reader.h"
#include "tests/paths.h"
#include "tests/runtime/allocations.h"

namespace coil::testing {
namespace {

using runtime_test::count_allocations;
using runtime_test::count_failures;
using runtime_test::fail;
using runtime_test::Fault;

// A program of tests/fuzz of one float32 input, open with so many threads.
class Open {
 public:
  Open(const char* program, int32_t threads) {
    const Result<Graph> graph = read_program_file(std::string(COIL_SOURCE_DIR "/tests/fuzz/programs/") + program + ".pt2");
    CompileOptions options;
    options.targets = parse_targets("cpu:x86-64-v3").value();
    package_ = compile_to_memory(graph.value(), options).value();
    const coil_options how = {.struct_bytes = sizeof how, .num_threads = threads};
    EXPECT_EQ(coil_open_memory(package_.data(), package_.size(), &how, &model_), COIL_OK) << coil_last_error();
    EXPECT_EQ(coil_context_create(model_, &context_), COIL_OK);
    coil_output_count_ = coil_num_outputs(model_);
  }
  ~Open() {
    coil_context_destroy(context_);
    coil_close(model_);
  }

  // Nothing is allocated here but by coil.
  coil_status run(const float* x, const int64_t (&sizes)[2]) {
    const coil_tensor input = {const_cast<float*>(x), sizes, nullptr, 2, COIL_DTYPE_FLOAT32};
    return coil_run(context_, &input, 1, outputs_, coil_output_count_);
  }

  std::vector<std::string> results() const {
    std::vector<std::string> out;
    for (int32_t i = 0; i < coil_output_count_; ++i) {
      size_t bytes = outputs_[i].dtype == COIL_DTYPE_COMPLEX128 ? 16 : outputs_[i].dtype == COIL_DTYPE_COMPLEX64 ? 8 : 4;
      for (int32_t d = 0; d < outputs_[i].rank; ++d) bytes *= static_cast<size_t>(outputs_[i].sizes[d]);
      out.emplace_back(static_cast<const char*>(outputs_[i].data), bytes);
    }
    return out;
  }

 private:
  std::vector<uint8_t> package_;
  coil_model* model_ = nullptr;
  coil_context* context_ = nullptr;
  coil_tensor outputs_[4] = {};
  int32_t coil_output_count_ = 0;
};

std::vector<float> numbers(size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>((i * 2654435761u >> 7) % 1000) / 100 + 0.5f;
  return out;
}

// Every allocation of a call at these sizes fails once, and all from each on.
void expect_told(Open& open, const int64_t (&sizes)[2], long allocations) {
  const std::vector<float> x = numbers(static_cast<size_t>(sizes[0] * sizes[1]));
  ASSERT_EQ(open.run(x.data(), sizes), COIL_OK) << coil_last_error();
  const std::vector<std::string> expected = open.results();
  const long before = count_allocations();
  ASSERT_EQ(open.run(x.data(), sizes), COIL_OK);
  const long all = count_allocations() - before;
  EXPECT_EQ(all, allocations);
  for (const bool onwards : {false, true}) {
    for (long n = 1; n <= all; ++n) {
      fail(Fault::allocation, n, onwards);
      const coil_status status = open.run(x.data(), sizes);
      fail(Fault::none, 0, false);
      ASSERT_EQ(status, 401) << n << " of " << all << " at " << sizes[0] << " x " << sizes[1] << ": " << coil_last_error();
      ASSERT_EQ(open.run(x.data(), sizes), COIL_OK) << coil_last_error();
      ASSERT_EQ(open.results(), expected) << n;
    }
  }
}

class LibraryMemory : public ::testing::TestWithParam<int32_t> {};

// All lengths, so that what is taken beforehand is enough for each: what PocketFFT took beyond it would end the process.
TEST_P(LibraryMemory, Transforms) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  Open open("lengths", GetParam());
  for (int64_t n = 2; n < (GetParam() == 1 ? 600 : 150); ++n) expect_told(open, {n % 7 + 2, n}, 3);
  for (const int64_t n : {1009, 1024, 2310, 4099, 4620, 7919, 8192, 10007, 12288, 30011, 65536, 94771, 99991}) expect_told(open, {5, n}, 3);
  expect_told(open, {64, 997}, 3);
  expect_told(open, {64, 1000}, 3);
}

TEST_P(LibraryMemory, LinearSystems) {
  if (!COIL_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocator";
  Open open("solve", GetParam());
  expect_told(open, {4, 4}, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, LibraryMemory, ::testing::Values(1, 4));

}  // namespace
}  // namespace coil::testing
