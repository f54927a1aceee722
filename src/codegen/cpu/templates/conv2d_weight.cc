// Which packings of a convolution's weight pay, and the memory that its kernels want.
#include <algorithm>
#include <array>
#include <limits>

#include "codegen/cpu/templates/conv2d.h"
#include "device/kernels.h"
#include "schedule/depthwise.h"

namespace coil::cpu {
namespace {

// Winograd's filtering by tiles of 4x4 (2x2) pixels reads 36 / 9 (16 / 9) times the weights, and has two transforms for each
// tile: it pays where there are pixels enough. Nanoseconds of one thread with 512-bit vectors (those with 256 bits are slower
// at both); weights come from memory, while it computes.
constexpr double kFlops = 100, kWeightBytes = 20, kTransform = 5.0 / 36;  // a place of a tile, by channel
constexpr double kCallWeight = 0.5;                                       // a place of a weight that a call transforms: written, and read again
constexpr double kDotFlops = 2 * kFlops;  // of bfloat16, which only the implicit product computes by dot products (where the machine has them)
constexpr double kGain = 0.8;             // at most this part of the implicit product's time
constexpr double kMostRatio = 1.8;        // up to here a tuner may find it otherwise

// The most channels of a group for which panels that run over the groups are faster: windows of any kind, 3 columns that slide,
// and those of few images (several with small maps have a kernel that is as fast), of bfloat16, which has dot products.
constexpr int64_t kNarrowAny = 8, kNarrowSliding = 24, kNarrowFewImages = 64, kNarrowBFloat16 = 16;
constexpr int64_t kFewImages = 3;
constexpr int64_t kLeastInputs = 16;  // of a convolution to few channels, whose vectors lie along the input's
constexpr int64_t kFewBFloat16 = 4;   // of the channels out; beside dot products and AMX

constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_constant(const BufferInfo& weight) { return weight.kind == BufferInfo::Kind::constant; }
bool has_known_sizes(const BufferInfo& weight) {
  return std::all_of(weight.sizes.begin(), weight.sizes.end(), [](Expr size) { return size->is_constant(); });
}

bool channels_lie_side_by_side(Expr x_offset, const BufferInfo& weight) { return as_affine(x_offset, 1)->coefficient == weight.sizes[0]->pool->index(1); }

// A constant weight of floats, for an input whose channels lie side by side.
bool has_float_panels(Expr x_offset, const BufferInfo& weight) {
  if (!is_constant(weight) || (weight.dtype != DType::f32 && weight.dtype != DType::f16 && weight.dtype != DType::bf16)) return false;
  return channels_lie_side_by_side(x_offset, weight);
}
// What a call can transform.
bool comes_as_floats(Expr x_offset, const BufferInfo& weight) {
  return !is_constant(weight) && weight.dtype == DType::f32 && has_known_sizes(weight) && channels_lie_side_by_side(x_offset, weight);
}

struct Filtering {
  Packing packing = packings::winograd_4x4_weight;
  double ratio = kNever;  // of the implicit product's time
};

// The faster tiles for Winograd's filtering, float32 between its transforms.
Filtering best_filtering(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  using Pair = std::array<int64_t, 2>;
  if (!has_float_panels(x_offset, weight) && !comes_as_floats(x_offset, weight)) return {};
  if (c.groups != 1 || c.kernel != Pair{3, 3} || c.stride != Pair{1, 1} || c.dilation != Pair{1, 1}) return {};
  if (!result_sizes[2]->is_constant() || !result_sizes[3]->is_constant()) return {};
  const int64_t oc = weight.sizes[0]->as_int(), ic = weight.sizes[1]->as_int(), oh = result_sizes[2]->as_int(), ow = result_sizes[3]->as_int();
  if (ic % 16 != 0) return {};
  const auto images = static_cast<double>(std::max<int64_t>(lower_bound(result_sizes[0]).value_or(1), 1));
  const auto pairs = static_cast<double>(ic * ((oc + COIL_PANEL - 1) / COIL_PANEL * COIL_PANEL));
  const auto bytes = static_cast<double>(byte_size(weight.dtype));
  const double direct =
      std::max(images * static_cast<double>(oh * ow) * 18 * pairs / (weight.dtype == DType::bf16 ? kDotFlops : kFlops), 9 * bytes * pairs / kWeightBytes);
  Filtering best;
  for (const Packing packing : {packings::winograd_4x4_weight, packings::winograd_2x2_weight}) {
    const int64_t tile = winograd_tile(packing);
    const auto places = static_cast<double>((tile + 2) * (tile + 2));
    const double windows = images * static_cast<double>(((oh + tile - 1) / tile) * ((ow + tile - 1) / tile));
    const double transforms = windows * places * kTransform * static_cast<double>(ic + oc);
    const double weights = is_constant(weight) ? 0 : places * pairs * kCallWeight;
    const double ratio = (transforms + weights + std::max(windows * 2 * places * pairs / kFlops, 4 * places * pairs / kWeightBytes)) / direct;
    if (ratio < best.ratio) best = {packing, ratio};
  }
  return best;
}

int64_t most_narrow(const Conv2d& c, const std::vector<Expr>& result_sizes, DType dtype) {
  if (c.kernel[1] != 3 || c.dilation[1] != 1 || c.stride[1] > 2) return kNarrowAny;
  if (dtype == DType::bf16) return kNarrowBFloat16;
  return c.stride[1] == 1 && lower_bound(result_sizes[0]).value_or(1) <= kFewImages ? kNarrowFewImages : kNarrowSliding;
}

// Groups of few channels, as many in as out, for which device/kernels/narrow_groups.cc is faster than the implicit product,
// whose columns are those of one group.
bool has_narrow_groups(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  if (c.groups == 1 || !has_float_panels(x_offset, weight)) return false;
  const int64_t oc = weight.sizes[0]->as_int(), width = weight.sizes[1]->as_int();
  if (oc != c.groups * width || (width != 2 && width != 4 && width % 8 != 0)) return false;
  if (width > most_narrow(c, result_sizes, weight.dtype)) return false;
  return (weight.dtype == DType::f32 && oc % 16 == 0) || COIL_NARROW_GROUPS_FIT(c.kernel[0], c.kernel[1], c.stride[1], c.dilation[1], width);
}

// Whether device/kernels/few_outputs.cc is faster than the implicit product, most of whose columns would be padding.
bool has_few_outputs(const Conv2d& c, Expr x_offset, const BufferInfo& weight) {
  if (c.groups != 1 || !has_float_panels(x_offset, weight)) return false;
  return weight.sizes[0]->as_int() <= (weight.dtype == DType::bf16 ? kFewBFloat16 : COIL_FEW_OUTPUTS) && weight.sizes[1]->as_int() >= kLeastInputs;
}

// As device/kernels.h states it.
Expr winograd_scratch(ExprPool& pool, Expr workers, const TemplateKernel& k, int64_t ic, int64_t tile) {
  const auto div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t tiles = COIL_WINOGRAD_TILES(tile);
  const int64_t tiles_y = div(k.result_sizes[2]->as_int(), tile), tiles_x = div(k.result_sizes[3]->as_int(), tile);
  const int64_t blocks_x = div(tiles_x, tiles), block_lines = tiles / div(tiles_x, blocks_x);
  const Expr blocks = ceil_div(k.result_sizes[0] * tiles_y, pool.index(block_lines)) * blocks_x;
  const Expr most = workers * COIL_WINOGRAD_SPREAD;
  return (provably_nonnegative(most - blocks) ? blocks : index_min(blocks, most)) * COIL_WINOGRAD_BLOCK_BYTES(tile, ic);
}

// The transformed weight, and then the packed one, which is done with when the windows are transformed.
Expr call_winograd_scratch(ExprPool& pool, Expr workers, const TemplateKernel& k, const BufferInfo& w) {
  const int64_t ic = w.sizes[1]->as_int(), tile = k.call_winograd;
  const int64_t place = (w.sizes[0]->as_int() + COIL_PANEL - 1) / COIL_PANEL * COIL_PANEL * ic * 4;
  return index_max(winograd_scratch(pool, workers, k, ic, tile), pool.index(9 * place)) + (tile + 2) * (tile + 2) * place;
}

// Of a convolution with this weight, as device/kernels.h states it. Zero: none.
Expr conv_scratch(const KernelPlan& plan, const TemplateKernel& k, BufferId weight) {
  ExprPool& pool = *plan.pool;
  const Expr workers = pool.symbol(plan.workers), partial_sums = workers * COIL_GEMM_WORKER_BYTES;
  const auto& conv = std::get<Conv2d>(k.def);
  const BufferInfo& w = plan.buffer(weight).info;
  const Placement& place = plan.buffer(weight).placement;
  const int64_t element = byte_size(w.dtype);
  const bool depthwise = is_depthwise(conv, w.sizes), constant = place.kind == Placement::Kind::constant;
  const Expr depth = w.sizes[1] * w.sizes[2] * w.sizes[3];
  const Packing packing = constant ? plan.constants[static_cast<size_t>(place.index)].packing : kPlain;
  if (const int64_t tile = winograd_tile(packing)) return winograd_scratch(pool, workers, k, w.sizes[1]->as_int(), tile);
  if (packing == packings::narrow_groups_weight || packing == packings::few_outputs_weight) return pool.index(0);
  Expr bytes = pool.index(0);
  if (!constant) {  // packed by the call
    const int64_t groups = depthwise ? 1 : conv.groups;
    const int64_t columns = COIL_PANEL_COLUMNS(element);
    const Expr panels = ceil_div(floor_div(w.sizes[0], pool.index(groups)), pool.index(columns)) * groups;
    bytes = ceil_div(panels * depth * (columns * element), pool.index(64)) * 64;
  }
  if (depthwise || is_int(w.dtype)) return bytes;
  if (!provably_less(depth, pool.index(COIL_GEMM_UNBLOCKED_K(element) + 1))) bytes = bytes + partial_sums;
  if (!(as_affine(k.operands[0].offset, 1)->coefficient == pool.index(1))) {
    bytes = bytes + ceil_div(product(pool, conv.x_sizes) * (element == 8 ? 8 : 4), pool.index(64)) * 64;
  }
  return bytes;
}

}  // namespace

std::vector<Packing> conv_packings(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight, bool winograd) {
  if (is_depthwise(c, weight.sizes)) return {packings::depthwise_weight};
  if (is_int(weight.dtype)) return {packings::conv_weight_integer};
  if (has_narrow_groups(c, x_offset, result_sizes, weight)) return {packings::narrow_groups_weight};
  if (has_few_outputs(c, x_offset, weight)) return {packings::few_outputs_weight};
  if (!winograd) return {packings::conv_weight};
  const Filtering filtering = best_filtering(c, x_offset, result_sizes, weight);
  if (filtering.ratio < kGain) return {filtering.packing, packings::conv_weight};
  if (filtering.ratio < kMostRatio) return {packings::conv_weight, filtering.packing};
  return {packings::conv_weight};
}

int64_t call_winograd(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  const Filtering filtering = best_filtering(c, x_offset, result_sizes, weight);
  return filtering.ratio < kGain ? winograd_tile(filtering.packing) : 0;
}

bool reads_pairs(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  if (weight.dtype != DType::bf16 || !has_float_panels(x_offset, weight) || weight.sizes[1]->as_int() % COIL_PAIRED_K != 0) return false;
  const Expr pixels = result_sizes[0] * result_sizes[2] * result_sizes[3];
  return !is_depthwise(c, weight.sizes) && lower_bound(pixels).value_or(1) >= COIL_FEWEST_PAIRED_ROWS;
}

void add_direct(std::vector<Packing>& kept, DType dtype) {
  const bool transformed = std::any_of(kept.begin(), kept.end(), winograd_tile),
             plain = std::find(kept.begin(), kept.end(), packings::conv_weight) != kept.end();
  if (dtype == DType::bf16 && transformed && !plain) kept.push_back(packings::conv_weight);
}

Expr scratch(const TemplateUse& use, const Conv2d&) {
  const auto& [plan, k] = use;
  Expr bytes = conv_scratch(plan, k, k.operands[1].buffer);
  const auto at_least = [&](Expr more) {
    bytes = provably_nonnegative(bytes - more) ? bytes : provably_nonnegative(more - bytes) ? more : index_max(bytes, more);
  };
  // A tuner may choose direct sums in its place.
  if (k.call_winograd) at_least(call_winograd_scratch(use.pool(), use.pool().symbol(plan.workers), k, use.info(1)));
  for (const PlanOperand& w : k.weights) at_least(conv_scratch(plan, k, w.buffer));
  return bytes == use.pool().index(0) ? Expr() : bytes;
}

}  // namespace coil::cpu
