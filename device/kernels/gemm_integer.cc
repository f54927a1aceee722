// integer_gemm: products of bytes with exact sums in int32.
//
// Blocks as in block.h: the rows of A of a task are copied chunk by chunk, made unsigned (a signed byte plus 128: what that adds to a sum, the
// panel's last line takes away), four to a 32-bit lane. A panel's rows come four to a lane as well, so that one lane of a sum takes
// four products a step: one instruction with AVX512_VNNI, elsewhere two of pairs widened to 16 bits, which cannot overflow.
#include "gemm_quantised.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kBytes = 512;                    // the k of a chunk
constexpr int64_t kByteStride = kBytes + 64;       // of the copy of A
constexpr int kVectors = COIL_PANEL / kLanes;

#ifdef __AVX512F__
typedef short Shorts __attribute__((vector_size(64)));
COIL_INLINE VecI32 pair_sums(VecI32 a, VecI32 b) { return __builtin_bit_cast(VecI32, __builtin_ia32_pmaddwd512(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b))); }
#else
typedef short Shorts __attribute__((vector_size(32)));
COIL_INLINE VecI32 pair_sums(VecI32 a, VecI32 b) { return __builtin_bit_cast(VecI32, __builtin_ia32_pmaddwd256(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b))); }
#endif

struct Chunk {
  int64_t steps;        // of four k
  const uint8_t* a;     // rows kByteStride apart
  const uint8_t* b;     // [steps][32][4]
  int32_t* acc;         // rows kPanel apart
  bool accumulate;
};

// Sums of `mr` rows by nv vectors of columns. Dot: a lane's four products at a time.
template <int mr, int nv, class Dot>
struct Micro {
  static COIL_INLINE_MEMBER void run(const Chunk& c) {
    VecI32 sum[mr][nv];
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < nv; j++) sum[i][j] = c.accumulate ? load_raw<VecI32>(c.acc + i * COIL_PANEL + j * kLanes) : VecI32(0);
    }
    const uint8_t* b = c.b;
#pragma clang loop unroll(disable)
    for (int64_t p = 0; p < c.steps; p++, b += COIL_PANEL * 4) {
      typename Dot::Column column[nv];
#pragma unroll
      for (int j = 0; j < nv; j++) column[j] = Dot::column(load_raw<VecI32>(b + j * kLanes * 4));
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const int32_t four = load_raw<int32_t>(c.a + i * kByteStride + p * 4);
#pragma unroll
        for (int j = 0; j < nv; j++) sum[i][j] = Dot::add(sum[i][j], four, column[j]);
      }
    }
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < nv; j++) store_raw(c.acc + i * COIL_PANEL + j * kLanes, sum[i][j]);
    }
  }
};

struct Widened {
  struct Column {
    VecI32 even, odd;
  };
  static COIL_INLINE_MEMBER Column column(VecI32 b) {
    const auto s = __builtin_bit_cast(Shorts, b);
    return {__builtin_bit_cast(VecI32, (s << 8) >> 8), __builtin_bit_cast(VecI32, s >> 8)};
  }
  static COIL_INLINE_MEMBER VecI32 add(VecI32 sum, int32_t four, const Column& b) {
    return sum + pair_sums(VecI32(four & 0x00ff00ff), b.even) + pair_sums(VecI32((four >> 8) & 0x00ff00ff), b.odd);
  }
};

template <int mr>
__attribute__((noinline)) void micro_widened(const Chunk& c) {
#ifdef __AVX512F__
  Micro<mr, 2, Widened>::run(c);
#else
  for (int j = 0; j < kVectors; j += 2) {
    Chunk part = c;
    part.b += j * kLanes * 4;
    part.acc += j * kLanes;
    Micro<mr, 2, Widened>::run(part);
  }
#endif
}

#ifdef __AVX512F__
template <int mr>
__attribute__((noinline, target("avx512vnni"))) void micro_dot(const Chunk& c) {
  VecI32 sum[mr][2];
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < 2; j++) sum[i][j] = c.accumulate ? load_raw<VecI32>(c.acc + i * COIL_PANEL + j * kLanes) : VecI32(0);
  }
  const uint8_t* b = c.b;
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < c.steps; p++, b += COIL_PANEL * 4) {
    const VecI32 left = load_raw<VecI32>(b), right = load_raw<VecI32>(b + kLanes * 4);
#pragma unroll
    for (int i = 0; i < mr; i++) {
      const VecI32 four = VecI32(load_raw<int32_t>(c.a + i * kByteStride + p * 4));
      sum[i][0] = __builtin_ia32_vpdpbusd512(sum[i][0], four, left);
      sum[i][1] = __builtin_ia32_vpdpbusd512(sum[i][1], four, right);
    }
  }
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < 2; j++) store_raw(c.acc + i * COIL_PANEL + j * kLanes, sum[i][j]);
  }
}

// AVX512_VNNI is not part of x86-64-v4.
bool has_byte_dot() {
  static int32_t known = -1;  // cpuid is slow in virtual machines; threads that race here write the same answer
  int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer < 0) {
    uint32_t a = 7, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    answer = c >> 11 & 1;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer;
}
#else
constexpr bool has_byte_dot() { return false; }
#endif

template <int mr>
COIL_INLINE void micro(const Chunk& c, [[maybe_unused]] bool dot) {
#ifdef __AVX512F__
  if (dot) return micro_dot<mr>(c);
#endif
  micro_widened<mr>(c);
}

