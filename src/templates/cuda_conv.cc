// Which CUDA convolution kernel serves a problem: depthwise, groups of few channels, few input channels, implicit gemm on tensor cores (bf16, f16; by wgmma on
// Hopper) or on CUDA cores (f32, f64), and with which tile. With known sizes one variant is chosen by a small model of the time; with
// dynamic ones the host chooses.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "device/cuda/shared_memory.h"
#include "templates/cuda_conv_direct.h"
#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

struct ConvTile {
  int bm, bn;    // pixels and channels of a block
  int a, b;      // simt: rows and columns of a thread; mma: of a warp
  int line;      // bytes of k in a slab
  int resident;  // blocks of an SM, by registers and shared memory
  // Clocks on an H200, fitted to the times of ResNet's convolutions.
  double rate;     // of the SM's peak that enough blocks together reach
  double latency;  // of a slab of k in a block that has the SM to itself
  double start;    // of a block beside its slabs
};

constexpr std::array<ConvTile, 3> kSimtTiles = {
    {{64, 64, 8, 4, 64, 5, 0.561, 1846, 3223}, {32, 64, 4, 4, 64, 6, 0.363, 1516, 1925}, {32, 32, 4, 4, 64, 12, 0.284, 47, 2017}}};
constexpr std::array<ConvTile, 1> kDoubleTiles = {{{64, 64, 4, 4, 64, 3, 0.5, 2000, 2000}}};
constexpr std::array<ConvTile, 3> kConvMmaTiles = {
    {{128, 128, 64, 32, 64, 2, 0.341, 772, 4384}, {128, 64, 64, 32, 64, 3, 0.327, 949, 5331}, {64, 64, 32, 32, 64, 5, 0.187, 957, 2360}}};

constexpr std::array<ConvTile, 3> kConvTf32Tiles = {
    {{128, 128, 64, 32, 128, 1, 0.236, 2325, 8777}, {128, 64, 64, 32, 128, 2, 0.137, 2010, 6931}, {64, 64, 32, 32, 128, 2, 0.129, 1606, 6456}}};

// conv_wgmma.h: 64 * groups pixels x bn channels, `resident` persistent blocks on an SM. Clocks, fitted to ResNet-50's convolutions on
// an H200: of 64 along k, of a tile beside its steps, of the launch; and where a cluster shares a tile, of it for each part.
struct ConvWgmmaTile {
  int groups, bn, stages, split_stages, resident;
  double step, tile, start;
  double split_step, split_tile, split_part;  // 0: does not split
};
constexpr std::array<ConvWgmmaTile, 6> kConvWgmmaTiles = {{{2, 128, 5, 6, 1, 758, 3695, 3107, 650, 7470, 1057},
                                                           {2, 64, 6, 8, 1, 644, 1614, 4525, 688, 6250, 689},
                                                           {2, 64, 3, 0, 2, 705, 6388, 0, 0, 0, 0},
                                                           {2, 256, 4, 4, 1, 1137, 8910, 0, 1142, 10126, 1216},
                                                           {3, 128, 4, 5, 1, 964, 5089, 3565, 879, 6930, 2498},
                                                           {3, 64, 5, 0, 1, 850, 2137, 4610, 0, 0, 0}}};

std::string_view type_name(const CudaConvFacts& facts) { return facts.tf32 ? "cd::tf32" : info(facts.dtype).c_name; }

ConvMachine machine_of(const CudaMachine& machine, const CudaConvFacts& facts) {
  ConvMachine m = {machine.multiprocessors, facts.dtype == DType::f64 ? machine.f64 : machine.f32, machine.clusters};
  if (!on_tensor_cores(facts)) return m;
  if (facts.tf32) m.flops = machine.half / 2, m.split = 0, m.part = 28;
  else m.flops = machine.half, m.split = 3216, m.part = 868;
  return m;
}

