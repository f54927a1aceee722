// coil_attention against a double-precision loop: masks, causal, grouped heads, lengths and dims, NaN and inf, threads.
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace coil_kernels_emulated {
extern int64_t emulated_products;
}

namespace coil::testing {
namespace {

enum class Mask { none, boolean, additive, row_broadcast, column_broadcast, additive_row_broadcast, row_copies, additive_row_copies, turned, heads_innermost };

struct AttentionCase {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim, v_dim;
  Mask mask = Mask::none;
  bool causal = false;
  bool length_major = false;  // memory is [batch][length][heads][dim], as after a linear layer
  double masked_out = 0.3;    // of the mask
  float poison = 0;           // put into one query, if not 0
  int32_t block_tiles = 0, block_panels = 0;
  bool last_row_differs = false;  // of copied rows
  float lowest = -INFINITY;       // what an additive mask has there
  float highest_fill = NAN;
  bool hidden_nan = false;  // a key is NaN that the mask hides
  int64_t filled = -1;      // of a cache: query i sees no key from filled + i on
};

std::string described(const AttentionCase& c, int dtype) {
  std::string s = dtype_name(dtype);
  for (int64_t v : {c.batch, c.heads, c.kv_heads, c.q_len, c.kv_len, c.dim, c.v_dim, static_cast<int64_t>(c.mask), static_cast<int64_t>(c.causal),
                    static_cast<int64_t>(c.length_major), int64_t{c.block_tiles}, int64_t{c.block_panels}}) {
    s += " " + std::to_string(v);
  }
  return s;
}

struct Operand {
  Buffer data;
  int64_t batch, head, row;
  Operand(int dtype, const AttentionCase& c, int64_t heads, int64_t length, int64_t dim) : data(dtype, std::max<int64_t>(1, c.batch * heads * length * dim)) {
    batch = heads * length * dim;
    head = c.length_major ? dim : length * dim;
    row = c.length_major ? heads * dim : dim;
  }
  float at(int64_t b, int64_t h, int64_t i, int64_t d) const { return data.get(b * batch + h * head + i * row + d); }
};

// float32: the scores, of up to 10 or so, are good to a few ULP; exp makes that a relative error of the weights.
// bfloat16: dot products round each weight as well; `size` is what the result would be of values without signs.
double bound(int dtype, double want, double size) {
  return dtype == COIL_FLOAT32 ? 3e-6 : 3e-6 + tolerance(dtype, want, 1) + (dtype == COIL_BFLOAT16 ? size / 256 : 0);
}

void check_one(const AttentionCase& c, int dtype, bool masked_rows_zero = true) {
  SCOPED_TRACE(described(c, dtype));
  std::mt19937 random(7);
  Operand q(dtype, c, c.heads, c.q_len, c.dim), k(dtype, c, c.kv_heads, c.kv_len, c.dim);
  Operand v(dtype, c, c.kv_heads, c.kv_len, c.v_dim);
  for (Operand* x : {&q, &k, &v}) x->data.fill(random);
  for (int64_t i = 0; i < q.data.count(); i++) q.data.set(i, 4 * q.data.get(i));  // scores of some spread
  if (c.poison != 0) q.data.set(0, c.poison);
  if (c.hidden_nan) {
    for (int64_t d = 0; d < c.dim; d++) k.data.set(3 * k.row + d, NAN);
  }
  CoilAttention args = {};
  args.batch = c.batch, args.heads = c.heads, args.kv_heads = c.kv_heads, args.q_len = c.q_len, args.kv_len = c.kv_len;
  args.dim = c.dim, args.v_dim = c.v_dim, args.dtype = dtype, args.causal = c.causal, args.masked_rows_zero = masked_rows_zero;
  args.block_tiles = c.block_tiles, args.block_panels = c.block_panels;
  args.scale = 1.0f / std::sqrt(static_cast<float>(c.dim)), args.highest_fill = c.highest_fill;
  args.q = q.data.data(), args.q_batch = q.batch, args.q_head = q.head, args.q_row = q.row;
  args.k = k.data.data(), args.k_batch = k.batch, args.k_head = k.head, args.k_row = k.row;
  args.v = v.data.data(), args.v_batch = v.batch, args.v_head = v.head, args.v_row = v.row;
  args.mask_dtype = c.mask == Mask::boolean || c.mask == Mask::row_broadcast || c.mask == Mask::row_copies ? COIL_BOOL : dtype;
  if (c.mask == Mask::boolean || c.mask == Mask::additive || c.mask == Mask::row_copies || c.mask == Mask::additive_row_copies) {
    args.mask_batch = c.q_len * c.kv_len, args.mask_row = c.kv_len, args.mask_col = 1;  // shared by the heads
  } else if (c.mask == Mask::row_broadcast || c.mask == Mask::additive_row_broadcast) {
    args.mask_batch = c.kv_len, args.mask_col = 1;  // padding of each sequence
  } else if (c.mask == Mask::column_broadcast) {
    args.mask_batch = c.heads * c.q_len, args.mask_head = c.q_len, args.mask_row = 1;
  } else if (c.mask == Mask::turned) {
    args.mask_batch = c.q_len * c.kv_len, args.mask_row = 1, args.mask_col = c.q_len;
  } else if (c.mask == Mask::heads_innermost) {
    args.mask_head = 1, args.mask_row = c.kv_len * c.heads, args.mask_col = c.heads;
  }
  Buffer mask(args.mask_dtype, std::max<int64_t>(1, c.batch * c.heads * c.q_len * c.kv_len));
  std::uniform_real_distribution<double> chance(0, 1);
  for (int64_t i = 0; i < mask.count(); i++) {
    const bool out = chance(random) < c.masked_out;
    mask.set(i, args.mask_dtype == COIL_BOOL ? !out : out ? c.lowest : static_cast<float>(chance(random)));
  }
  if (c.mask == Mask::row_copies || c.mask == Mask::additive_row_copies) {
    for (int64_t i = 0; i < c.batch * c.q_len * c.kv_len; i++) mask.set(i, mask.get(i / (c.q_len * c.kv_len) * (c.q_len * c.kv_len) + i % c.kv_len));
    if (c.last_row_differs) mask.set(c.q_len * c.kv_len - 1, args.mask_dtype == COIL_BOOL ? 1 - mask.get(c.kv_len - 1) : 0.25f);
  }
  for (int64_t i = 0; c.filled >= 0 && i < c.batch * c.q_len; i++) {
    for (int64_t j = c.filled + i % c.q_len; j < c.kv_len; j++) mask.set(i * c.kv_len + j, 0);
  }
  for (int64_t h = 0; c.hidden_nan && h < c.heads; h++) {
    for (int64_t i = 0; i < c.q_len; i++) mask.set(h * args.mask_head + i * args.mask_row + 3 * args.mask_col, args.mask_dtype == COIL_BOOL ? 0 : c.lowest);
  }
  if (c.mask != Mask::none) args.mask = mask.data();
  Operand shape(dtype, c, c.heads, c.q_len, c.v_dim);
  args.o_batch = shape.batch, args.o_head = shape.head, args.o_row = shape.row;

  std::vector<double> want(c.batch * c.heads * c.q_len * c.v_dim), sizes(want.size());
  for (int64_t b = 0; b < c.batch; b++) {
    for (int64_t h = 0; h < c.heads; h++) {
      const int64_t kvh = h / (c.heads / c.kv_heads);
      for (int64_t i = 0; i < c.q_len; i++) {
        std::vector<double> p(c.kv_len);
        double most = -INFINITY, sum = 0;
        bool nan = false;
        for (int64_t j = 0; j < c.kv_len; j++) {
          for (int64_t d = 0; d < c.dim; d++) p[j] += static_cast<double>(q.at(b, h, i, d)) * args.scale * k.at(b, kvh, j, d);
          if (args.mask) {
            const float m = mask.get(b * args.mask_batch + h * args.mask_head + i * args.mask_row + j * args.mask_col);
            const double more = args.mask_dtype == COIL_BOOL ? (m != 0 ? 0 : -INFINITY) : m;
            p[j] = more <= c.highest_fill ? more : p[j] + more;
          }
          if (c.causal && j > i) p[j] = -INFINITY;
          nan |= std::isnan(p[j]);
          most = std::max(most, p[j]);
        }
        for (double& x : p) sum += x = std::exp(x - most);
        for (int64_t d = 0; d < c.v_dim; d++) {
          double o = 0, size = 0;
          for (int64_t j = 0; j < c.kv_len; j++) {
            o += p[j] * v.at(b, kvh, j, d);
            size += p[j] * std::fabs(v.at(b, kvh, j, d));
          }
          sizes[((b * c.heads + h) * c.q_len + i) * c.v_dim + d] = size > 0 ? size / sum : 0;
          const bool masked = most == -INFINITY && !nan;
          want[((b * c.heads + h) * c.q_len + i) * c.v_dim + d] = masked ? (masked_rows_zero || c.kv_len == 0 ? 0 : NAN) : o / sum;
        }
      }
    }
  }
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Operand first = shape;
    for (int workers : {1, 3}) {
      TestHost host(workers);
      Operand o = shape;
      Scratch scratch(coil_attention_scratch_bytes(&args, workers));
      args.o = o.data.data(), args.scratch = scratch.data();
      isa.attention(&args, host.get());
      int wrong = 0;
      for (size_t i = 0; i < want.size(); i++) {
        const int64_t d = i % c.v_dim, row = i / c.v_dim % c.q_len;
        const int64_t h = i / c.v_dim / c.q_len % c.heads, b = i / c.v_dim / c.q_len / c.heads;
        const float got = o.at(b, h, row, d);
        const bool fine = std::isnan(want[i]) ? std::isnan(got) : std::fabs(got - want[i]) <= bound(dtype, want[i], sizes[i]);
        if (!fine && wrong++ < 3) {
          ADD_FAILURE() << "(" << b << "," << h << "," << row << "," << d << ") is " << got << ", should be " << want[i];
        }
      }
      ASSERT_EQ(wrong, 0);
      ASSERT_TRUE(o.data.guards_intact());
      ASSERT_TRUE(scratch.guards_intact());
      if (workers == 1) first = o;
      ASSERT_TRUE(o.data == first.data) << "threads changed the result";
    }
  }
}

void check_attention(const AttentionCase& c) {
  for (int dtype : kDtypes) check_one(c, dtype);
}

TEST(Attention, Lengths) {
  for (int64_t q_len : {0, 1, 2, 15, 55, 57, 113}) {
    for (int64_t kv_len : {0, 1, 31, 33, 256, 259}) {
      for (bool length_major : {false, true}) {
        check_attention({2, 3, 3, q_len, kv_len, 16, 16, Mask::none, false, length_major});
        check_attention({1, 2, 2, q_len, kv_len, 32, 64, Mask::none, true, length_major});
      }
    }
  }
}

TEST(Attention, Dims) {
  for (int64_t dim : {1, 2, 7, 8, 33, 64, 80, 128, 255, 256}) {
    check_attention({1, 2, 1, 20, 40, dim, dim});
    check_attention({1, 2, 2, 1, 300, dim, 257 - dim, Mask::none, false, true});
  }
}

TEST(Attention, Masks) {
  for (Mask mask : {Mask::boolean, Mask::additive, Mask::row_broadcast, Mask::column_broadcast, Mask::additive_row_broadcast}) {
    for (bool causal : {false, true}) {
      check_attention({2, 4, 4, 70, 300, 24, 24, mask, causal});
      check_attention({2, 4, 2, 1, 45, 64, 64, mask, causal, true});
      check_attention({2, 2, 1, 9, 10, 8, 8, mask, causal, false, 0.8});
      for (int dtype : kDtypes) check_one({2, 2, 1, 9, 10, 8, 8, mask, causal, false, 1.0}, dtype, true);
      for (int dtype : kDtypes) check_one({2, 2, 1, 9, 10, 8, 8, mask, causal, false, 0.9}, dtype, false);
    }
  }
}

// Prompts and tokens over caches that are filled in part: what lies behind is not looked at, and rows may see nothing.
TEST(Attention, CachesFilledInPart) {
  for (int64_t filled : {0, 1, 31, 100, 255, 256, 290}) {
    for (int64_t q_len : {1, 2, 5, 17, 33, 64, 130}) {
      for (double masked_out : {0.0, 0.5}) {
        AttentionCase c = {2, 4, 2, q_len, 300, 24, 40, Mask::boolean, false, filled % 2 == 0, masked_out};
        c.filled = filled;
        for (int dtype : kDtypes) check_one(c, dtype, filled != 1);
      }
    }
  }
}

// A row that sees nothing but the lowest of numbers sees all of it.
TEST(Attention, LowestMasks) {
  for (Mask mask : {Mask::additive, Mask::additive_row_broadcast}) {
    AttentionCase c = {2, 2, 2, 64, 40, 16, 16, mask};
    c.lowest = std::numeric_limits<float>::lowest();
    for (double masked_out : {0.3, 1.0}) {
      c.masked_out = masked_out;
      check_one(c, COIL_FLOAT32);
    }
  }
}

// Numbers that take the scores' place: what is hidden may be NaN, and rows of nothing else see all keys alike.
TEST(Attention, Fills) {
  for (Mask mask : {Mask::boolean, Mask::additive, Mask::row_broadcast, Mask::additive_row_broadcast, Mask::turned, Mask::heads_innermost}) {
    for (float fill : {-INFINITY, std::numeric_limits<float>::lowest(), -0x1p30f, -0x1p14f, -3.0f}) {
      for (int64_t q_len : {1, 3, 64}) {
        AttentionCase c = {1, 2, 2, q_len, 40, 16, 16, mask};
        c.lowest = c.highest_fill = fill, c.hidden_nan = true;
        for (double masked_out : {0.3, 1.0}) {
          c.masked_out = masked_out;
          for (int dtype : kDtypes) check_one(c, dtype);
        }
      }
    }
  }
}

// Rows that are copies of one, and those that are not quite.
TEST(Attention, CopiedMasks) {
  for (Mask mask : {Mask::row_copies, Mask::additive_row_copies}) {
    for (int64_t kv_len : {5, 64, 131}) {
      AttentionCase c = {3, 2, 2, 64, kv_len, 16, 16, mask};
      check_attention(c);
      c.last_row_differs = true;
      check_attention(c);
    }
  }
}

TEST(Attention, ManyQueries) {
  for (int64_t q_len : {32, 48, 64, 97, 197}) {
    for (int64_t kv_len : {1, 13, 14, 27, 28, 197, 270}) {
      for (bool causal : {false, true}) check_attention({1, 3, 3, q_len, kv_len, 64, 33, Mask::none, causal, true});
    }
  }
  for (int64_t dim : {1, 7, 80, 255, 256}) check_attention({1, 4, 2, 64, 40, dim, 257 - dim, Mask::row_broadcast, true});
  for (int64_t dim : {1, 64, 170, 256}) {  // blocks of fewer keys, since their copies are larger
    for (bool causal : {false, true}) check_attention({1, 2, 1, 70, 301, dim, dim, Mask::none, causal, true});
  }
  for (double masked_out : {0.9, 1.0}) {
    for (bool zero : {false, true}) {
      for (int dtype : kDtypes) check_one({3, 2, 2, 64, 30, 8, 8, Mask::row_broadcast, true, false, masked_out}, dtype, zero);
    }
  }
}

// The last query of 65, which is computed alone, with more keys than are kept for one.
TEST(Attention, ALastQueryOfManyKeys) {
  for (int64_t kv_len : {5, 8192, 8193}) check_attention({1, 1, 1, 65, kv_len, 16, 24});
}

// Masks of many queries that differ from query to query, in any order in memory.
TEST(Attention, MasksOfManyQueries) {
  for (Mask mask : {Mask::boolean, Mask::additive, Mask::column_broadcast, Mask::turned, Mask::heads_innermost}) {
    for (int64_t q_len : {32, 49, 50, 63, 64, 97, 113}) {
      for (int64_t kv_len : {1, 49, 64, 259}) check_one({2, 3, 3, q_len, kv_len, 32, 17, mask, kv_len == 64, true}, COIL_FLOAT32);
    }
    check_attention({3, 4, 2, 49, 49, 32, 32, mask, false, true});
    for (int64_t q_len : {33, 34, 41, 65, 81}) check_attention({2, 2, 1, q_len, 77, q_len == 41 ? 38 : 37, 70, mask, q_len == 65, true});
    for (double masked_out : {0.97, 1.0}) {
      for (bool zero : {false, true}) {
        for (int dtype : kDtypes) check_one({2, 2, 2, 49, 10, 8, 8, mask, true, false, masked_out}, dtype, zero);
      }
    }
    for (float poison : {static_cast<float>(NAN), static_cast<float>(INFINITY)}) check_attention({1, 2, 2, 49, 30, 16, 16, mask, false, false, 0.3, poison});
  }
  AttentionCase c = {2, 2, 2, 49, 40, 16, 16, Mask::turned};
  c.lowest = std::numeric_limits<float>::lowest();
  for (double masked_out : {0.3, 1.0}) {
    c.masked_out = masked_out;
    check_one(c, COIL_FLOAT32);
  }
}

TEST(Attention, GroupedHeads) {
  check_attention({2, 8, 2, 1, 500, 64, 64});
  check_attention({1, 32, 8, 5, 77, 128, 128, Mask::none, true, true});
  check_attention({1, 6, 1, 40, 77, 40, 24, Mask::additive, true, true});
  check_attention({1, 71, 1, 3, 50, 64, 64});
}

TEST(Attention, NotFinite) {
  for (float poison : {static_cast<float>(NAN), static_cast<float>(INFINITY), -static_cast<float>(INFINITY)}) {
    check_one({1, 2, 2, 20, 300, 16, 16, Mask::none, false, false, 0, poison}, COIL_FLOAT32);
    check_one({1, 2, 2, 20, 300, 16, 16, Mask::boolean, false, false, 0.3, poison}, COIL_FLOAT32);
    check_one({1, 1, 1, 1, 3, 16, 16, Mask::none, true, false, 0, poison}, COIL_FLOAT32);
    check_one({1, 2, 2, 64, 300, 16, 16, Mask::row_broadcast, true, false, 0.3, poison}, COIL_FLOAT32);
  }
}

// Two keys with scores 0 and -x, values 0 and 1: the result is exp(-x) / (1 + exp(-x)), so the error of exp shows.
// What a tuner may ask for, and more than there is.
TEST(Attention, Blocks) {
  for (int32_t tiles : {0, 1, 3, 9, 99}) {
    for (int32_t panels : {0, 1, 2, 5, 8, 99}) {
      AttentionCase c = {2, 4, 2, 59, 301, 40, 72};
      c.block_tiles = tiles, c.block_panels = panels;
      check_one(c, COIL_FLOAT32);
      c.causal = true, c.mask = Mask::boolean;
      check_one(c, COIL_BFLOAT16);
      c.q_len = 3;  // heads share keys
      check_one(c, COIL_FLOAT32);
    }
  }
}

TEST(Attention, Exponential) {
  for (const IsaKernels& isa : runnable_kernels()) {
    const TestHost host(1);
    Scratch scratch(COIL_ATTENTION_WORKER_BYTES);
    double worst = 0;
    for (float x = 0; x < 100; x += x < 2 ? 0.001f : 0.0137f) {
      const float q = -x, k[2] = {0, 1}, v[2] = {0, 1};
      float o = -1;
      CoilAttention args = {};
      args.batch = args.heads = args.kv_heads = args.q_len = args.dim = args.v_dim = 1, args.kv_len = 2;
      args.q = &q, args.k = k, args.v = v, args.o = &o, args.k_row = args.v_row = 1, args.scale = 1, args.highest_fill = NAN, args.dtype = COIL_FLOAT32;
      args.scratch = scratch.data();
      isa.attention(&args, host.get());
      const double want = std::exp(-static_cast<double>(x)) / (1 + std::exp(-static_cast<double>(x)));
      if (x > 87) {
        ASSERT_LE(o, 2e-38) << x;
      } else {
        worst = std::max(worst, std::fabs(o / want - 1) / 0x1p-23);
      }
    }
    // Besides exp, three roundings.
    EXPECT_LE(worst, 1.5) << isa.name;
    RecordProperty(std::string("worst_ulp_") + isa.name, std::to_string(worst));
  }
}

// Many queries of bfloat16 are the matrix unit's: registers of 16 x 16 sums, 32 numbers of what is summed over each. Pairs of an odd dim are none.
TEST(Attention, MatrixUnit) {
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "exponentials become pairs by instructions of avx512bf16";
  const auto products = [](const AttentionCase& c, int dtype) {
    const int64_t before = coil_kernels_emulated::emulated_products;
    check_one(c, dtype);
    return (coil_kernels_emulated::emulated_products - before) / 2;  // by one thread, and by three
  };
  EXPECT_EQ(products({1, 1, 1, 32, 32, 64, 32}, COIL_BFLOAT16), 2 * 2 * 2 + 2 * 2 * 1);
  EXPECT_EQ(products({1, 1, 1, 32, 33, 40, 16}, COIL_BFLOAT16), 3 * 2 * 2 + 1 * 2 * 2);
  for (int64_t kv_len : {1, 15, 17, 48, 255, 257, 545}) {
    for (int64_t dim : {2, 30, 34, 80, 256}) {
      for (bool causal : {false, true}) EXPECT_GT(products({1, 2, 1, 49, kv_len, dim, 257 - dim, Mask::none, causal, true}, COIL_BFLOAT16), 0);
    }
  }
  EXPECT_EQ(products({1, 1, 1, 32, 32, 63, 32}, COIL_BFLOAT16), 0);
  EXPECT_EQ(products({1, 1, 1, 32, 32, 64, 32}, COIL_FLOAT16), 0);
}

TEST(Attention, LongSequences) {
  check_one({1, 2, 2, 600, 600, 64, 64, Mask::none, true, true}, COIL_FLOAT32);
  check_one({1, 2, 2, 300, 1000, 64, 64, Mask::additive, false, true}, COIL_BFLOAT16);
}

}  // namespace
}  // namespace coil::testing