void tile_rows(int64_t rows, const Chunk& c, bool dot) {
  switch (row_capacity(rows)) {
    case 1: return micro<1>(c, dot);
    case 2: return micro<2>(c, dot);
    case 4: return micro<4>(c, dot);
    case 6: return micro<6>(c, dot);
#ifdef __AVX512F__
    case 7: return micro<7>(c, dot);
    case 8: return micro<8>(c, dot);
    case 10: return micro<10>(c, dot);
    case 12: return micro<12>(c, dot);
    default: return micro<14>(c, dot);
#else
    default: __builtin_unreachable();
#endif
  }
}

struct IntegerGemm {
  const CoilGemm& g;
  Product p;
  bool dot;
  uint8_t flip;  // makes a signed byte unsigned

  // `steps` times four bytes of each row, zero padded.
  __attribute__((noinline)) void copy_a(int64_t row, int64_t rows, int64_t k0, int64_t k, uint8_t* out) const {
    const auto* a = static_cast<const uint8_t*>(g.a) + row * g.a_row + k0 * g.a_col;
    for (int64_t r = 0; r < rows; r++, a += g.a_row, out += kByteStride) {
      if (g.a_col == 1) {
        memcpy(out, a, static_cast<size_t>(k));
      } else {
        for (int64_t i = 0; i < k; i++) out[i] = a[i * g.a_col];
      }
      if (flip) {
        for (int64_t i = 0; i < k; i++) out[i] ^= flip;
      }
      for (int64_t i = k; i % 4; i++) out[i] = 0;
    }
  }

  void finish(int64_t row, int64_t panel, int64_t rows, int32_t* acc) const {
    const int64_t col = panel * COIL_PANEL, cols = min64(COIL_PANEL, g.n - col);
    if (flip) {
      const auto* sums = static_cast<const uint8_t*>(g.b) + (panel + 1) * COIL_INTEGER_PANEL_BYTES(g.k) - COIL_PANEL * 4;
      for (int64_t r = 0; r < rows; r++) {
        for (int j = 0; j < kVectors; j++) {
          int32_t* at = acc + r * COIL_PANEL + j * kLanes;
          store_raw(at, load_raw<VecI32>(at) + load_raw<VecI32>(sums + j * kLanes * 4));
        }
      }
    }
    if (g.epilogue) return g.epilogue(g.epilogue_context, 0, row, col, rows, cols, reinterpret_cast<float*>(acc), COIL_PANEL);
    for (int64_t r = 0; r < rows; r++) memcpy(static_cast<int32_t*>(g.c) + (row + r) * g.c_row + col, acc + r * COIL_PANEL, static_cast<size_t>(cols) * 4);
  }

  void run_task(int64_t task) const {
    alignas(64) uint8_t a[kBlockRows * kByteStride];
    alignas(64) int32_t acc[kBlockPanels * kBlockRows * COIL_PANEL];
    const bool rows_outer = p.m > p.n;  // the larger operand is walked once, outermost
    const int64_t row_block = rows_outer ? task / p.panel_blocks : task % p.row_blocks;
    const int64_t panel0 = (rows_outer ? task % p.panel_blocks : task / p.row_blocks) * p.block_panels;
    const int64_t row = row_block * p.block_rows, rows = min64(p.block_rows, p.m - row);
    const int64_t panels = min64(p.block_panels, ceil_div(p.n, COIL_PANEL) - panel0);
    for (int64_t k0 = 0; k0 < p.k || k0 == 0; k0 += kBytes) {
      const int64_t k = min64(kBytes, p.k - k0);
      copy_a(row, rows, k0, k, a);
      for (int64_t j = 0; j < panels; j++) {
        const auto* b = static_cast<const uint8_t*>(g.b) + (panel0 + j) * COIL_INTEGER_PANEL_BYTES(g.k) + k0 * COIL_PANEL;
        for (int64_t r = 0; r < rows; r += p.tile_rows) {
          int32_t* sums = acc + (j * kBlockRows + r) * COIL_PANEL;
          const int64_t count = min64(p.tile_rows, rows - r);
          tile_rows(count, {ceil_div(k, 4), a + r * kByteStride, b, sums, k0 > 0}, dot);
          if (k0 + kBytes >= p.k) finish(row + r, panel0 + j, count, sums);
        }
      }
    }
  }

  static void run_chunk(void* context, int64_t begin, int64_t end, int32_t) {
    for (int64_t task = begin; task < end; task++) static_cast<IntegerGemm*>(context)->run_task(task);
  }
};

}  // namespace

void integer_gemm(const CoilGemm& g, const CoilHost* host) {
  Product p = {};
  p.batch = 1;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  plan(p, host->num_workers);
  IntegerGemm gemm = {g, p, has_byte_dot(), static_cast<uint8_t>(g.dtype == COIL_INT8 ? 0x80 : 0)};
  if (p.tasks <= 0) return;
  if (p.tasks == 1 || host->num_workers <= 1 || is_small(p)) {
    IntegerGemm::run_chunk(&gemm, 0, p.tasks, 0);
  } else {
    host->parallel_for(host->pool, p.tasks, 1, IntegerGemm::run_chunk, &gemm);
  }
}

}  // namespace COIL_KERNELS_NAMESPACE
