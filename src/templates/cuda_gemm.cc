// Which CUDA kernels serve a matrix product: device/cuda/{gemv,gemm_wgmma,gemm_mma,gemm_simt}.h with tile sizes by a model of their time.
//
// The model's constants are fitted to times on an H200 for the Hopper kernels and are scaled guesses elsewhere; only ratios matter.
// A product with dynamic sizes is modelled at several sizes; two kernels with a limit between them are kept.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

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
  std::string_view a_line() const { return a_k ? "t.a_row" : "t.a_col"; }
  std::string_view b_line() const { return b_k ? "t.b_col" : "t.b_row"; }
};

// --- what TMA asks of an operand: one axis contiguous, the other's stride, the batch's and the address multiples of 16 bytes

enum class Fit : uint8_t { never, at_run_time, always };

// The operand of `lines` rows of `contiguous` elements, `stride` apart.
Fit tma_fit(const Problem& p, Expr contiguous, Expr stride, Expr batch_stride, bool k_contiguous, int64_t alignment) {
  if (!is_one(contiguous) || (known(stride) && (*known(stride) <= 0 || *known(stride) % 8 != 0))) return Fit::never;
  const bool one = known(p.facts.batch) == 1, shared = known(batch_stride) == 0;
  // All batches are lines of one map. Lines along k past the end of a batch would be the next one's.
  if (!one && !shared && !k_contiguous && !multiple_of(p.facts.k, 64)) return Fit::never;
  const bool whole = one || shared || known(simplify_index(floor_mod(batch_stride, stride), {})) == 0;
  const bool positive = lower_bound(stride).value_or(0) > 0 && (one || lower_bound(batch_stride).value_or(-1) >= 0);
  const bool few = one || shared || (known(p.facts.batch) && known(batch_stride) && known(stride) && *known(p.facts.batch) * (*known(batch_stride) / *known(stride)) < INT32_MAX);
  return alignment % 16 == 0 && multiple_of(stride, 8) && whole && positive && few ? Fit::always : Fit::at_run_time;
}
Fit tma_fit(const Problem& p) {
  const CudaGemmFacts& f = p.facts;
  if (p.sm != 90 || !p.half() || known(f.k) == 0) return Fit::never;
  const Fit a = tma_fit(p, p.a_k ? f.a_col : f.a_row, p.a_k ? f.a_row : f.a_col, f.a_batch, p.a_k, f.a_alignment);
  const Fit b = tma_fit(p, p.b_k ? f.b_row : f.b_col, p.b_k ? f.b_col : f.b_row, f.b_batch, p.b_k, f.b_alignment);
  return std::min({a, b, lower_bound(f.k).value_or(0) > 0 ? Fit::always : Fit::at_run_time});
}
std::string tma_condition(const Problem& p) {
  std::string text = fmt::format("t.m > 0 && t.n > 0 && t.k > 0 && {0} > 0 && {1} > 0 && ({0} | {1}) % 8 == 0 && ((unsigned long long)t.a | (unsigned long long)t.b) % 16 == 0",
                                 p.a_line(), p.b_line());
  if (known(p.facts.batch) != 1) {
    const auto batches = [](char x, std::string_view line) {
      return fmt::format("t.{0}_batch >= 0 && t.{0}_batch % {1} == 0 && t.batch * (t.{0}_batch / {1}) < 2147483647", x, line);
    };
    text += fmt::format(" && (t.batch == 1 || ({} && {}))", batches('a', p.a_line()), batches('b', p.b_line()));
  }
  return text;
}

// --- kernels of a tile or several a block

enum class Kind : uint8_t { simt, mma, wgmma, wgmma_split, wgmma_copy };