CudaVariant variant(const CudaConvFacts& facts, const ConvTile& tile, int split) {
  const bool mma = on_tensor_cores(facts);
  const int size = byte_size(facts.dtype);
  const char* kind = mma ? "mma" : "simt";
  CudaVariant v;
  v.name = fmt::format("conv_{}_{}x{}", facts.tf32 ? "tf32" : kind, tile.bm, tile.bn) + (split > 1 ? fmt::format("_split{}", split) : "");
  v.header = fmt::format("cuda/conv_{}.h", kind);
  v.call = fmt::format("cd::conv_{}<{}, {}, {}, {}, {}, {}{}>(t, epilogue);", kind, type_name(facts), tile.bm, tile.bn, tile.a, tile.b, split,
                       mma ? fmt::format(", {}", tile.line) : "");
  v.threads = static_cast<int>(mma ? cd::warp_tile_threads(tile.bm, tile.bn, tile.a, tile.b) : cd::conv_simt_threads(tile.bm, tile.bn, tile.a, tile.b));
  v.shared_bytes = mma ? cd::conv_mma_shared(size, tile.bm, tile.bn, tile.line) : cd::conv_simt_shared(size, tile.bm, tile.bn, tile.line);
  v.cluster = split;
  v.hopper = split > 1;
  v.grid_x = fmt::format("(t.n * t.oh * t.ow + {}) / {} * ((t.oc / t.groups + {}) / {}) * t.groups", tile.bm - 1, tile.bm, tile.bn - 1, tile.bn);
  if (split > 1) v.grid_x += fmt::format(" * {}", split);
  return v;
}

std::string join(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + " && " + b; }

// Clocks of the whole problem: rounds of blocks that are resident together. A round is as long as its blocks' products take the SM, or
// as one block's slabs one after the other.
double clocks(const ConvMachine& machine, const ConvTile& tile, int split, int64_t rows, int64_t columns, int64_t k, int64_t groups, int slab) {
  const int64_t blocks = ceil_div(rows, tile.bm) * ceil_div(columns, tile.bn) * groups * split, per_sm = ceil_div(blocks, machine.sms);
  const double slabs = static_cast<double>(ceil_div(ceil_div(k, slab), split));
  const double work = static_cast<double>(tile.bm) * tile.bn * slab / machine.flops / tile.rate;
  const auto round = [&](int64_t together) { return slabs * std::max(tile.latency, static_cast<double>(together) * work) + tile.start; };
  const int64_t rest = per_sm % tile.resident;
  return static_cast<double>(per_sm / tile.resident) * round(tile.resident) + (rest > 0 ? round(rest) : 0) +
         (split > 1 ? machine.split + machine.part * split : 0);
}

std::span<const ConvTile> tiles_of(const CudaConvFacts& facts) {
  if (facts.tf32) return kConvTf32Tiles;
  if (is_half(facts.dtype)) return kConvMmaTiles;
  return facts.dtype == DType::f64 ? std::span<const ConvTile>(kDoubleTiles) : kSimtTiles;
}

struct Choice {
  const ConvTile* tile;
  int split;
};

Choice choose(const ConvMachine& machine, std::span<const ConvTile> tiles, int64_t rows, int64_t columns, int64_t k, int64_t groups, int slab) {
  Choice best = {&tiles[0], 1};
  double least = -1;
  for (const ConvTile& tile : tiles) {
    for (int split = 1; split <= (machine.clusters ? 8 : 1); split *= 2) {
      if (split > 1 && k < int64_t{2} * split * slab) break;
      const double c = clocks(machine, tile, split, rows, columns, k, groups, slab);
      if (least >= 0 && c >= least) continue;
      least = c;
      best = {&tile, split};
    }
  }
  return best;
}

// --- Hopper: wgmma

struct WgmmaChoice {
  const ConvWgmmaTile* tile;
  int split;
};

