// Which CUDA kernels serve a matrix product: device/cuda/{gemv,gemm_wgmma,gemm_mma,gemm_simt}.h with tile sizes by a model of their time.
//
// A product with dynamic sizes is modelled at several sizes; up to six kernels are kept, each for one or more
// stretches of sizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "device/cuda/limits.h"
#include "device/cuda/shared_memory.h"
#include "templates/cuda_gemm_model.h"

namespace coil::templates {
namespace {

constexpr int64_t kMostFewRows = 64;  // up to which few_rows is a candidate

std::string batch_grid() { return fmt::format("(t.batch < {0} ? t.batch : {0})", int{cd::kMostGridYZ}); }

TileChoice best_of(const GemmProblem& p, bool tma) {
  const std::vector<TileChoice> all = tile_choices(p, tma);
  return *std::min_element(all.begin(), all.end(), [&](const TileChoice& a, const TileChoice& b) { return time_of(p, a) < time_of(p, b); });
}

CudaVariant plain_variant(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  CudaVariant v;
  const bool simt = t.kind == TileKind::simt;
  v.name = fmt::format("{}_{}x{}x{}", simt ? "simt" : "mma", t.bm, t.bn, t.bk);
  v.header = simt ? "cuda/gemm_simt.h" : "cuda/gemm_mma.h";
  v.call = fmt::format("cd::gemm_{}<{}, {}, {}, {}, {}, {}, {}, {}{}, {}, {}>(t, epilogue);", simt ? "simt" : "mma", simt ? p.type() : p.tensor_type(), t.bm,
                       t.bn, t.bk, t.wm, t.wn, stages_of(p, t), simt ? fmt::format("{}, ", t.slices) : "", p.a_k, p.b_k, c.split);
  v.grid_x = fmt::format("{} * {} * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn), c.split);
  v.grid_z = batch_grid();
  return v;
}

CudaVariant wgmma_variant(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  CudaVariant v;
  const bool copies = t.kind == TileKind::wgmma_copy;
  const int classes = classes_of(p, t), stages = stages_of(p, t);
  v.header = "cuda/gemm_wgmma.h";
  v.hopper = true;
  const std::string shared =
      fmt::format("{}{}", c.down * c.across > 1 ? fmt::format("_{}x{}", c.down, c.across) : "", classes > 1 ? fmt::format("_rows{}", classes) : "");
  const std::string clusters = fmt::format("({} * {} * t.batch)", tiles_text("t.m", t.bm * c.down), tiles_text("t.n", t.bn * c.across));
  if (!copies) v.setup = map_setup(p, t.bm, t.bn, c);
  if (t.kind == TileKind::wgmma) {
    v.name = fmt::format("wgmma_{}x{}{}", t.bm, t.bn, shared);
    v.call =
        fmt::format("cd::gemm_wgmma<{}, {}, {}, {}, {}, {}, {}, {}, {}>(t, epilogue);", p.type(), t.bm, t.bn, stages, c.down, c.across, p.a_k, p.b_k, classes);
    // As many as run at once, or one a tile.
    const std::string most = fmt::format("cd::cuda_clusters(call, {})", c.down * c.across);
    v.grid_x = fmt::format("({0} < {1} ? {0} : {1}) * {2}", clusters, most, c.down * c.across);
    v.reads_ahead = static_cast<int>(cd::gemm_wgmma_ahead(t.bm, classes));
    return v;
  }
  v.name = fmt::format("wgmma{}_{}x{}{}", copies ? "_copy" : "", t.bm, t.bn, shared);
  v.call = fmt::format("cd::gemm_wgmma_split<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>(t, epilogue);", p.tensor_type(), t.bm, t.bn, stages, c.split,
                       c.down, c.across, p.a_k, p.b_k, copies, classes, turns_of(p, t));
  v.grid_x = fmt::format("{} * {}", clusters, c.split * c.down * c.across);
  return v;
}

CudaVariant variant_of(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  CudaVariant v = t.kind == TileKind::simt || is_mma(t.kind) ? plain_variant(p, c) : wgmma_variant(p, c);
  if (p.facts.tf32 && t.kind != TileKind::simt) v.name = "tf32_" + v.name;
  if (c.split > 1) v.name += fmt::format("_split{}", c.split);
  v.threads = threads_of(t, turns_of(p, t));
  v.min_blocks = t.min_blocks;
  v.shared_bytes = shared_bytes(p, c);
  v.cluster = c.split * c.down * c.across;
  v.hopper = v.hopper || v.cluster > 1;
  return v;
}

std::string both(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + " && " + b; }

// --- dynamic sizes

constexpr int64_t kGuesses[] = {32,  48,   64,   96,   128,  192,  256,  320,  384,  448,  512,  640, 768,
                                896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 6144, 8192};

// The sizes at which a product is modelled; those that few_rows serves are left out.
std::vector<GemmProblem> points_of(const CudaGemmFacts& facts, const CudaMachine& machine, int64_t few) {
  std::vector<GemmProblem> points;
  for (const int64_t guess : kGuesses) {
    const GemmProblem p(facts, machine, guess);
    if (p.m > few && (points.empty() || p.m != points.back().m || p.n != points.back().n || p.k != points.back().k || p.batch != points.back().batch))
      points.push_back(p);
  }
  if (points.empty()) points.emplace_back(facts, machine, 512);
  return points;
}

// The elements of a result up to which `first` serves sizes from `low` to `high`: as long as it is not slower, at steps of a few percent.
int64_t limit_between(const GemmProblem& low, const GemmProblem& high, const TileChoice& first, const TileChoice& second) {
  constexpr int kSteps = 16;
  int64_t limit = low.batch * low.m * low.n;
  for (int i = 1; i < kSteps; ++i) {
    const GemmProblem p(low.facts, low.machine, low.guess + (high.guess - low.guess) * i / kSteps);
    if (time_of(p, first) > time_of(p, second)) break;
    limit = p.batch * p.m * p.n;
  }
  return limit;
}

// loss[c][i]: what choice c loses at point i against the best there (logarithm). Those that serve all points together best: one is added after the other, each
// time those before are changed for others as long as that gains. A further kernel must save a few percent at an eighth of the points, a fourth a good deal
// (each is some 0.3 s to compile), a fifth and a sixth 2 % at all points together.
std::vector<size_t> kernels_for(const std::vector<std::vector<double>>& loss, size_t points) {
  constexpr double kKernel = 0.06 / 8, kFourth = 0.3 / 8, kMore = 0.1 / 8;
  constexpr size_t kMost = 6;
  const auto price = [](size_t n) { return kKernel * static_cast<double>(n) + (n < 4 ? 0 : kFourth + kMore * static_cast<double>(n - 4)); };
  const auto mean_loss = [&](const std::vector<size_t>& kernels) {
    double sum = 0;
    for (size_t i = 0; i < points; ++i) {
      double least = INFINITY;
      for (const size_t c : kernels) least = std::min(least, loss[c][i]);
      sum += least;
    }
    return sum / static_cast<double>(points);
  };
  // The best in place of number `at`; whether it is better than what was there.
  const auto improve = [&](std::vector<size_t>& kernels, size_t at) {
    std::vector<size_t> best = kernels, changed = kernels;
    double least = mean_loss(kernels);
    for (changed[at] = 0; changed[at] < loss.size(); ++changed[at]) {
      if (const double mean = mean_loss(changed); mean < least) best = changed, least = mean;
    }
    return std::exchange(kernels, best) != best;
  };
  std::vector<size_t> kernels, best;
  double least = INFINITY;
  while (kernels.size() < std::min(kMost, points)) {
    kernels.push_back(0);
    improve(kernels, kernels.size() - 1);
    for (size_t at = 0, same = 0; kernels.size() > 1 && same < kernels.size(); at = (at + 1) % kernels.size()) same = improve(kernels, at) ? 0 : same + 1;
    const double cost = mean_loss(kernels) + price(kernels.size());
    if (cost < least) best = kernels, least = cost;
  }
  return best;
}

// Adds what serves all sizes, the last one without a condition but `condition`: up to six kernels. Blocks fill the machine badly at some sizes and well at
// others, so one kernel may serve several stretches of sizes.
void add_for_points(const std::vector<GemmProblem>& points, bool tma, const std::string& condition, std::vector<CudaVariant>& variants) {
  constexpr double kWorthAnother = 0.015;  // to leave the kernel of the sizes before
  std::vector<TileChoice> all;
  for (const GemmProblem& p : points) {
    for (const TileChoice& c : tile_choices(p, tma)) {
      if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
    }
  }
  std::vector<std::vector<double>> loss(all.size());
  std::vector<double> least(points.size(), INFINITY);
  for (size_t c = 0; c < all.size(); ++c) {
    for (size_t i = 0; i < points.size(); ++i) {
      loss[c].push_back(std::log(time_of(points[i], all[c])));
      least[i] = std::min(least[i], loss[c][i]);
    }
  }
  for (auto& row : loss) {
    for (size_t i = 0; i < points.size(); ++i) row[i] -= least[i];
  }
  const std::vector<size_t> kernels = kernels_for(loss, points.size());
  std::vector<size_t> at;  // each point's
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t best = *std::min_element(kernels.begin(), kernels.end(), [&](size_t a, size_t b) { return loss[a][i] < loss[b][i]; });
    at.push_back(i > 0 && loss[at[i - 1]][i] <= loss[best][i] + kWorthAnother ? at[i - 1] : best);
  }
  for (size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && at[i + 1] == at[i]) continue;
    variants.push_back(variant_of(points[0], all[at[i]]));
    variants.back().condition = condition;
    if (i + 1 == points.size()) continue;
    const int64_t limit = limit_between(points[i], points[i + 1], all[at[i]], all[at[i + 1]]);
    variants.back().condition = both(condition, fmt::format("t.batch * t.m * t.n <= {}", limit));
  }
}

// --- few rows

// Whether all sizes but that of the rows are known.
bool fixed_weight(const GemmProblem& p) { return known(p.facts.batch) && known(p.facts.n) && known(p.facts.k); }

// Parts of k so that `blocks` fill the machine, each part at least `least` long.
int cluster_split(const GemmProblem& p, int64_t blocks, int64_t least, int64_t rows) {
  int split = 1;
  while (p.machine.sm == 90 && fixed_weight(p) && split < 8 && blocks * split * 2 <= 2 * p.machine.multiprocessors && p.k >= 2 * split * least &&
         p.k / split * rows >= 1024)
    split *= 2;
  return split;
}

// Rows up to which few_rows is faster than tiles.
int64_t few(const GemmProblem& p) {
  // wgmma serves 2 rows of a [k, n] weight as fast as one does here.
  const bool columns_by_wgmma = p.half() && !p.b_k && tma_fit(p) == Fit::always;
  return columns_by_wgmma ? 1 : p.half() && p.b_k ? 16 : 8;
}

// Warps of a block of gemv_mma for 8 rows or 16: as many as leave each a whole turn of its loop, but where 8 would make blocks that wait for others to end, 4
// have all blocks on the multiprocessors at once (measured on an H200 with k = 4096: 14336 columns 29.0 us, not 30.1; 28672: 55.6, not 56.7; 6144: 14.2,
// not 14.0).
int warps_of(const GemmProblem& p, int64_t rows, int64_t blocks) {
  constexpr int64_t kResident = 3;  // blocks of 8 warps on a multiprocessor
  const bool wait = rows <= 8 && fixed_weight(p) && blocks > kResident * p.machine.multiprocessors;
  return p.k * p.batch * tiles(p.n, 16) / std::max<int64_t>(blocks, 1) >= 1024 && !wait ? 8 : 4;
}

// A kernel for so many rows; it serves any number of them.
CudaVariant few_rows(const GemmProblem& p, int64_t limit) {
  const int64_t most = std::min(upper_bound(p.facts.m).value_or(limit), limit);
  const int64_t width = 16 / byte_size(p.facts.dtype);
  int64_t rows = most > 4 ? 8 : most > 2 ? 4 : std::max<int64_t>(most, 1);
  int warps = 8;
  CudaVariant v;
  v.header = "cuda/gemv.h";
  if (p.half() && p.b_k) {
    rows = most > 8 ? 16 : 8;
    v.cluster = cluster_split(p, tiles(p.n, 16) * p.batch, 512, rows);
    warps = warps_of(p, rows, tiles(p.n, 16) * p.batch * v.cluster);
    if (rows == 8)
      v.min_blocks = warps == 4 ? 7 : 3;  // 72 registers instead of 88: 14336 columns 31.9 us, not 32.5 (cuBLAS 32.3), 50304 of k = 768 22.2, not 23.3
    v.name = "gemv_mma";
    v.call = fmt::format("cd::gemv_mma<{}, {}, {}, {}>(t, epilogue);", p.type(), rows / 8, warps, v.cluster);
    v.grid_x = fmt::format("{} * {}", tiles_text("t.n", 16), v.cluster);
  } else if (p.b_k) {
    rows = std::min<int64_t>(rows, known(p.facts.m) ? 8 : 4);
    warps = 4;
    v.name = "gemv_dot";
    v.call = fmt::format("cd::gemv_dot<{}, {}, {}>(t, epilogue);", p.type(), rows, warps);
    v.grid_x = tiles_text("t.n", warps * width);
  } else {
    rows = std::min<int64_t>(rows, p.half() || !known(p.facts.m) ? 4 : 8);
    v.cluster = cluster_split(p, tiles(p.n, 32) * p.batch, 256, rows);
    v.name = "gemv_axpy";
    v.call = fmt::format("cd::gemv_axpy<{}, {}, {}, {}>(t, epilogue);", p.type(), rows, warps, v.cluster);
    v.grid_x = fmt::format("{} * {}", tiles_text("t.n", 32), v.cluster);
  }
  v.threads = warps * 32;
  v.hopper = v.cluster > 1;
  v.grid_y = tiles_text("t.m", rows);
  v.grid_z = batch_grid();
  return v;
}

}  // namespace

