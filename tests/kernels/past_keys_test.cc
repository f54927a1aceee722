// coil_attention with the first keys and values elsewhere, against the same call with all of them in one place; copies bit by bit.
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace coil::testing {
namespace {

struct PastCase {
  int64_t batch, heads, kv_heads, q_len, past, rest, dim, v_dim;
  bool causal = false, masked = false, length_major = false, keep_k = true, keep_v = true;
  int64_t between = 0;  // elements between heads, so that they begin at any address
};

// Keys or values: whole, their first rows alone, and the whole as a call finds it that has yet to copy those.
struct Rows {
  Buffer whole, past, joined;
  int64_t batch, head, row, past_batch, past_head, past_row, dim;

  Rows(const PastCase& c, int dtype, int64_t width, std::mt19937& random)
      : whole(dtype, count(c, c.past + c.rest, width)), past(dtype, count(c, c.past, width)), joined(dtype, whole.count()), dim(width) {
    head = c.length_major ? width : (c.past + c.rest) * width + c.between, row = c.length_major ? c.kv_heads * width : width;
    past_head = c.length_major ? width : c.past * width + c.between, past_row = row;
    batch = c.kv_heads * ((c.past + c.rest) * width + c.between), past_batch = c.kv_heads * (c.past * width + c.between);
    whole.fill(random);
    for (int64_t i = 0; i < whole.count(); i++) joined.set(i, 9);  // what is between heads, or read too early, shows
    each(c, [&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const float x = whole.get(b * batch + h * head + r * row + d);
      if (r < c.past) past.set(b * past_batch + h * past_head + r * past_row + d, x);
      else joined.set(b * batch + h * head + r * row + d, x);
    });
  }
  static int64_t count(const PastCase& c, int64_t rows, int64_t width) { return std::max<int64_t>(1, c.batch * c.kv_heads * (rows * width + c.between)); }

  template <class F>
  void each(const PastCase& c, F f) const {
    for (int64_t b = 0; b < c.batch; b++) {
      for (int64_t h = 0; h < c.kv_heads; h++) {
        for (int64_t r = 0; r < c.past + c.rest; r++) {
          for (int64_t d = 0; d < dim; d++) f(b, h, r, d);
        }
      }
    }
  }
  // What `joined` is to be after the call.
  Buffer copied(const PastCase& c, bool kept) const {
    Buffer want = joined;
    each(c, [&](int64_t b, int64_t h, int64_t r, int64_t d) {
      const int64_t i = b * batch + h * head + r * row + d;
      if (kept && r < c.past) want.set(i, whole.get(i));
    });
    return want;
  }
};

const void* element(const Buffer& b, int64_t i) { return static_cast<const char*>(b.data()) + i * static_cast<int64_t>(b.size()); }

void check(const PastCase& c, int dtype) {
  std::string text = std::to_string(dtype);
  for (int64_t n : {c.batch, c.heads, c.kv_heads, c.q_len, c.past, c.rest, c.dim, c.v_dim, int64_t{c.causal}, int64_t{c.masked}, int64_t{c.length_major}})
    text += " " + std::to_string(n);
  SCOPED_TRACE(text);
  std::mt19937 random(5);
  Buffer q(dtype, std::max<int64_t>(1, c.batch * c.heads * c.q_len * c.dim)), mask(COIL_BOOL, c.past + c.rest),
      o(dtype, std::max<int64_t>(1, c.batch * c.heads * c.q_len * c.v_dim));
  q.fill(random);
  const Rows k(c, dtype, c.dim, random), v(c, dtype, c.v_dim, random);
  for (int64_t i = 0; i < mask.count(); i++) mask.set(i, i % 5 != 3);
  CoilAttention args = {};
  args.batch = c.batch, args.heads = c.heads, args.kv_heads = c.kv_heads, args.q_len = c.q_len, args.kv_len = c.past + c.rest, args.dim = c.dim,
  args.v_dim = c.v_dim;
  args.q = q.data(), args.q_batch = c.heads * c.q_len * c.dim, args.q_head = c.q_len * c.dim, args.q_row = c.dim;
  args.k = k.whole.data(), args.k_batch = k.batch, args.k_head = k.head, args.k_row = k.row;
  args.v = v.whole.data(), args.v_batch = v.batch, args.v_head = v.head, args.v_row = v.row;
  if (c.masked) args.mask = mask.data(), args.mask_col = 1, args.mask_dtype = COIL_BOOL;
  args.causal = c.causal, args.masked_rows_zero = 1, args.dtype = dtype, args.scale = 0.5f, args.highest_fill = NAN;
  args.o_batch = c.heads * c.q_len * c.v_dim, args.o_head = c.q_len * c.v_dim, args.o_row = c.v_dim;
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Buffer want = o, first = o;
    for (int workers : {1, 3, 7}) {
      const TestHost host(workers);
      Scratch scratch(coil_attention_scratch_bytes(&args, workers));
      CoilAttention whole = args, joined = args;
      whole.o = want.data(), whole.scratch = scratch.data();
      isa.attention(&whole, host.get());
      Rows to_k = k, to_v = v;
      Buffer got = o;
      joined.o = got.data(), joined.scratch = scratch.data();
      joined.past = c.past, joined.keep_k_past = c.keep_k, joined.keep_v_past = c.keep_v;
      joined.k_past = k.past.data(), joined.k_past_batch = k.past_batch, joined.k_past_head = k.past_head, joined.k_past_row = k.past_row;
      joined.v_past = v.past.data(), joined.v_past_batch = v.past_batch, joined.v_past_head = v.past_head, joined.v_past_row = v.past_row;
      joined.k = element(to_k.joined, c.past * k.row), joined.v = element(to_v.joined, c.past * v.row);
      isa.attention(&joined, host.get());
      ASSERT_TRUE(to_k.joined == k.copied(c, c.keep_k)) << "keys";
      ASSERT_TRUE(to_v.joined == v.copied(c, c.keep_v)) << "values";
      // Other blocks of keys: other orders of the same sums.
      for (int64_t i = 0; i < c.batch * c.heads * c.q_len * c.v_dim; i++)
        ASSERT_NEAR(got.get(i), want.get(i), dtype == COIL_FLOAT32 ? 3e-6 : dtype == COIL_BFLOAT16 ? 2e-2 : 2e-3) << i;
      ASSERT_TRUE(got.guards_intact() && scratch.guards_intact());
      if (workers == 1) first = got;
      ASSERT_TRUE(got == first) << "threads changed the result";
    }
  }
}

void check_all_dtypes(const PastCase& c) {
  for (int dtype : kDtypes) check(c, dtype);
}

TEST(PastKeys, Lengths) {
  for (int64_t q_len : {0, 1, 3, 17, 65, 130}) {
    for (int64_t past : {0, 1, 31, 33, 256, 259, 520}) {
      for (bool causal : {false, true}) check_all_dtypes({2, 2, 2, q_len, past, std::max<int64_t>(q_len, 1), 16, 24, causal, false, causal});
    }
  }
  check_all_dtypes({1, 2, 2, 1, 40, 0, 16, 16});
}

TEST(PastKeys, Dims) {
  for (int64_t dim : {1, 7, 33, 128, 255}) {
    check_all_dtypes({1, 2, 1, 1, 300, 1, dim, 257 - dim});
    check_all_dtypes({1, 2, 2, 40, 41, 40, dim, 257 - dim, true, false, true});
  }
}

TEST(PastKeys, GroupedHeadsAndMasks) {
  for (int64_t q_len : {1, 20, 97}) {
    for (bool masked : {false, true}) {
      check_all_dtypes({2, 8, 2, q_len, 77, q_len, 32, 32, false, masked});
      check_all_dtypes({1, 6, 3, q_len, 300, 5, 40, 24, true, masked, true});
    }
  }
}

// Copies of one operand, or none; and large ones, which are stored past the caches, to any address.
TEST(PastKeys, WhatIsKept) {
  for (bool k : {false, true}) {
    for (bool v : {false, true}) check_all_dtypes({2, 2, 2, 2, 50, 3, 16, 16, false, false, false, k, v});
  }
  for (int64_t between : {0, 1, 16}) {
    for (bool length_major : {false, true}) check_all_dtypes({2, 4, 4, 1, 700, 1, 64, 64 - between % 2, false, false, length_major, true, true, between});
  }
}

}  // namespace
}  // namespace coil::testing
