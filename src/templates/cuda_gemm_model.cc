// See cuda_gemm_model.h. The constants of the wgmma kernels' time are in cuda_gemm_times.h.
#include "templates/cuda_gemm_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "device/cuda/shared_memory.h"
#include "base/cuda_machine.h"

namespace coil::templates {
namespace {

bool multiple_of(Expr e, int64_t factor) { return known(simplify_index(floor_mod(e, e->pool->index(factor)), {})) == 0; }

// --- what TMA asks of an operand: one axis contiguous, the other's stride, the batch's and the address multiples of 16 bytes

// The operand of `lines` rows of `contiguous` elements, `stride` apart.
Fit tma_fit(const GemmProblem& p, Expr contiguous, Expr stride, Expr batch_stride, bool k_contiguous, int64_t alignment) {
  if (!is_one(contiguous) || (known(stride) && (*known(stride) <= 0 || *known(stride) % (16 / p.size()) != 0))) return Fit::never;
  const bool one = known(p.facts.batch) == 1, shared = known(batch_stride) == 0;
  // All batches are lines of one map. Lines along k past the end of a batch would be the next one's.
  if (!one && !shared && !k_contiguous && !multiple_of(p.facts.k, 64)) return Fit::never;
  const bool whole = one || shared || known(simplify_index(floor_mod(batch_stride, stride), {})) == 0;
  const bool positive = lower_bound(stride).value_or(0) > 0 && (one || lower_bound(batch_stride).value_or(-1) >= 0);
  const bool few =
      one || shared ||
      (known(p.facts.batch) && known(batch_stride) && known(stride) && *known(p.facts.batch) * (*known(batch_stride) / *known(stride)) < INT32_MAX);
  return alignment % 16 == 0 && multiple_of(stride, 16 / p.size()) && whole && positive && few ? Fit::always : Fit::at_run_time;
}
// --- kernels of a tile or several a block

constexpr GemmTile kMmaTiles[] = {
    {TileKind::mma, 128, 128, 32, 64, 64, 4, 1, 1, 600},
    {TileKind::mma, 64, 64, 64, 32, 32, 4, 1, 1, 400},
    {TileKind::mma, 32, 64, 64, 16, 32, 4, 1, 1, 230},
};
// As little as can be around the steps, and many blocks on a multiprocessor.
constexpr GemmTile kShortTiles[] = {
    {TileKind::mma_short, 128, 64, 32, 64, 32, 2, 1, 1, 0},
    {TileKind::mma_short, 128, 32, 32, 32, 32, 2, 1, 1, 0},
    {TileKind::mma_short, 64, 64, 32, 32, 32, 2, 1, 1, 0},
    {TileKind::mma_short, 64, 32, 32, 32, 32, 2, 1, 1, 0},
};
constexpr CudaMachine kHopper = cuda_machine(90);
constexpr double kTensorClock = 1.4;  // GHz of an H200 whose tensor cores are busy
constexpr int64_t kShort = 96;        // elements along k
constexpr int64_t kFromMemory = 128;  // rows up to which weights were timed from memory
constexpr GemmTile kTf32Tiles[] = {
    {TileKind::mma, 128, 256, 32, 64, 64, 3, 1, 1, 430},
    {TileKind::mma, 128, 128, 16, 64, 64, 4, 1, 1, 420},
    {TileKind::mma, 64, 64, 64, 32, 32, 3, 1, 1, 240},
    {TileKind::mma, 32, 64, 64, 16, 32, 3, 1, 1, 140},
};
// Fitted to 27 products of models on an H200, at most six of a tile by the parts of k.
constexpr GemmTile kF32Tiles[] = {
    {TileKind::simt, 128, 128, 16, 8, 16, 3, 1, 2, 94, 0.87, 0.59}, {TileKind::simt, 64, 128, 16, 8, 16, 3, 1, 4, 88, 0.53, 1.5},
    {TileKind::simt, 128, 64, 16, 8, 8, 3, 1, 3, 87, 0.76, 0.93},   {TileKind::simt, 64, 64, 32, 8, 16, 3, 4, 2, 81, 0.84, 1.8},
    {TileKind::simt, 32, 64, 32, 8, 8, 3, 4, 3, 79, 0.65, 2.6},
};
constexpr GemmTile kF64Tiles[] = {
    {TileKind::simt, 64, 64, 16, 4, 4, 3, 1, 1, 40},
    {TileKind::simt, 32, 32, 16, 4, 4, 3, 2, 1, 30},
};
constexpr GemmTile kWgmmaTiles[] = {
    {TileKind::wgmma, 192, 192, 64, 0, 0, 4, 1, 1, 0},       {TileKind::wgmma, 192, 160, 64, 0, 0, 4, 1, 1, 0},
    {TileKind::wgmma, 192, 128, 64, 0, 0, 5, 1, 1, 0},       {TileKind::wgmma, 192, 96, 64, 0, 0, 5, 1, 1, 0},
    {TileKind::wgmma, 128, 256, 64, 0, 0, 4, 1, 1, 0},       {TileKind::wgmma, 128, 192, 64, 0, 0, 4, 1, 1, 0},
    {TileKind::wgmma, 128, 160, 64, 0, 0, 4, 1, 1, 0},       {TileKind::wgmma, 128, 128, 64, 0, 0, 6, 1, 1, 0},
    {TileKind::wgmma_split, 128, 160, 64, 0, 0, 5, 1, 1, 0}, {TileKind::wgmma, 128, 64, 64, 0, 0, 8, 1, 1, 0},
    {TileKind::wgmma_split, 128, 192, 64, 0, 0, 5, 1, 1, 0}, {TileKind::wgmma_split, 128, 128, 64, 0, 0, 6, 1, 1, 0},
    {TileKind::wgmma_split, 128, 96, 64, 0, 0, 6, 1, 1, 0},  {TileKind::wgmma_split, 128, 80, 64, 0, 0, 6, 1, 1, 0},
    {TileKind::wgmma_split, 128, 64, 64, 0, 0, 8, 1, 1, 0},  {TileKind::wgmma_split, 64, 192, 64, 0, 0, 6, 1, 1, 0},
    {TileKind::wgmma_split, 64, 160, 64, 0, 0, 7, 1, 1, 0},  {TileKind::wgmma_split, 64, 128, 64, 0, 0, 8, 1, 1, 0},
    {TileKind::wgmma_split, 64, 96, 64, 0, 0, 8, 1, 1, 0},   {TileKind::wgmma_split, 64, 64, 64, 0, 0, 6, 1, 1, 0},
};
constexpr GemmTile kTf32WgmmaTiles[] = {
    {TileKind::wgmma_split, 128, 256, 32, 0, 0, 4, 1, 1, 0}, {TileKind::wgmma_split, 128, 192, 32, 0, 0, 5, 1, 1, 0},
    {TileKind::wgmma_split, 128, 160, 32, 0, 0, 5, 1, 1, 0}, {TileKind::wgmma_split, 128, 128, 32, 0, 0, 6, 1, 1, 0},
    {TileKind::wgmma_split, 128, 96, 32, 0, 0, 6, 1, 1, 0},  {TileKind::wgmma_split, 128, 64, 32, 0, 0, 8, 1, 1, 0},
    {TileKind::wgmma_split, 64, 192, 32, 0, 0, 6, 1, 1, 0},  {TileKind::wgmma_split, 64, 128, 32, 0, 0, 8, 1, 1, 0},
    {TileKind::wgmma_split, 64, 64, 32, 0, 0, 6, 1, 1, 0},
};
constexpr GemmTile kCopyTiles[] = {
    {TileKind::wgmma_copy, 128, 256, 64, 0, 0, 4, 1, 1, 0}, {TileKind::wgmma_copy, 128, 192, 64, 0, 0, 5, 1, 1, 0},
    {TileKind::wgmma_copy, 128, 128, 64, 0, 0, 4, 1, 1, 0}, {TileKind::wgmma_copy, 128, 64, 64, 0, 0, 4, 1, 1, 0},
    {TileKind::wgmma_copy, 64, 64, 64, 0, 0, 4, 1, 1, 0},
};

// Columns of b that a block loads: those that are contiguous come 64 at a time.
int loaded_columns(const GemmProblem& p, const GemmTile& t) { return static_cast<int>(cd::wgmma_columns(t.bn, p.b_k)); }

// Blocks that a multiprocessor holds: by registers (a thread has so many of them where NVRTC 13 compiles tiles of so many columns) and by shared memory, of
// which a block has a kilobyte beside what it asks for.
int64_t resident_blocks(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  const int registers = t.bn <= 64 ? 64 : t.bn <= 96 ? 80 : t.bn <= 192 ? 128 : 168, threads = threads_of(t, turns_of(p, t));
  if (t.kind == TileKind::wgmma) return 1;
  return std::clamp<int64_t>(p.machine.shared_bytes / (shared_bytes(p, c) + 1024), 1, std::max(1, kCudaRegisters / (threads * registers)));
}

// The blocks of a choice, in turns of those that run at once.
struct Turns {
  int64_t down, across;  // tiles, with those that fill up clusters
  int64_t blocks, busy;  // all of them, and those that multiprocessors compute at once
  int64_t computing;     // turns in which each multiprocessor computes one tile
  int64_t starts;        // turns of as many blocks as fit on a multiprocessor
};

Turns turns_of_blocks(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  const int cluster = c.split * c.down * c.across;
  const int64_t down = std::max<int64_t>(tiles(p.m, int64_t{t.bm} * c.down), 1) * c.down;
  const int64_t across = std::max<int64_t>(tiles(p.n, int64_t{t.bn} * c.across), 1) * c.across;
  const int64_t blocks = down * across * std::max<int64_t>(p.batch, 1) * c.split, one = cluster_blocks_at_once(p.machine, cluster, 1);
  return {down, across, blocks, std::min(blocks, one), tiles(blocks, one), tiles(blocks, cluster_blocks_at_once(p.machine, cluster, resident_blocks(p, c)))};
}

// The times on another machine than the H200 that they were fitted on.
WgmmaTimes times_on(const CudaMachine& m, WgmmaTimes w) {
  const double tensor = kHopper.half * kHopper.clock / (m.half * m.clock);
  w.element *= tensor;
  w.element_hot *= tensor;
  w.from_cache *= m.multiprocessors * m.clock / (kHopper.multiprocessors * kHopper.clock);
  w.to_memory *= m.memory / kHopper.memory;
  return w;
}

// Nanoseconds of a step of odd rows: they pass through registers, its words before its products may begin.
double through_registers(const GemmProblem& p, const GemmTile& t, const WgmmaTimes& w) {
  if (classes_of(p, t) == 1) return 0;
  return turns_of(p, t) == 2 ? w.turn + w.turn_element * t.bm * t.bn : w.through + w.through_element * t.bm * t.bn;
}

// Nanoseconds of a step, 128 bytes along k, of a tile in the middle and of one in the corner of the result, weighed as they occur. It is bound by the tensor
// cores, by what the L2 cache gives to all blocks, or by what TMA brings to one: rows of a box that lie outside of the tensor take long. Where each block has
// one tile, the slowest decides.
double step_time(const GemmProblem& p, const TileChoice& c, const Turns& turns, const WgmmaTimes& w) {
  const GemmTile& t = *c.tile;
  const bool copies = t.kind == TileKind::wgmma_copy,
             hot = static_cast<double>(turns.busy) > 0.9 * cluster_blocks_at_once(p.machine, c.split * c.down * c.across, 1);
  const double columns = loaded_columns(p, t), a_rows = static_cast<double>(t.bm) / c.across, b_rows = columns / c.down;  // of a block's own boxes
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), down = static_cast<double>(turns.down), across = static_cast<double>(turns.across);
  const double lines = 128 * (m / down + n / across * columns / t.bn);  // also of what blocks share: the cache gives it to each of them
  const double products = t.bm * t.bn * (hot && p.k >= 2048 ? w.element_hot : w.element);
  const double least = std::max({products, through_registers(p, t, w), lines * static_cast<double>(turns.busy) / w.from_cache});
  const double a_outside = std::min(a_rows, down * t.bm - m), b_outside = std::min(b_rows, across * t.bn - n + columns - t.bn);
  const auto step = [&](double a_out, double b_out) {
    const double bytes = 128 * (t.bm - a_out * c.across + columns - b_out * c.down);
    return std::max(least, copies ? bytes / w.copied_in : bytes / w.taken_in + w.outside * (a_out + b_out));
  };
  const double inner = step(turns.down == 1 ? a_outside : 0, turns.across == 1 ? b_outside : 0), corner = step(a_outside, b_outside);
  return inner + (corner - inner) * (turns.computing == 1 ? 1 : std::min(1.0, 1 / down + 1 / across));
}

// Nanoseconds in which memory delivers: weights of few rows, each line of which is read once. Those of more rows were timed from the L2 cache.
double memory_time(const GemmProblem& p, const TileChoice& c, int64_t steps, const WgmmaTimes& w) {
  if (p.m > kFromMemory || p.batch > 1) return 0;
  const double bytes = p.size() * static_cast<double>(p.n * p.k);
  return std::max(bytes / p.machine.memory, static_cast<double>(steps) * w.latency / stages_of(p, *c.tile));
}

// Nanoseconds in which blocks bring their tiles to memory.
double finish_time(const GemmProblem& p, const TileChoice& c, const Turns& turns, const WgmmaTimes& w) {
  const GemmTile& t = *c.tile;
  const double elements = t.bm * t.bn, written = p.size() * static_cast<double>(p.m * p.n * std::max<int64_t>(p.batch, 1)) / w.to_memory;
  const double tile = turns_of(p, t) == 2 ? w.finish_turns + w.finish_turns_element * elements : w.finish_element * elements;
  const double parts = c.split > 1 ? w.split + w.split_element * elements * std::log2(c.split) : 0;
  const double finish = static_cast<double>(turns.starts) * (tile + parts) * (t.kind == TileKind::wgmma ? w.finish_persistent : 1);
  // Stores of rows that wide ones do not fill keep a multiprocessor busy, however many blocks it holds.
  const double narrow = p.n % (16 / p.size()) != 0 ? static_cast<double>(turns.computing) * elements / c.split * w.finish_narrow : 0;
  return std::max({written, finish, narrow});
}

// Nanoseconds of the wgmma kernels: blocks start and fill their pipelines, take their steps, and finish.
double wgmma_time(const GemmProblem& p, const TileChoice& c, const WgmmaTimes& fitted) {
  const WgmmaTimes w = times_on(p.machine, fitted);
  const Turns turns = turns_of_blocks(p, c);
  const int64_t steps = tiles(tiles(std::max<int64_t>(p.k, 1), p.step()), c.split);
  const auto starts = static_cast<double>(turns.starts);
  const bool persistent = c.tile->kind == TileKind::wgmma, cluster = c.split * c.down * c.across > 1;
  const double compute = static_cast<double>(turns.computing * steps) * step_time(p, c, turns, w), memory = memory_time(p, c, turns.starts * steps, w);
  const double start = persistent ? w.fill : w.fill * starts;
  const double clusters = cluster ? w.cluster + (persistent ? 0 : w.cluster_again * (starts - 1)) : 0;
  const double rest = start + clusters + std::max(compute, memory + w.beside_memory * compute) + finish_time(p, c, turns, w);
  // Many tiles of one step or two: filling and emptying the pipeline is all that there is.
  const bool few_steps = p.half() && p.k <= kShort && turns.blocks >= 4 * turns.busy;
  return w.launch + rest * (few_steps ? w.few_steps : 1);
}

// Nanoseconds of kShortTiles on an H200, fitted to eight products of MobileNetV3's pixels and six of Swin's and LeViT's heads: of a block, its steps, and its
// tile on the way to memory.
double short_time(const GemmProblem& p, const GemmTile& t) {
  const double blocks = static_cast<double>(tiles(p.m, t.bm) * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1));
  return 2500 + std::max(1.0, blocks / p.machine.multiprocessors) * (150 + 1.9 * (t.bm + t.bn) * static_cast<double>(tiles(p.k, t.bk)) + 0.06 * t.bm * t.bn);
}