struct Tile {
  Kind kind;
  int bm, bn, bk, wm, wn, stages, slices;  // CUDA cores: wm x wn is a thread's part
  int threads, min_blocks;
  double rate;                             // multiply-adds a clock of a multiprocessor that is busy with such blocks
};
constexpr Tile kMmaTiles[] = {
    {Kind::mma, 128, 128, 32, 64, 64, 4, 1, 128, 1, 600},
    {Kind::mma, 64, 64, 64, 32, 32, 4, 1, 128, 1, 400},
    {Kind::mma, 32, 64, 64, 16, 32, 4, 1, 128, 1, 230},
};
constexpr Tile kF32Tiles[] = {
    {Kind::simt, 128, 128, 8, 8, 8, 4, 1, 256, 2, 100},
    {Kind::simt, 64, 64, 32, 8, 8, 3, 4, 256, 2, 88},
    {Kind::simt, 32, 64, 32, 8, 8, 3, 4, 128, 1, 80},
};
constexpr Tile kF64Tiles[] = {
    {Kind::simt, 64, 64, 16, 4, 4, 3, 1, 256, 1, 40},
    {Kind::simt, 32, 32, 16, 4, 4, 3, 2, 128, 1, 30},
};
// wm of persistent ones: blocks that share the loads of b.
constexpr Tile kWgmmaTiles[] = {
    {Kind::wgmma, 128, 256, 64, 1, 0, 4, 1, 384, 1, 0},        {Kind::wgmma, 128, 256, 64, 2, 0, 4, 1, 384, 1, 0},
    {Kind::wgmma, 128, 192, 64, 1, 0, 4, 1, 384, 1, 0},        {Kind::wgmma, 128, 128, 64, 1, 0, 6, 1, 384, 1, 0},
    {Kind::wgmma, 128, 64, 64, 1, 0, 8, 1, 384, 1, 0},         {Kind::wgmma_split, 128, 192, 64, 0, 0, 5, 1, 288, 1, 0},
    {Kind::wgmma_split, 128, 128, 64, 0, 0, 6, 1, 288, 1, 0},  {Kind::wgmma_split, 128, 96, 64, 0, 0, 6, 1, 288, 1, 0},
    {Kind::wgmma_split, 128, 64, 64, 0, 0, 8, 1, 288, 1, 0},   {Kind::wgmma_split, 64, 128, 64, 0, 0, 8, 1, 160, 1, 0},
    {Kind::wgmma_split, 64, 64, 64, 0, 0, 6, 1, 160, 1, 0},
};
constexpr Tile kCopyTiles[] = {
    {Kind::wgmma_copy, 128, 256, 64, 0, 0, 4, 1, 384, 1, 0},
    {Kind::wgmma_copy, 128, 192, 64, 0, 0, 5, 1, 384, 1, 0},
    {Kind::wgmma_copy, 128, 128, 64, 0, 0, 4, 1, 384, 1, 0},
    {Kind::wgmma_copy, 128, 64, 64, 0, 0, 4, 1, 384, 1, 0},
    {Kind::wgmma_copy, 64, 64, 64, 0, 0, 4, 1, 256, 1, 0},
};

struct Choice {
  const Tile* tile = nullptr;
  int split = 1;
  bool operator==(const Choice&) const = default;
};

int64_t shared_bytes(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  const int64_t size = byte_size(p.facts.dtype), area = int64_t{t.bm} * t.bn, stages = size * t.stages * t.bk * (t.bm + t.bn), group = 16 / size;
  switch (t.kind) {
    case Kind::simt:
      return std::max(stages + 32 * t.stages * t.bk, size * (c.split > 1 || t.slices > 1 ? t.slices * area : area * group / t.wm));
    case Kind::mma:
      return std::max(stages, 4 * area);
    case Kind::wgmma:
      return stages + 32768 + 16 * t.stages;
    default:
      return std::max(stages, 4 * area) + 16 * t.stages;
  }
}

// Nanoseconds of the wgmma kernels. A step of 64 along k is bound by the tensor cores or by what a multiprocessor or the L2 cache moves;
// starting a kernel, filling the pipeline and finishing a tile take their time beside.
double wgmma_time(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  const int sms = multiprocessors(p.sm);
  const bool persistent = t.kind == Kind::wgmma, copies = t.kind == Kind::wgmma_copy;
  const int64_t rows = tiles(p.m, int64_t{t.bm} * (persistent ? t.wm : 1)) * (persistent ? t.wm : 1);
  const int64_t blocks = rows * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1) * c.split;
  const double busy = static_cast<double>(std::min<int64_t>(blocks, sms)), bytes = 128.0 * (t.bm + t.bn);
  const double tensor = t.bm * t.bn * (busy > 0.9 * sms && p.k >= 2048 ? 0.0197 : 0.018) * (t.bn == 192 ? 1.06 : 1.0);
  const double step = std::max({tensor, bytes / (copies ? 37 : 127), bytes * busy / 11800}) * (persistent && t.wm > 1 ? 0.99 : 1.0);
  const double steps = static_cast<double>(tiles(tiles(std::max<int64_t>(p.k, 1), 64), c.split));
  const double finish = 170 + 9.1 * t.bn * t.bm / 128 + (c.split > 1 ? 2200 + 0.085 * t.bm * t.bn * std::log2(c.split) : 0);
  const int64_t resident = persistent ? 1 : std::max<int64_t>(1, 232448 / (shared_bytes(p, c) + 1024));
  const double turns = static_cast<double>(tiles(blocks, sms)), ends = static_cast<double>(tiles(blocks, sms * resident));
  // From memory at least once; few multiprocessors do not draw all that it can give.
  const double memory = 2.0 * static_cast<double>((p.m + p.n) * p.k * std::max<int64_t>(p.batch, 1)) / std::min(3900.0, busy * 40);
  const double compute = turns * steps * step;
  return 1250 + std::max(compute, memory + 0.15 * compute) + ends * finish;
}

