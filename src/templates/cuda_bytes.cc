// Which CUDA kernels serve a product of bytes: device/cuda/byte_rows.h for few rows; for many byte_wgmma.h, or byte_f16.h where groups are short, on a Hopper
// where TMA can read the rows, with tiles by a model of their time, else byte_tiles.h.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "device/cuda/shared_memory.h"
#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

constexpr int64_t kDotRows = 8;       // up to which the weight is read once by dot products: a warp's rows on the tensor cores are 16 at least
constexpr int64_t kRowsAtOnce = 4;    // of a block of them: sums of eight columns each fill the registers
constexpr int64_t kMostRowWarps = 8;  // of a block that shares k
constexpr int64_t kSmallTiles = 64;   // rows and columns of tiles where larger ones would leave most of the machine idle

struct ByteTile {
  int64_t bm, bn, wm, wn, stages;
};
constexpr ByteTile kSmall = {64, 64, 32, 32, 4}, kLarge = {128, 128, 64, 32, 4};

std::string table_type(std::optional<DType> type) {
  if (!type) return "cd::NoTable";
  return *type == DType::f32 ? "float" : *type == DType::f16 ? "cd::f16" : "cd::bf16";
}

CudaVariant byte_few_rows(const CudaByteFacts& f, int64_t most) {
  const int64_t rows = most > 2 ? kRowsAtOnce : most, warps = byte_row_warps(f);
  CudaVariant v;
  v.name = fmt::format("bytes_{}rows{}", f.bits == 4 ? "4bit_" : "", rows);
  v.header = "cuda/byte_rows.h";
  v.call = fmt::format("cd::byte_rows<{}, {}, {}>(t, epilogue);", byte_kind_text(f), rows, warps);
  v.threads = static_cast<int>(warps * 32);
  v.grid_x = tiles_text("t.n", 8);
  v.grid_y = tiles_text("t.m", rows);
  return v;
}