// Clocks on mma.sync and the CUDA cores: blocks in turn, each at the rate that its tile reaches.
double plain_time(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  const int sms = p.machine.multiprocessors;
  const int64_t blocks = tiles(p.m, t.bm) * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1) * c.split;
  const double turns = static_cast<double>(tiles(blocks, sms)), area = static_cast<double>(t.bm) * t.bn;
  const double k = static_cast<double>(tiles(tiles(p.k, t.bk), c.split) * t.bk);
  // A block that is alone on its multiprocessor waits for itself; the blocks of a cluster for each other, and then add up.
  const double alone = turns > 1 || t.kind != TileKind::simt ? 1 : threads_of(t) < 256 ? 0.55 : 0.8;
  return turns * (area * k / (t.rate * alone) + 600 + (c.split > 1 ? 2000 + area / 2 * (c.split - 1) : 0)) + 3000;
}

// Nanoseconds in float32 on the CUDA cores: turns of as many blocks as fit, then those that are left over, with less than a multiprocessor can do. Fitted to
// the products that kF32Tiles was: in the geometric mean the choice takes 1.05 times the best one's time.
double f32_time(const GemmProblem& p, const TileChoice& c) {
  constexpr double kSplit = 2000, kSplitEach = 4000, kSplitElement = 0.26, kClusters = 0.92, kOneAlong = 0.927, kNoneAlong = 0.912, kLaunch = 725;
  const GemmTile& t = *c.tile;
  const int64_t sms = p.machine.multiprocessors, blocks = tiles(p.m, t.bm) * tiles(p.n, t.bn) * std::max<int64_t>(p.batch, 1) * c.split;
  // Not all that there is room for: which multiprocessors clusters find together is the device's to say.
  const double together = c.split > 2 ? kClusters : 1;
  const int64_t at_once =
      c.split == 1 ? sms * t.min_blocks
                   : std::max<int64_t>(1, static_cast<int64_t>(together * static_cast<double>(cluster_blocks_at_once(p.machine, c.split, t.min_blocks))));
  const int64_t turns = blocks / at_once, rest = std::min<int64_t>(tiles(blocks % at_once, sms), t.min_blocks);
  const double area = static_cast<double>(t.bm) * t.bn, k = static_cast<double>(tiles(tiles(p.k, t.bk), c.split) * t.bk);
  const double block = area * k / (t.rate * p.machine.f32 / 128);
  const double busy = t.min_blocks > 1 ? t.alone + (1 - t.alone) * static_cast<double>(rest - 1) / (t.min_blocks - 1) : 1;
  const double parts = c.split > 1 ? kSplit + (kSplitEach + kSplitElement * area) * (c.split - 1) : 0;
  const double clocks = static_cast<double>(turns * t.min_blocks) * block + (rest > 0 ? static_cast<double>(rest) * block / busy : 0) +
                        static_cast<double>(turns + (rest > 0)) * (t.finish * area + parts);
  return kLaunch + clocks / p.machine.clock * (p.b_k ? 1 : p.a_k ? kOneAlong : kNoneAlong);
}