double clocks(const ConvMachine& machine, const ConvWgmmaTile& tile, int split, int64_t rows, int64_t columns, int64_t k, int64_t groups) {
  const int64_t tiles = ceil_div(rows, 64 * tile.groups) * ceil_div(columns, tile.bn) * groups;
  const auto steps = static_cast<double>(ceil_div(ceil_div(k, 64), split)), turns = static_cast<double>(ceil_div(tiles * split, machine.sms * tile.resident));
  if (split > 1) return turns * (steps * tile.split_step + tile.split_tile + tile.split_part * split);
  return turns * (steps * tile.step + tile.tile) + tile.start;
}

WgmmaChoice choose_wgmma(const ConvMachine& machine, int64_t rows, int64_t columns, int64_t k, int64_t groups) {
  WgmmaChoice best = {&kConvWgmmaTiles[0], 1};
  for (const ConvWgmmaTile& tile : kConvWgmmaTiles) {
    for (int split = 1; split <= 8; split *= 2) {
      if (split > 1 && (tile.split_step == 0 || k < int64_t{2} * split * 64)) break;
      if (clocks(machine, tile, split, rows, columns, k, groups) < clocks(machine, *best.tile, best.split, rows, columns, k, groups)) best = {&tile, split};
    }
  }
  return best;
}

CudaVariant conv_wgmma_variant(const CudaConvFacts& facts, const WgmmaChoice& choice) {
  const ConvWgmmaTile& tile = *choice.tile;
  const int split = choice.split, bm = 64 * tile.groups, stages = split > 1 ? tile.split_stages : tile.stages;
  CudaVariant v;
  v.name = fmt::format("conv_wgmma_{}x{}", bm, tile.bn) + (split > 1 ? fmt::format("_split{}", split) : "");
  v.header = "cuda/conv_wgmma.h";
  v.call = fmt::format("cd::conv_wgmma<{}, {}, {}, {}, {}>(t, epilogue);", info(facts.dtype).c_name, tile.groups, tile.bn, stages, split);
  v.threads = static_cast<int>(cd::warpgroup_threads(tile.groups));
  v.min_blocks = tile.resident;
  v.shared_bytes = cd::conv_wgmma_shared(tile.groups, tile.bn, stages, split > 1);
  v.cluster = split;
  v.hopper = true;
  const std::string tiles = fmt::format("((t.n * t.oh * t.ow + {}) / {} * ((t.oc / t.groups + {}) / {}) * t.groups)", bm - 1, bm, tile.bn - 1, tile.bn);
  const std::string most = tile.resident > 1 ? fmt::format("cd::cuda_sms(call) * {}", tile.resident) : "cd::cuda_sms(call)";
  v.grid_x = split > 1 ? fmt::format("{} * {}", tiles, split) : fmt::format("({0} < {1} ? {0} : {1})", tiles, most);
  const std::string k = "t.kh * t.kw * (t.ic / t.groups)";
  v.setup = fmt::format("if (const int32_t failed = cd::cuda_tensor_map(call, &t.map_w, {0}, t.w, t.oc, {1}, {1} * 2, {2}, 64, error)) return failed;",
                        info(facts.dtype).shim_number, k, tile.bn);
  return v;
}

