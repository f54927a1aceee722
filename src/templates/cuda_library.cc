// Which problems go to cuBLASLt: products in float32 that are worth its second pass; of bf16 and f16 our own kernels are as fast or faster. Convolutions go to
// cuDNN where a tuner has timed that alone: which kernel it takes differs so much with its version (12.5 ms of one and 3.7 of ours for 32 images of VGG's 64
// channels at 224 x 224) that no rule holds.
#include "templates/cuda_library.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "base/cuda_machine.h"

namespace coil::templates {
namespace {

struct Range {
  int64_t least, most;
};

// The share of the CUDA cores' time that cuBLASLt saves beside own kernels, by which operands lie along k.
double saved_share(const CudaGemmFacts& f) {
  const bool a_along = is_one(f.a_col) || !is_one(f.a_row), b_along = is_one(f.b_row) || !is_one(f.b_col);
  return b_along ? 0.13 : a_along ? 0.06 : 0.15;
}

// The rows of a product with so many columns and steps that cuBLASLt gains on, by a model in nanoseconds: own kernels reach kReached of the CUDA cores' peak,
// of which the library saves a share, and then reads and writes the result once more in a launch of its own. On an H200, us, own kernels and the library
// without its pass: 4096 x 3072 x 768 455 and 391 (weights [k, n]: 429 and 408), 4096 x 768 x 3072 470 and 415, 4096 x 768 x 768 130 and 131, 768 x 3072 x
// 4096 of turned operands 478 and 407. Few rows or columns (98 x 512 x 4608: 28 and 25) stay. The results keep the scratch memory below 300 MB.
std::optional<Range> rows_to_gain_on(const CudaMachine& machine, int64_t n, int64_t k, double share) {
  constexpr double kReached = 0.7, kLaunch = 5000, kLeastGain = 8000;
  constexpr int64_t kFew = 512, kMostElements = int64_t{1} << 26;
  const double saved = share * static_cast<double>(k) / (machine.multiprocessors * machine.f32 * machine.clock * kReached), pass = 8 / machine.memory;
  if (n < kFew || saved <= pass) return std::nullopt;
  const double rows = (kLaunch + kLeastGain) / (static_cast<double>(n) * (saved - pass));
  const Range range{std::max(kFew, static_cast<int64_t>(std::ceil(rows))), kMostElements / n};
  return range.least <= range.most ? std::optional(range) : std::nullopt;
}

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
  v.grid_x = fmt::format("({} * (({} + 3) / 4) + {}) / {}", rows, columns, cd::kBlockThreads - 1, int{cd::kBlockThreads});
  return v;
}

}  // namespace

std::optional<CudaVariant> cuda_gemm_library(const CudaGemmFacts& f, const CudaMachine& machine, bool anywhere) {
  if (((machine.sm != 90 || f.tf32) && !anywhere) || f.dtype != DType::f32 || known(f.batch) != 1) return std::nullopt;
  if (anywhere) {
    CudaVariant v = library_variant("cublas", "libcublasLt", "", "cublas_gemm", "t.m", "t.n");
    v.scratch_bytes = f.m * f.n * 4 + kLibraryScratchBytes;
    return v;
  }
  const std::optional<int64_t> n = known(f.n), k = known(f.k);
  const std::optional<Range> rows = n && k ? rows_to_gain_on(machine, *n, *k, saved_share(f)) : std::nullopt;
  std::string condition;
  if (!rows || !within(condition, f.m, "t.m", *rows)) return std::nullopt;
  CudaVariant v = library_variant("cublas", "libcublasLt", std::move(condition), "cublas_gemm", "t.m", "t.n");
  v.scratch_bytes = reaches(f.m, *rows) * (at_most(f.m, *rows) * (4 * *n) + kLibraryScratchBytes);
  return v;
}

std::optional<CudaVariant> cuda_conv_library(const CudaConvFacts& f) {
  const Conv2d& def = f.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(f.result_sizes[1]);
  if (f.dtype != DType::f32 || def.groups != 1 || !ic || !oc) return std::nullopt;
  // 16 bytes of channels at a time.
  if (*ic % 4 != 0 || *oc % 4 != 0 || known(f.x_c) != 1 || f.w_alignment % 16 != 0) return std::nullopt;
  CudaVariant v = library_variant("cudnn", "libcudnn", "", "cudnn_conv", "t.n * t.oh * t.ow", "t.oc");
  v.scratch_bytes = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3] * (4 * *oc) + kLibraryScratchBytes;
  return v;
}

}  // namespace coil::templates