std::string tiles_text(std::string_view size, int64_t tile) { return fmt::format("(({} + {}) / {})", size, tile - 1, tile); }

std::string map_setup(const GemmProblem& p, int bm, int bn, const TileChoice& c) {
  const int classes = classes_of(p, *c.tile);
  const std::string a_rows = fmt::format(
      "for (int c = 0; c < {0}; ++c) {{ if (const int32_t failed = cd::cuda_class_map(call, &t.map_a[c], {1}, t.a, t.m, t.k, t.a_row, {0}, c, "
      "{2}, error)) return failed; }}",
      classes, info(p.facts.dtype).shim_number, bm / classes);
  const auto map = [&](char x, bool k_contiguous, std::string_view rows, std::string_view line, int box, int sharers) {
    std::string lines(k_contiguous ? rows : "t.k");
    if (known(p.facts.batch) != 1) lines = fmt::format("(t.batch - 1) * (t.{}_batch / {}) + {}", x, line, lines);
    return fmt::format("if (const int32_t failed = cd::cuda_tensor_map(call, &t.map_{0}{6}, {1}, t.{0}, {2}, {3}, {4} * {7}, {5}, {8}, error)) return failed;",
                       x, p.facts.tf32 ? "cd::kMapTf32" : std::to_string(info(p.facts.dtype).shim_number), lines, k_contiguous ? "t.k" : rows, line,
                       (k_contiguous ? box : 64) / sharers, x == 'a' ? "[0]" : "", p.size(), p.step());
  };
  return "if (t.batch > 0 && t.m > 0 && t.n > 0) { " + (classes > 1 ? a_rows : map('a', p.a_k, "t.m", p.a_line(), bm, c.across)) + " " +
         map('b', p.b_k, "t.n", p.b_line(), bn, c.down) + " }";
}