// What wgmma can do of the problem; empty: nothing. With conditions where something else must serve the rest.
std::vector<CudaVariant> wgmma_variants(const CudaConvFacts& facts, const ConvMachine& machine, const CudaMachine& chip) {
  const std::optional<int64_t> ic = known(facts.def.x_sizes[1]), oc = known(facts.result_sizes[1]);
  const std::optional<std::string> fit = channel_vectors(facts);
  if (chip.sm != 90 || !fit || !ic || !oc || *ic < 1 || *oc < 1 || *ic / facts.def.groups % 8 != 0) return {};
  const std::optional<int64_t> n = known(facts.result_sizes[0]), oh = known(facts.result_sizes[2]), ow = known(facts.result_sizes[3]);
  const int64_t groups = facts.def.groups, columns = *oc / groups, k = *ic / groups * facts.def.kernel[0] * facts.def.kernel[1];
  std::vector<CudaVariant> variants;
  if (n && oh && ow) {
    variants.push_back(conv_wgmma_variant(facts, choose_wgmma(machine, *n * *oh * *ow, columns, k, groups)));
    variants.back().condition = *fit;
    return variants;
  }
  // As many pixels as fill the machine several times, or half of it.
  const int64_t fills = machine.sms * 128 / std::max<int64_t>(ceil_div(columns, 128) * groups, 1);
  const WgmmaChoice many = choose_wgmma(machine, 16 * fills, columns, k, groups),
                    few = choose_wgmma(machine, std::max<int64_t>(fills / 2, 64), columns, k, groups);
  if (many.tile != few.tile || many.split != few.split) {
    variants.push_back(conv_wgmma_variant(facts, many));
    variants.back().condition = join(fmt::format("t.n * t.oh * t.ow >= {}", fills), *fit);
  }
  variants.push_back(conv_wgmma_variant(facts, few));
  variants.back().condition = *fit;
  return variants;
}

}  // namespace

std::vector<CudaVariant> cuda_conv_variants(const CudaConvFacts& facts, const CudaMachine& chip) {
  const Conv2d& def = facts.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(facts.result_sizes[1]);
  const ConvMachine machine = machine_of(chip, facts);
  if (ic && oc && *ic == *oc && def.groups == *ic && def.groups > 1) return depthwise_variants(facts, machine, *ic);
  std::vector<CudaVariant> variants;
  if (auto groups = few_channel_groups(facts, machine)) {
    variants.push_back(*groups);
  } else if (is_half(facts.dtype)) {
    if (auto few = few_channels(facts, machine)) return {*few};
    variants = wgmma_variants(facts, machine, chip);
  }
  if (!variants.empty() && variants.back().condition.empty()) return variants;

  const std::span<const ConvTile> tiles = tiles_of(facts);
  const std::optional<int64_t> n = known(facts.result_sizes[0]), oh = known(facts.result_sizes[2]), ow = known(facts.result_sizes[3]);
  const int64_t columns = oc.value_or(64 * def.groups) / def.groups, k = ic.value_or(64 * def.groups) / def.groups * def.kernel[0] * def.kernel[1];
  const int slab = tiles[0].line / byte_size(facts.dtype);
  if (n && oh && ow) {
    const Choice c = choose(machine, tiles, *n * *oh * *ow, columns, k, def.groups, slab);
    variants.push_back(variant(facts, *c.tile, c.split));
    return variants;
  }
  // Many pixels or few: the host decides. What is best for a quarter of the machine's worth of small tiles serves the few. Beside wgmma
  // these are for odd inputs only: one is enough.
  const Choice many = choose(machine, tiles, int64_t{1} << 20, columns, k, def.groups, slab);
  const Choice few = choose(machine, tiles, std::max<int64_t>(machine.sms * 1024 / ceil_div(columns, 64), 64), columns, k, def.groups, slab);
  if (variants.empty() && (many.tile != few.tile || many.split != few.split)) {
    variants.push_back(variant(facts, *many.tile, many.split));
    variants.back().condition = fmt::format("{} >= {}", variants.back().grid_x, 2 * machine.sms * many.split);
  }
  variants.push_back(variant(facts, *few.tile, few.split));
  return variants;
}

// --- by numbers