// Whether a tile can compute the problem at all.
bool fits(const GemmProblem& p, const GemmTile& t) {
  if (t.kind >= TileKind::wgmma && !p.b_k && t.bn % 64 != 0 && t.bn != 160 && t.bm != 192) return false;
  if (t.bm == 192 && classes_of(p, t) > 1) return false;  // no registers for odd rows
  // The copying warpgroup takes at most 128 columns of a b whose columns are contiguous.
  return t.kind != TileKind::wgmma_copy || p.b_k || t.bn <= 128;
}

std::span<const GemmTile> tiles_of(const GemmProblem& p, bool tma) {
  if (p.facts.tf32) return tma ? std::span<const GemmTile>(kTf32WgmmaTiles) : kTf32Tiles;
  if (p.facts.dtype == DType::f32) return kF32Tiles;
  if (p.facts.dtype == DType::f64) return kF64Tiles;
  if (p.machine.sm != 90) return kMmaTiles;
  return tma ? std::span<const GemmTile>(kWgmmaTiles) : kCopyTiles;
}

}  // namespace

GemmProblem::GemmProblem(const CudaGemmFacts& f, const CudaMachine& chip, const Sizes& sizes)
    : facts(f),
      machine(chip),
      batch(sizes(f.batch)),
      m(sizes(f.m)),
      n(sizes(f.n)),
      k(sizes(f.k)),
      a_k(is_one(f.a_col) || !is_one(f.a_row)),
      b_k(is_one(f.b_row) || !is_one(f.b_col)),
      fixed(known(f.batch) && known(f.m) && known(f.n) && known(f.k)) {}

