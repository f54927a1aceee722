// Which problems go to cuBLASLt or cuDNN: float32 alone; of bf16 and f16 our own kernels are as fast or faster. The tables are
// ranges around what was measured on an H200, in CUDA graphs: the library with the second pass over its result (products) or in
// torch (convolutions).
#include "templates/cuda_library.h"

#include <fmt/format.h>

#include <string_view>

namespace coil::templates {
namespace {

struct Range {
  int64_t least, most;
};
struct GemmRow {
  Range m, n, k;
};
// Measured, own kernels and the library in us: 2048 x 2048 x 2048 432 and 349, 4096 x 4096 x 4096 3397 and 2735,
// 1537 x 1541 x 1539 257 and 207. With few rows it is the other way round: 98 x 512 x 4608 33 and 59.
constexpr GemmRow kGemmRows[] = {
    {{1536, 4096}, {1536, 4096}, {1536, 4096}},
};

struct ConvRow {
  Range pixels, channels, k;  // k: input channels * taps
};
// Measured, own kernels and the library in us: batch 32, 128 channels of 28 x 28 to 128, 3 x 3: 229 and 155. With small batches
// it is the other way round: 2 of 64 channels, 56 x 56, 23.6 and 38; 4 of 64, 28 x 28, 15 and 27. The upper ends keep the
// scratch memory below 300 MB.
constexpr ConvRow kConvRows[] = {
    {{16384, 131072}, {64, 512}, {512, 8192}},
};

// Adds what the host must ask so that `e`, the host's `text`, is in the range; false: it never is.
bool within(std::string& condition, Expr e, std::string_view text, const Range& range) {
  const auto least = lower_bound(e), most = upper_bound(e);
  if (least.value_or(range.least) > range.most || most.value_or(range.most) < range.least) return false;
  if (least.value_or(-1) < range.least) condition += fmt::format("{} >= {} && ", text, range.least);
  if (most.value_or(INT64_MAX) > range.most) condition += fmt::format("{} <= {} && ", text, range.most);
  return true;
}

// A dynamic size, no larger than the range that is served: scratch is for that.
Expr at_most(Expr e, const Range& range) { return index_min(e, e->pool->index(range.most)); }
// 1 from the range's beginning on, 0 below it: sizes that are not served need no scratch.
Expr reaches(Expr e, const Range& range) { return index_min(floor_div(e, e->pool->index(range.least)), e->pool->index(1)); }

// The call of `function` (cuda_blas.h, cuda_dnn.h) behind the condition, then the pass over its rows x columns floats.
CudaVariant library_variant(std::string name, std::string library, std::string condition, std::string_view function, std::string_view rows,
                            std::string_view columns) {
  CudaVariant v;
  v.name = std::move(name);
  v.library = std::move(library);
  v.condition = std::move(condition) + fmt::format("cd::{}(call, &t, {})", function, info(DType::f32).shim_number);
  v.header = "cuda/apply_epilogue.h";
  v.call = "cd::apply_epilogue<float, 4>(t, epilogue);";
  v.grid_x = fmt::format("({} * (({} + 3) / 4) + 255) / 256", rows, columns);
  return v;
}

}  // namespace

std::optional<CudaVariant> cuda_gemm_library(const CudaGemmFacts& f, int sm, bool anywhere) {
  if (((sm != 90 || f.tf32) && !anywhere) || f.dtype != DType::f32 || known(f.batch) != 1) return std::nullopt;
  if (anywhere) {
    CudaVariant v = library_variant("cublas", "libcublasLt", "", "cublas_gemm", "t.m", "t.n");
    v.scratch_bytes = f.m * f.n * 4 + kLibraryScratchBytes;
    return v;
  }
  for (const GemmRow& row : kGemmRows) {
    std::string condition;
    if (!within(condition, f.m, "t.m", row.m) || !within(condition, f.n, "t.n", row.n) || !within(condition, f.k, "t.k", row.k)) continue;
    CudaVariant v = library_variant("cublas", "libcublasLt", std::move(condition), "cublas_gemm", "t.m", "t.n");
    v.scratch_bytes = reaches(f.m, row.m) * reaches(f.n, row.n) * (at_most(f.m, row.m) * at_most(f.n, row.n) * 4 + kLibraryScratchBytes);
    return v;
  }
  return std::nullopt;
}

std::optional<CudaVariant> cuda_conv_library(const CudaConvFacts& f, int sm, bool anywhere) {
  const Conv2d& def = f.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(f.result_sizes[1]);
  if (((sm != 90 || f.tf32) && !anywhere) || f.dtype != DType::f32 || def.groups != 1 || !ic || !oc) return std::nullopt;
  // 16 bytes of channels at a time.
  if (*ic % 4 != 0 || *oc % 4 != 0 || known(f.x_c) != 1 || f.w_alignment % 16 != 0) return std::nullopt;
  const Expr pixels = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3];
  const int64_t k = *ic * def.kernel[0] * def.kernel[1];
  if (anywhere) {
    CudaVariant v = library_variant("cudnn", "libcudnn", "", "cudnn_conv", "t.n * t.oh * t.ow", "t.oc");
    v.scratch_bytes = pixels * (4 * *oc) + kLibraryScratchBytes;
    return v;
  }
  for (const ConvRow& row : kConvRows) {
    std::string condition;
    if (*oc < row.channels.least || *oc > row.channels.most || k < row.k.least || k > row.k.most) continue;
    if (!within(condition, pixels, "t.n * t.oh * t.ow", row.pixels)) continue;
    CudaVariant v = library_variant("cudnn", "libcudnn", std::move(condition), "cudnn_conv", "t.n * t.oh * t.ow", "t.oc");
    v.scratch_bytes = reaches(pixels, row.pixels) * (at_most(pixels, row.pixels) * (4 * *oc) + kLibraryScratchBytes);
    return v;
  }
  return std::nullopt;
}

}  // namespace coil::templates
