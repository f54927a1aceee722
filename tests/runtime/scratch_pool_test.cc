// Scratch space of calls from a pool of the caller's (PyTorch's caching allocator), on the fake driver.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "base/result.h"
#include "fake_cuda.h"
#include "fixture.h"
#include "runtime/context.h"

namespace coil::runtime_test {
namespace {

class CountingPool : public runtime::ScratchPool {
 public:
  explicit CountingPool(const runtime::Device& device) : memory_(device) {}
  uint8_t* take(int64_t bytes, CoilError* reason) override {
    asked.push_back(bytes);
    if (bytes <= limit && memory_.reserve(1 << 16, reason)) return memory_.data();
    reason->code = static_cast<int32_t>(ErrorCode::out_of_memory);
    std::snprintf(reason->message, sizeof reason->message, "the pool has %lld bytes", static_cast<long long>(limit));
    return nullptr;
  }
  int64_t limit = 1 << 16;
  std::vector<int64_t> asked;

 private:
  runtime::Buffer memory_;  // the fake driver's, which the CPU can read
};

class ScratchPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_driver();
    reinterpret_cast<FakeConfigureFn>(dlsym(RTLD_DEFAULT, "fake_cuda_configure"))(1, 90, int64_t{1} << 30);
    bytes_ = package("CUDA");
    auto opened = runtime::Model::open_memory({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}, {.device = "cuda:0"});
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    model_ = std::move(opened).value();
    x_ = std::make_unique<runtime::Buffer>(model_->device());
    ids_ = std::make_unique<runtime::Buffer>(model_->device());
    ASSERT_TRUE(x_->reserve(1000 * 16, &error_) && ids_->reserve(1000 * 8, &error_)) << error_.message;
    context_ = std::make_unique<runtime::Context>(model_);
  }
  void TearDown() override {
    context_.reset();
    x_.reset();
    ids_.reset();
    model_.reset();
  }

  // Row r of x is r; ids are 1. The code of the call's error, or 0 if y = x * 2 + 1 + table[1].
  int32_t call(int64_t rows) {
    for (int64_t i = 0; i < rows * 4; ++i) reinterpret_cast<float*>(x_->data())[i] = static_cast<float>(i / 4);
    for (int64_t i = 0; i < rows; ++i) reinterpret_cast<int64_t*>(ids_->data())[i] = 1;
    const int64_t x_sizes[] = {rows, 4}, ids_sizes[] = {rows};
    int64_t times = 2, sizes[2], strides[2];
    const CoilTensorView in[] = {{x_->data(), x_sizes, nullptr, 2, COIL_FLOAT32, COIL_CUDA, 0},
                                 {ids_->data(), ids_sizes, nullptr, 1, COIL_INT64, COIL_CUDA, 0},
                                 {&times, nullptr, nullptr, 0, COIL_INT64, COIL_CPU, 0}};
    CoilTensorView out = {nullptr, sizes, strides, 2, COIL_FLOAT32, COIL_CUDA, 0};
    error_ = {};
    if (const int32_t code = context_->run(in, 3, &out, 1, &error_)) return code;
    if (context_->synchronise(&error_)) return error_.code;
    for (int64_t i = 0; i < rows * 4; ++i) {
      const float want = static_cast<float>(i / 4 * 2 + 1 + 4 + i % 4);
      if (static_cast<const float*>(out.data)[i] != want) return -1;
    }
    return 0;
  }

  std::string bytes_;
  std::shared_ptr<runtime::Model> model_;
  std::unique_ptr<runtime::Buffer> x_, ids_;
  std::unique_ptr<runtime::Context> context_;
  CoilError error_{};
};

TEST_F(ScratchPoolTest, IsAskedInEachCallForWhatThatTakes) {
  CountingPool pool(model_->device());
  context_->draw_from(&pool);
  EXPECT_EQ(call(5), 0) << error_.message;
  EXPECT_EQ(call(70), 0) << error_.message;
  EXPECT_EQ(call(3), 0) << error_.message;
  EXPECT_EQ(pool.asked, (std::vector<int64_t>{5 * 16, 70 * 16, 3 * 16}));
  context_->draw_from(nullptr);  // from now on the context's own
  EXPECT_EQ(call(8), 0) << error_.message;
  EXPECT_EQ(pool.asked.size(), 3u);
}

TEST_F(ScratchPoolTest, WithoutMemoryIsAnErrorThatSaysWhy) {
  CountingPool pool(model_->device());
  pool.limit = 10 * 16;
  context_->draw_from(&pool);
  EXPECT_EQ(call(11), static_cast<int32_t>(ErrorCode::out_of_memory));
  EXPECT_NE(std::string(error_.message).find("the pool has 160 bytes"), std::string::npos) << error_.message;
  EXPECT_NE(std::string(error_.message).find("scratch space of 176 bytes"), std::string::npos) << error_.message;
  EXPECT_EQ(call(10), 0) << error_.message;
}

}  // namespace
}  // namespace coil::runtime_test