CudaVariant many_rows(const CudaByteFacts& f, const ByteTile& t) {
  CudaVariant v;
  v.name = fmt::format("bytes_{}{}x{}", f.bits == 4 ? "4bit_" : "", t.bm, t.bn);
  v.header = "cuda/byte_tiles.h";
  v.call = fmt::format("cd::byte_tiles<{}, {}, {}, {}, {}, {}>(t, epilogue);", byte_kind_text(f), t.bm, t.bn, t.wm, t.wn, t.stages);
  v.threads = static_cast<int>(cd::warp_tile_threads(t.bm, t.bn, t.wm, t.wn));
  v.shared_bytes = cd::byte_tiles_shared(f.bits, t.bm, t.bn, t.stages);
  v.grid_x = fmt::format("{} * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn));
  return v;
}

// --- wgmma's tiles

struct ByteWgmmaTile {
  int64_t columns, rows;  // of the weight, of a
  int64_t split = 1;      // parts of k: blocks of a cluster
  bool f16 = false;       // of byte_f16.h
  bool operator==(const ByteWgmmaTile&) const = default;
};
constexpr int64_t kWgmmaRows[] = {16, 32, 64, 128, 192, 256}, kWgmmaColumns[] = {128, 64};
constexpr int64_t kF16Rows[] = {16, 32, 64, 128}, kF16Columns[] = {256, 128};
constexpr int64_t kF16Halves = 4;  // stages of rows in float16

int64_t up(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// Numbers along k of a step: 128 bytes of a line of the weight. A group ends within one, or is several.
int64_t step_of(const CudaByteFacts& f) { return 1024 / f.bits; }

// What the kernels with sums of integers take: groups that end within a step or are several.
bool has_integers(const CudaByteFacts& f) {
  const int64_t step = step_of(f);
  return f.group == 0 || f.group % step == 0 || (f.group % 32 == 0 && step % f.group == 0);
}

// What float16's kernels take: groups within pieces of 32 numbers, or several of these.
bool has_f16(const CudaByteFacts& f) { return f.f16_shift && (f.group == 16 || (f.group > 0 && f.group % 32 == 0)); }

// Whether wgmma's kernels can serve the kind, whatever the addresses. Rows of several hundred numbers: below, little is there to be overlapped.
bool has_wgmma(const CudaByteFacts& f, const CudaMachine& machine) { return machine.sm == 90 && f.k >= 128 && (has_integers(f) || has_f16(f)); }

// What TMA asks of a's rows: null: it can never read them; empty: always.
std::optional<std::string> rows_condition(const CudaByteFacts& f) {
  if ((known(f.a_col) && *known(f.a_col) != 1) || (known(f.a_row) && (*known(f.a_row) <= 0 || *known(f.a_row) % 16 != 0))) return std::nullopt;
  const std::optional<int64_t> remainder = known(simplify_index(floor_mod(f.a_row, f.a_row->pool->index(16)), {}));
  std::string text;
  const auto ask = [&](bool asked, std::string_view what) {
    if (asked) text += fmt::format("{}{}", text.empty() ? "" : " && ", what);
  };
  ask(!known(f.a_col), "t.a_col == 1");
  ask(remainder != 0 || lower_bound(f.a_row).value_or(0) <= 0, "t.a_row > 0 && t.a_row % 16 == 0");
  ask(f.a_alignment % 16 != 0, "(unsigned long long)t.a % 16 == 0");
  ask(f.b_alignment % 16 != 0, "(unsigned long long)t.b % 16 == 0");
  return text;
}

constexpr int64_t kOfBlock = 1024;  // bytes that the system has of each block's shared memory

int f16_blocks(const ByteWgmmaTile& t) { return t.columns == 128 && t.rows <= 64 ? 2 : 1; }
int64_t f16_shared(const CudaByteFacts& f, const ByteWgmmaTile& t, int64_t stages) {
  return cd::byte_f16_shared(f.bits, f.group, t.columns, t.rows, stages, kF16Halves, f.zero.has_value());
}

// Registers: of a thread those of rows / 2 sums, and as many floats where groups end. In float16: two stages have room.
bool fits(const CudaByteFacts& f, const ByteWgmmaTile& t) {
  if (t.f16) return t.split <= up(f.k, step_of(f)) && (f16_shared(f, t, 2) + kOfBlock) * f16_blocks(t) <= cuda_machine(90).shared_bytes + kOfBlock;
  const int64_t group_steps = f.group > step_of(f) ? f.group / step_of(f) : 1, parts = up(f.k, step_of(f) * group_steps);
  return (f.group == 0 || t.rows <= 128) && (f.bits == 8 || t.rows <= 192) && t.split <= parts;
}

// Blocks that share a multiprocessor: one takes 255 registers a thread, two of 128 columns 128.
int blocks_of(const CudaByteFacts& f, const ByteWgmmaTile& t) {
  if (t.f16) return f16_blocks(t);
  const bool in_turn = f.group > 0 && f.group < step_of(f);  // two groups' sums at once
  const int64_t most = in_turn && f.bits == 4 ? (f.zero ? 16 : 32) : f.group > 0 && f.zero ? 32 : f.group > 0 || f.bits == 4 ? 64 : 128;
  return (t.rows <= most ? 2 : 1) * static_cast<int>(128 / t.columns);
}

int64_t counts_of(const CudaByteFacts& f, const ByteWgmmaTile& t) {
  const int64_t groups = f.group == 0 ? 0 : f.group < step_of(f) ? step_of(f) / f.group : 1;
  return f.zero ? cd::byte_wgmma_counts(t.columns, t.rows, groups) : 0;
}

int64_t stages_of(const CudaByteFacts& f, const ByteWgmmaTile& t, const CudaMachine& machine) {
  constexpr int64_t kMost = 6, kBarriers = 16 * kMost;
  const int64_t others = t.f16 ? kF16Halves * (t.rows * 128 + 16) + cd::byte_f16_scales(f.bits, f.group, t.columns, f.zero.has_value()) : counts_of(f, t);
  const int64_t room = (machine.shared_bytes + kOfBlock) / blocks_of(f, t) - kOfBlock - others - kBarriers;
  const int64_t steps = up(up(f.k, step_of(f)), t.split);
  return std::clamp<int64_t>(std::min<int64_t>(room / cd::byte_wgmma_stage(f.bits, t.columns, t.rows), steps), 2, kMost);
}

// Nanoseconds on an H200, and bytes a nanosecond: a model's of tiles of bfloat16 that was fitted there (commit f1b51fdf), not fitted to bytes.
struct ByteTimes {
  double launch = 1250, element = 0.018, from_cache = 11800, drawn = 40, beside_memory = 0.15;
  double finish = 170, finish_element = 9.1 / 128, split = 2200, split_element = 0.085;
};

// Nanoseconds that 128 numbers along k take in float16: the tensor cores, and beside them what widens the weight's columns and the rows. Fitted, with what
// groups cost below, to 591 times of tiles of 31 products on an H200: the tile that is chosen takes 1.08 times the best one's time in the mean.
double f16_step(const CudaByteFacts& f, const ByteWgmmaTile& t) {
  constexpr double kElement = 0.052, kColumn = 4.2, kByteColumn = 6.3, kRow = 2.2, kBeside = 0.93;
  const double products = static_cast<double>(t.columns * t.rows) * kElement;
  const double widening = static_cast<double>(t.columns) * (f.bits == 8 ? kByteColumn : kColumn) + static_cast<double>(t.rows) * kRow;
  return std::max(products, widening) + kBeside * std::min(products, widening);
}

// Nanoseconds on an H200. A step is bound by the tensor cores, by what makes floats of groups' sums, or by what the L2 cache gives.
double time_of(const CudaByteFacts& f, const ByteWgmmaTile& t, int64_t m, const CudaMachine& machine) {
  constexpr double kGroup = 83, kGroupElement = 0.0356, kZeroElement = 0.012;  // the end of a group, of an element of a tile there
  constexpr double kStep = 40;                                                 // of 128 numbers along k, at least
  constexpr ByteTimes w;
  const double area = static_cast<double>(t.columns * t.rows);
  const double blocks = static_cast<double>(up(m, t.rows) * up(f.n, t.columns) * t.split), sms = machine.multiprocessors;
  const double busy = std::min(blocks, sms), turns = std::ceil(blocks / sms), resident = std::ceil(blocks / (sms * blocks_of(f, t)));
  const double floats = f.group > 0 ? (kGroup + area * (kGroupElement + (f.zero ? kZeroElement : 0))) * 128 / static_cast<double>(f.group) : 0;
  const double bytes = 128.0 * static_cast<double>(t.columns) * static_cast<double>(f.bits) / 8 + 128.0 * static_cast<double>(t.rows);
  const double products = t.f16 ? f16_step(f, t) : std::max(area * w.element, floats + area * w.element / 4);
  const double step = std::max({kStep, products, bytes * busy / w.from_cache});  // 128 numbers along k
  const double steps = static_cast<double>(up(up(f.k, step_of(f)), t.split) * step_of(f)) / 128;
  const double weight = static_cast<double>(f.n * f.k) * static_cast<double>(f.bits) / 8 + static_cast<double>(m * f.k);
  const double memory = weight / std::min(machine.memory, busy * w.drawn), compute = turns * steps * step;
  const double parts = t.split > 1 ? w.split + w.split_element * area * std::log2(t.split) : 0;
  return w.launch + std::max(compute, memory + w.beside_memory * compute) + resident * (w.finish + w.finish_element * area + parts);
}

std::vector<ByteWgmmaTile> wgmma_tiles(const CudaByteFacts& f) {
  std::vector<ByteWgmmaTile> tiles;
  const auto add = [&](const auto& all_columns, const auto& all_rows, bool f16) {
    for (const int64_t columns : all_columns) {
      for (const int64_t rows : all_rows) {
        for (const int64_t split : {1, 2, 4, 8}) {
          if (const ByteWgmmaTile t{columns, rows, split, f16}; fits(f, t)) tiles.push_back(t);
        }
      }
    }
  };
  if (has_integers(f)) add(kWgmmaColumns, kWgmmaRows, false);
  if (has_f16(f)) add(kF16Columns, kF16Rows, true);
  return tiles;
}

// Warps that widen rows.
int64_t converters_of(const ByteWgmmaTile& t) { return t.rows >= 128 ? 4 : 2; }

CudaVariant byte_wgmma_variant(const CudaByteFacts& f, const ByteWgmmaTile& t, const CudaMachine& machine) {
  const int64_t stages = stages_of(f, t, machine);
  const int type = info(DType::i8).shim_number;
  CudaVariant v;
  v.name = fmt::format("bytes_{}wgmma_{}{}x{}{}", f.bits == 4 ? "4bit_" : "", t.f16 ? "f16_" : "", t.columns, t.rows,
                       t.split > 1 ? fmt::format("_split{}", t.split) : "");
  if (t.f16) {
    const int64_t converters = converters_of(t);
    v.header = "cuda/byte_f16.h";
    v.call = fmt::format("cd::byte_f16<{}, {}, {}, {}, {}, {}, {}, {}, {}>(t, epilogue);", byte_kind_text(f), t.columns, t.rows, stages, kF16Halves, converters,
                         t.columns == 256 && t.rows == 128, t.split, *f.f16_shift);
    v.threads = static_cast<int>(cd::byte_f16_threads(converters));
    v.shared_bytes = f16_shared(f, t, stages);
  } else {
    v.header = "cuda/byte_wgmma.h";
    v.call = fmt::format("cd::byte_wgmma<{}, {}, {}, {}, {}>(t, epilogue);", byte_kind_text(f), t.columns, t.rows, stages, t.split);
    v.threads = static_cast<int>(cd::multipliers(t.columns));
    v.shared_bytes = cd::byte_wgmma_shared(f.bits, t.columns, t.rows, stages, counts_of(f, t));
  }
  v.min_blocks = blocks_of(f, t);
  v.cluster = static_cast<int>(t.split);
  v.hopper = true;
  v.grid_x = fmt::format("{} * {} * {}", tiles_text("t.m", t.rows), tiles_text("t.n", t.columns), t.split);
  const auto map = [&](char x, std::string_view lines, std::string_view length, std::string_view line, int64_t box) {
    return fmt::format("if (const int32_t failed = cd::cuda_tensor_map(call, &t.map_{0}, {1}, t.{0}, {2}, {3}, {4}, {5}, 128, error)) return failed;", x, type,
                       lines, length, line, box);
  };
  v.setup = "if (t.m > 0 && t.n > 0) { " + map('a', "t.m", "t.k", "t.a_row", t.rows) + " " + map('b', "t.n", "t.b_line", "t.b_line", t.columns) + " }";
  v.condition = rows_condition(f).value_or("");
  return v;
}

// The best tiles for stretches of rows from `least` to `most`, with the last row of each: one is left only for others that gain a good deal.
std::vector<std::pair<ByteWgmmaTile, int64_t>> tiles_by_rows(const CudaByteFacts& f, int64_t least, int64_t most, const CudaMachine& machine) {
  constexpr double kWorthAnother = 1.1;
  constexpr size_t kMostKernels = 5;
  const std::vector<ByteWgmmaTile> all = wgmma_tiles(f);
  std::vector<std::pair<ByteWgmmaTile, int64_t>> found;
  for (const int64_t guess : {16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096}) {
    const int64_t m = std::clamp<int64_t>(guess, least, most);
    const auto time = [&](const ByteWgmmaTile& t) { return time_of(f, t, m, machine); };
    const ByteWgmmaTile best = *std::min_element(all.begin(), all.end(), [&](const ByteWgmmaTile& x, const ByteWgmmaTile& y) { return time(x) < time(y); });
    const bool stays = !found.empty() && (found.size() == kMostKernels || time(found.back().first) <= kWorthAnother * time(best));
    if (stays) found.back().second = m;
    else found.emplace_back(best, m);
  }
  return found;
}

}  // namespace

std::string byte_kind_text(const CudaByteFacts& f) {
  return fmt::format("cd::ByteKind<{}, {}, {}, {}, {}>", f.bits, f.group, table_type(f.scale), table_type(f.zero), f.integers ? "int" : "float");
}

// 16 bytes of each line for a lane: as many warps as lines are long.
int64_t byte_row_warps(const CudaByteFacts& f) { return std::clamp<int64_t>((f.k * f.bits / 128 + 31) / 32, 1, kMostRowWarps); }

std::vector<CudaVariant> cuda_byte_variants(const CudaByteFacts& f, const CudaMachine& machine) {
  std::vector<CudaVariant> variants;
  const int64_t least = lower_bound(f.m).value_or(0), most = upper_bound(f.m).value_or(int64_t{1} << 31);
  const auto up_to = [&](int64_t rows, CudaVariant v) {
    if (most > rows) v.condition = fmt::format("{}{}t.m <= {}", v.condition, v.condition.empty() ? "" : " && ", rows);
    variants.push_back(std::move(v));
    return most <= rows && (variants.back().condition.empty());
  };
  // A single row has a kernel of its own: it needs a quarter of the registers.
  if (least <= 1 && up_to(1, byte_few_rows(f, 1))) return variants;
  if (least <= kDotRows && up_to(kDotRows, byte_few_rows(f, std::min(most, kDotRows)))) return variants;
  const std::optional<std::string> by_tma = has_wgmma(f, machine) ? rows_condition(f) : std::nullopt;
  if (by_tma) {
    auto stretches = tiles_by_rows(f, std::max(least, kDotRows + 1), most, machine);
    stretches.back().second = most;
    for (const auto& [tile, last] : stretches) up_to(last, byte_wgmma_variant(f, tile, machine));
    if (by_tma->empty()) return variants;
    variants.push_back(many_rows(f, kLarge));
    return variants;
  }
  const int64_t columns = (f.n + kLarge.bn - 1) / kLarge.bn, rows = machine.multiprocessors / columns * kLarge.bm;
  if (least <= std::max(rows, kSmallTiles) && up_to(std::max(rows, kSmallTiles), many_rows(f, kSmall))) return variants;
  variants.push_back(many_rows(f, kLarge));
  return variants;
}

// --- by numbers

std::vector<CudaCandidate> cuda_byte_candidates(const CudaByteFacts& f, const CudaMachine& machine, const std::function<int64_t(Expr)>& sizes) {
  constexpr int64_t kMostFewRows = 32;
  constexpr double kMmaElement = 0.06;  // nanoseconds of an element of mma.sync's tiles and 128 numbers along k
  const int64_t m = sizes(f.m);
  std::vector<CudaCandidate> out;
  if (m < 1 || f.n < 1 || f.k < 1) return out;
  const double bytes = static_cast<double>(f.n * f.k) * static_cast<double>(f.bits) / 8;
  if (m <= kMostFewRows) out.push_back({{kFewRows}, 2000 + bytes / 3.9 * static_cast<double>(up(m, kRowsAtOnce)) / 1000});
  for (const ByteTile& t : {kSmall, kLarge}) {
    const double turns = std::ceil(static_cast<double>(up(m, t.bm) * up(f.n, t.bn)) / machine.multiprocessors);
    out.push_back({{kMmaSync, static_cast<int32_t>(t.bm), static_cast<int32_t>(t.bn), 1},
                   2500 + turns * kMmaElement * static_cast<double>(t.bm * t.bn) * static_cast<double>(f.k) / 128});
  }
  if (has_wgmma(f, machine) && rows_condition(f)) {
    for (const ByteWgmmaTile& t : wgmma_tiles(f)) {
      const bool idle = t.rows > 16 && t.rows >= 2 * m;  // most of the tile would be
      if (!idle)
        out.push_back({{t.f16 ? kWgmmaTileF16 : kWgmmaTile, static_cast<int32_t>(t.rows), static_cast<int32_t>(t.columns), static_cast<int32_t>(t.split)},
                       time_of(f, t, m, machine)});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const CudaCandidate& a, const CudaCandidate& b) { return a.cost < b.cost; });
  return out;
}

std::optional<CudaVariant> cuda_byte_variant(const CudaByteFacts& f, const CudaMachine& machine, const CudaWay& way) {
  if (way == CudaWay{kFewRows}) return byte_few_rows(f, std::min(upper_bound(f.m).value_or(kDotRows), kDotRows));
  for (const ByteTile& t : {kSmall, kLarge}) {
    if (way == CudaWay{kMmaSync, static_cast<int32_t>(t.bm), static_cast<int32_t>(t.bn), 1}) return many_rows(f, t);
  }
  if ((way.kind != kWgmmaTile && way.kind != kWgmmaTileF16) || !has_wgmma(f, machine) || !rows_condition(f)) return std::nullopt;
  const std::vector<ByteWgmmaTile> tiles = wgmma_tiles(f);
  const ByteWgmmaTile tile{way.columns, way.rows, way.split, way.kind == kWgmmaTileF16};
  return std::find(tiles.begin(), tiles.end(), tile) == tiles.end() ? std::nullopt : std::optional(byte_wgmma_variant(f, tile, machine));
}

}  // namespace coil::templates
