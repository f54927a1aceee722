// coil_gemm_grouped against a double-precision loop: groups of all sizes, both kinds, layouts, dtypes, threads, and ends that are wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "templates/packing.h"
#include "tests/kernels/support.h"

namespace coil::testing {
namespace {

struct GroupedCase {
  std::vector<int64_t> ends;
  int64_t m, n, k;
  int dtype;
  bool by_depth = false, packed = false, turned_a = false, turned_b = false, wide_ends = false;
};

int64_t scratch_bytes(const CoilGemm& g, int workers) {
  const int64_t pairs = (std::min<int64_t>(g.k, COIL_GROUP_KEPT_K) + 1) / 2;
  return coil_gemm_scratch_bytes(&g, workers) + COIL_GROUP_TABLE_BYTES(g.batch) + (g.b_packed ? 0 : workers * COIL_GROUP_PANELS * pairs * COIL_PANEL * 4);
}

std::vector<double> expected(const GroupedCase& c, const Buffer& a, const Buffer& b, const CoilGemm& g, int64_t b_batch, int64_t b_row, int64_t b_col) {
  std::vector<double> want((c.by_depth ? g.batch : 1) * c.m * c.n);
  int64_t begin = 0;
  for (int64_t x = 0; x < g.batch; begin = c.ends[x++]) {
    for (int64_t i = c.by_depth ? 0 : begin; i < (c.by_depth ? c.m : c.ends[x]); i++) {
      for (int64_t j = 0; j < c.n; j++) {
        double sum = 0;
        for (int64_t k = c.by_depth ? begin : 0; k < (c.by_depth ? c.ends[x] : c.k); k++) {
          sum += static_cast<double>(a.get(i * g.a_row + k * g.a_col)) * b.get((c.by_depth ? 0 : x * b_batch) + k * b_row + j * b_col);
        }
        want[((c.by_depth ? x * c.m : 0) + i) * c.n + j] = sum;
      }
    }
  }
  return want;
}

// wrong: the ends that the kernel is given instead.
void check(const GroupedCase& c, const std::vector<int64_t>& wrong = {}) {
  SCOPED_TRACE(std::to_string(c.ends.size()) + " groups " + std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " +
               dtype_name(c.dtype) + (c.by_depth ? " by depth" : "") + (c.packed ? " packed" : "") + (c.turned_a ? " a^T" : "") + (c.turned_b ? " b^T" : ""));
  std::mt19937 random(99);
  const auto groups = static_cast<int64_t>(c.ends.size());
  const int64_t b_row = c.turned_b ? 1 : c.n, b_col = c.turned_b ? c.k : 1, b_batch = c.k * c.n;
  Buffer a(c.dtype, std::max<int64_t>(c.m * c.k, 1)), b(c.dtype, std::max<int64_t>((c.by_depth ? 1 : groups) * b_batch, 1));
  a.fill(random);
  b.fill(random);
  CoilGemm g = {};
  g.batch = groups, g.m = c.m, g.n = c.n, g.k = c.k;
  g.a = a.data(), g.a_row = c.turned_a ? 1 : c.k, g.a_col = c.turned_a ? c.m : 1;
  g.b = b.data(), g.b_row = b_row, g.b_col = b_col, g.b_batch = c.by_depth ? 0 : b_batch;
  const std::vector<double> want = expected(c, a, b, g, b_batch, b_row, b_col);
  std::vector<std::byte> packed;
  for (int64_t x = 0; c.packed && x < groups; x++) {
    const auto one = templates::pack_gemm_b(static_cast<const char*>(b.data()) + x * b_batch * b.size(), b.size(), c.k, c.n, b_row, b_col);
    packed.insert(packed.end(), one.begin(), one.end());
  }
  if (c.packed) g.b = packed.data(), g.b_packed = 1, g.b_batch = templates::packed_gemm_b_elements(c.k, c.n, b.size());
  const std::vector<int64_t>& given = wrong.empty() ? c.ends : wrong;
  const std::vector<int32_t> narrow_ends(given.begin(), given.end());
  int32_t flag = 0;
  g.ends = c.wide_ends ? static_cast<const void*>(given.data()) : narrow_ends.data();
  g.ends_wide = c.wide_ends, g.by_depth = c.by_depth, g.flag = &flag;
  g.c_row = c.n, g.c_batch = c.by_depth ? c.m * c.n : 0, g.dtype = c.dtype;
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Buffer first(c.dtype, want.size());
    for (int workers : {1, 3}) {
      TestHost host(workers);
      Buffer out(c.dtype, want.size());
      Scratch scratch(scratch_bytes(g, workers));
      g.c = out.data(), g.scratch = scratch.data();
      flag = 0;
      isa.grouped(&g, host.get());
      ASSERT_TRUE(out.guards_intact());
      ASSERT_TRUE(scratch.guards_intact());
      ASSERT_EQ(flag, wrong.empty() ? 0 : 1);
      if (!wrong.empty()) continue;
      for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(out.get(i), want[i], tolerance(c.dtype, want[i], c.k)) << i;
      if (workers == 1) first = out;
      ASSERT_TRUE(out == first) << "threads changed the result";
    }
  }
}

const std::vector<std::vector<int64_t>> kEnds = {{37}, {0, 0, 9, 9, 37, 37}, {1, 3, 6, 10, 36}, {0, 37, 37}, {13, 30}, {0}};

TEST(GroupedGemm, GroupsOfRows) {
  for (int dtype : kDtypes) {
    for (const auto& ends : kEnds) {
      for (int layout = 0; layout < 6; layout++) {
        for (int64_t n : {1, 31, 32, 70}) {
          for (int64_t k : {0, 1, 33, 64})
            check({ends, 37, n, k, dtype, false, layout >= 4, layout % 2 == 1 && layout < 4, layout == 2 || layout == 3 || layout == 5, n == 32});
        }
      }
    }
  }
}

TEST(GroupedGemm, GroupsOfTerms) {
  for (int dtype : kDtypes) {
    for (const auto& ends : kEnds) {
      for (int layout = 0; layout < 4; layout++) {
        for (int64_t m : {1, 14, 33}) {
          for (int64_t n : {1, 32, 45}) check({ends, m, n, 37, dtype, true, false, layout % 2 == 1, layout >= 2});
        }
      }
    }
  }
}

// Partial sums in chunks of k; more rows than a block has, whose panels are kept.
TEST(GroupedGemm, LargeGroups) {
  for (int dtype : kDtypes) {
    for (int layout = 0; layout < 4; layout++) {
      check({{100, 101, 300}, 301, 300, 70, dtype, false, layout == 3, layout == 1, layout == 2});
      check({{9, 200}, 200, 65, 1031, dtype, false, layout == 3, layout == 1, layout == 2});
      if (layout < 3) check({{7, 1031}, 190, 65, 1031, dtype, true, false, layout == 1, layout == 2});
    }
  }
}

TEST(GroupedGemm, WrongEndsTouchNothingElse) {
  constexpr int64_t kFar = int64_t{1} << 40;
  for (int dtype : kDtypes) {
    for (bool by_depth : {false, true}) {
      const std::vector<int64_t> right = {3, 20, 37};
      for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{20, 3, 37}, {-1, 20, 37}, {3, 20, 38}, {kFar, 20, -kFar}, {-kFar, -kFar, kFar}}) {
        GroupedCase c = {right, by_depth ? 20 : 37, 40, by_depth ? 37 : 24, dtype, by_depth, false, by_depth, false, true};
        check(c, wrong);
      }
    }
  }
}

}  // namespace
}  // namespace coil::testing
