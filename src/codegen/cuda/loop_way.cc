#include "codegen/cuda/loop_way.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/points.h"
#include "codegen/cuda/reduction_writer.h"

namespace coil::cuda {
namespace {

constexpr int64_t kLeastPoints = 1 << 14;  // of a kernel that takes longer than its launch
constexpr size_t kMostWays = 4;            // each is a kernel to compile
constexpr int64_t kManyRows = 2048;        // with which a thread may take a row,
constexpr int64_t kShortPoints = 128;      // unless neighbours would read from far apart

bool pointwise(const LoopKernel& k) { return k.num_outer == static_cast<int>(k.axes.size()) && !k.sequential; }

bool power_of_two(int32_t n, int32_t least, int32_t most) { return n >= least && n <= most && (n & (n - 1)) == 0; }

int64_t points_of(const LoopKernel& k, int first, int last, const std::function<int64_t(SymbolId)>& sizes) {
  int64_t n = 1;
  for (int a = first; a < last; ++a) n *= evaluate_index(k.axes[static_cast<size_t>(a)].size, sizes);
  return n;
}

std::vector<LoopWay> pointwise_ways(const KernelPlan& plan, const LoopKernel& k) {
  if (const std::optional<int> side = own_tiles(plan, k)) return {{kTilesWay, 0, *side == 64 ? 32 : 64}, {kPointsWay, 256, own_points(plan, k)}};
  const int width = own_points(plan, k);
  return {{kPointsWay, 256, 2 * width}, {kPointsWay, 512, width}, {kPointsWay, 128, width}, {kPointsWay, 256, 4 * width}, {kPointsWay, 256, width / 2}};
}

std::vector<LoopWay> reduction_ways(const LoopWay& own, int64_t rows, int64_t points) {
  const int32_t n = own.threads;
  switch (own.kind) {
    case kRowWay:
      return {{kRowWay, n / 2, 0},
              {kRowWay, n * 2, 0},
              {kRowWay, n / 4, 0},
              {kRowWay, n * 4, 0},
              {rows >= kManyRows && points <= kShortPoints ? kThreadWay : kOwnWay, 128, 0}};
    case kColumnWay: {
      const LoopWay other = own.points > 0 ? LoopWay{kColumnWay, 32, 0} : LoopWay{kColumnWay, n, 4};
      return {{kColumnWay, n / 2, own.points},
              {kColumnWay, n * 2, own.points},
              other,
              {kColumnWay, n / 4, own.points},
              {rows >= kManyRows ? kThreadWay : kOwnWay, 128, 0}};
    }
    case kThreadWay:
      return {{kThreadWay, n * 2, own.points}, {kThreadWay, n / 2, own.points}, {kThreadWay, n, own.points > 0 ? 0 : 4}, {kRowWay, 32, 0}, {kColumnWay, 8, 0}};
    case kScanWay: return {{kScanWay, n * 2, 0}, {kScanWay, n / 2, 0}, {kScanWay, n * 4, 0}};
    default: return {};
  }
}

}  // namespace

KernelText loop_text(const KernelPlan& plan, const LoopKernel& k) { return pointwise(k) ? pointwise_text(plan, k) : reduction_text(plan, k); }

std::optional<KernelText> loop_text(const KernelPlan& plan, const LoopKernel& k, const LoopWay& way) {
  switch (way.kind) {
    case kOwnWay: return way == LoopWay{} ? std::optional(loop_text(plan, k)) : std::nullopt;
    case kPointsWay:
      return pointwise(k) && power_of_two(way.threads, 32, 1024) && power_of_two(way.points, 1, 64) ? pointwise_text(plan, k, way.threads, way.points)
                                                                                                    : std::nullopt;
    case kTilesWay: return pointwise(k) && way.threads == 0 && (way.points == 32 || way.points == 64) ? transposing_text(plan, k, way.points) : std::nullopt;
    case kRowWay:
    case kScanWay: return !pointwise(k) && way.points == 0 && power_of_two(way.threads, 32, 1024) ? reduction_text(plan, k, way) : std::nullopt;
    case kThreadWay:
      return !pointwise(k) && (way.points == 0 || power_of_two(way.points, 2, 8)) && power_of_two(way.threads, 32, 1024) ? reduction_text(plan, k, way)
                                                                                                                         : std::nullopt;
    case kColumnWay: {
      const bool sides = way.points == 0 ? power_of_two(way.threads, 4, 32) : power_of_two(way.points, 2, 8) && power_of_two(way.threads, 4, 256);
      return !pointwise(k) && sides ? reduction_text(plan, k, way) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::vector<Choice> loop_choices(const KernelPlan& plan, const LoopKernel& k, const std::function<int64_t(SymbolId)>& sizes) {
  const int axes = static_cast<int>(k.axes.size());
  std::vector<Choice> out;
  if (points_of(k, 0, axes, sizes) < kLeastPoints) return out;
  for (const LoopWay& way : pointwise(k)
                                ? pointwise_ways(plan, k)
                                : reduction_ways(own_reduction(plan, k), points_of(k, 0, k.num_outer, sizes), points_of(k, k.num_outer, axes, sizes))) {
    if (way.kind == kOwnWay || out.size() == kMostWays || !loop_text(plan, k, way)) continue;
    out.push_back(choice_of(way));
  }
  return out;
}

std::string way_text(const LoopWay& way) {
  switch (way.kind) {
    case kOwnWay: return "default";
    case kPointsWay: return fmt::format("{} threads of {} points", way.threads, way.points);
    case kTilesWay: return fmt::format("tiles of {0} x {0}", way.points);
    case kRowWay: return fmt::format("rows of {} threads", way.threads);
    case kColumnWay: return fmt::format("columns of {} threads{}", way.threads, way.points > 0 ? fmt::format(", {} a thread", way.points) : "");
    case kThreadWay: return fmt::format("{} a thread, {} threads", way.points > 0 ? fmt::format("{} rows", way.points) : "a row", way.threads);
    case kScanWay: return fmt::format("scans by {} threads", way.threads);
    default: return fmt::format("way {}", way.kind);
  }
}

}  // namespace coil::cuda