GemmProblem::GemmProblem(const CudaGemmFacts& f, const CudaMachine& chip, int64_t size)
    : GemmProblem(f, chip, [size](Expr e) {
        return evaluate_index(e, [&](SymbolId id) {
          const Symbol& s = e->pool->symbol_info(id);
          return std::clamp(size, s.min, s.max);
        });
      }) {
  guess = size;
}

int a_classes(const GemmProblem& p) {
  const std::optional<int64_t> row = known(p.facts.a_row);
  if (p.machine.sm != 90 || !p.half() || !is_one(p.facts.a_col) || known(p.facts.batch) != 1 || !row || *row <= 0) return 1;
  return *row % 16 == 0 ? 1 : *row % 8 == 0 ? 2 : *row % 4 == 0 ? 4 : 8;
}

int threads_of(const GemmTile& t, int turns) {
  switch (t.kind) {
    case TileKind::simt: return static_cast<int>(cd::gemm_simt_threads(t.bm, t.bn, t.wm, t.wn, t.slices));
    case TileKind::mma:
    case TileKind::mma_short: return static_cast<int>(cd::warp_tile_threads(t.bm, t.bn, t.wm, t.wn));
    case TileKind::wgmma: return static_cast<int>(cd::gemm_wgmma_threads(t.bm));
    case TileKind::wgmma_split:
    case TileKind::wgmma_copy: break;
  }
  return static_cast<int>(cd::gemm_wgmma_split_threads(t.bm, turns, t.kind == TileKind::wgmma_copy));
}

