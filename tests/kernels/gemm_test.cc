// coil_gemm against a double-precision loop: sizes around every blocking boundary, strides, dtypes, epilogues, threads.
#include <gtest/gtest.h>

#include <mutex>

#include "templates/packing.h"
#include "tests/kernels/support.h"

namespace coil::testing {
namespace {

struct GemmCase {
  int64_t batch, m, n, k;
  int dtype;
  bool packed;
  bool transposed_a, transposed_b;  // b: only when not packed
  bool shared_b;
  int64_t gap;               // elements between rows beyond the dense ones
  bool odd_strides = false;  // neither stride of A and B is 1
  bool pairs = false;        // bfloat16, packed in pairs of k
  bool copied = false;       // b is packed by the call
};

std::string describe(const GemmCase& c) {
  return std::to_string(c.batch) + "x" + std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " + dtype_name(c.dtype) +
         (c.packed ? " packed" : "") + (c.transposed_a ? " a^T" : "") + (c.transposed_b ? " b^T" : "") + (c.shared_b ? " shared" : "") +
         (c.odd_strides ? " odd" : "") + (c.pairs ? " pairs" : "") + (c.copied ? " copied" : "") + " gap " + std::to_string(c.gap);
}

struct RecordedTile {
  std::mutex mutex;
  std::vector<double> c;
  std::vector<int> seen;
  int64_t m, n;
  int dtype;
  bool in_bounds = true;
};

void record_tile(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld) {
  RecordedTile& to = *static_cast<RecordedTile*>(const_cast<void*>(context));
  std::lock_guard lock(to.mutex);
  to.in_bounds &= rows >= 1 && rows <= COIL_TILE_ROWS && cols >= 1 && cols <= COIL_TILE_COLS && ld % 16 == 0 && ld >= cols;
  to.in_bounds &= row >= 0 && row + rows <= to.m && col >= 0 && col % COIL_PANEL_COLUMNS(to.dtype == COIL_FLOAT64 ? 8 : 4) == 0 && col + cols <= to.n;
  to.in_bounds &= reinterpret_cast<uintptr_t>(acc) % 64 == 0;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < cols; j++) {
      const int64_t i = (batch * to.m + row + r) * to.n + col + j;
      to.c[i] = tile_element(acc, r * ld + j, to.dtype) + 1;
      to.seen[i]++;
    }
    for (int64_t j = 0; j < ld; j++) spoil_element(acc, r * ld + j, to.dtype);  // allowed by the contract
  }
}

// A packed B of bfloat16 comes in pairs of k too.
bool may_have_pairs(const GemmCase& c) { return c.packed && !c.pairs && c.dtype == COIL_BFLOAT16; }

// A B of two bytes that comes with the call is packed by the call too.
bool may_be_copied(const GemmCase& c) {
  return !c.packed && !c.copied && c.m >= COIL_GEMM_COPY_HALF_ROWS && (c.dtype == COIL_BFLOAT16 || c.dtype == COIL_FLOAT16);
}

// The operands of a case and the product in double precision.
struct Problem {
  const GemmCase& c;
  int64_t a_row, a_col, a_batch, b_row, b_col, b_batch;
  int64_t c_row, c_batch;
  Buffer a, b;
  std::vector<double> want;
  std::vector<std::byte> packed;

  explicit Problem(const GemmCase& of)
      : c(of),
        a_row(c.transposed_a ? step() : (c.k + c.gap) * step()),
        a_col(c.transposed_a ? (c.m + c.gap) * step() : step()),
        a_batch((c.transposed_a ? c.k * a_col : c.m * a_row) + c.gap),
        b_row(c.transposed_b ? step() : (c.n + c.gap) * step()),
        b_col(c.transposed_b ? (c.k + c.gap) * step() : step()),
        b_batch(c.shared_b ? 0 : (c.transposed_b ? c.n * b_col : c.k * b_row) + c.gap),
        c_row(c.n + c.gap),
        c_batch(c.m * c_row),
        a(c.dtype, extent({{c.batch, a_batch}, {c.m, a_row}, {c.k, a_col}})),
        b(c.dtype, extent({{c.batch, b_batch}, {c.k, b_row}, {c.n, b_col}})),
        want(c.batch * c.m * c.n) {
    std::mt19937 random(1234);
    a.fill(random);
    b.fill(random);
    multiply();
    if (c.packed) pack();
  }