// Clocks on mma.sync and the CUDA cores: blocks in turn, each at the rate that its tile reaches.
double plain_time(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  const int sms = multiprocessors(p.sm);
  const int64_t blocks = tiles(p.m, t.bm) * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1) * c.split;
  const double turns = static_cast<double>(tiles(blocks, sms)), area = static_cast<double>(t.bm) * t.bn;
  const double k = static_cast<double>(tiles(tiles(p.k, t.bk), c.split) * t.bk);
  // A block that is alone on its multiprocessor waits for itself; the blocks of a cluster for each other, and then add up.
  const double alone = turns > 1 || t.kind != Kind::simt ? 1 : t.threads < 256 ? 0.55 : 0.8;
  return turns * (area * k / (t.rate * alone) + 600 + (c.split > 1 ? 2000 + area / 2 * (c.split - 1) : 0)) + 3000;
}
double time_of(const Problem& p, const Choice& c) {
  if (c.tile->kind == Kind::simt || c.tile->kind == Kind::mma) return plain_time(p, c) / (p.sm == 90 && p.half() ? 1.4 : 1.755);
  return wgmma_time(p, c);
}

void add_choices(const Problem& p, std::span<const Tile> all, std::vector<Choice>& choices) {
  for (const Tile& t : all) {
    if (t.kind >= Kind::wgmma && !p.b_k && (t.bn % 64 != 0 || (t.kind == Kind::wgmma && t.wm > 1 && t.bn / t.wm < 64))) continue;
    // The copying warpgroup takes at most 128 columns of a b whose columns are contiguous.
    if (t.kind == Kind::wgmma_copy && !p.b_k && t.bn > 128) continue;
    for (int split = 1; split <= 8; split *= 2) {
      // Clusters that split k: sm_90, where the tiles leave most of the machine idle.
      const int64_t blocks = tiles(p.m, t.bm) * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1) * split;
      if (split > 1 && (p.sm != 90 || t.kind == Kind::wgmma || p.k < int64_t{128} * split || blocks > 2 * multiprocessors(p.sm))) break;
      choices.push_back({&t, split});
    }
  }
}
std::vector<Choice> choices_of(const Problem& p, bool tma) {
  std::vector<Choice> choices;
  if (p.facts.dtype == DType::f32) add_choices(p, kF32Tiles, choices);
  if (p.facts.dtype == DType::f64) add_choices(p, kF64Tiles, choices);
  if (!p.half()) return choices;
  if (p.sm != 90) add_choices(p, kMmaTiles, choices);
  if (p.sm == 90) add_choices(p, tma ? std::span<const Tile>(kWgmmaTiles) : kCopyTiles, choices);
  return choices;
}
Choice best_of(const Problem& p, bool tma) {
  const std::vector<Choice> all = choices_of(p, tma);
  return *std::min_element(all.begin(), all.end(), [&](const Choice& a, const Choice& b) { return time_of(p, a) < time_of(p, b); });
}

