// See amx.h. Where tests/kernels/emulated_tiles.h was included before, the unit is that one of plain C++: so tests run all but the
// instructions on any machine.
#include "amx.h"

namespace COIL_KERNELS_NAMESPACE {

#if defined(__AVX512F__) && !defined(COIL_NO_AMX)
namespace {

#ifdef COIL_EMULATED_TILES
#define COIL_TILE_CODE
#else
#define COIL_TILE_CODE __attribute__((target("amx-tile,amx-bf16,amx-int8")))

// The instructions. Registers are numbers in them, so they are template arguments here.
struct Tiles {
  static COIL_TILE_CODE COIL_INLINE_MEMBER void configure(const void* shapes) { __builtin_ia32_tile_loadconfig(shapes); }
  static COIL_TILE_CODE COIL_INLINE_MEMBER void release() { __builtin_ia32_tilerelease(); }
  template <int t>
  static COIL_TILE_CODE COIL_INLINE_MEMBER void zero() {
    __builtin_ia32_tilezero(t);
  }
  template <int t>
  static COIL_TILE_CODE COIL_INLINE_MEMBER void load(const void* from, int64_t stride) {
    __builtin_ia32_tileloadd64(t, from, static_cast<size_t>(stride));
  }
  template <int t>
  static COIL_TILE_CODE COIL_INLINE_MEMBER void store(void* to, int64_t stride) {
    __builtin_ia32_tilestored64(t, to, static_cast<size_t>(stride));
  }
  template <int sum, int a, int b>
  static COIL_TILE_CODE COIL_INLINE_MEMBER void dot() {
    __builtin_ia32_tdpbf16ps(sum, a, b);
  }
  template <int sum, int a, int b>
  static COIL_TILE_CODE COIL_INLINE_MEMBER void byte_dot() {
    __builtin_ia32_tdpbusd(sum, a, b);
  }

  static bool available() {
    constexpr uint32_t kAmx = 1u << 22 | 1u << 24 | 1u << 25, kOsxsave = 1u << 27, kTileState = 3u << 17;
    uint32_t a = 0, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (a < 7) return false;
    a = 1, c = 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (!(c & kOsxsave)) return false;
    a = 7, c = 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if ((d & kAmx) != kAmx) return false;  // of bfloat16, the registers, of bytes
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & kTileState) != kTileState) return false;
    // Linux gives a process the registers' 8 KB for each thread when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
    int64_t result = 158;
    __asm__ volatile("syscall" : "+a"(result) : "D"(0x1023), "S"(18) : "rcx", "r11", "memory");
    return result == 0;
  }
};
#endif

// One instruction: 16 rows by 16 columns, 64 bytes of each row of A.
template <class Sum, int sum, int a, int b>
COIL_TILE_CODE COIL_INLINE void dot() {
  if constexpr (__is_same(Sum, float)) Tiles::dot<sum, a, b>();
  else Tiles::byte_dot<sum, a, b>();
}

// Where a step's 64 bytes of A's first row are: side by side, or as a list says.
struct InRows {
  const char* a;
  COIL_INLINE_MEMBER const char* step(int64_t s) const { return a + 64 * s; }
};
struct InList {
  const char* a;
  const int32_t* places;
  COIL_INLINE_MEMBER const char* step(int64_t s) const { return a + places[s]; }
};

// The sums are registers 0 to 3, rows by columns; A's rows 4 and 5, B's columns 6 and 7. A step is 64 bytes of A's rows; of B it is 16 rows of
// as many bytes of k as a sum has, side by side for each column.
template <class Sum, bool two_rows, bool two_columns, class Rows>
COIL_TILE_CODE __attribute__((noinline)) void product(int64_t steps, Rows rows, int64_t a_stride, const void* b_rows, Sum* acc, bool accumulate) {
  constexpr int64_t kAccStride = kPanel * 4, kRowOfB = kPanel * 4;
  const char* b = static_cast<const char*>(b_rows);
  if (accumulate) {
    Tiles::load<0>(acc, kAccStride);
    if constexpr (two_columns) Tiles::load<1>(acc + 16, kAccStride);
    if constexpr (two_rows) Tiles::load<2>(acc + 16 * kPanel, kAccStride);
    if constexpr (two_rows && two_columns) Tiles::load<3>(acc + 16 * kPanel + 16, kAccStride);
  } else {
    Tiles::zero<0>(), Tiles::zero<1>(), Tiles::zero<2>(), Tiles::zero<3>();
  }
  for (int64_t s = 0; s < steps; s++, b += 16 * kRowOfB) {
    const char* a = rows.step(s);
    Tiles::load<6>(b, kRowOfB);
    Tiles::load<4>(a, a_stride);
    dot<Sum, 0, 4, 6>();
    if constexpr (two_columns) {
      Tiles::load<7>(b + 64, kRowOfB);
      dot<Sum, 1, 4, 7>();
    }
    if constexpr (two_rows) {
      Tiles::load<5>(a + 16 * a_stride, a_stride);
      dot<Sum, 2, 5, 6>();
      if constexpr (two_columns) dot<Sum, 3, 5, 7>();
    }
  }
  Tiles::store<0>(acc, kAccStride);
  if constexpr (two_columns) Tiles::store<1>(acc + 16, kAccStride);
  if constexpr (two_rows) Tiles::store<2>(acc + 16 * kPanel, kAccStride);
  if constexpr (two_rows && two_columns) Tiles::store<3>(acc + 16 * kPanel + 16, kAccStride);
}