  int64_t step() const { return c.odd_strides ? 3 : 1; }
  // The last row ends with its last element: reading past it is caught by the address sanitizer, using it by the fill.
  static int64_t extent(std::initializer_list<std::pair<int64_t, int64_t>> dims) {
    int64_t last = 0;
    for (auto [size, stride] : dims) last += size > 0 ? (size - 1) * stride : 0;
    return last + 1;
  }

  void multiply() {
    for (int64_t x = 0; x < c.batch; x++) {
      for (int64_t i = 0; i < c.m; i++) {
        for (int64_t j = 0; j < c.n; j++) {
          double sum = 0;
          for (int64_t k = 0; k < c.k; k++) {
            sum += static_cast<double>(a.get(x * a_batch + i * a_row + k * a_col)) * b.get(x * b_batch + k * b_row + j * b_col);
          }
          want[(x * c.m + i) * c.n + j] = sum;
        }
      }
    }
  }

  void pack() {
    for (int64_t x = 0; x < (c.shared_b ? 1 : c.batch); x++) {
      const char* from = static_cast<const char*>(b.data()) + x * b_batch * b.size();
      auto one = templates::pack_gemm_b(from, b.size(), c.k, c.n, b_row, b_col);
      packed.insert(packed.end(), one.begin(), one.end());
    }
    if (c.pairs) packed = templates::in_pairs(packed, c.k);
    packed.shrink_to_fit();
  }

  CoilGemm arguments() {
    CoilGemm g = {};
    g.batch = c.batch, g.m = c.m, g.n = c.n, g.k = c.k;
    g.a = a.data(), g.a_batch = a_batch, g.a_row = a_row, g.a_col = a_col;
    g.b = c.packed ? packed.data() : b.data();
    const int64_t one = c.pairs ? templates::packed_pairs_elements(c.k, c.n) : templates::packed_gemm_b_elements(c.k, c.n, b.size());
    g.b_batch = !c.packed ? b_batch : c.shared_b ? 0 : one;
    g.b_row = c.packed ? -1 : b_row, g.b_col = c.packed ? -1 : b_col;
    g.c_batch = c_batch, g.c_row = c_row;
    g.dtype = c.dtype, g.b_packed = c.packed, g.b_pairs = c.pairs, g.b_copied = c.copied;
    return g;
  }

  void check_results(const Buffer& out, const Buffer& untouched) const {
    int wrong = 0;
    for (int64_t x = 0; x < c.batch; x++) {
      for (int64_t i = 0; i < c.m; i++) {
        for (int64_t j = 0; j < c.n; j++) {
          const double w = want[(x * c.m + i) * c.n + j], got = out.get(x * c_batch + i * c_row + j);
          if (!(std::fabs(got - w) <= tolerance(c.dtype, w, c.k)) && wrong++ < 3) {
            ADD_FAILURE() << "(" << x << "," << i << "," << j << ") is " << got << ", should be " << w;
          }
        }
        for (int64_t j = c.n; j < c_row; j++) {
          ASSERT_EQ(out.get(x * c_batch + i * c_row + j), untouched.get(x * c_batch + i * c_row + j)) << "wrote into a gap";
        }
      }
    }
    ASSERT_EQ(wrong, 0);
    ASSERT_TRUE(out.guards_intact());
  }