std::vector<CudaVariant> cuda_gemm_variants(const CudaGemmFacts& facts, const CudaMachine& machine) {
  const GemmProblem p(facts, machine, int64_t{512});
  std::vector<CudaVariant> variants;
  int64_t limit = 0;
  // Of sizes that are not known until a call, one to 8 rows (a token, a few of them) have a kernel of their own: it has twice as many bytes of the weight on
  // their way, and parts of k.
  const int64_t least = lower_bound(facts.m).value_or(0), most = few(p);
  for (const int64_t rows : {std::min<int64_t>(most, 8), most}) {
    if (least > rows || limit == rows) continue;
    limit = rows;
    variants.push_back(few_rows(p, rows));
    if (upper_bound(facts.m).value_or(rows + 1) <= rows) return variants;
    variants.back().condition = fmt::format("t.m <= {}", rows);
  }
  const std::vector<GemmProblem> points = points_of(facts, machine, limit);
  const Fit fit = tma_fit(p);
  if (fit == Fit::at_run_time) {
    // Where TMA may not do: kernels if it does, and one if not.
    const GemmProblem& middle = points[points.size() / 2];
    add_for_points(points, true, tma_condition(p), variants);
    variants.push_back(variant_of(middle, best_of(middle, false)));
  } else {
    add_for_points(points, fit == Fit::always, "", variants);
  }
  return variants;
}

