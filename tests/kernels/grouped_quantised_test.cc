// coil_gemm_grouped and coil_gemm_grouped_bytes with quantised weights, against plain loops.
#include <gtest/gtest.h>

#include "tests/kernels/quantised_support.h"

namespace coil::testing {
namespace {

struct ExpertsCase {
  std::vector<int64_t> ends;
  int64_t m, n, k;
  Numbers kind;
  int64_t group;
  int dtype;  // of A
  bool scaled = true, shifted = false;
};

// The weight of all groups, with its tables.
struct Weight {
  std::vector<int8_t> numbers;
  std::vector<std::byte> packed, scales, zeros;
  std::vector<float> scale, zero;

  Weight(CoilGemm& g, const ExpertsCase& c, std::mt19937& random) {
    std::uniform_real_distribution<float> some(0.5f / greatest(c.kind), 1.0f / greatest(c.kind)), whole(-3, 3);
    const int scale_type = c.n % 2 ? COIL_FLOAT16 : COIL_FLOAT32, zero_type = c.n % 2 ? COIL_FLOAT32 : COIL_BFLOAT16;
    for (size_t x = 0; x < c.ends.size(); ++x) {
      const std::vector<int8_t> own = numbers_of(c.kind, random, c.n * c.k, -127);
      const std::vector<std::byte> panels = packed_numbers(g, c.kind, own.data(), c.k, c.n, c.dtype == COIL_INT8);
      std::vector<float> s(static_cast<size_t>(c.k / c.group * c.n)), z(s.size());
      for (float& v : s) v = some(random);
      for (float& v : z) v = std::nearbyint(whole(random));
      const Table own_scales(s, c.n, scale_type), own_zeros(z, c.n, zero_type);
      g.b_batch = static_cast<int64_t>(panels.size()) * 8 / c.kind.bits;
      const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(numbers, own), append(packed, panels);
      append(scales, own_scales.packed), append(zeros, own_zeros.packed), append(scale, own_scales.values), append(zero, own_zeros.values);
    }
    g.b = packed.data(), g.b_group = c.group, g.b_tables_packed = 1, g.b_no_least = 1;
    if (c.scaled) g.b_scale = scales.data(), g.b_scale_dtype = scale_type;
    if (c.shifted) g.b_zero = zeros.data(), g.b_zero_dtype = zero_type;
  }

  double value(const ExpertsCase& c, int64_t group, int64_t k, int64_t n) const {
    const auto at = static_cast<size_t>((group * (c.k / c.group) + k / c.group) * c.n + n);
    return (numbers[static_cast<size_t>((group * c.n + n) * c.k + k)] - (c.shifted ? zero[at] : 0.0f)) * (c.scaled ? scale[at] : 1.0f);
  }
};

void check_experts(const ExpertsCase& c) {
  SCOPED_TRACE(std::to_string(c.ends.size()) + " groups " + std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " of " +
               text(c.kind) + " by " + std::to_string(c.group) + (c.dtype == COIL_INT8 ? " bytes" : dtype_name(c.dtype)));
  std::mt19937 random(5);
  CoilGemm g = {};
  const Weight weight(g, c, random);
  const bool bytes = c.dtype == COIL_INT8;
  const std::vector<int8_t> byte_rows = numbers(random, c.m * c.k, -128, 127);
  Buffer rows(bytes ? COIL_FLOAT32 : c.dtype, c.m * c.k);
  rows.fill(random);
  g.batch = static_cast<int64_t>(c.ends.size()), g.m = c.m, g.n = c.n, g.k = c.k;
  g.a = bytes ? static_cast<const void*>(byte_rows.data()) : rows.data(), g.a_row = c.k, g.a_col = 1;
  g.ends = c.ends.data(), g.ends_wide = 1, g.c_row = c.n, g.dtype = c.dtype;
  const int out_type = bytes ? COIL_FLOAT32 : c.dtype;
  for (const IsaKernels& isa : runnable_kernels()) {
    Buffer first(out_type, c.m * c.n);
    for (int workers : {1, 3}) {
      Buffer out(out_type, c.m * c.n);
      Scratch scratch((bytes ? 0 : coil_gemm_scratch_bytes(&g, workers)) + COIL_GROUP_TABLE_BYTES(g.batch));
      g.c = out.data(), g.scratch = scratch.data();
      (bytes ? isa.grouped_bytes : isa.grouped)(&g, TestHost(workers).get());
      ASSERT_TRUE(out.guards_intact() && scratch.guards_intact());
      int64_t group = 0;
      for (int64_t i = 0; i < c.m; i++) {
        while (group < g.batch && i >= c.ends[static_cast<size_t>(group)]) group++;
        for (int64_t j = 0; j < c.n; j++) {
          double sum = 0, size = 0;
          for (int64_t p = 0; group < g.batch && p < c.k; p++) {
            const double x = bytes ? byte_rows[static_cast<size_t>(i * c.k + p)] : rows.get(i * c.k + p), w = weight.value(c, group, p, j);
            sum += w * x;
            size += std::fabs(w * x);
          }
          const double rounding = c.dtype == COIL_BFLOAT16 && c.scaled ? 0x1.8p-7 / std::sqrt(static_cast<double>(c.k)) : 2e-6;
          ASSERT_NEAR(out.get(i * c.n + j), sum, (bytes ? 0 : tolerance(c.dtype, sum, c.k)) + rounding * size) << isa.name << " " << i << "," << j;
        }
      }
      if (workers == 1) first = out;
      ASSERT_TRUE(out == first) << "threads changed the result";
    }
  }
}

// Groups of none, one, a few and many rows, and rows behind the last group.
TEST(GroupedQuantised, RowsOfFloats) {
  for (const Numbers& kind : kKinds) {
    for (int dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16}) {
      for (const std::vector<int64_t>& ends : {std::vector<int64_t>{1, 1, 2, 2, 3}, {0, 2, 9, 30}, {37}}) {
        for (bool shifted : {false, true}) {
          check_experts({ends, 37, 45, 96, kind, 32, dtype, true, shifted});
          check_experts({ends, 37, 70, 320, kind, 32, dtype, true, shifted});  // several chunks of k, and one row in streams or digits
        }
      }
      check_experts({{1, 2, 40}, 40, 33, 600, kind, 600, dtype});
      check_experts({{1, 2, 40}, 40, 64, 600, kind, 600, dtype, false});
      check_experts({{3, 4, 5}, 5, 131, 272, kind, 8, dtype, true, true});
    }
    check_experts({{}, 3, 33, 64, kind, 32, COIL_FLOAT32});
    check_experts({{0, 0}, 0, 33, 64, kind, 32, COIL_FLOAT32});
  }
}

TEST(GroupedQuantised, RowsOfBytes) {
  for (const Numbers& kind : kKinds) {
    for (const std::vector<int64_t>& ends : {std::vector<int64_t>{1, 1, 2, 2, 3}, {0, 2, 9, 30}, {37}}) {
      for (bool shifted : {false, true}) check_experts({ends, 37, 45, 96, kind, 32, COIL_INT8, true, shifted});
      check_experts({ends, 37, 70, 1057, kind, 1057, COIL_INT8});
    }
    check_experts({{3, 4, 200}, 200, 64, 640, kind, 16, COIL_INT8, true, true});
    check_experts({{}, 3, 33, 64, kind, 32, COIL_INT8});
  }
}

}  // namespace
}  // namespace coil::testing
