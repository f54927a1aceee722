// The CUDA device headers compile for every architecture, and NVRTC's errors come through. Needs NVRTC, but no GPU.
#include "toolchain/nvrtc.h"

#include <gtest/gtest.h>

#include "toolchain/embedded.h"

namespace coil::toolchain {
namespace {

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Nvrtc::load();
    if (!loaded.ok()) GTEST_SKIP() << loaded.error().to_string();
    nvrtc_ = loaded.value();
  }
  std::shared_ptr<const Nvrtc> nvrtc_;
};

TEST_F(NvrtcTest, DeviceHeadersCompileForEveryArchitecture) {
  std::vector<CudaRequest> requests;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with("device/cuda/")) continue;
    for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"}) {
      requests.push_back({std::string(file.path), "#include \"" + std::string(file.path.substr(7)) + "\"\n", arch});
    }
  }
  ASSERT_GT(requests.size(), 5u);
  const auto built = nvrtc_->compile_all(requests, 2);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

TEST_F(NvrtcTest, SameTextSameBytes) {
  const CudaRequest request = {"k.cu", "#include \"cuda/base.h\"\nCOIL_KERNEL void k(float* x) { x[threadIdx.x] = cd::exp(x[threadIdx.x]); }\n", "sm_90a"};
  const auto a = nvrtc_->compile(request), b = nvrtc_->compile(request);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value(), b.value());
  EXPECT_GT(a.value().size(), 1000u);
}

TEST_F(NvrtcTest, BrokenTextNamesItsLine) {
  const auto r = nvrtc_->compile({"broken.cu", "\n\nint x = y;\n", "sm_80"});
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("broken.cu(3)"), std::string::npos) << r.error().message;
}

TEST_F(NvrtcTest, UnknownArchitectureIsTheUsersError) {
  const auto r = nvrtc_->compile({"k.cu", "", "sm_12"});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::unsupported_arch);
}

}  // namespace
}  // namespace coil::toolchain
