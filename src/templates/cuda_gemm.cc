// Which CUDA kernels serve a matrix product: device/cuda/{gemv,gemm_wgmma,gemm_mma,gemm_simt}.h with tile sizes by a model of their time.
//
// The model counts clocks of the busiest multiprocessor: blocks in turn on one, each bm * bn * k over the rate that its tile reaches.
// Its rates are measured on an H200 for the Hopper kernels and scaled guesses elsewhere; only their ratios matter.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

std::optional<int64_t> known(Expr e) { return e->is_constant() ? std::optional(e->as_int()) : std::nullopt; }
bool is_one(Expr e) { return known(e) == 1; }

// A size for comparisons: constants as they are, dynamic ones near `guess` within their range.
int64_t typical(Expr e, int64_t guess) {
  return evaluate_index(e, [&](SymbolId id) {
    const Symbol& s = e->pool->symbol_info(id);
    return std::clamp(guess, s.min, s.max);
  });
}
bool multiple_of(Expr e, int64_t factor) { return known(simplify_index(floor_mod(e, e->pool->index(factor)), {})) == 0; }

int multiprocessors(int sm) { return sm >= 100 ? 148 : sm >= 90 ? 132 : sm == 89 ? 128 : sm == 86 ? 84 : 108; }

int64_t tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }
std::string tiles_text(std::string_view size, int64_t tile) { return fmt::format("(({} + {}) / {})", size, tile - 1, tile); }
constexpr std::string_view kBatchGrid = "(t.batch < 65535 ? t.batch : 65535)";

// A product with its typical sizes.
struct Problem {
  const CudaGemmFacts& facts;
  int sm;
  int64_t batch, m, n, k;
  bool a_k, b_k;      // walk k (contiguous, or nothing is)
  bool fixed;         // all sizes are constants

  Problem(const CudaGemmFacts& f, int architecture, int64_t guess)
      : facts(f),
        sm(architecture),
        batch(typical(f.batch, guess)),
        m(typical(f.m, guess)),
        n(typical(f.n, guess)),
        k(typical(f.k, guess)),
        a_k(is_one(f.a_col) || !is_one(f.a_row)),
        b_k(is_one(f.b_row) || !is_one(f.b_col)),
        fixed(known(f.batch) && known(f.m) && known(f.n) && known(f.k)) {}
  bool half() const { return facts.dtype == DType::bf16 || facts.dtype == DType::f16; }
  std::string_view type() const { return info(facts.dtype).c_name; }
};

// --- tiles of mma.sync and of the CUDA cores

struct Tile {
  int bm, bn, bk, wm, wn, stages;  // CUDA cores: wm x wn is a thread's part
  int threads;
  double rate;                     // multiply-adds a clock of a multiprocessor that is busy with such blocks
  bool operator==(const Tile&) const = default;
};
constexpr Tile kMmaTiles[] = {
    {128, 128, 32, 64, 32, 4, 256, 600},
    {64, 64, 64, 32, 32, 4, 128, 400},
    {32, 64, 64, 16, 32, 4, 128, 230},
};
constexpr Tile kF32Tiles[] = {
    {128, 128, 8, 8, 8, 2, 256, 100},
    {64, 64, 16, 4, 4, 2, 256, 70},
    {32, 32, 16, 4, 4, 2, 64, 40},
};
constexpr Tile kF64Tiles[] = {
    {64, 64, 16, 4, 4, 2, 256, 40},
    {32, 32, 16, 4, 2, 2, 128, 20},
};

std::span<const Tile> tiles_of(const Problem& p) {
  if (p.half()) return kMmaTiles;
  if (p.facts.dtype == DType::f32) return kF32Tiles;
  return kF64Tiles;
}

int64_t blocks(const Problem& p, const Tile& tile) { return tiles(p.m, tile.bm) * tiles(p.n, tile.bn) * std::max<int64_t>(p.batch, 1); }

