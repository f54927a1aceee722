// Which problems go to cuBLASLt or cuDNN. The tables are ranges around what was measured on an H200 (with graphs, the second pass
// over the result counted at 2 us and its bytes): the library was at least 1.2 times as fast as the best of our kernels.
#include "templates/cuda_library.h"

#include <span>
#include <string_view>

#include <fmt/format.h>

namespace coil::templates {
namespace {

struct Range {
  int64_t least, most;
};
struct GemmRow {
  bool half;               // bf16, f16; else f32
  Range m, n, k;
  bool weight;             // b is [n, k], as of nn.Linear; else any layout
  bool odd;                // only where rows are not whole 16 bytes apart, which keeps TMA from them
};
// Measured: 64 x 4096 x 4096 in 12.1 us against 20.0; 2048 x 1280 x 3420 in 100 against 143; 98 x 512 x 4608 in 25 against 40;
// 2048 x 2048 x 2048 in 353 against 461.
constexpr GemmRow kGemmRows[] = {
    {true, {33, 64}, {2048, 8192}, {2048, 8192}, true, false},
    {true, {1536, 4096}, {1024, 4096}, {2048, 8192}, true, true},
    {false, {65, 128}, {256, 1024}, {2048, 8192}, true, false},
    {false, {1536, 4096}, {1536, 4096}, {1536, 4096}, false, false},
};

struct ConvRow {
  Range pixels, channels, k;  // k: input channels * taps
};
// ResNet-50's later layers, batch 32: 17 to 20 us against 41 to 59 of the mma.sync kernels.
constexpr ConvRow kConvRows[] = {
    {{1024, 32768}, {128, 2048}, {1024, 8192}},
};

std::optional<int64_t> known(Expr e) { return e && e->is_constant() ? std::optional(e->as_int()) : std::nullopt; }

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

CudaVariant library_variant(std::string name, std::string_view type, int width, std::string_view rows, std::string_view columns) {
  CudaVariant v;
  v.name = std::move(name);
  v.header = "cuda/apply_epilogue.h";
  v.call = fmt::format("cd::apply_epilogue<{}, {}>(t, epilogue);", type, width);
  v.grid_x = fmt::format("({} * (({} + {}) / {}) + 255) / 256", rows, columns, width - 1, width);
  return v;
}

// Whether rows along the contiguous axis of b, [n, k], or of a, [m, k], start at other addresses than multiples of 16.
bool odd_lines(const CudaGemmFacts& f) {
  const std::optional<int64_t> a = known(f.a_row), b = known(f.b_col);
  return a && b && (*a % 8 != 0 || *b % 8 != 0);
}

}  // namespace

std::optional<CudaVariant> cuda_gemm_library(const CudaGemmFacts& f, int sm) {
  const bool half = f.dtype == DType::bf16 || f.dtype == DType::f16;
  if (sm != 90 || (!half && f.dtype != DType::f32) || known(f.batch) != 1) return std::nullopt;
  const bool weight = known(f.a_col) == 1 && known(f.b_row) == 1;
  for (const GemmRow& row : kGemmRows) {
    std::string condition;
    if (row.half != half || (row.weight && !weight) || (row.odd && !odd_lines(f))) continue;
    if (!within(condition, f.m, "t.m", row.m) || !within(condition, f.n, "t.n", row.n) || !within(condition, f.k, "t.k", row.k)) continue;
    CudaVariant v = library_variant("cublas", "float", half ? 8 : 4, "t.m", "t.n");
    v.library = "libcublasLt";
    v.condition = condition + fmt::format("cd::cublas_gemm(call, &t, {})", info(f.dtype).shim_number);
    v.scratch_bytes = at_most(f.m, row.m) * at_most(f.n, row.n) * 4 + kLibraryScratchBytes;
    return v;
  }
  return std::nullopt;
}

std::optional<CudaVariant> cuda_conv_library(const CudaConvFacts& f, int sm) {
  const Conv2d& def = f.def;
  const bool half = f.dtype == DType::bf16 || f.dtype == DType::f16;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(f.result_sizes[1]);
  if (sm != 90 || !half || def.groups != 1 || !ic || !oc || *ic % 8 != 0 || *oc % 8 != 0) return std::nullopt;
  if (known(f.x_c) != 1 || f.w_alignment % 16 != 0) return std::nullopt;
  const Expr pixels = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3];
  const int64_t k = *ic * def.kernel[0] * def.kernel[1];
  for (const ConvRow& row : kConvRows) {
    std::string condition;
    if (*oc < row.channels.least || *oc > row.channels.most || k < row.k.least || k > row.k.most) continue;
    if (!within(condition, pixels, "t.n * t.oh * t.ow", row.pixels)) continue;
    CudaVariant v = library_variant("cudnn", info(f.dtype).c_name, 8, "t.n * t.oh * t.ow", "t.oc");
    v.library = "libcudnn";
    v.condition = condition + fmt::format("cd::cudnn_conv(call, &t, {})", info(f.dtype).shim_number);
    v.scratch_bytes = at_most(pixels, row.pixels) * (2 * *oc) + kLibraryScratchBytes;
    return v;
  }
  return std::nullopt;
}

}  // namespace coil::templates
