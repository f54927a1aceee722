#include "attention_tiles.h"

#include "pairs.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kRegisterRows = 16;
constexpr int64_t kTurnedKeys = 2 * kPanel;  // at once: the pairs of so many keys and kMostTiledDim numbers fill the room

// Rows that the unit would read beyond their ends, or beyond the last of them, are copied with zeros behind.
struct RowsOfKeys {
  alignas(64) uint16_t copy[kAmxRows * (kMostTiledDim + kAmxStep)];

  const char* fill(const BFloat16* k, int64_t k_row, int64_t rows, int64_t dim) {
    const int64_t stride = in_steps(dim) + kAmxStep;
    memset(copy, 0, static_cast<size_t>(ceil_div(rows, kRegisterRows) * kRegisterRows * stride) * 2);
    for (int64_t r = 0; r < rows; r++) memcpy(copy + r * stride, k + r * k_row, static_cast<size_t>(dim) * 2);
    return reinterpret_cast<const char*>(copy);
  }
};

}  // namespace

void tile_scores(const BFloat16* k, int64_t k_row, int64_t keys, int64_t dim, const float* queries, int64_t cols, float* scores) {
  RowsOfKeys copied;
  const int64_t steps = in_steps(dim) / kAmxStep;
  for (int64_t j = 0; j < keys; j += kAmxRows) {
    const int64_t rows = min64(kAmxRows, keys - j);
    const bool in_place = dim % kAmxStep == 0 && rows % kRegisterRows == 0;
    const char* a = in_place ? reinterpret_cast<const char*>(k + j * k_row) : copied.fill(k + j * k_row, k_row, rows, dim);
    const int64_t stride = in_place ? k_row * 2 : (in_steps(dim) + kAmxStep) * 2;
    amx_product(steps, a, stride, queries, rows > kRegisterRows, cols > kLanes, scores + j * kPanel, false);
  }
}

void turn_values(const BFloat16* v, int64_t v_row, int64_t keys, int64_t v_dim, int64_t most, BFloat16* out, float* room) {
  static_assert(kTurnedKeys / 2 * kMostTiledDim <= kChunk * kPanel);
  const int64_t stride = turned_stride(most);
  for (int64_t j = 0; j < keys; j += kTurnedKeys) {
    const int64_t rows = min64(kTurnedKeys, keys - j), pairs = ceil_div(rows, 2), all = in_steps(rows) / 2;
    interleave_rows(v + j * v_row, v_row, rows, v_dim, reinterpret_cast<BFloat16*>(room));
    memset(room + pairs * v_dim, 0, static_cast<size_t>((all - pairs) * v_dim) * 4);
    copy_transposed(room, v_dim, 1, all, v_dim, reinterpret_cast<float*>(out + j), stride / 2);
  }
}

void add_tiled_values(const BFloat16* turned, int64_t keys, int64_t v_dim, int64_t most, float* exponentials, int64_t cols, float* o, bool accumulate) {
  const int64_t all = in_steps(keys), stride = turned_stride(most);
  if (all > keys) memset(exponentials + keys * kPanel, 0, static_cast<size_t>((all - keys) * kPanel) * 4);
  pack_pairs(exponentials, all);
  for (int64_t d = 0; d < v_dim; d += kAmxRows) {
    const bool two = v_dim - d > kRegisterRows;
    amx_product(all / kAmxStep, reinterpret_cast<const char*>(turned + d * stride), stride * 2, exponentials, two, cols > kLanes, o + d * kPanel, accumulate);
  }
}

}  // namespace COIL_KERNELS_NAMESPACE
