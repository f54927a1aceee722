// Rows of packed quantised panels as vectors of floats.
#ifndef COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_
#define COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_

#include "gemm_quantised.h"
#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int kPanelVectors = COIL_PANEL / kLanes;

// One row of a panel: 32 numbers, in kParts parts of two vectors, of which vector j of part h begins at column(h, j).
constexpr int kParts = kPanelVectors / 2;

struct Bytes {
  explicit Bytes(const CoilGemm&) {}
  static constexpr int64_t kRow = COIL_PANEL;
  static constexpr int column(int h, int j) { return (2 * h + j) * kLanes; }
  static COIL_INLINE_MEMBER void load_part(const uint8_t* row, int h, Vec (&out)[2]) {
#pragma unroll
    for (int j = 0; j < 2; j++) out[j] = load(reinterpret_cast<const int8_t*>(row) + column(h, j));
  }
};

struct HalfBytes {
  explicit HalfBytes(const CoilGemm&) {}
  static constexpr int64_t kRow = COIL_PANEL / 2;
  static constexpr int column(int h, int j) { return h * kLanes + j * (COIL_PANEL / 2); }
  static COIL_INLINE_MEMBER void load_part(const uint8_t* row, int h, Vec (&out)[2]) {
    const VecI32 pairs = __builtin_convertvector(load_raw<Lanes<uint8_t>>(row + h * kLanes), VecI32);
#ifdef __AVX512F__
    // A permutation looks at the low 4 bits of an index.
    const Vec numbers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    out[0] = __builtin_ia32_permvarsf512(numbers, pairs);
    out[1] = __builtin_ia32_permvarsf512(numbers, pairs >> 4);
#else
    out[0] = __builtin_convertvector((pairs & 15) - 8, Vec);
    out[1] = __builtin_convertvector((pairs >> 4) - 8, Vec);
#endif
  }
};

// Codes of a product's list.
struct CodedHalfBytes {
  static constexpr int64_t kRow = HalfBytes::kRow;
  static constexpr int column(int h, int j) { return HalfBytes::column(h, j); }
#ifdef __AVX512F__
  Vec list;
  explicit CodedHalfBytes(const CoilGemm& g) : list(load(reinterpret_cast<const int8_t*>(g.b_codes))) {}
  COIL_INLINE_MEMBER void load_part(const uint8_t* row, int h, Vec (&out)[2]) const {
    const VecI32 pairs = __builtin_convertvector(load_raw<Lanes<uint8_t>>(row + h * kLanes), VecI32);
    out[0] = permute(list, pairs);
    out[1] = permute(list, pairs >> 4);
  }
#else
  Bytes16 list;
  explicit CodedHalfBytes(const CoilGemm& g) : list(load_raw<Bytes16>(g.b_codes)) {}
  COIL_INLINE_MEMBER void load_part(const uint8_t* row, int h, Vec (&out)[2]) const {
    typedef uint8_t Codes __attribute__((vector_size(16)));
    typedef Lanes<int8_t> Numbers;
    const auto eight = load_raw<Lanes<uint8_t>>(row + h * kLanes);
    const Codes both = __builtin_shufflevector(eight, eight, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const Bytes16 found[2] = {looked_up(list, __builtin_bit_cast(Bytes16, both & 15)), looked_up(list, __builtin_bit_cast(Bytes16, both >> 4))};
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const auto numbers = __builtin_bit_cast(Numbers, __builtin_shufflevector(found[j], found[j], 0, 1, 2, 3, 4, 5, 6, 7));
      out[j] = __builtin_convertvector(__builtin_convertvector(numbers, VecI32), Vec);
    }
  }
#endif
};

// The scales, or the zero points, of a panel's columns.
struct PanelTable {
  const char* data;   // null: none
  int32_t dtype;      // 0 where they are not packed: float32 then
  int64_t row, cols;  // bytes between groups; columns that are there, COIL_PANEL where padded