template <class Sum, class Rows>
void any_product(int64_t steps, Rows a, int64_t a_stride, const void* b, bool two_rows, bool two_columns, Sum* acc, bool accumulate) {
  if (two_rows)
    return two_columns ? product<Sum, true, true>(steps, a, a_stride, b, acc, accumulate) : product<Sum, true, false>(steps, a, a_stride, b, acc, accumulate);
  return two_columns ? product<Sum, false, true>(steps, a, a_stride, b, acc, accumulate) : product<Sum, false, false>(steps, a, a_stride, b, acc, accumulate);
}

typedef uint16_t Row __attribute__((ext_vector_type(32)));

COIL_INLINE void store_pairs(Row even, Row odd, uint16_t* out) {
  store_raw(out, __builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14,
                                         46, 15, 47));
  store_raw(out + 32, __builtin_shufflevector(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60,
                                              29, 61, 30, 62, 31, 63));
}

}  // namespace

bool has_amx() {
  // cpuid is slow in virtual machines. Threads that race here write the same answer.
  static int32_t known = -1;
  int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer < 0) {
    answer = Tiles::available();
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer;
}

COIL_TILE_CODE void amx_begin() {
  struct alignas(64) Shapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Shapes kShapes;
  Tiles::configure(&kShapes);
}

COIL_TILE_CODE void amx_end() { Tiles::release(); }

void amx_product(int64_t steps, const char* a, int64_t a_stride, const void* b, bool two_rows, bool two_columns, float* acc, bool accumulate) {
  any_product(steps, InRows{a}, a_stride, b, two_rows, two_columns, acc, accumulate);
}

void amx_window_product(int64_t steps, const char* a, const int32_t* places, int64_t a_stride, const void* b, bool two_rows, bool two_columns, float* acc,
                        bool accumulate) {
  any_product(steps, InList{a, places}, a_stride, b, two_rows, two_columns, acc, accumulate);
}

void amx_byte_product(int64_t groups, const uint8_t* a, int64_t a_stride, const uint8_t* b, bool two_rows, bool two_columns, int32_t* acc, bool accumulate) {
  constexpr int64_t kGroups = 16, kRowOfB = kPanel * 4;  // of a step
  const int64_t steps = groups / kGroups, rest = groups % kGroups;
  if (steps > 0) any_product(steps, InRows{reinterpret_cast<const char*>(a)}, a_stride, b, two_rows, two_columns, acc, accumulate);
  if (rest == 0) return;
  alignas(64) uint8_t last[kGroups * kRowOfB] = {};
  memcpy(last, b + steps * kGroups * kRowOfB, static_cast<size_t>(rest * kRowOfB));
  any_product(1, InRows{reinterpret_cast<const char*>(a) + steps * 64}, a_stride, last, two_rows, two_columns, acc, accumulate || steps > 0);
}

void amx_pairs(int64_t k, const void* panel, void* out) {
  const BFloat16* rows = static_cast<const BFloat16*>(panel);
  uint16_t* to = static_cast<uint16_t*>(out);
  int64_t i = 0;
  for (; i + 2 <= k; i += 2, to += 2 * kPanel) store_pairs(load_raw<Row>(rows + i * kPanel), load_raw<Row>(rows + (i + 1) * kPanel), to);
  if (i < k) store_pairs(load_raw<Row>(rows + i * kPanel), Row(0), to), i += 2, to += 2 * kPanel;
  for (; i % kAmxStep != 0; i += 2, to += 2 * kPanel) store_pairs(Row(0), Row(0), to);
}

#else
bool has_amx() { return false; }
void amx_begin() {}
void amx_end() {}
void amx_product(int64_t, const char*, int64_t, const void*, bool, bool, float*, bool) { __builtin_unreachable(); }
void amx_window_product(int64_t, const char*, const int32_t*, int64_t, const void*, bool, bool, float*, bool) { __builtin_unreachable(); }
void amx_byte_product(int64_t, const uint8_t*, int64_t, const uint8_t*, bool, bool, int32_t*, bool) { __builtin_unreachable(); }
void amx_pairs(int64_t, const void*, void*) { __builtin_unreachable(); }
#endif

void plan_amx(Product& p, int32_t workers) {
  const int64_t panels = ceil_div(p.n, kPanel), blocks = ceil_div(p.m, kAmxBlockRows);
  int64_t rows = min64(ceil_div(ceil_div(p.m, blocks), kAmxRows) * kAmxRows, kAmxBlockRows), block_panels = min64(kAmxPanels, panels);
  if (p.asked_tiles > 0 && p.asked_panels > 0) {
    rows = min64(p.asked_tiles * kAmxRows, rows);
    block_panels = min64(p.asked_panels, block_panels);
    workers = 1;
  }
  const auto tasks = [&] { return p.batch * ceil_div(p.m, rows) * ceil_div(panels, block_panels); };
  // Smaller blocks until every worker has a few, so that a slow one holds up nobody.
  while (workers > 1 && tasks() < 4 * workers && (rows > kAmxRows || block_panels > 1)) {
    if (rows >= block_panels * kPanel && rows > kAmxRows) rows = ceil_div(rows / 2, kAmxRows) * kAmxRows;
    else block_panels = (block_panels + 1) / 2;
  }
  p.block_rows = rows;
  p.block_panels = block_panels;
  p.row_blocks = ceil_div(p.m, rows);
  p.panel_blocks = ceil_div(panels, block_panels);
  p.tasks = p.batch * p.row_blocks * p.panel_blocks;
}

}  // namespace COIL_KERNELS_NAMESPACE