CudaVariant plain_variant(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  CudaVariant v;
  const bool simt = t.kind == Kind::simt;
  v.name = fmt::format("{}_{}x{}x{}", simt ? "simt" : "mma", t.bm, t.bn, t.bk);
  v.header = simt ? "cuda/gemm_simt.h" : "cuda/gemm_mma.h";
  v.call = fmt::format("cd::gemm_{}<{}, {}, {}, {}, {}, {}, {}, {}{}, {}, {}>(t, epilogue);", simt ? "simt" : "mma", p.type(), t.bm, t.bn, t.bk, t.wm, t.wn,
                       t.stages, simt ? fmt::format("{}, ", t.slices) : "", p.a_k, p.b_k, c.split);
  v.grid_x = fmt::format("{} * {} * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn), c.split);
  v.grid_z = kBatchGrid;
  return v;
}

// The statements that fill the maps. bm, bn: boxes of k-contiguous operands.
std::string map_setup(const Problem& p, int bm, int bn) {
  const auto map = [&](char x, bool k_contiguous, std::string_view rows, std::string_view line, int box) {
    std::string lines(k_contiguous ? rows : "t.k");
    if (known(p.facts.batch) != 1) lines = fmt::format("(t.batch - 1) * (t.{}_batch / {}) + {}", x, line, lines);
    return fmt::format("if (const int32_t failed = cd::cuda_tensor_map(call, &t.map_{0}, {1}, t.{0}, {2}, {3}, {4} * 2, {5}, 64, error)) return failed;",
                       x, info(p.facts.dtype).shim_number, lines, k_contiguous ? "t.k" : rows, line, k_contiguous ? box : 64);
  };
  return "if (t.batch > 0 && t.m > 0 && t.n > 0) { " + map('a', p.a_k, "t.m", p.a_line(), bm) + " " + map('b', p.b_k, "t.n", p.b_line(), bn) + " }";
}

CudaVariant wgmma_variant(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  CudaVariant v;
  v.header = "cuda/gemm_wgmma.h";
  v.hopper = true;
  if (t.kind == Kind::wgmma) {
    v.name = fmt::format("wgmma_128x{}{}", t.bn, t.wm > 1 ? "_pair" : "");
    v.call = fmt::format("cd::gemm_wgmma<{}, {}, {}, {}, {}, {}>(t, epilogue);", p.type(), t.bn, t.stages, t.wm, p.a_k, p.b_k);
    // A block (or pair) on every multiprocessor, or one a tile.
    const std::string all = fmt::format("({} * {} * t.batch)", tiles_text("t.m", 128 * t.wm), tiles_text("t.n", t.bn));
    const std::string most = fmt::format("(cd::cuda_sms(call) / {})", t.wm);
    v.grid_x = fmt::format("({0} < {1} ? {0} : {1}) * {2}", all, most, t.wm);
    v.setup = map_setup(p, 128, t.bn / t.wm);
    return v;
  }
  const bool copies = t.kind == Kind::wgmma_copy;
  v.name = fmt::format("wgmma{}_{}x{}", copies ? "_copy" : "", t.bm, t.bn);
  v.call = fmt::format("cd::gemm_wgmma_split<{}, {}, {}, {}, {}, {}, {}, {}>(t, epilogue);", p.type(), t.bm, t.bn, t.stages, c.split, p.a_k, p.b_k, copies);
  v.grid_x = fmt::format("{} * {} * t.batch * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn), c.split);
  if (!copies) v.setup = map_setup(p, t.bm, t.bn);
  return v;
}

CudaVariant variant_of(const Problem& p, const Choice& c) {
  const Tile& t = *c.tile;
  CudaVariant v = t.kind == Kind::simt || t.kind == Kind::mma ? plain_variant(p, c) : wgmma_variant(p, c);
  if (c.split > 1) v.name += fmt::format("_split{}", c.split);
  v.threads = t.threads;
  v.min_blocks = t.min_blocks;
  v.shared_bytes = shared_bytes(p, c);
  v.cluster = t.kind == Kind::wgmma ? t.wm : c.split;
  v.hopper = v.hopper || v.cluster > 1;
  return v;
}

std::string both(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + " && " + b; }

// --- dynamic sizes

// The sizes at which a product is modelled; those that few_rows serves are left out.
std::vector<Problem> points_of(const CudaGemmFacts& facts, int sm, int64_t few) {
  std::vector<Problem> points;
  for (const int64_t guess : {32, 64, 128, 256, 512, 1024, 2048, 4096}) {
    const Problem p(facts, sm, guess);
    if (p.m > few && (points.empty() || p.m != points.back().m || p.n != points.back().n || p.k != points.back().k || p.batch != points.back().batch)) points.push_back(p);
  }
  if (points.empty()) points.emplace_back(facts, sm, 512);
  return points;
}

// A kernel for the points from `begin` to `end`, and what it loses against each one's best (sum of logarithms).
struct Stretch {
  size_t begin, end;
  Choice choice;
  double loss;
};

// Adds what serves all sizes, the last one without a condition but `condition`: up to three kernels, each for results of up to so many
// elements. A further kernel must save a few percent at some size.
void add_for_points(const std::vector<Problem>& points, bool tma, const std::string& condition, std::vector<CudaVariant>& variants) {
  constexpr double kKernel = 0.06;
  std::vector<Choice> all;
  for (const Problem& p : points) {
    for (const Choice& c : choices_of(p, tma)) {
      if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
    }
  }
  std::vector<double> least;
  for (const Problem& p : points) least.push_back(time_of(p, best_of(p, tma)));
  const auto stretch = [&](size_t begin, size_t end) {
    Stretch best{begin, end, {}, INFINITY};
    for (const Choice& c : all) {
      double loss = kKernel;
      for (size_t i = begin; i < end; ++i) loss += std::log(time_of(points[i], c) / least[i]);
      if (loss < best.loss) best.choice = c, best.loss = loss;
    }
    return best;
  };
  std::vector<Stretch> found = {stretch(0, points.size())};
  const auto sum = [](const std::vector<Stretch>& stretches) {
    double loss = 0;
    for (const Stretch& s : stretches) loss += s.loss;
    return loss;
  };
  for (size_t i = 1; i < points.size(); ++i) {
    const Stretch first = stretch(0, i), rest = stretch(i, points.size());
    if (std::vector<Stretch> two = {first, rest}; sum(two) < sum(found)) found = std::move(two);
    for (size_t j = i + 1; j < points.size(); ++j) {
      if (std::vector<Stretch> three = {first, stretch(i, j), stretch(j, points.size())}; sum(three) < sum(found)) found = std::move(three);
    }
  }
  for (const Stretch& s : found) {
    variants.push_back(variant_of(points[0], s.choice));
    variants.back().condition = condition;
    if (s.end == points.size()) continue;
    const auto results = [](const Problem& p) { return static_cast<double>(p.batch * p.m * p.n); };
    const auto limit = static_cast<int64_t>(std::sqrt(results(points[s.end - 1]) * results(points[s.end])));
    variants.back().condition = both(condition, fmt::format("t.batch * t.m * t.n <= {}", limit));
  }
}

// --- few rows

// Parts of k so that `blocks` fill the machine, each part at least `least` long.
int cluster_split(const Problem& p, int64_t blocks, int64_t least, int64_t rows) {
  int split = 1;
  while (p.sm == 90 && p.fixed && split < 8 && blocks * split * 2 <= 2 * multiprocessors(p.sm) && p.k >= 2 * split * least && p.k / split * rows >= 1024) split *= 2;
  return split;
}

// A kernel for up to `limit` rows, if the product can have so few.
std::optional<CudaVariant> few_rows(const Problem& p, int64_t& limit) {
  // wgmma serves 2 rows of a [k, n] weight as fast as one does here.
  const bool columns_by_wgmma = p.half() && !p.b_k && tma_fit(p) == Fit::always;
  limit = columns_by_wgmma ? 1 : p.half() && p.b_k ? 16 : 8;
  if (lower_bound(p.facts.m).value_or(0) > limit) return std::nullopt;
  const int64_t most = std::min(upper_bound(p.facts.m).value_or(limit), limit);
  const int64_t width = 16 / byte_size(p.facts.dtype);
  int64_t rows = most > 4 ? 8 : most > 2 ? 4 : std::max<int64_t>(most, 1);
  CudaVariant v;
  v.header = "cuda/gemv.h";
  v.threads = 256;
  if (p.half() && p.b_k) {
    rows = most > 8 ? 16 : 8;
    v.cluster = cluster_split(p, tiles(p.n, 16) * p.batch, 512, rows);
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
    v.cluster = cluster_split(p, tiles(p.n, 32) * p.batch, 256, rows);
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
  } else {
    limit = 0;
  }
  const std::vector<Problem> points = points_of(facts, sm, limit);
  const Fit fit = tma_fit(p);
  if (fit == Fit::at_run_time) {
    // Where TMA may not do: kernels if it does, and one if not.
    const Problem& middle = points[points.size() / 2];
    add_for_points(points, true, tma_condition(p), variants);
    variants.push_back(variant_of(middle, best_of(middle, false)));
  } else {
    add_for_points(points, fit == Fit::always, "", variants);
  }
  return variants;
}

}  // namespace coil::templates