  // What an epilogue gets.
  void check_epilogue(CoilGemm g, const IsaKernels& isa, const TestHost& host) const {
    RecordedTile recorded = {{}, std::vector<double>(want.size()), std::vector<int>(want.size()), c.m, c.n, c.dtype};
    g.epilogue = record_tile, g.epilogue_context = &recorded;
    isa.product(&g, host.get());
    ASSERT_TRUE(recorded.in_bounds);
    for (size_t i = 0; i < want.size(); i++) {
      ASSERT_EQ(recorded.seen[i], 1) << i;
      ASSERT_NEAR(recorded.c[i], want[i] + 1, tolerance(c.dtype == COIL_FLOAT64 ? COIL_FLOAT64 : COIL_FLOAT32, want[i] + 1, c.k));
    }
  }
};

void check(const GemmCase& c) {
  if (may_have_pairs(c)) {
    GemmCase in_pairs = c;
    in_pairs.pairs = true;
    check(in_pairs);
  }
  if (may_be_copied(c)) {
    GemmCase copied = c;
    copied.copied = true;
    check(copied);
  }
  SCOPED_TRACE(describe(c));
  Problem p(c);
  CoilGemm g = p.arguments();
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Buffer first(c.dtype, c.batch * p.c_batch);
    for (int workers : {1, 3}) {
      TestHost host(workers);
      Buffer out(c.dtype, c.batch * p.c_batch);
      const Buffer untouched = out;
      Scratch scratch(coil_gemm_scratch_bytes(&g, workers));
      g.c = out.data(), g.scratch = scratch.data(), g.epilogue = nullptr;
      isa.product(&g, host.get());
      ASSERT_NO_FATAL_FAILURE(p.check_results(out, untouched));
      ASSERT_TRUE(scratch.guards_intact());
      if (workers == 1) first = out;
      ASSERT_TRUE(out == first) << "threads changed the result";
      ASSERT_NO_FATAL_FAILURE(p.check_epilogue(g, isa, host));
    }
  }
}

TEST(Gemm, SizesAroundTheBlocking) {
  for (int dtype : kProductDtypes) {
    for (bool packed : {true, false}) {
      for (int64_t m : {0, 1, 2, 3, 5, 7, 13, 14, 15, 17, 29, 85}) {
        for (int64_t n : {0, 1, 15, 16, 17, 32, 33, 71}) {
          for (int64_t k : {0, 1, 2, 7, 64, 257}) check({1, m, n, k, dtype, packed, false, false, false, 0});
        }
      }
    }
  }
}

// A token's row: panels in sets that are full or not, visits and chunks of k that are whole or not, rows that lie apart.
TEST(Gemm, OneRowTimesPanels) {
  for (int dtype : kProductDtypes) {
    for (int64_t n : {1, 33, 65, 128, 130, 290, 1030}) {
      for (int64_t k : {260, 300, 511, 576, 1057}) check({1, 1, n, k, dtype, true, false, false, false, 0});
    }
    check({1, 1, 200, 300, dtype, true, true, false, false, 5});
  }
}

// Many rows, few packed columns: lanes along k, whole vectors and parts, tiles of rows that end anywhere, columns that do not fit the stack.
TEST(Gemm, FewColumns) {
  for (int dtype : kProductDtypes) {
    for (int64_t n = 1; n <= 5; n++) {
      for (int64_t m : {31, 32, 33, 64, 65, 150}) {
        for (int64_t k : {63, 64, 65, 72, 250}) {
          for (int64_t gap : {0, 5}) check({1, m, n, k, dtype, true, false, false, false, gap});
        }
      }
      check({1, 40, n, 6000, dtype, true, false, false, false, 0});
      check({1, 40, n, 100, dtype, true, true, false, false, 0});
      check({2, 40, n, 100, dtype, true, false, false, false, 0});
    }
  }
}

TEST(Gemm, Strides) {
  for (int dtype : kProductDtypes) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{19, 45, 37}, {1, 40, 300}, {33, 64, 520}, {9, 8, 8}, {90, 33, 31}}) {
      for (int64_t gap : {0, 5}) {
        for (bool ta : {false, true}) {
          for (bool tb : {false, true}) {
            for (bool shared : {false, true}) {
              check({2, m, n, k, dtype, false, ta, tb, shared, gap});
              check({2, m, n, k, dtype, true, ta, tb, shared, gap});
            }
          }
        }
      }
      check({2, m, n, k, dtype, false, false, false, false, 1, true});
      check({2, m, n, k, dtype, false, true, true, false, 1, true});
    }
  }
}

