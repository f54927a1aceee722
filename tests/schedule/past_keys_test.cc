// Attention over a concatenation: which programs' keys and values are read where their pieces lie, and what is left of the copies.
#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class PastKeysTest : public ScheduledProgram {
 protected:
  View input(const char* name, int64_t rows, DType dtype = DType::f32) {
    const std::vector<Expr> sizes = {batch, pool.index(4), pool.index(rows), pool.index(8)};
    return rec.input(name, dtype, sizes, contiguous_strides(pool, sizes));
  }
  View joined(const char* name, const std::vector<View>& pieces) {
    std::vector<Expr> sizes = pieces[0].sizes;
    for (size_t i = 1; i < pieces.size(); ++i) sizes[2] = sizes[2] + pieces[i].sizes[2];
    return rec.concat(name, DType::f32, sizes, 2, pieces);
  }
  View attention(const View& q, const View& k, const View& v) {
    Attention a;
    a.batch = batch, a.heads = a.kv_heads = pool.index(4);
    a.q_len = q.sizes[2], a.kv_len = k.sizes[2], a.dim = a.v_dim = pool.index(8);
    a.q = rec.operand(q), a.k = rec.operand(k), a.v = rec.operand(v);
    return rec.define("attention", DType::f32, q.sizes, a);
  }
  View doubled(const View& x) {
    return rec.pointwise("double", DType::f32, x.sizes, [&](Coordinates i) { return pool.op(ScalarOp::add, {rec.at(x, i), rec.at(x, i)}); });
  }
  KernelPlan plan(bool joins = true) {
    TargetTraits traits;
    traits.joins_keys = joins;
    auto r = schedule(rec.take(), traits);
    EXPECT_TRUE(r.ok());
    return std::move(r).value();
  }
  static const std::optional<PastKeys>& past_of(const KernelPlan& p) {
    static const std::optional<PastKeys> kNone;
    for (const Kernel& k : p.kernels) {
      if (const auto* t = std::get_if<TemplateKernel>(&k.def)) return t->past;
    }
    return kNone;
  }
  static size_t loops(const KernelPlan& p) {
    size_t n = 0;
    for (const Kernel& k : p.kernels) n += std::holds_alternative<LoopKernel>(k.def);
    return n;
  }

  Expr batch = pool.symbol(pool.add_symbol({"s77", "batch", 1, 64}));
  View q = input("q", 1), cache_k = input("cache_k", 100), cache_v = input("cache_v", 100), new_k = input("new_k", 1), new_v = input("new_v", 1);
};

TEST_F(PastKeysTest, ResultsAreCopiedByAttention) {
  const View k = joined("k", {cache_k, new_k}), v = joined("v", {cache_v, new_v});
  for (const View& x : {attention(q, k, v), k, v}) output(x);
  const KernelPlan p = plan();
  ASSERT_TRUE(past_of(p)) << to_string(p);
  EXPECT_TRUE(past_of(p)->rows == pool.index(100));
  EXPECT_TRUE(past_of(p)->keep_k && past_of(p)->keep_v);
  EXPECT_EQ(loops(p), 2u) << "those of the new rows\n" << to_string(p);
}

TEST_F(PastKeysTest, WhatOnlyAttentionReadsIsNotCopied) {
  output(attention(q, joined("k", {cache_k, new_k}), joined("v", {cache_v, doubled(new_v)})));
  const KernelPlan p = plan();
  ASSERT_TRUE(past_of(p)) << to_string(p);
  EXPECT_FALSE(past_of(p)->keep_k || past_of(p)->keep_v);
  EXPECT_EQ(loops(p), 1u) << "of the new values, which are computed\n" << to_string(p);
}

TEST_F(PastKeysTest, OtherTargetsGetTheWhole) {
  output(attention(q, joined("k", {cache_k, new_k}), joined("v", {cache_v, new_v})));
  const KernelPlan p = plan(false);
  EXPECT_FALSE(past_of(p));
  EXPECT_EQ(loops(p), 4u) << to_string(p);
}

TEST_F(PastKeysTest, AReaderBeforeAttentionNeedsTheWhole) {
  const View k = joined("k", {cache_k, new_k});
  const View last = rec.pointwise("row", DType::f32, q.sizes,
                                  [&](Coordinates i) { return pool.op(ScalarOp::exp, {rec.at(k, std::vector<Expr>{i[0], i[1], pool.index(50), i[3]})}); });
  output(attention(last, k, joined("v", {cache_v, new_v})));
  EXPECT_FALSE(past_of(plan()));
}

TEST_F(PastKeysTest, AReaderBehindItDoesNot) {
  const View k = joined("k", {cache_k, new_k});
  output(attention(q, k, joined("v", {cache_v, new_v})));
  output(doubled(k));
  const KernelPlan p = plan();
  ASSERT_TRUE(past_of(p)) << to_string(p);
  EXPECT_TRUE(past_of(p)->keep_k);
  EXPECT_FALSE(past_of(p)->keep_v);
}

TEST_F(PastKeysTest, FewRowsAreReadWithTheOthers) {
  const View prefix_k = input("prefix_k", 10), prefix_v = input("prefix_v", 10);
  output(attention(q, joined("k", {prefix_k, cache_k}), joined("v", {prefix_v, cache_v})));
  EXPECT_FALSE(past_of(plan()));
}

TEST_F(PastKeysTest, PastsOfDifferentLengthsAreNotTold) {
  output(attention(q, joined("k", {cache_k, new_k}), joined("v", {input("shorter", 99), input("longer", 2)})));
  EXPECT_FALSE(past_of(plan()));
}

TEST_F(PastKeysTest, ConvertedPiecesAreCopied) {
  output(attention(q, joined("k", {input("cache_16", 100, DType::bf16), new_k}), joined("v", {cache_v, new_v})));
  EXPECT_FALSE(past_of(plan()));
}

}  // namespace
}  // namespace coil