int classes_of(const GemmProblem& p, const GemmTile& t) { return t.kind == TileKind::wgmma || t.kind == TileKind::wgmma_split ? a_classes(p) : 1; }

// Of a block that computes one tile no more than it has steps: more blocks are then on a multiprocessor at once, which is what many small products want.
// In classes of rows a stage is left later: as many as there is room for beside what finishing a tile needs.
int stages_of(const GemmProblem& p, const GemmTile& t) {
  const bool hopper = t.kind == TileKind::wgmma_split || t.kind == TileKind::wgmma_copy;
  if (classes_of(p, t) == 1 && known(p.facts.k) && (hopper || is_mma(t.kind))) {
    const int64_t steps = tiles(*known(p.facts.k), hopper ? p.step() : t.bk), least = t.kind == TileKind::wgmma_copy ? 3 : 2;
    return static_cast<int>(std::clamp<int64_t>(steps, std::min<int64_t>(least, t.stages), t.stages));
  }
  if (classes_of(p, t) == 1) return t.stages;
  return std::min(10, (static_cast<int>(p.machine.shared_bytes) - (t.kind == TileKind::wgmma ? static_cast<int>(cd::gemm_wgmma_buffers(t.bm, 2)) : 0)) /
                          ((t.bm + loaded_columns(p, t)) * 128 + 32));
}