TEST(Gemm, BlocksInAllDirections) {
  for (int dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT64}) {
    check({1, 200, 300, 600, dtype, true, false, false, false, 0});
    for (int64_t m : {1, 3, 8, 31, 333}) check({2, m, 70, 1120, dtype, true, false, false, false, 0});
    check({1, 200, 300, 600, dtype, false, false, true, false, 3});
    check({3, 100, 70, 513, dtype, true, false, false, true, 0});
    check({1, 1, 1000, 2000, dtype, true, false, false, false, 0});
    check({1, 4, 1000, 5000, dtype, true, false, false, false, 0});
    check({1, 11, 100, 3000, dtype, false, false, false, false, 0});
    for (int64_t m : {13, 14, 85}) {
      for (int64_t k : {511, 512, 513, 1023, 1026}) check({1, m, 40, k, dtype, true, false, false, false, 3});
    }
  }
}

// Few k: all panels of a block meet a tile of rows before the next tile does.
TEST(Gemm, ShallowBlocks) {
  for (int dtype : kProductDtypes) {
    for (auto [n, k] : {std::array<int64_t, 2>{256, 32}, {257, 32}, {512, 16}, {520, 15}, {40, 128}, {33, 129}, {16, 256}}) {
      for (int64_t gap : {0, 5}) check({2, 100, n, k, dtype, true, false, false, true, gap});
    }
    check({1, 100, 60, 30, dtype, true, true, false, false, 0});
  }
}

TEST(Gemm, OneRowTimesTransposed) {
  for (int dtype : kProductDtypes) {
    for (int64_t n : {1, 7, 8, 9, 32, 33, 300}) {
      for (int64_t k : {1, 8, 15, 16, 64, 100, 1000}) {
        check({3, 1, n, k, dtype, false, false, true, false, 2});
        check({1, 1, n, k, dtype, false, true, true, true, 0});
      }
    }
    check({1, 1, 40, 20000, dtype, false, false, true, false, 0});
  }
}

TEST(Gemm, OneRowTimesRows) {
  for (int dtype : kProductDtypes) {
    for (int64_t n : {127, 128, 129, 300, 1024, 1025, 2100}) {
      for (int64_t k : {1, 7, 8, 9, 128, 257, 600}) {
        check({1, 1, n, k, dtype, false, false, false, false, 3});
        if (k < 100) check({3, 1, n, k, dtype, false, true, false, true, 0});
      }
    }
  }
}