  COIL_INLINE_MEMBER Vec at(int64_t group, int column) const {
    const char* from = data + group * row;
    if (dtype == COIL_FLOAT16) return load(reinterpret_cast<const Float16*>(from) + column);
    if (dtype == COIL_BFLOAT16) return load(reinterpret_cast<const BFloat16*>(from) + column);
    const float* numbers = reinterpret_cast<const float*>(from) + column;
    return cols == COIL_PANEL ? load(numbers) : load_partial(numbers, max64(0, min64(kLanes, cols - column)));
  }
};
COIL_INLINE PanelTable panel_table(const CoilGemm& g, const void* table, int32_t dtype, int64_t panel) {
  if (!table) return {nullptr, 0, 0, 0};
  const char* from = static_cast<const char*>(table);
  if (!g.b_tables_packed) return {from + panel * COIL_PANEL * 4, 0, g.n * 4, min64(COIL_PANEL, g.n - panel * COIL_PANEL)};
  const int64_t row = COIL_PANEL * (dtype == COIL_FLOAT32 ? 4 : 2);
  return {from + panel * ceil_div(g.k, g.b_group) * row, dtype, row, COIL_PANEL};
}
// The numbers that codes stand for, in each 16 bytes.
COIL_INLINE VecI32 spread_list(const CoilGemm& g) {
  VecI32 list;
  for (int i = 0; i < kLanes; i++) list[i] = static_cast<int32_t>(g.b_codes[i % 4 / 2] >> (i % 2 * 32));
  return list;
}

// Of the tables of one group of a grouped product.
COIL_INLINE int64_t table_bytes(const CoilGemm& g, int32_t dtype) {
  const int64_t columns = g.b_tables_packed ? ceil_div(g.n, COIL_PANEL) * COIL_PANEL : g.n;
  return columns * ceil_div(g.k, g.b_group) * (!g.b_tables_packed || dtype == COIL_FLOAT32 ? 4 : 2);
}
COIL_INLINE PanelTable panel_scales(const CoilGemm& g, int64_t panel) { return panel_table(g, g.b_scale, g.b_scale_dtype, panel); }
COIL_INLINE PanelTable panel_zeros(const CoilGemm& g, int64_t panel) { return panel_table(g, g.b_zero, g.b_zero_dtype, panel); }

// What turns numbers of a panel's columns into values within a group of k.
template <bool scaled, bool shifted>
struct GroupTables {
  Vec scale[kPanelVectors], zero[kPanelVectors];  // by columns

  COIL_INLINE_MEMBER GroupTables(const CoilGemm& g, int64_t group, int64_t panel) {
    const PanelTable scales = panel_scales(g, panel), zeros = panel_zeros(g, panel);
#pragma unroll
    for (int j = 0; j < kPanelVectors; j++) {
      if (scaled) scale[j] = scales.at(group, j * kLanes);
      if (shifted) zero[j] = zeros.at(group, j * kLanes);
    }
  }
  // `value` at `column`, where a vector begins.
  COIL_INLINE_MEMBER Vec apply(Vec value, int column) const {
    if (shifted) value -= zero[column / kLanes];
    return scaled ? value * scale[column / kLanes] : value;
  }
};

// f.template operator()<Numbers, scaled, shifted>() for the numbers and tables that g has.
template <class F>
COIL_INLINE void with_form(const CoilGemm& g, bool scaled, const F& f) {
  const auto of = [&]<class Numbers>() {
    if (scaled && g.b_zero) return f.template operator()<Numbers, true, true>();
    if (scaled) return f.template operator()<Numbers, true, false>();
    if (g.b_zero) return f.template operator()<Numbers, false, true>();
    f.template operator()<Numbers, false, false>();
  };
  if (g.b_coded) return of.template operator()<CodedHalfBytes>();
  if (g.b_bits == 4) return of.template operator()<HalfBytes>();
  of.template operator()<Bytes>();
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_
