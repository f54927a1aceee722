// See cuda_conv_direct.h.
#include "templates/cuda_conv_direct.h"

#include <algorithm>

#include <fmt/format.h>

#include "device/cuda/limits.h"
#include "device/cuda/shared_memory.h"

namespace coil::templates {
namespace {

CudaVariant depthwise(const CudaConvFacts& facts) {
  const int width = 16 / byte_size(facts.dtype);
  CudaVariant v;
  v.name = "conv_depthwise";
  v.header = "cuda/conv_depthwise.h";
  v.call = fmt::format("cd::conv_depthwise<{}>(t, epilogue);", info(facts.dtype).c_name);
  v.grid_x = fmt::format("(t.n * t.oh * t.ow * ((t.oc + {}) / {}) + {}) / {}", width - 1, width, cd::kBlockThreads - 1, int{cd::kBlockThreads});
  return v;
}

// Strips of a line for kernels of which a thread has 16 bytes of channels: long ones where there are enough threads without.
int strip_length(const CudaConvFacts& facts, const ConvMachine& machine, int64_t pieces) {
  const int64_t n = known(facts.result_sizes[0]).value_or(8), lines = n * known(facts.result_sizes[2]).value_or(28),
                ow = known(facts.result_sizes[3]).value_or(28);
  int strip = 4;
  while (strip > 1 && pieces * lines * ceil_div(ow, strip) < int64_t{machine.sms} * 512) strip /= 2;
  return strip;
}

// Whether windows are as the kernels that walk along lines want them.
bool is_regular(const Conv2d& def) {
  return def.stride[0] == def.stride[1] && def.stride[0] <= 2 && def.dilation[0] == 1 && def.dilation[1] == 1 && def.kernel[1] <= 9 &&
         def.kernel[0] * def.kernel[1] <= 81;
}

}  // namespace

bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

bool on_tensor_cores(const CudaConvFacts& facts) { return is_half(facts.dtype) || facts.tf32; }

std::optional<std::string> channel_vectors(const CudaConvFacts& facts, int64_t width) {
  const std::optional<int64_t> x_c = known(facts.x_c);
  if (x_c && *x_c != 1) return std::nullopt;
  const int64_t bytes = width * byte_size(facts.dtype);
  bool sure = x_c && facts.x_alignment % bytes == 0 && facts.w_alignment % 16 == 0;
  for (Expr stride : {facts.x_n, facts.x_h, facts.x_w}) {
    const std::optional<int64_t> value = known(stride);
    if (value && *value % width != 0) return std::nullopt;
    sure &= value || known(simplify_index(floor_mod(stride, stride->pool->index(width)), {})) == 0;
  }
  if (sure) return "";
  return fmt::format("t.x_c == 1 && (t.x_n | t.x_h | t.x_w) % {} == 0 && (unsigned long long)t.x % {} == 0 && (unsigned long long)t.w % 16 == 0", width, bytes);
}

std::optional<std::string> channel_vectors(const CudaConvFacts& facts) { return channel_vectors(facts, 16 / byte_size(facts.dtype)); }

std::vector<CudaVariant> depthwise_variants(const CudaConvFacts& facts, const ConvMachine& machine, int64_t channels) {
  const Conv2d& def = facts.def;
  int64_t width = 16 / byte_size(facts.dtype);
  while (width > 1 && (channels % width != 0 || !channel_vectors(facts, width))) width /= 2;
  const int64_t groups = channels / width, taps = def.kernel[0] * def.kernel[1];
  const std::optional<std::string> fit = channel_vectors(facts, width);
  if (!fit || !is_regular(def)) return {depthwise(facts)};
  int cg = 1;
  while (cg < 32 && cg < groups) cg *= 2;
  const int strip = strip_length(facts, machine, groups);
  CudaVariant v;
  v.name = fmt::format("conv_depthwise_{}x{}_strip{}", def.kernel[0], def.kernel[1], strip);
  v.header = "cuda/conv_depthwise_strip.h";
  v.call = fmt::format("cd::conv_depthwise_strip<{}, {}, {}, {}, {}, {}, {}>(t, epilogue);", info(facts.dtype).c_name, def.kernel[0], def.kernel[1],
                       def.stride[0], strip, cg, width);
  v.min_blocks = 2;
  v.shared_bytes = cd::conv_depthwise_strip_shared(taps, cg);
  v.grid_x = fmt::format("((t.n * t.oh * ((t.ow + {}) / {}) + {}) / {}) * {}", strip - 1, strip, cd::kBlockThreads / cg - 1, cd::kBlockThreads / cg,
                         ceil_div(groups, cg));
  v.condition = *fit;
  std::vector<CudaVariant> variants = {v};
  if (!fit->empty()) variants.push_back(depthwise(facts));
  return variants;
}

std::optional<CudaVariant> few_channel_groups(const CudaConvFacts& facts, const ConvMachine& machine) {
  const Conv2d& def = facts.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(facts.result_sizes[1]);
  const std::optional<std::string> fit = channel_vectors(facts);
  if (!ic || !oc || !fit || def.groups < 2 || !is_regular(def) || *ic < 1 || *oc < 1) return std::nullopt;
  const int64_t width = 16 / byte_size(facts.dtype), ic_g = *ic / def.groups, oc_g = *oc / def.groups, taps = def.kernel[0] * def.kernel[1];
  const bool whole =
      oc_g < width ? width % oc_g == 0 && ic_g % oc_g == 0 && ic_g <= 4 * oc_g && width / oc_g * ic_g % width == 0 : oc_g % width == 0 && ic_g % width == 0;
  if (!whole || *oc % width != 0 || ic_g > (on_tensor_cores(facts) ? 16 : 32) || oc_g > 64) return std::nullopt;
  const int64_t pieces = *oc / width;
  int64_t cg = 1;
  while (cg < 32 && cg < pieces) cg *= 2;
  while (cg > 1 && cd::conv_groups_shared(taps, ic_g, cg) > cd::kSharedWithoutAsking) cg /= 2;
  if (cg < std::min<int64_t>(pieces, 4)) return std::nullopt;  // a warp would read too many lines
  const int strip = strip_length(facts, machine, pieces);
  CudaVariant v;
  v.name = fmt::format("conv_groups_{}x{}_strip{}", ic_g, oc_g, strip);
  v.header = "cuda/conv_groups.h";
  v.call = fmt::format("cd::conv_groups<{}, {}, {}, {}, {}, {}, {}, {}>(t, epilogue);", info(facts.dtype).c_name, ic_g, oc_g, def.kernel[0], def.kernel[1],
                       def.stride[0], strip, cg);
  v.min_blocks = 2;
  v.shared_bytes = cd::conv_groups_shared(taps, ic_g, cg);
  const int64_t parts = ceil_div(pieces, cg), most = std::max<int64_t>(1, 2 * machine.sms / parts);
  const std::string strips = fmt::format("((t.n * t.oh * ((t.ow + {}) / {}) + {}) / {})", strip - 1, strip, cd::kBlockThreads / cg - 1, cd::kBlockThreads / cg);
  v.grid_x = fmt::format("({0} < {1} ? {0} : {1}) * {2}", strips, most, parts);
  v.condition = *fit;
  return v;
}

std::optional<CudaVariant> few_channels(const CudaConvFacts& facts, const ConvMachine& machine) {
  const Conv2d& def = facts.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(facts.result_sizes[1]);
  if (!ic || !oc || *ic < 1 || *ic > 4 || *oc < 1 || def.groups != 1 || def.stride[0] != def.stride[1] || def.dilation[0] != 1 || def.dilation[1] != 1)
    return std::nullopt;
  const int64_t k = *ic * def.kernel[0] * def.kernel[1], bn = *oc <= 16 ? 16 : *oc <= 32 ? 32 : 64;
  const int64_t patch = cd::conv_few_patch(*ic, def.kernel[0], def.kernel[1], def.stride[0]);
  if (k > 256 || patch > 16384) return std::nullopt;
  CudaVariant v;
  v.name = fmt::format("conv_few_{}x{}x{}", *ic, def.kernel[0], def.kernel[1]);
  v.header = "cuda/conv_few.h";
  v.call = fmt::format("cd::conv_few<{}, {}, {}, {}, {}, {}>(t, epilogue);", info(facts.dtype).c_name, *ic, def.kernel[0], def.kernel[1], def.stride[0], bn);
  v.min_blocks = 2;
  v.shared_bytes = cd::conv_few_shared(*ic, def.kernel[0], def.kernel[1], def.stride[0], bn);
  const int64_t parts = ceil_div(*oc, bn), most = std::max<int64_t>(1, 2 * machine.sms / parts);
  const std::string tiles = "(t.n * ((t.oh + 15) / 16) * ((t.ow + 15) / 16))";
  v.grid_x = fmt::format("({0} < {1} ? {0} : {1}) * {2}", tiles, most, parts);
  return v;
}

}  // namespace coil::templates