// --- by numbers

static int32_t kind_of(const TileChoice& c) {
  const int shape = (c.down > 1) + 2 * (c.across > 1);  // alone, pair, side, square
  constexpr int32_t kPersistent[] = {kWgmma, kWgmmaPair, kWgmmaSide, kWgmmaSquare}, kTile[] = {kWgmmaTile, kWgmmaTilePair, kWgmmaTileSide, kWgmmaTileSquare};
  switch (c.tile->kind) {
    case TileKind::simt: return kCudaCores;
    case TileKind::mma:
    case TileKind::mma_short: return kMmaSync;
    case TileKind::wgmma: return kPersistent[shape];
    case TileKind::wgmma_split: return kTile[shape];
    case TileKind::wgmma_copy: return kWgmmaCopy;
  }
  return kCudaOwn;
}

static CudaWay way_of(const TileChoice& c) { return {kind_of(c), c.tile->bm, c.tile->bn, c.split}; }

std::vector<CudaCandidate> cuda_gemm_candidates(const CudaGemmFacts& facts, const CudaMachine& machine, const Sizes& sizes) {
  const GemmProblem p(facts, machine, sizes);
  std::vector<CudaCandidate> out;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.batch < 1) return out;
  const double bytes = static_cast<double>((p.m + p.n) * p.k * p.batch * byte_size(facts.dtype));
  if (p.m <= kMostFewRows) out.push_back({{kFewRows}, 2000 + bytes / 3.9 * static_cast<double>((p.m + few(p) - 1) / few(p)) / 1000});
  for (const bool tma : {true, false}) {
    if (tma ? tma_fit(p) == Fit::never : p.tensor() && machine.sm == 90 && tma_fit(p) == Fit::always) continue;
    for (const TileChoice& c : tile_choices(p, tma)) out.push_back({way_of(c), time_of(p, c)});
    if (!p.tensor() || machine.sm != 90) break;
  }
  std::stable_sort(out.begin(), out.end(), [](const CudaCandidate& a, const CudaCandidate& b) { return a.cost < b.cost; });
  return out;
}

std::optional<CudaVariant> cuda_gemm_variant(const CudaGemmFacts& facts, const CudaMachine& machine, const CudaWay& way) {
  const GemmProblem p(facts, machine, int64_t{512});
  if (way == CudaWay{kFewRows}) return few_rows(p, few(p));
  for (const bool tma : {true, false}) {
    const Fit fit = tma ? tma_fit(p) : Fit::always;
    if (fit == Fit::never) continue;
    for (const GemmTile* t : possible_tiles(p, tma)) {
      if (t->bm != way.rows || t->bn != way.columns) continue;
      for (const auto& [down, across] : shares_of(*t)) {
        const TileChoice c{t, way.split, down, across};
        if (way_of(c) != way || !can_split(p, c)) continue;
        CudaVariant v = variant_of(p, c);
        if (fit == Fit::at_run_time && tma && t->kind != TileKind::wgmma_copy) v.condition = tma_condition(p);
        return v;
      }
    }
  }
  return std::nullopt;
}

}  // namespace coil::templates
