#include "codegen/cpu/templates/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "codegen/index_text.h"
#include "device/kernels.h"

namespace coil::cpu {
namespace {

// Nanoseconds of one thread: multiply-adds by 512-bit vectors, one element of A copied, one byte of B read again, one task
// begun, other threads woken. They order candidates; what is chosen is timed.
constexpr double kMultiplyAdds = 40, kCopiedElement = 0.12, kByteOfB = 0.03, kTask = 150, kWake = 4000;

double panel_columns(const Blocked& p) { return COIL_PANEL_COLUMNS(p.bytes); }

double predicted(const Blocked& p, int64_t block_tiles, int64_t block_panels, int64_t tile_rows, const Machine& machine) {
  const double tiles = std::ceil(p.rows / static_cast<double>(tile_rows)), panels = std::ceil(p.columns / panel_columns(p));
  const double row_blocks = std::ceil(tiles / static_cast<double>(block_tiles)), panel_blocks = std::ceil(panels / static_cast<double>(block_panels));
  const double tasks = p.batch * row_blocks * panel_blocks, threads = machine.threads;
  const double waves = std::ceil(tasks / threads) * threads / std::max(tasks, 1.0);
  const double compute =
      p.batch * p.rows * panels * COIL_PANEL * p.depth / (kMultiplyAdds * machine.lanes / 16);  // (a panel of doubles takes as long as one of floats)
  const double copies = p.batch * p.rows * p.depth * panel_blocks * kCopiedElement;
  const double reads = p.batch * panels * COIL_PANEL * 4 * p.depth * row_blocks * kByteOfB;
  return (compute + copies + reads + tasks * kTask) / threads * waves + (threads > 1 ? kWake : 0);
}

}  // namespace

Packing packing_of(const KernelPlan& plan, BufferId id) {
  const Placement& p = plan.buffer(id).placement;
  return p.kind == Placement::Kind::constant ? plan.constants[static_cast<size_t>(p.index)].packing : kPlain;
}

Packing TemplateUse::packing(size_t operand) const { return packing_of(plan, kernel.operands[operand].buffer); }

std::string size_texts(const std::vector<Expr>& sizes) {
  std::vector<std::string> parts;
  for (Expr e : sizes) parts.push_back(size_text(e));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void add_blocks(const Blocked& p, int32_t method, const Machine& machine, Priced& out) {
  const int64_t tile_rows = COIL_VECTOR_TILE_ROWS(machine.lanes);
  const auto tiles = static_cast<int64_t>(std::ceil(p.rows / static_cast<double>(tile_rows))),
             panels = static_cast<int64_t>(std::ceil(p.columns / panel_columns(p)));
  for (int64_t block_tiles = 1; block_tiles <= std::min(tiles, COIL_BLOCK_ROWS / tile_rows); block_tiles += block_tiles < 4 ? 1 : 2) {
    for (int64_t block_panels = 1; block_panels <= std::min<int64_t>(panels, COIL_BLOCK_PANELS); block_panels *= 2) {
      const ProductChoice c = {method, static_cast<int32_t>(block_tiles), static_cast<int32_t>(block_panels)};
      out.emplace_back(predicted(p, block_tiles, block_panels, tile_rows, machine), choice_of(c));
    }
  }
}

Choice by(Method method) { return choice_of(ProductChoice{.method = method}); }
Choice one_thread() { return choice_of(OtherChoice{.threads = 1}); }

std::vector<Choice> ordered(const std::vector<Choice>& first, Priced rest, size_t most) {
  std::vector<Choice> out = {Choice{}};
  out.insert(out.end(), first.begin(), first.end());
  std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [cost, choice] : rest) out.push_back(choice);
  if (out.size() > most) out.resize(most);
  return out;
}

// The kernels compute columns in steps of half a panel: the second half of the last one is skipped where it is padding. Dot
// products of bfloat16 (device/kernels/microkernel_dot.cc) always compute a whole one.
int64_t column_step(DType dtype) { return dtype == DType::bf16 ? COIL_PANEL : COIL_PANEL_COLUMNS(byte_size(dtype)) / 2; }

int64_t padding_percent(int64_t columns, int64_t step) {
  const int64_t padded = (columns + step - 1) / step * step;
  return (padded - columns) * 100 / padded;
}

KernelHint padded(std::string_view what, int64_t columns, int64_t step, std::string_view of) {
  const int64_t percent = padding_percent(columns, step), whole = (columns + step - 1) / step * step;
  return {fmt::format("{} {} are no multiple of {}: {} % of the {} padding; {} would take as long", columns, what, step, percent, of, whole),
          static_cast<double>(percent) / 100};
}

}  // namespace coil::cpu