// What a step of odd rows waits for (its words on their way through registers) is hidden behind another one's products. Wider tiles have no registers
// for it: 9 warps have 168 each.
int turns_of(const GemmProblem& p, const GemmTile& t) {
  const int classes = classes_of(p, t);
  return classes > 1 && t.bm == 64 && t.bn <= (classes == 8 ? 128 : 160) ? 2 : 1;
}

Fit tma_fit(const GemmProblem& p) {
  const CudaGemmFacts& f = p.facts;
  if (p.machine.sm != 90 || !p.tensor() || known(f.k) == 0 || (f.tf32 && !(p.a_k && p.b_k))) return Fit::never;
  const bool classes = a_classes(p) > 1;
  const Fit a = classes ? Fit::always : tma_fit(p, p.a_k ? f.a_col : f.a_row, p.a_k ? f.a_row : f.a_col, f.a_batch, p.a_k, f.a_alignment);
  const Fit b = tma_fit(p, p.b_k ? f.b_row : f.b_col, p.b_k ? f.b_col : f.b_row, f.b_batch, p.b_k, f.b_alignment);
  return std::min({a, b, lower_bound(f.k).value_or(0) > 0 ? Fit::always : Fit::at_run_time});
}
std::string tma_condition(const GemmProblem& p) {
  const bool classes = a_classes(p) > 1;
  std::string text =
      fmt::format("t.m > 0 && t.n > 0 && t.k > 0 && {0} > 0 && {1} > 0 && ({2}{1}) % {4} == 0 && ({3}(unsigned long long)t.b) % 16 == 0", p.a_line(),
                  p.b_line(), classes ? "" : fmt::format("{} | ", p.a_line()), classes ? "" : "(unsigned long long)t.a | ", 16 / p.size());
  if (known(p.facts.batch) != 1) {
    const auto batches = [](char x, std::string_view line) {
      return fmt::format("t.{0}_batch >= 0 && t.{0}_batch % {1} == 0 && t.batch * (t.{0}_batch / {1}) < 2147483647", x, line);
    };
    text += fmt::format(" && (t.batch == 1 || ({} && {}))", batches('a', p.a_line()), batches('b', p.b_line()));
  }
  return text;
}

