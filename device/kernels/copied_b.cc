// A block of rows of a product brings each panel's chunk of B into order by itself, so a product of many rows does that many times: a tenth of its time where
// B's columns are contiguous along k. Here it is done once, panel by panel, as at compile time (src/templates/packing.h). bfloat16 gains more: its dot
// products and the matrix unit want panels of bfloat16.
#include "copied_b.h"

#include "amx.h"
#include "gemm_source.h"
#include "pairs.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kFewestRowsOfLines = 24 * kBlockRows;  // columns side by side are brought into order in little time, and often lie in a cache then
constexpr int64_t kPart = 256;                           // rows of a panel that are turned at once
constexpr int64_t kTaskNumbers = 16384;                  // that are worth a thread's waking
static_assert(kFewestRowsOfLines >= COIL_GEMM_COPY_ROWS);

typedef uint16_t Half;
typedef uint32_t Pair;

// The lower (upper) halves of a row of pairs.
COIL_INLINE void store_halves(const Real* pairs, Half* lower, Half* upper) {
#pragma unroll
  for (int64_t j = 0; j < kPanel; j += kLanes) {
    const Lanes<Pair> both = load_raw<Lanes<Pair>>(reinterpret_cast<const Pair*>(pairs + j));
    store_raw(lower + j, __builtin_convertvector(both & 0xffff, Lanes<Half>));
    store_raw(upper + j, __builtin_convertvector(both >> 16, Lanes<Half>));
  }
}

// Elements of two bytes; bfloat16 in pairs of k where the machine's instructions take those.
struct HalfPanels {
  const CoilGemm& g;
  Half* out;
  bool pairs = suit_pairs(g);
  int64_t depth = pairs ? COIL_PAIRED_DEPTH(g.k) : g.k;

  static bool suit_pairs(const CoilGemm& g) {
    const bool lines = (g.b_col == 1 && g.b_row > 0) || (g.b_row == 1 && g.b_col > 0);
    return g.dtype == COIL_BFLOAT16 && lines && (has_bfloat16_dot() || has_amx());
  }

  void pack(int64_t number) const {
    const int64_t panels = ceil_div(g.n, kPanel), panel = number % panels, cols = min64(kPanel, g.n - panel * kPanel);
    const Half* b = static_cast<const Half*>(g.b) + number / panels * g.b_batch + panel * kPanel * g.b_col;
    Half* to = out + number * depth * kPanel;
    if (pairs) {
      const int64_t written = ceil_div(g.k, 2) * 2;
      memset(to + written * kPanel, 0, static_cast<size_t>((depth - written) * kPanel) * sizeof(Half));
      return copy_panel_pairs(reinterpret_cast<const BFloat16*>(b), g.b_row, g.b_col, g.k, cols, reinterpret_cast<float*>(to));
    }
    if (cols < kPanel) memset(to, 0, static_cast<size_t>(g.k * kPanel) * sizeof(Half));
    if (g.b_col == 1) {
      for (int64_t i = 0; i < g.k; i++) memcpy(to + i * kPanel, b + i * g.b_row, static_cast<size_t>(cols) * sizeof(Half));
      return;
    }
    const int64_t turned = g.b_row == 1 && g.b_col % 2 == 0 ? g.k / 2 * 2 : 0;
    turn(b, cols, turned, to);
    for (int64_t i = turned; i < g.k; i++) {
#pragma clang loop unroll(disable) vectorize(disable)
      for (int64_t j = 0; j < cols; j++) to[i * kPanel + j] = b[i * g.b_row + j * g.b_col];
    }
  }

  // Two neighbours along k as one number of four bytes.
  void turn(const Half* b, int64_t cols, int64_t rows, Half* to) const {
    alignas(64) Real pairs[kPart / 2 * kPanel];
    if (cols < kPanel) memset(pairs, 0, sizeof(pairs));
    for (int64_t first = 0; first < rows; first += kPart) {
      const int64_t count = min64(kPart, rows - first) / 2;
      copy_transposed(reinterpret_cast<const Real*>(b + first), g.b_col / 2, 1, cols, count, pairs, kPanel);
      for (int64_t i = 0; i < count; i++) store_halves(pairs + i * kPanel, to + (first + 2 * i) * kPanel, to + (first + 2 * i + 1) * kPanel);
    }
  }
};

struct FloatPanels {
  const GemmSource<Real> source;
  Real* out;

  void pack(int64_t panel) const { source.panel_b(0, panel, 0, source.g.k, out + panel * source.g.k * kPanel, 2); }
};

template <class Panels>
void pack_all(const Panels& panels, int64_t matrices, const CoilGemm& g, const CoilHost* host) {
  const auto run = [](void* context, int64_t begin, int64_t end, int32_t) {
    for (int64_t panel = begin; panel < end; panel++) static_cast<const Panels*>(context)->pack(panel);
  };
  void* const context = const_cast<Panels*>(&panels);
  const int64_t count = matrices * ceil_div(g.n, kPanel), grain = max64(1, kTaskNumbers / max64(g.k * kPanel, 1));
  if (count <= grain || host->num_workers <= 1) return run(context, 0, count, 0);
  host->parallel_for(host->pool, count, grain, run, context);
}

}  // namespace

bool copies_b(const CoilGemm& g) {
  if (!g.b_copied || g.b_packed || g.batch < 1) return false;
  if (element_bytes(g.dtype) == 2) return g.m >= COIL_GEMM_COPY_HALF_ROWS;
  return g.batch == 1 && g.m >= (g.b_col == 1 ? kFewestRowsOfLines : COIL_GEMM_COPY_ROWS);
}

CoilGemm copy_b(const CoilGemm& g, const CoilHost* host) {
  const int64_t element = element_bytes(g.dtype), matrices = g.b_batch == 0 ? 1 : g.batch;
  CoilGemm packed = g;
  int64_t depth = g.k;
  if (element == 2) {
    const HalfPanels panels{g, static_cast<Half*>(g.scratch)};
    pack_all(panels, matrices, g, host);
    packed.b_pairs = panels.pairs;
    depth = panels.depth;
  } else {
    pack_all(FloatPanels{{g}, static_cast<Real*>(g.scratch)}, 1, g, host);
  }
  packed.b = g.scratch;
  packed.b_packed = 1;
  packed.b_batch = matrices == 1 ? 0 : ceil_div(g.n, kPanel) * kPanel * depth;
  packed.scratch = static_cast<char*>(g.scratch) + g.batch * COIL_GEMM_COPY_BYTES(g.n, g.k, element);
  return packed;
}

}  // namespace COIL_KERNELS_NAMESPACE