namespace {

// What tiles of a convolution can be chosen among, and the product that it is.
struct Tiled {
  bool tensor;
  ConvMachine machine;
  std::optional<std::string> wgmma;  // the condition of wgmma's tiles; null: they cannot serve
  std::span<const ConvTile> tiles;   // the others'
  int slab;
  int64_t columns, k;  // of a group
};

// Null: depthwise, few channels, groups of few, or channels that are not known.
std::optional<Tiled> tiled(const CudaConvFacts& facts, const CudaMachine& chip) {
  const Conv2d& def = facts.def;
  const std::optional<int64_t> ic = known(def.x_sizes[1]), oc = known(facts.result_sizes[1]);
  const ConvMachine machine = machine_of(chip, facts);
  if (!ic || !oc || (*ic == *oc && def.groups == *ic && def.groups > 1) || (is_half(facts.dtype) && few_channels(facts, machine)) ||
      few_channel_groups(facts, machine))
    return std::nullopt;
  const std::span<const ConvTile> tiles = tiles_of(facts);
  Tiled t = {on_tensor_cores(facts),
             machine,
             std::nullopt,
             tiles,
             tiles[0].line / byte_size(facts.dtype),
             *oc / def.groups,
             *ic / def.groups * def.kernel[0] * def.kernel[1]};
  if (is_half(facts.dtype) && !wgmma_variants(facts, machine, chip).empty()) t.wgmma = channel_vectors(facts);
  return t;
}

CudaWay conv_way_of(const ConvWgmmaTile& t, int split) { return {t.resident > 1 ? kWgmmaTwo : kWgmma, 64 * t.groups, t.bn, split}; }
CudaWay conv_way_of(const Tiled& c, const ConvTile& t, int split) { return {c.tensor ? kMmaSync : kCudaCores, t.bm, t.bn, split}; }

bool splits(const ConvMachine& machine, int split) { return split == 1 || (machine.clusters && (split == 2 || split == 4 || split == 8)); }

}  // namespace

std::vector<CudaCandidate> cuda_conv_candidates(const CudaConvFacts& facts, const CudaMachine& chip, const std::function<int64_t(Expr)>& sizes) {
  const std::optional<Tiled> c = tiled(facts, chip);
  std::vector<CudaCandidate> out;
  if (!c) return out;
  const int64_t rows = sizes(facts.result_sizes[0]) * sizes(facts.result_sizes[2]) * sizes(facts.result_sizes[3]), groups = facts.def.groups;
  if (rows < 1) return out;
  for (int split = 1; c->wgmma && split <= 8; split *= 2) {
    for (const ConvWgmmaTile& t : kConvWgmmaTiles) {
      if (split > 1 && (t.split_step == 0 || c->k < int64_t{2} * split * 64)) continue;
      out.push_back({conv_way_of(t, split), clocks(c->machine, t, split, rows, c->columns, c->k, groups)});
    }
  }
  for (int split = 1; (!c->wgmma || !c->wgmma->empty()) && split <= (c->machine.clusters ? 8 : 1); split *= 2) {
    for (const ConvTile& t : c->tiles) {
      if (split > 1 && c->k < int64_t{2} * split * c->slab) continue;
      out.push_back({conv_way_of(*c, t, split), clocks(c->machine, t, split, rows, c->columns, c->k, groups, c->slab)});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const CudaCandidate& a, const CudaCandidate& b) { return a.cost < b.cost; });
  return out;
}

std::optional<CudaVariant> cuda_conv_variant(const CudaConvFacts& facts, const CudaMachine& chip, const CudaWay& way) {
  const std::optional<Tiled> c = tiled(facts, chip);
  if (!c || !splits(c->machine, way.split)) return std::nullopt;
  for (const ConvWgmmaTile& t : kConvWgmmaTiles) {
    if (!c->wgmma || conv_way_of(t, way.split) != way || (way.split > 1 && t.split_step == 0)) continue;
    CudaVariant v = conv_wgmma_variant(facts, {&t, way.split});
    v.condition = *c->wgmma;
    return v;
  }
  for (const ConvTile& t : c->tiles) {
    if (conv_way_of(*c, t, way.split) == way) return variant(facts, t, way.split);
  }
  return std::nullopt;
}

}  // namespace coil::templates
