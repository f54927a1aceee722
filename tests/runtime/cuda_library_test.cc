// Products and convolutions by NVIDIA's libraries (device/cuda_blas.cc, cuda_dnn.cc), against fakes of them on the fake driver:
// what is asked, what is refused, what is kept, and that every failure leaves the call to coil's own kernels.
#include <thread>

#include "cuda_library_fixture.h"

namespace coil::runtime_test {
namespace {

TEST_F(CudaLibraries, ProductsOfEveryLayout) {
  fake_->workspace = 16 << 20;  // all of it is written
  for (int32_t dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16}) {
    for (int layout = 0; layout < 8; layout++) {
      const Product p = {.dtype = dtype, .a_across = (layout & 1) != 0, .b_across = (layout & 2) != 0, .pad = layout & 4 ? 3 : 0};
      EXPECT_EQ(gemm(p), "") << dtype << ", layout " << layout;
    }
  }
  EXPECT_EQ(fake_->stream, stream_);
  EXPECT_EQ(fake_->workspace_given, 16 << 20);
  EXPECT_EQ(gemm({.m = 1, .n = 1, .k = 1}), "");
  EXPECT_EQ(gemm({.m = 1, .n = 33, .k = 2, .b_across = false}), "");
}

TEST_F(CudaLibraries, TellsTheAlignmentOfAddresses) {
  for (size_t offset : {0u, 4u, 8u}) {
    EXPECT_EQ(gemm({.a_offset = offset}), "");
    // The library's matrices are column by column: our b is its a.
    EXPECT_EQ(fake_->align_b, offset == 0 ? 16u : offset);
    EXPECT_EQ(fake_->align_a, 16u);
  }
  EXPECT_EQ(gemm({.a_offset = 48}), "");
  EXPECT_EQ(fake_->advised, 3);  // more than 16 bytes help nobody
  EXPECT_EQ(gemm({.dtype = COIL_BFLOAT16, .b_offset = 2}), "");
  EXPECT_EQ(fake_->align_a, 2u);
}

TEST_F(CudaLibraries, ProductsThatItCannotTake) {
  const std::function<void(CudaGemm&)> changes[] = {[](CudaGemm& t) { t.batch = 2; },
                                                    [](CudaGemm& t) { t.batch = 0; },
                                                    [](CudaGemm& t) { t.m = 0; },
                                                    [](CudaGemm& t) { t.n = 0; },
                                                    [](CudaGemm& t) { t.k = 0; },
                                                    [](CudaGemm& t) { t.a_row = 0; },
                                                    [](CudaGemm& t) { t.a_row = 2, t.a_col = 3; },
                                                    [](CudaGemm& t) { t.b_row = t.k - 1; },
                                                    [](CudaGemm& t) { t.b_col = 2; },
                                                    [](CudaGemm& t) { t.m = int64_t{1} << 31; },
                                                    [](CudaGemm& t) { t.a_row = -9; }};
  for (size_t i = 0; i < std::size(changes); i++) {
    Call call({.n = 11});
    changes[i](call.t);
    EXPECT_FALSE(gemm(call, COIL_FLOAT32)) << i;
    EXPECT_TRUE(call.untouched()) << i;
  }
  Call call({.dtype = COIL_FLOAT64});
  EXPECT_FALSE(gemm(call, COIL_FLOAT64));
  EXPECT_EQ(fake_->created, 0);  // it was not even started
}

TEST_F(CudaLibraries, Convolutions) {
  fake_->workspace = 16 << 20;
  for (int32_t dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16}) {
    EXPECT_EQ(conv({.dtype = dtype}), "");
    EXPECT_EQ(conv({.stride = 2, .dtype = dtype}), "");
    EXPECT_EQ(conv({.pad = 2, .dilation = 2, .dtype = dtype}), "");
    EXPECT_EQ(conv({.kernel = 1, .stride = 2, .pad = 0, .dtype = dtype}), "");
    EXPECT_EQ(conv({.dtype = dtype, .gap = 8}), "");
  }
  EXPECT_EQ(fake_->stream, stream_);
}

TEST_F(CudaLibraries, ConvolutionsThatItCannotTake) {
  const std::function<void(CudaConv2d&)> changes[] = {[](CudaConv2d& t) { t.groups = 2; },
                                                      [](CudaConv2d& t) { t.n = 0; },
                                                      [](CudaConv2d& t) { t.x_c = 2; },
                                                      [](CudaConv2d& t) { t.x_w = t.ic - 1; },
                                                      [](CudaConv2d& t) { t.x_n = 0; },
                                                      [](CudaConv2d& t) { t.oh = 0; },
                                                      [](CudaConv2d& t) { t.w = static_cast<const char*>(t.w) + 4; }};
  for (size_t i = 0; i < std::size(changes); i++) {
    ConvCall call({});
    changes[i](call.t);
    EXPECT_FALSE(conv(call, COIL_FLOAT32)) << i;
    EXPECT_TRUE(call.untouched()) << i;
  }
  EXPECT_EQ(conv({.x_offset = 8}), "refused");
  ConvCall call({});
  EXPECT_FALSE(conv(call, COIL_FLOAT64));
  EXPECT_EQ(fake_->created, 0);
}

