// device/cuda/apply_epilogue.h as generated kernels use it, for every architecture. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include "toolchain/nvrtc.h"

namespace coil::toolchain {
namespace {

TEST(NvrtcEpilogue, EveryInstanceForEveryArchitecture) {
  const auto nvrtc = Nvrtc::load();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().to_string();
  std::string text =
      "#include \"cuda/base.h\"\n#include \"cuda/params.h\"\n#include \"cuda/apply_epilogue.h\"\n"
      "struct Store {\n  float* out;\n  cd::i64 columns;\n  template <int W>\n"
      "  __device__ __forceinline__ void operator()(cd::i64, int row, int col, const float (&acc)[W], int count) const {\n"
      "    for (int i = 0; i < count; ++i) out[row * columns + col + i] = acc[i];\n  }\n};\n";
  int kernels = 0;
  for (const char* params : {"CudaGemm", "CudaConv2d"}) {
    for (const char* instance : {"float, 8", "float, 4", "cd::bf16, 8", "cd::f16, 8"}) {
      text += "COIL_KERNEL void __launch_bounds__(256) k" + std::to_string(kernels++) + "(const __grid_constant__ " + params +
              " t, const __grid_constant__ Store s) {\n  cd::apply_epilogue<" + instance + ">(t, s);\n}\n";
    }
  }
  std::vector<CudaRequest> requests;
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"}) requests.push_back({"epilogue.cu", text, arch});
  const auto built = nvrtc.value()->compile_all(requests, 2);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
  for (const auto& cubin : built.value()) EXPECT_GT(cubin.size(), 1000u);
}

}  // namespace
}  // namespace coil::toolchain
