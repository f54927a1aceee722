// Small graphs: what their loops look like, and what is refused.
#include "lower/lower.h"

#include <gtest/gtest.h>

#include <limits>

#include "lower/pipeline.h"

namespace coil {
namespace {

class LowerTest : public ::testing::Test {
 protected:
  LowerTest() {
    graph.pool = std::make_shared<ExprPool>();
    graph.functional = true;
  }
  ExprPool& pool() { return *graph.pool; }
  Expr dim(int64_t n) { return pool().index(n); }
  std::vector<Expr> dims(std::initializer_list<int64_t> list) {
    std::vector<Expr> r;
    for (int64_t n : list) r.push_back(dim(n));
    return r;
  }
  TensorType type(std::vector<Expr> sizes, DType dtype = DType::f32) { return {dtype, sizes, contiguous_strides(pool(), sizes), DeviceType::cpu}; }
  ValueId input(const std::string& name, std::vector<Expr> sizes, DType dtype = DType::f32) {
    const ValueId id = graph.add_value({name, type(std::move(sizes), dtype), NodeId()});
    GraphInput in;
    in.value = id;
    in.name = name;
    graph.inputs.push_back(std::move(in));
    return id;
  }
  ValueId node(const std::string& target, std::vector<std::pair<std::string, Argument>> args, std::vector<Expr> sizes, DType dtype = DType::f32) {
    Node n;
    n.target = target;
    n.name = "n" + std::to_string(graph.nodes.size());
    n.origins = {{"net", "net.py:7 in forward", "y = f(x)"}};
    for (auto& [name, value] : args) {
      n.arg_names.push_back(name);
      n.args.push_back(std::move(value));
    }
    const ValueId id = graph.add_value({n.name, type(std::move(sizes), dtype), NodeId(graph.nodes.size())});
    n.outputs = {id};
    graph.nodes.push_back(std::move(n));
    return id;
  }
  void output(ValueId id) {
    GraphOutput out;
    out.value = id;
    out.name = "out";
    graph.outputs.push_back(std::move(out));
  }
  std::string text(const LowerOptions& options = {}) {
    auto program = lower(graph, options);
    if (program.ok()) program = run_loop_passes(std::move(program).value(), {options, {"fold_constants", "demanded_ranges"}, {}});
    return program.ok() ? to_string(program.value()) : program.error().to_string();
  }
  Graph graph;
};

TEST_F(LowerTest, ViewsAreCoordinates) {
  ValueId x = input("x", dims({2, 6}));
  ValueId t = node("aten.permute.default", {{"self", x}, {"dims", dims({1, 0})}}, dims({6, 2}));
  ValueId r = node("aten.reshape.default", {{"self", t}, {"shape", dims({3, 4})}}, dims({3, 4}));
  output(node("aten.exp.default", {{"self", r}}, dims({3, 4})));
  EXPECT_EQ(text(),
            "input x: f32[2, 6]\n"
            "exp: f32[3, 4] = [i0, i1] exp(load(x, i1%2, 2*i0 + i1//2))\n"
            "output exp named \"out\"\n");
}

TEST_F(LowerTest, AFlattenedOperandOfAProductIsUnflattened) {
  Expr b = pool().symbol(pool().add_symbol({"s0", "batch", 1, 64})), s = pool().symbol(pool().add_symbol({"s1", "seq", 1, 64}));
  ValueId x = input("x", {b, s, dim(8)}), w = input("w", dims({8, 4})), bias = input("bias", dims({4}));
  ValueId flat = node("aten.view.default", {{"self", x}, {"size", std::vector<Expr>{b * s, dim(8)}}}, {b * s, dim(8)});
  ValueId y = node("aten.addmm.default", {{"self", bias}, {"mat1", flat}, {"mat2", w}, {"beta", dim(1)}, {"alpha", dim(1)}}, {b * s, dim(4)});
  output(node("aten.view.default", {{"self", y}, {"size", std::vector<Expr>{b, s, dim(4)}}}, {b, s, dim(4)}));
  EXPECT_EQ(text(),
            "size batch = s0 in 1 to 64\n"
            "size seq = s1 in 1 to 64\n"
            "input x: f32[batch, seq, 8]\n"
            "input w: f32[8, 4]\n"
            "input bias: f32[4]\n"
            "addmm: f32[batch, seq, 4] = gemm batch [] m [batch, seq] n [4] k [8]: x[i0, i1, i3] * w[i3, i2]\n"
            "addmm.bias: f32[batch, seq, 4] = [i0, i1, i2] load(addmm, i0, i1, i2) + load(bias, i2)\n"
            "output addmm.bias named \"out\"\n");
}

TEST_F(LowerTest, AnInputGivenBackIsCopiedAndOutputsAreDistinct) {
  ValueId x = input("x", dims({2}));
  ValueId y = node("aten.neg.default", {{"self", x}}, dims({2}));
  output(x);
  output(y);
  output(y);
  EXPECT_EQ(text(),
            "input x: f32[2]\n"
            "neg: f32[2] = [i0] -load(x, i0)\n"
            "output: f32[2] = [i0] load(x, i0)\n"
            "output_1: f32[2] = [i0] load(neg, i0)\n"
            "output output named \"out\"\n"
            "output neg named \"out\"\n"
            "output output_1 named \"out\"\n");
}

TEST_F(LowerTest, TrueDivisionOfIntegersIsFloatingAndBooleansAddAsOr) {
  ValueId i = input("i", dims({2}), DType::i32), b = input("b", dims({2}), DType::boolean);
  output(node("aten.div.Tensor", {{"self", i}, {"other", dim(2)}}, dims({2})));
  output(node("aten.add.Tensor", {{"self", b}, {"other", b}, {"alpha", dim(1)}}, dims({2}), DType::boolean));
  EXPECT_EQ(text(),
            "input i: i32[2]\n"
            "input b: bool[2]\n"
            "div: f32[2] = [i0] to_f32(load(i, i0)) / 2.0\n"
            "add: bool[2] = [i0] load(b, i0)\n"
            "output div named \"out\"\n"
            "output add named \"out\"\n");
}

// The template's result is of its operands' type; what a file says may be another one.
TEST_F(LowerTest, AttentionOfAnotherTypeThanItsOperandsIsNoTemplate) {
  ValueId q = input("q", dims({2, 4, 6, 8}));
  output(node("aten.scaled_dot_product_attention.default",
              {{"query", q}, {"key", q}, {"value", q}, {"attn_mask", NoneArg{}}, {"dropout_p", 0.0}, {"is_causal", false}, {"scale", 0.5}}, dims({2, 4, 6, 8}),
              DType::f64));
  const std::string found = text();
  EXPECT_EQ(found.find("= attention "), std::string::npos) << found;
  EXPECT_NE(found.find("f64[2, 4, 6, 8]"), std::string::npos) << found;
}

TEST_F(LowerTest, AMaskMadeOfPositionsIsTheCausalFlag) {
  Expr s = pool().symbol(pool().add_symbol({"s0", "seq", 1, 64}));
  ValueId q = input("q", {dim(2), dim(4), s, dim(8)});
  ValueId at = node("aten.arange.start_step", {{"start", dim(0)}, {"end", s}, {"step", dim(1)}}, {s}, DType::i64);
  ValueId next = node("aten.add.Tensor", {{"self", at}, {"other", dim(1)}, {"alpha", dim(1)}}, {s}, DType::i64);
  ValueId row = node("aten.unsqueeze.default", {{"self", next}, {"dim", dim(1)}}, {s, dim(1)}, DType::i64);
  ValueId mask = node("aten.lt.Tensor", {{"self", at}, {"other", row}}, {s, s}, DType::boolean);
  output(node("aten.scaled_dot_product_attention.default",
              {{"query", q}, {"key", q}, {"value", q}, {"attn_mask", mask}, {"dropout_p", 0.0}, {"is_causal", false}, {"scale", 0.5}},
              {dim(2), dim(4), s, dim(8)}));
  EXPECT_EQ(
      text(),
      "size seq = s0 in 1 to 64\n"
      "input q: f32[2, 4, seq, 8]\n"
      "attention: f32[2, 4, seq, 8] = attention batch 2 heads 4 kv_heads 4 queries seq keys seq dim 8 v_dim 8 scale 0.5 causal: q q[i0, i1, i2, i3] k q[i0, i1, i2, i3] v q[i0, i1, i2, i3]\n"
      "output attention named \"out\"\n");
}

TEST_F(LowerTest, ASpelledOutAttentionIsFoundUnlessItsScoresAreUsedElsewhere) {
  ValueId q = input("q", dims({2, 4, 5, 8})), k = input("k", dims({2, 4, 8, 6})), v = input("v", dims({2, 4, 6, 8}));
  ValueId scores = node("aten.matmul.default", {{"self", q}, {"other", k}}, dims({2, 4, 5, 6}));
  ValueId scaled = node("aten.mul.Tensor", {{"self", scores}, {"other", 0.25}}, dims({2, 4, 5, 6}));
  ValueId weights = node("aten.softmax.int", {{"self", scaled}, {"dim", dim(-1)}, {"dtype", NoneArg{}}}, dims({2, 4, 5, 6}));
  ValueId result = node("aten.matmul.default", {{"self", weights}, {"other", v}}, dims({2, 4, 5, 8}));
  output(node("aten.relu.default", {{"self", result}}, dims({2, 4, 5, 8})));
  EXPECT_NE(text().find(
                "attention batch 2 heads 4 kv_heads 4 queries 5 keys 6 dim 8 v_dim 8 scale 0.25: q q[i0, i1, i2, i3] k k[i0, i1, i3, i2] v v[i0, i1, i2, i3]"),
            std::string::npos)
      << text();
  output(weights);
  EXPECT_EQ(text().find("= attention"), std::string::npos) << text();
  EXPECT_NE(text().find("softmax.max"), std::string::npos);
}

// PyTorch's math form of bfloat16: widened, scaled on both sides, a mask that says yes everywhere, and rows of nothing but -inf are 0.
TEST_F(LowerTest, AWidenedAttentionWithASafeSoftmaxIsFound) {
  const auto wide = [&](const char* name, std::vector<Expr> sizes) {
    return node("aten._to_copy.default", {{"self", input(name, sizes, DType::bf16)}, {"dtype", DType::f32}}, sizes);
  };
  ValueId q = node("aten.mul.Scalar", {{"self", wide("q", dims({2, 4, 5, 8}))}, {"other", 0.5}}, dims({2, 4, 5, 8}));
  ValueId k = node("aten.mul.Scalar", {{"self", wide("k", dims({2, 4, 8, 6}))}, {"other", 0.5}}, dims({2, 4, 8, 6}));
  ValueId at = node("aten.arange.default", {{"end", dim(6)}}, dims({6}), DType::i64);
  ValueId all = node("aten.ge.Scalar", {{"self", at}, {"other", dim(0)}}, dims({6}), DType::boolean);
  ValueId zero = node("aten.scalar_tensor.default", {{"s", 0.0}}, {}, DType::bf16);
  ValueId infinite = node("aten.scalar_tensor.default", {{"s", -std::numeric_limits<double>::infinity()}}, {}, DType::bf16);
  ValueId mask = node("aten.where.self", {{"condition", all}, {"self", zero}, {"other", infinite}}, dims({6}), DType::bf16);
  ValueId scores = node("aten.matmul.default", {{"self", q}, {"other", k}}, dims({2, 4, 5, 6}));
  ValueId masked = node("aten.add.Tensor", {{"self", scores}, {"other", mask}, {"alpha", dim(1)}}, dims({2, 4, 5, 6}));
  ValueId weights = node("aten._safe_softmax.default", {{"self", masked}, {"dim", dim(-1)}}, dims({2, 4, 5, 6}));
  ValueId result = node("aten.matmul.default", {{"self", weights}, {"other", wide("v", dims({2, 4, 6, 8}))}}, dims({2, 4, 5, 8}));
  output(node("aten._to_copy.default", {{"self", result}, {"dtype", DType::bf16}}, dims({2, 4, 5, 8}), DType::bf16));
  const std::string found = text();
  EXPECT_NE(
      found.find(
          "bf16[2, 4, 5, 8] = attention batch 2 heads 4 kv_heads 4 queries 5 keys 6 dim 8 v_dim 8 scale 0.25: q q[i0, i1, i2, i3] k k[i0, i1, i3, i2] v v[i0, i1, i2, i3]"),
      std::string::npos)
      << found;
}

// As in a Swin transformer: masks are added before and after windows are told apart from images; a row that sees nothing is NaN.
TEST_F(LowerTest, ASpelledOutAttentionOfWindowsHasTheSumOfItsMasks) {
  ValueId q = input("q", dims({8, 4, 5, 8})), k = input("k", dims({8, 4, 8, 5})), v = input("v", dims({8, 4, 5, 8}));
  ValueId bias = input("bias", dims({4, 5, 5})), shift = input("shift", dims({8, 1, 5, 5}));
  ValueId scores = node("aten.matmul.default", {{"self", q}, {"other", k}}, dims({8, 4, 5, 5}));
  ValueId biased = node("aten.add.Tensor", {{"self", scores}, {"other", bias}, {"alpha", dim(1)}}, dims({8, 4, 5, 5}));
  ValueId apart = node("aten.view.default", {{"self", biased}, {"size", dims({1, 8, 4, 5, 5})}}, dims({1, 8, 4, 5, 5}));
  ValueId shifted = node("aten.add.Tensor", {{"self", apart}, {"other", shift}, {"alpha", dim(1)}}, dims({1, 8, 4, 5, 5}));
  ValueId together = node("aten.view.default", {{"self", shifted}, {"size", dims({8, 4, 5, 5})}}, dims({8, 4, 5, 5}));
  ValueId weights = node("aten.softmax.int", {{"self", together}, {"dim", dim(-1)}, {"dtype", NoneArg{}}}, dims({8, 4, 5, 5}));
  output(node("aten.matmul.default", {{"self", weights}, {"other", v}}, dims({8, 4, 5, 8})));
  const std::string found = text();
  EXPECT_NE(found.find("= [i0, i1, i2, i3] load(bias, i1, i2, i3) + load(shift, i0, 0, i2, i3)\n"), std::string::npos) << found;
  EXPECT_NE(
      found.find(
          "attention batch 8 heads 4 kv_heads 4 queries 5 keys 5 dim 8 v_dim 8 scale 1 masked rows NaN: q q[i0, i1, i2, i3] k k[i0, i1, i3, i2] v v[i0, i1, i2, i3] mask "),
      std::string::npos)
      << found;
}

TEST_F(LowerTest, AMatrixThatAllBatchesShareMakesOneProduct) {
  ValueId x = input("x", dims({7, 2, 8})), w = input("w", dims({8, 4}));
  ValueId all = node("aten.expand.default", {{"self", w}, {"size", dims({7, 8, 4})}}, dims({7, 8, 4}));
  output(node("aten.bmm.default", {{"self", x}, {"mat2", all}}, dims({7, 2, 4})));
  EXPECT_NE(text().find("bmm: f32[7, 2, 4] = gemm batch [] m [7, 2] n [4] k [8]: x[i0, i1, i3] * w[i3, i2]\n"), std::string::npos) << text();
}

TEST_F(LowerTest, AnUnknownOperatorIsNamedWithItsLine) {
  ValueId x = input("x", dims({2}));
  output(node("mylib.frobnicate.default", {{"self", x}}, dims({2})));
  auto r = lower(graph);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::unsupported_op);
  EXPECT_NE(r.error().message.find("mylib.frobnicate.default"), std::string::npos);
  EXPECT_NE(r.error().where.find("net.py:7"), std::string::npos);
  EXPECT_FALSE(r.error().hint.empty());
  EXPECT_FALSE(has_lowering("mylib.frobnicate.default"));
  EXPECT_TRUE(has_lowering("aten.add.Tensor"));
}

TEST_F(LowerTest, OneNodeAloneIsRefusedLikeTheProgram) {
  ValueId x = input("x", dims({2, 3}));
  ValueId matrix = input("matrix", dims({4, 3}));
  ValueId batch = input("batch", dims({5, 4, 3}));
  node("aten.linear.default", {{"input", x}, {"weight", batch}}, dims({2, 4}));
  node("aten.linear.default", {{"input", x}, {"weight", matrix}}, dims({2, 4}));
  const Result<LoopProgram> refused = lower_alone(graph, graph.nodes[0]);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature);
  EXPECT_NE(refused.error().message.find("not a matrix"), std::string::npos);
  EXPECT_TRUE(lower_alone(graph, graph.nodes[1]).ok());
}

TEST_F(LowerTest, AnArgumentOfAWrongKindIsABadProgram) {
  ValueId x = input("x", dims({2, 3}));
  output(node("aten.sum.dim_IntList", {{"self", x}, {"dim", std::string("rows")}, {"keepdim", false}}, dims({2})));
  auto r = lower(graph);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::bad_program);
}

}  // namespace
}  // namespace coil