int64_t shared_bytes(const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  const int size = byte_size(p.facts.dtype), stages = stages_of(p, t), classes = classes_of(p, t);
  switch (t.kind) {
    case TileKind::simt: return cd::gemm_simt_shared(size, t.bm, t.bn, t.bk, t.wm, stages, t.slices, c.split > 1 || t.slices > 1);
    case TileKind::mma:
    case TileKind::mma_short: return cd::gemm_mma_shared(size, t.bm, t.bn, t.bk, stages);
    case TileKind::wgmma: return cd::gemm_wgmma_shared(t.bm, loaded_columns(p, t), stages, classes);
    default: return cd::gemm_wgmma_split_shared(t.bm, t.bn, loaded_columns(p, t), stages, classes);
  }
}

double time_of(const GemmProblem& p, const TileChoice& c, const WgmmaTimes& times) {
  if (c.tile->kind == TileKind::mma_short) return short_time(p, *c.tile);
  if (p.facts.dtype == DType::f32 && c.tile->kind == TileKind::simt) return f32_time(p, c);
  if (c.tile->kind == TileKind::simt || c.tile->kind == TileKind::mma)
    return plain_time(p, c) / (p.machine.sm == 90 && p.tensor() ? kTensorClock * (p.machine.clock / kHopper.clock) : p.machine.clock);
  return wgmma_time(p, c, times);
}

std::vector<const GemmTile*> possible_tiles(const GemmProblem& p, bool tma) {
  std::vector<const GemmTile*> out;
  const auto add = [&](std::span<const GemmTile> all) {
    for (const GemmTile& t : all) {
      if (fits(p, t)) out.push_back(&t);
    }
  };
  add(tiles_of(p, tma));
  if (p.machine.sm == 90 && p.half() && p.k <= kShort) add(kShortTiles);
  return out;
}

std::span<const std::pair<int, int>> shares_of(const GemmTile& t) {
  static constexpr std::pair<int, int> kShares[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
  const bool shares = t.kind == TileKind::wgmma || t.kind == TileKind::wgmma_split;
  return std::span(kShares).first(shares ? std::size(kShares) : 1);
}

bool can_split(const GemmProblem& p, const TileChoice& c) {
  const bool power = c.split == 1 || c.split == 2 || c.split == 4 || c.split == 8;
  return (power || c.tile->kind == TileKind::simt) && c.split * c.down * c.across <= 8 &&
         (c.split == 1 || (p.machine.sm == 90 && c.tile->kind != TileKind::wgmma));
}

std::vector<TileChoice> tile_choices(const GemmProblem& p, bool tma) {
  std::vector<TileChoice> choices;
  for (const GemmTile* t : possible_tiles(p, tma)) {
    for (const auto& [down, across] : shares_of(*t)) {
      if (down > tiles(p.m, t->bm) || across > tiles(p.n, t->bn)) continue;  // nobody to share with
      for (int split = 1; can_split(p, {t, split, down, across}); split += t->kind == TileKind::simt ? 1 : split) {
        // Clusters that split k: where the tiles leave most of the machine idle, or much of its last turn.
        const int64_t blocks = tiles(p.m, t->bm) * tiles(p.n, t->bn) * std::max<int64_t>(p.batch, 1) * split;
        if (split > 1 && (p.k < int64_t{128} * split || blocks > (t->kind == TileKind::simt ? 3 : 2) * p.machine.multiprocessors)) break;
        choices.push_back({t, split, down, across});
      }
    }
  }
  return choices;
}

}  // namespace coil::templates
