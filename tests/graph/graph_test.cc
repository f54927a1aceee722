#include "graph/graph.h"

#include <gtest/gtest.h>

#include "graph/rewrite.h"

namespace coil {
namespace {

// x -> relu -> y, with x: f32[batch, 4].
Graph small_graph() {
  Graph g;
  g.pool = std::make_shared<ExprPool>();
  Expr batch = g.pool->symbol(g.pool->add_symbol({"s77", "batch", 1, 64}));
  TensorType type{DType::f32, {batch, g.pool->index(4)}, {g.pool->index(4), g.pool->index(1)}, DeviceType::cpu};
  ValueId x = g.add_value({"x", type, NodeId()});
  ValueId y = g.add_value({"relu", type, NodeId(size_t{0})});
  g.inputs.push_back({GraphInput::Kind::user, x, "x", {}, {}, 0});
  Node n;
  n.target = "aten.relu.default";
  n.name = "relu";
  n.arg_names = {"self"};
  n.args = {x};
  n.outputs = {y};
  n.origins = {{"layer.act", "model.py:13 in forward", "x = F.relu(x)"}};
  g.nodes.push_back(n);
  GraphOutput out;
  out.value = y;
  out.name = "relu";
  g.outputs.push_back(out);
  return g;
}

TEST(Graph, Prints) {
  Graph g = small_graph();
  EXPECT_EQ(to_string(g),
            "program\n"
            "dim batch (s77): 1..64\n"
            "input user %x: f32[batch, 4]\n"
            "%relu: f32[batch, 4] = aten.relu.default(%x)  # model.py:13\n"
            "return %relu\n");
  EXPECT_EQ(where(g.nodes[0]), "model.py:13 in forward: x = F.relu(x)");
}

TEST(Graph, PrintsStridesThatAreNotRowMajor) {
  Graph g = small_graph();
  TensorType t = g.values[0].tensor();
  t.strides = {g.pool->index(1), g.pool->index(8)};
  EXPECT_EQ(to_string(g, t), "f32[batch, 4] strides [1, 8]");
  t.sizes[1] = g.pool->index(1);
  t.strides = {g.pool->index(1), g.pool->index(8)};  // the stride of a dimension of size 1 means nothing
  EXPECT_EQ(to_string(g, t), "f32[batch, 1]");
}

TEST(Graph, FindsArguments) {
  Graph g = small_graph();
  ASSERT_NE(g.nodes[0].find("self"), nullptr);
  EXPECT_EQ(g.nodes[0].find("other"), nullptr);
}

TEST(Verify, AcceptsTheSmallGraph) { EXPECT_TRUE(verify(small_graph()).ok()); }

TEST(Verify, UseBeforeDefinition) {
  Graph g = small_graph();
  g.nodes[0].args = {g.nodes[0].outputs[0]};
  Status s = verify(g);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("before it is defined"), std::string::npos);
  EXPECT_EQ(s.error().where, "model.py:13 in forward: x = F.relu(x)");
}

TEST(Verify, ValueDefinedTwice) {
  Graph g = small_graph();
  g.nodes.push_back(g.nodes[0]);
  EXPECT_FALSE(verify(g).ok());
}

TEST(Verify, BadIds) {
  Graph g = small_graph();
  g.nodes[0].args = {ValueId(99)};
  EXPECT_FALSE(verify(g).ok());
  g = small_graph();
  g.outputs[0].value = ValueId(99);
  EXPECT_FALSE(verify(g).ok());
  g = small_graph();
  g.nodes[0].arg_names.clear();
  EXPECT_FALSE(verify(g).ok());
}

TEST(Verify, WeightBeyondItsStorage) {
  Graph g = small_graph();
  GraphInput w;
  w.kind = GraphInput::Kind::parameter;
  TensorType type{DType::f32, {g.pool->index(4)}, {g.pool->index(1)}, DeviceType::cpu};
  w.value = g.add_value({"w", type, NodeId()});
  w.name = "w";
  std::vector<uint8_t> bytes(16);
  w.data = {nullptr, bytes, DType::f32, {4}, {1}, 0};
  g.inputs.push_back(w);
  EXPECT_TRUE(verify(g).ok());
  g.inputs[1].data.offset = 1;
  EXPECT_FALSE(verify(g).ok());
  g.inputs[1].data.offset = 0;
  g.inputs[1].data.sizes = {INT64_MAX};
  g.inputs[1].data.strides = {INT64_MAX};
  EXPECT_FALSE(verify(g).ok());
}

TEST(GraphBuilder, CopiesReplacesAndNames) {
  Graph g = small_graph();
  GraphBuilder b(g);
  ValueId x = g.inputs[0].value;
  ValueId twice = b.add("aten.mul.Tensor", "relu", {{"self", x}, {"other", 2.0}}, g.value(x).tensor(), g.nodes[0].origins);
  EXPECT_EQ(b.value(twice).name, "relu_1");  // made unique
  b.replace(x, twice);
  b.copy(g.nodes[0]);
  Graph next = b.finish();
  ASSERT_TRUE(verify(next).ok()) << verify(next).error().to_string();
  EXPECT_EQ(to_string(next),
            "program\n"
            "dim batch (s77): 1..64\n"
            "input user %x: f32[batch, 4]\n"
            "%relu_1: f32[batch, 4] = aten.mul.Tensor(%x, other=2.0)  # model.py:13\n"
            "%relu: f32[batch, 4] = aten.relu.default(%relu_1)  # model.py:13\n"
            "return %relu\n");
}

TEST(Graph, ACopyHasAPoolOfItsOwn) {
  Graph g = small_graph();
  ExprPool& pool = *g.pool;
  const Expr batch = g.values[0].tensor().sizes[0];
  pool.assume_one(batch + 3);
  auto nested = std::make_shared<Graph>(small_graph());
  nested->pool = g.pool;
  for (ValueInfo& value : nested->values) value.type = TensorType{DType::f32, {batch}, {pool.index(1)}, DeviceType::cpu};
  g.nodes[0].arg_names = {"self", "sizes", "first", "second"};
  g.nodes[0].args = {g.inputs[0].value, std::vector<Expr>{batch * 2, Expr()}, SubgraphRef{nested}, SubgraphRef{nested}};
  g.checks.push_back({Condition::join(Condition::Kind::any, {Condition::compare(Condition::Kind::less, batch, pool.index(9)),
                                                             Condition::compare(Condition::Kind::equal, batch, pool.index(20))}),
                      "", ""});
  const Graph copy = with_own_pool(g);
  EXPECT_NE(copy.pool, g.pool);
  EXPECT_EQ(to_string(copy), to_string(g));
  EXPECT_EQ(to_string(copy.checks[0].condition), to_string(g.checks[0].condition));
  const Expr own = copy.values[0].tensor().sizes[0];
  EXPECT_EQ(own->pool, copy.pool.get());
  EXPECT_EQ(own, copy.pool->twin(batch));
  EXPECT_TRUE(copy.pool->is_one(own + 3));
  EXPECT_EQ(copy.checks[0].condition.parts[1].b->pool, copy.pool.get());
  const auto& sizes = std::get<std::vector<Expr>>(copy.nodes[0].args[1]);
  EXPECT_EQ(sizes[0], own * 2);
  EXPECT_FALSE(sizes[1]);
  const auto inner = std::get<SubgraphRef>(copy.nodes[0].args[2]).graph;
  EXPECT_EQ(inner, std::get<SubgraphRef>(copy.nodes[0].args[3]).graph);
  EXPECT_EQ(inner->pool, copy.pool);
  EXPECT_EQ(inner->values[0].tensor().sizes[0], own);
  // What is made in one of the two does not decide the order in the other.
  const Expr y = pool.symbol(pool.add_symbol({"y", "y", 0, 9})), z = pool.symbol(pool.add_symbol({"z", "z", 0, 9}));
  const Expr own_z = copy.pool->symbol(copy.pool->add_symbol({"z", "z", 0, 9})), own_y = copy.pool->symbol(copy.pool->add_symbol({"y", "y", 0, 9}));
  EXPECT_LT(y->serial, z->serial);
  EXPECT_LT(own_z->serial, own_y->serial);
  EXPECT_EQ(own_z->serial, y->serial);
}

TEST(GraphBuilder, ReplacesOutputs) {
  Graph g = small_graph();
  GraphBuilder b(g);
  b.replace(g.nodes[0].outputs[0], g.inputs[0].value);
  Graph next = b.finish();
  EXPECT_TRUE(verify(next).ok());
  EXPECT_EQ(std::get<ValueId>(next.outputs[0].value), g.inputs[0].value);
}

TEST(Rewrite, Queries) {
  Graph g = small_graph();
  EXPECT_EQ(aten_name(g.nodes[0]), "relu");
  EXPECT_EQ(overload_name(g.nodes[0]), "default");
  EXPECT_EQ(use_counts(g), (std::vector<int>{1, 1}));
  EXPECT_EQ(producer(g, g.nodes[0].outputs[0]), &g.nodes[0]);
  EXPECT_EQ(producer(g, g.inputs[0].value), nullptr);
  std::vector<Origin> merged = merge_origins(g.nodes[0].origins, g.nodes[0].origins);
  EXPECT_EQ(merged.size(), 1u);
}

}  // namespace
}  // namespace coil