TEST_F(CudaLibraries, OnlyEnginesThatAreExact) {
  for (int inexact : {0, 1, 2}) {
    fake_->inexact = inexact;
    EXPECT_EQ(conv({.n = 1 + inexact}), "");
    EXPECT_EQ(fake_->engine, inexact);
  }
  fake_->inexact = 3;
  EXPECT_EQ(conv({.n = 4}), "refused");
}

// They are TF32's; bf16 and f16 lose nothing on them.
TEST_F(CudaLibraries, NoTensorCoresForFloat32) {
  for (int engines : {0, 1, 2}) {
    fake_->tensor_cores = engines;
    EXPECT_EQ(conv({.n = 1 + engines}), "");
    EXPECT_EQ(fake_->engine, engines);
    EXPECT_EQ(conv({.n = 1 + engines, .dtype = COIL_BFLOAT16}), "");
    EXPECT_EQ(fake_->engine, 0);
  }
  fake_->tensor_cores = 3;
  EXPECT_EQ(conv({.n = 4}), "refused");
  EXPECT_EQ(conv({.n = 4, .dtype = COIL_FLOAT16}), "");
}

TEST_F(CudaLibraries, PlansAreKept) {
  each([&](const auto& compute) {
    *fake_ = {.handles = fake_->handles, .objects = fake_->objects};
    for (int i = 0; i < 5; i++) EXPECT_EQ(compute(0), "");
    EXPECT_EQ(fake_->advised, 1);
    EXPECT_EQ(compute(1), "");
    EXPECT_EQ(compute(0), "");
    EXPECT_EQ(fake_->advised, 2);
    EXPECT_EQ(fake_->runs, 7);
    EXPECT_EQ(fake_->created, 1);
  });
}

TEST_F(CudaLibraries, WithoutTheLibrary) {
  name_libraries("/no/such/library.so");
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  name_libraries(libraries_path());  // it was looked for once
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  EXPECT_EQ(fake_->created, 0);
}

TEST_F(CudaLibraries, LibraryThatLacksFunctions) {
  name_libraries(fake_driver());
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
}

TEST_F(CudaLibraries, LibraryThatDoesNotStart) {
  fake_->fail_create = 1;
  each([&](const auto& compute) {
    fake_->created = 0;
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(fake_->created, 1);
  });
}

TEST_F(CudaLibraries, LibraryThatKnowsNoWay) {
  each([&](const auto& compute) {
    fake_->fail_advise = 15, fake_->advised = fake_->runs = 0;
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(fake_->advised, 1);
    EXPECT_EQ(fake_->runs, 0);
    fake_->fail_advise = 0;
    EXPECT_EQ(compute(1), "");  // another shape
  });
}

TEST_F(CudaLibraries, TooMuchWorkspace) {
  fake_->workspace = (16 << 20) + 1;
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  EXPECT_EQ(fake_->runs, 0);
}

TEST_F(CudaLibraries, RunThatFails) {
  each([&](const auto& compute) {
    fake_->runs = 0;
    EXPECT_EQ(compute(0), "");
    fake_->fail_run = 13;
    EXPECT_EQ(compute(0), "refused");
    fake_->fail_run = 0;
    EXPECT_EQ(compute(0), "refused");  // it is not tried again
    EXPECT_EQ(fake_->runs, 2);
    EXPECT_EQ(compute(1), "");
  });
}

TEST_F(CudaLibraries, CapturesOnlyWhatHasRun) {
  each([&](const auto& compute) {
    fake_->advised = fake_->created = 0;
    for (int code : {0, 901}) {  // while it is captured, or when the driver cannot say
      capture(code == 0, code);
      EXPECT_EQ(compute(0), "refused");
    }
    EXPECT_EQ(fake_->created, 0);
    capture(0, 0);
    EXPECT_EQ(compute(0), "");
    capture(1, 0);
    EXPECT_EQ(compute(0), "");
    EXPECT_EQ(compute(1), "refused");
    EXPECT_EQ(fake_->advised, 1);
    capture(0, 0);
    EXPECT_EQ(compute(1), "");
  });
}

TEST_F(CudaLibraries, SeveralThreads) {
  each([&](const auto& compute) {
    fake_->advised = fake_->runs = 0;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 30; j++) wrong += compute((i + j) % 4) != "";
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(fake_->advised, 4);
    EXPECT_EQ(fake_->runs, 240);
  });
}

TEST_F(CudaLibraries, EachDeviceHasItsOwn) {
  void* second = open(1);
  void* again = open(0);  // another model's code on the first device
  ASSERT_TRUE(second && again);
  for (void* device : {device_, second, again}) {
    EXPECT_EQ(gemm(Product{}, device), "");
    EXPECT_EQ(conv(Convolution{}, device), "");
  }
  EXPECT_EQ(fake_->handles, 6);
  EXPECT_EQ(fake_->advised, 6);
  close(second);
  close(again);
  EXPECT_EQ(fake_->handles, 2);
  EXPECT_EQ(gemm(Product{}), "");
  EXPECT_EQ(fake_->advised, 6);
  close(device_);
  device_ = open(0);  // and once more
  EXPECT_EQ(gemm(Product{}), "");
  EXPECT_EQ(fake_->handles, 1);
}

}  // namespace
}  // namespace coil::runtime_test
