// Which CUDA kernels serve a product of bytes: device/cuda/byte_rows.h for few rows, byte_tiles.h for many.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "device/cuda/shared_memory.h"
#include "templates/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

constexpr int64_t kDotRows = 8;      // up to which the weight is read once by dot products: a warp's rows on the tensor cores are 16 at least
constexpr int64_t kRowsAtOnce = 4;   // of a block of them: sums of eight columns each fill the registers
constexpr int64_t kMostWarps = 8;    // of a block that shares k
constexpr int64_t kSmallTiles = 64;  // rows and columns of tiles where larger ones would leave most of the machine idle

struct Tile {
  int64_t bm, bn, wm, wn, stages;
};
constexpr Tile kSmall = {64, 64, 32, 32, 4}, kLarge = {128, 128, 64, 32, 4};

std::string table_type(std::optional<DType> type) {
  if (!type) return "cd::NoTable";
  return *type == DType::f32 ? "float" : *type == DType::f16 ? "cd::f16" : "cd::bf16";
}

std::string kind_text(const CudaByteFacts& f) {
  return fmt::format("cd::ByteKind<{}, {}, {}, {}, {}>", f.bits, f.group, table_type(f.scale), table_type(f.zero), f.integers ? "int" : "float");
}

std::string tiles_text(std::string_view size, int64_t tile) { return fmt::format("(({} + {}) / {})", size, tile - 1, tile); }

// 16 bytes of each line for a lane: as many warps as lines are long.
CudaVariant few_rows(const CudaByteFacts& f, int64_t most) {
  const int64_t rows = most > 2 ? kRowsAtOnce : most, pieces = f.k * f.bits / 128;
  const int64_t warps = std::clamp<int64_t>((pieces + 31) / 32, 1, kMostWarps);
  CudaVariant v;
  v.name = fmt::format("bytes_{}rows{}", f.bits == 4 ? "4bit_" : "", rows);
  v.header = "cuda/byte_rows.h";
  v.call = fmt::format("cd::byte_rows<{}, {}, {}>(t, epilogue);", kind_text(f), rows, warps);
  v.threads = static_cast<int>(warps * 32);
  v.grid_x = tiles_text("t.n", 8);
  v.grid_y = tiles_text("t.m", rows);
  return v;
}

CudaVariant many_rows(const CudaByteFacts& f, const Tile& t) {
  CudaVariant v;
  v.name = fmt::format("bytes_{}{}x{}", f.bits == 4 ? "4bit_" : "", t.bm, t.bn);
  v.header = "cuda/byte_tiles.h";
  v.call = fmt::format("cd::byte_tiles<{}, {}, {}, {}, {}, {}>(t, epilogue);", kind_text(f), t.bm, t.bn, t.wm, t.wn, t.stages);
  v.threads = static_cast<int>(t.bm / t.wm * (t.bn / t.wn) * 32);
  v.shared_bytes = cd::byte_tiles_shared(f.bits, t.bm, t.bn, t.stages);
  v.grid_x = fmt::format("{} * {}", tiles_text("t.m", t.bm), tiles_text("t.n", t.bn));
  return v;
}

}  // namespace

std::vector<CudaVariant> cuda_byte_variants(const CudaByteFacts& f, int sm) {
  std::vector<CudaVariant> variants;
  const int64_t least = lower_bound(f.m).value_or(0), most = upper_bound(f.m).value_or(int64_t{1} << 31);
  const auto up_to = [&](int64_t rows, CudaVariant v) {
    if (most > rows) v.condition = fmt::format("t.m <= {}", rows);
    variants.push_back(std::move(v));
    return most <= rows;
  };
  // A single row has a kernel of its own: it needs a quarter of the registers.
  if (least <= 1 && up_to(1, few_rows(f, 1))) return variants;
  if (least <= kDotRows && up_to(kDotRows, few_rows(f, std::min(most, kDotRows)))) return variants;
  const int64_t columns = (f.n + kLarge.bn - 1) / kLarge.bn, rows = cuda_machine(sm).multiprocessors / columns * kLarge.bm;
  if (least <= std::max(rows, kSmallTiles) && up_to(std::max(rows, kSmallTiles), many_rows(f, kSmall))) return variants;
  variants.push_back(many_rows(f, kLarge));
  return variants;
}

}  // namespace coil::templates