// Clocks of the product by `tile` with k in `split` parts. Starting a block, filling its pipeline and finishing its tile is some
// thousand clocks; a cluster's exchange reads the tile once more.
double clocks(const Problem& p, const Tile& tile, int split) {
  const double turns = static_cast<double>(tiles(blocks(p, tile) * split, multiprocessors(p.sm)));
  const double area = static_cast<double>(tile.bm) * tile.bn, k = static_cast<double>(tiles(tiles(p.k, tile.bk), split) * tile.bk);
  return turns * (area * k / tile.rate + 1000) + 1500 + (split > 1 ? 1500 + area / 16 : 0);
}

struct Choice {
  Tile tile;
  int split = 1;
};

// The fastest by the model. Clusters that split k: sm_90, sizes known.
Choice choose(const Problem& p) {
  Choice best{tiles_of(p)[0], 1};
  for (const Tile& tile : tiles_of(p)) {
    for (int split = 1; split <= 8; split *= 2) {
      if (split > 1 && (p.sm != 90 || !p.fixed || p.k < int64_t{4} * split * tile.bk)) break;
      if (clocks(p, tile, split) < clocks(p, best.tile, best.split)) best = {tile, split};
    }
  }
  return best;
}

CudaVariant tile_variant(const Problem& p, const Choice& choice) {
  const Tile& t = choice.tile;
  CudaVariant v;
  const std::string_view kernel = p.half() ? "mma" : "simt";
  v.name = fmt::format("{}_{}x{}x{}", kernel, t.bm, t.bn, t.bk) + (choice.split > 1 ? fmt::format("_split{}", choice.split) : "");
  v.header = fmt::format("cuda/gemm_{}.h", kernel);
  const std::string stages = p.half() ? fmt::format("{}, ", t.stages) : "";
  v.call = fmt::format("cd::gemm_{}<{}, {}, {}, {}, {}, {}, {}{}, {}, {}>(t, epilogue);", kernel, p.type(), t.bm, t.bn, t.bk, t.wm, t.wn, stages,
                       p.a_k, p.b_k, choice.split);
  v.threads = t.threads;
  const int64_t bytes = byte_size(p.facts.dtype), staged = p.half() ? 4 * t.bm * t.bn : choice.split > 1 ? bytes * t.bm * t.bn : 0;
  v.shared_bytes = std::max(staged, bytes * t.stages * (t.bm + t.bn) * t.bk);
  v.cluster = choice.split;
  v.hopper = choice.split > 1;
  v.grid_x = fmt::format("{} * {} * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn), choice.split);
  v.grid_z = kBatchGrid;
  return v;
}

// One tile where all is known; else the largest for calls that fill the machine with it and the middle one for the others.
void add_tiles(const Problem& p, std::vector<CudaVariant>& variants) {
  if (p.fixed) {
    variants.push_back(tile_variant(p, choose(p)));
    return;
  }
  const std::span<const Tile> all = tiles_of(p);
  variants.push_back(tile_variant(p, {all[0], 1}));
  variants.back().condition = fmt::format("{} * {} * t.batch >= {}", tiles_text("t.m", all[0].bm), tiles_text("t.n", all[0].bn), multiprocessors(p.sm) * 3 / 4);
  variants.push_back(tile_variant(p, {all[1], 1}));
}

// --- Hopper: TMA and wgmma

struct WgmmaTile {
  int bn, stages, cluster;
  double step;  // clocks of 64 along k
};
constexpr WgmmaTile kWgmmaTiles[] = {{256, 4, 2, 1075}, {128, 6, 1, 620}, {64, 8, 1, 400}};

double clocks(const Problem& p, const WgmmaTile& tile) {
  const int64_t all = tiles(p.m, 128 * tile.cluster) * tile.cluster * tiles(p.n, tile.bn);
  return static_cast<double>(tiles(all, multiprocessors(p.sm))) * (static_cast<double>(tiles(p.k, 64)) * tile.step + 1500) + 2000;
}
const WgmmaTile& choose_wgmma(const Problem& p) {
  return *std::min_element(std::begin(kWgmmaTiles), std::end(kWgmmaTiles),
                           [&](const WgmmaTile& a, const WgmmaTile& b) { return clocks(p, a) < clocks(p, b); });
}

// What TMA asks of an operand: one axis contiguous, the other's stride and the address multiples of 16 bytes.
enum class Fit : uint8_t { never, at_run_time, always };
Fit tma_fit(Expr contiguous, Expr stride, int64_t alignment) {
  if (!is_one(contiguous) || (known(stride) && (*known(stride) <= 0 || *known(stride) % 8 != 0))) return Fit::never;
  return alignment % 16 == 0 && multiple_of(stride, 8) && lower_bound(stride).value_or(0) > 0 ? Fit::always : Fit::at_run_time;
}
Fit wgmma_fit(const Problem& p) {
  const CudaGemmFacts& f = p.facts;
  if (p.sm != 90 || !p.half() || known(f.batch).value_or(1) != 1 || known(f.k) == 0) return Fit::never;
  const Fit a = tma_fit(p.a_k ? f.a_col : f.a_row, p.a_k ? f.a_row : f.a_col, f.a_alignment);
  const Fit b = tma_fit(p.b_k ? f.b_row : f.b_col, p.b_k ? f.b_col : f.b_row, f.b_alignment);
  const bool sizes = known(f.batch) == 1 && lower_bound(f.k).value_or(0) > 0;
  return std::min({a, b, sizes ? Fit::always : Fit::at_run_time});
}

CudaVariant wgmma_variant(const Problem& p, const WgmmaTile& tile, Fit fit) {
  CudaVariant v;
  v.name = fmt::format("wgmma_128x{}{}", tile.bn, tile.cluster > 1 ? "_pair" : "");
  v.header = "cuda/gemm_wgmma.h";
  v.call = fmt::format("cd::gemm_wgmma<{}, {}, {}, {}, {}, {}>(t, epilogue);", p.type(), tile.bn, tile.stages, tile.cluster, p.a_k, p.b_k);
  v.threads = 384;
  v.shared_bytes = int64_t{tile.stages} * (128 + tile.bn) * 128 + 32768 + 16 * tile.stages;
  v.cluster = tile.cluster;
  v.hopper = true;
  // A block (or pair) on every multiprocessor, or one a tile.
  const std::string all = fmt::format("({} * {})", tiles_text("t.m", 128 * tile.cluster), tiles_text("t.n", tile.bn));
  const std::string most = fmt::format("(cd::cuda_sms(call) / {})", tile.cluster);
  v.grid_x = fmt::format("({0} < {1} ? {0} : {1}) * {2}", all, most, tile.cluster);
  const std::string_view a_stride = p.a_k ? "t.a_row" : "t.a_col", b_stride = p.b_k ? "t.b_col" : "t.b_row";
  if (fit == Fit::at_run_time) {
    v.condition = fmt::format("t.batch == 1 && t.m > 0 && t.n > 0 && t.k > 0 && {0} > 0 && {1} > 0 && ({0} | {1}) % 8 == 0 && "
                              "((unsigned long long)t.a | (unsigned long long)t.b) % 16 == 0", a_stride, b_stride);
  }
  const auto map = [&](char x, bool k_contiguous, std::string_view rows, std::string_view stride, int box) {
    return fmt::format("if (const int32_t failed = cd::cuda_tensor_map(call, &t.map_{0}, {1}, t.{0}, {2}, {3}, {4} * 2, {5}, 64, error)) return failed;",
                       x, info(p.facts.dtype).shim_number, k_contiguous ? rows : "t.k", k_contiguous ? "t.k" : rows, stride, k_contiguous ? box : 64);
  };
  v.setup = "if (t.m > 0 && t.n > 0) { " + map('a', p.a_k, "t.m", a_stride, 128) + " " + map('b', p.b_k, "t.n", b_stride, tile.bn / tile.cluster) + " }";
  return v;
}

// Adds what wgmma can do; whether that is all.
bool add_wgmma(const Problem& p, std::vector<CudaVariant>& variants) {
  const Fit fit = wgmma_fit(p);
  if (fit == Fit::never) return false;
  if (p.fixed) {
    const WgmmaTile& tile = choose_wgmma(p);
    const Choice other = choose(p);
    if (clocks(p, other.tile, other.split) < clocks(p, tile)) return false;
    variants.push_back(wgmma_variant(p, tile, fit));
    return fit == Fit::always;
  }
  // Large ones for calls that fill the machine with them. Without a guarantee there is a third kernel for the rest: then one for all.
  const bool wide = p.n >= 1024;
  if (fit == Fit::always && wide) {
    const WgmmaTile& large = kWgmmaTiles[0];
    variants.push_back(wgmma_variant(p, large, fit));
    variants.back().condition = fmt::format("{} * {} >= {}", tiles_text("t.m", 128), tiles_text("t.n", large.bn), multiprocessors(p.sm) * 3 / 4);
  }
  variants.push_back(wgmma_variant(p, kWgmmaTiles[wide ? 1 : 2], fit));
  return fit == Fit::always;
}

// --- few rows

// Parts of k so that `blocks` fill the machine, each part at least `least` long.
int cluster_split(const Problem& p, int64_t blocks, int64_t least) {
  int split = 1;
  while (p.sm == 90 && p.fixed && split < 8 && blocks * split * 2 <= 2 * multiprocessors(p.sm) && p.k >= 2 * split * least) split *= 2;
  return split;
}

// A kernel for up to `limit` rows, if the product can have so few.
std::optional<CudaVariant> few_rows(const Problem& p, int64_t& limit) {
  limit = p.half() && p.b_k ? 16 : 8;
  if (lower_bound(p.facts.m).value_or(0) > limit) return std::nullopt;
  const int64_t most = std::min(upper_bound(p.facts.m).value_or(limit), limit);
  const int64_t width = 16 / byte_size(p.facts.dtype);
  int64_t rows = most > 4 ? 8 : most > 2 ? 4 : std::max<int64_t>(most, 1);
  CudaVariant v;
  v.header = "cuda/gemv.h";
  v.threads = 256;
  if (p.half() && p.b_k) {
    rows = most > 8 ? 16 : 8;
    v.cluster = cluster_split(p, tiles(p.n, 16) * p.batch, 512);
    const int warps = p.k / v.cluster >= 1024 ? 8 : 4;
    v.threads = warps * 32;
    v.name = "gemv_mma";
    v.call = fmt::format("cd::gemv_mma<{}, {}, {}, {}>(t, epilogue);", p.type(), rows / 8, warps, v.cluster);
    v.grid_x = fmt::format("{} * {}", tiles_text("t.n", 16), v.cluster);
  } else if (p.b_k) {
    rows = std::min<int64_t>(rows, known(p.facts.m) ? 8 : 4);
    v.threads = 128;
    v.name = "gemv_dot";
    v.call = fmt::format("cd::gemv_dot<{}, {}, 4>(t, epilogue);", p.type(), rows);
    v.grid_x = tiles_text("t.n", 4 * width);
  } else {
    rows = std::min<int64_t>(rows, p.half() || !known(p.facts.m) ? 4 : 8);
    v.cluster = cluster_split(p, tiles(p.n, 32) * p.batch, 256);
    v.name = "gemv_axpy";
    v.call = fmt::format("cd::gemv_axpy<{}, {}, 8, {}>(t, epilogue);", p.type(), rows, v.cluster);
    v.grid_x = fmt::format("{} * {}", tiles_text("t.n", 32), v.cluster);
  }
  v.hopper = v.cluster > 1;
  v.grid_y = tiles_text("t.m", rows);
  v.grid_z = kBatchGrid;
  return v;
}

}  // namespace

std::vector<CudaVariant> cuda_gemm_variants(const CudaGemmFacts& facts, int sm) {
  const Problem p(facts, sm, 512);
  std::vector<CudaVariant> variants;
  int64_t limit = 0;
  if (auto v = few_rows(p, limit)) {
    variants.push_back(std::move(*v));
    if (upper_bound(facts.m).value_or(limit + 1) <= limit) return variants;
    variants.back().condition = fmt::format("t.m <= {}", limit);
  }
  if (add_wgmma(p, variants)) return variants;
  // Where wgmma serves most calls one general kernel is enough for the rest.
  if (!p.fixed && !variants.empty() && variants.back().hopper && variants.back().name.starts_with("wgmma")) {
    variants.push_back(tile_variant(p, {tiles_of(p)[1], 1}));
  } else {
    add_tiles(p, variants);
  }
  return variants;
}

}  // namespace coil::templates