// What a tuner may ask for (COIL_BLOCK_RULE): the same bits for any blocks, on any number of threads, with an epilogue and without.
void check_blocks(const GemmCase& c) {
  SCOPED_TRACE(describe(c));
  std::mt19937 random(99);
  Buffer a(c.dtype, c.m * (c.k + c.gap)), b(c.dtype, c.n * c.k);
  a.fill(random);
  b.fill(random);
  std::vector<std::byte> packed = templates::pack_gemm_b(static_cast<const char*>(b.data()), b.size(), c.k, c.n, c.n, 1);
  CoilGemm g = {};
  g.batch = 1, g.m = c.m, g.n = c.n, g.k = c.k;
  g.a = a.data(), g.a_row = c.k + c.gap, g.a_col = 1;
  g.b = c.packed ? static_cast<const void*>(packed.data()) : b.data();
  g.b_row = c.packed ? -1 : c.n, g.b_col = c.packed ? -1 : 1;
  g.c_batch = c.m * c.n, g.c_row = c.n, g.dtype = c.dtype, g.b_packed = c.packed;
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Buffer own(c.dtype, c.m * c.n);
    std::vector<double> own_sums;
    for (const int tiles : {0, 1, 2, 3, 4, 5, 6, 7, 10, 14}) {
      for (const int panels : {1, 2, 4, 8, 16, 17}) {
        if (tiles == 0 && panels > 1) continue;  // the own rule comes first
        const int workers = 1 + (tiles + panels) % 3;
        TestHost host(workers);
        Scratch scratch(coil_gemm_scratch_bytes(&g, workers));
        Buffer out(c.dtype, c.m * c.n);
        g.block_tiles = tiles, g.block_panels = tiles == 0 ? 0 : panels;
        g.c = out.data(), g.scratch = scratch.data(), g.epilogue = nullptr;
        isa.product(&g, host.get());
        RecordedTile recorded = {{}, std::vector<double>(static_cast<size_t>(c.m * c.n)), std::vector<int>(static_cast<size_t>(c.m * c.n)), c.m, c.n, c.dtype};
        g.epilogue = record_tile, g.epilogue_context = &recorded;
        isa.product(&g, host.get());
        ASSERT_TRUE(scratch.guards_intact() && recorded.in_bounds);
        ASSERT_EQ(std::count(recorded.seen.begin(), recorded.seen.end(), 1), c.m * c.n);
        if (tiles == 0) own = out, own_sums = recorded.c;
        ASSERT_TRUE(out == own) << "blocks of " << tiles << " x " << panels;
        ASSERT_EQ(recorded.c, own_sums) << "blocks of " << tiles << " x " << panels;
      }
    }
  }
}

TEST(Gemm, AnyBlocksGiveTheSameBits) {
  for (int dtype : kProductDtypes) {
    for (bool packed : {true, false}) {
      check_blocks({1, 96, 640, 768, dtype, packed, false, false, false, 0});
      check_blocks({1, 96, 200, 768, dtype, packed, false, false, false, 1});  // rows that are no multiple of anything
      check_blocks({1, 97, 70, 513, dtype, packed, false, false, false, 0});
      check_blocks({1, 29, 530, 40, dtype, packed, false, false, false, 0});
      check_blocks({1, 13, 300, 1100, dtype, packed, false, false, false, 0});
      check_blocks({1, 45, 100, 1024, dtype, packed, false, false, false, 0});  // A's rows would meet in the cache: they are copied
    }
  }
}

// A second operand that a call of many rows packs for itself: along k or along columns, with tails and odd strides; A's rows may stand side by side.
TEST(Gemm, PacksInTheCall) {
  for (const bool transposed_a : {false, true}) {
    for (const bool transposed_b : {false, true}) {
      for (const int64_t gap : {0, 1, 2}) {
        for (const int dtype : {COIL_BFLOAT16, COIL_FLOAT16}) {
          check({1, 16, 37, 65, dtype, false, transposed_a, transposed_b, false, gap, false, false, true});
          check({1, 33, 96, 300, dtype, false, transposed_a, transposed_b, false, gap, false, false, true});
          check({1, 70, 5, 1030, dtype, false, transposed_a, transposed_b, false, gap, false, false, true});
          check({3, 20, 40, 66, dtype, false, transposed_a, transposed_b, false, gap, false, false, true});
          check({3, 20, 40, 66, dtype, false, transposed_a, transposed_b, true, gap, false, false, true});
        }
        if (gap == 0 || transposed_b) check({1, 757, 40, 70, COIL_FLOAT32, false, transposed_a, transposed_b, false, gap, false, false, true});
        if (gap == 1) check({1, 2018, 33, 260, COIL_FLOAT32, false, transposed_a, transposed_b, false, gap, false, false, true});
      }
    }
  }
  check({1, 16, 37, 0, COIL_BFLOAT16, false, false, true, false, 0, false, false, true});
  check({1, 760, 1, 9, COIL_FLOAT32, false, false, true, false, 0, false, false, true});
}

TEST(Gemm, BatchOfNone) { check({0, 3, 4, 5, COIL_FLOAT32, false, false, false, false, 0}); }

}  // namespace
}  // namespace coil::testing
