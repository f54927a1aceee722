#include "passes/pipeline.h"

#include <gtest/gtest.h>

#include "frontend/program_reader.h"
#include "tests/passes/graph_text.h"
#include "tests/paths.h"

namespace coil {
namespace {

Graph parse(std::string_view text) {
  Result<Graph> g = testing::graph_of(text);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().to_string());
  return std::move(g).value();
}

constexpr std::string_view kText = R"(
input user %x: f32[4]
%a: f32[4] = aten.clone.default(%x)
%add_: f32[4] = aten.add_.Tensor(%a, 1)
%c: f32[4] = aten.sin.default(%a)
return %c
)";

TEST(Pipeline, RunsInOrderAndObserves) {
  std::vector<std::string> seen;
  PassOptions options;
  options.observer = [&](std::string_view pass, const Graph& before, const Graph& after) {
    seen.emplace_back(pass);
    EXPECT_FALSE(before.nodes.empty() || after.nodes.empty());
  };
  Result<Graph> g = run_passes(parse(kText), options);
  ASSERT_TRUE(g.ok());
  EXPECT_TRUE(g.value().functional);
  EXPECT_EQ(seen.size(), graph_passes().size());
  EXPECT_EQ(seen.front(), "inline_wrappers");
  EXPECT_EQ(seen.back(), "dead_code");
  EXPECT_EQ(to_string(g.value()),
            "functional program\n"
            "input user %x: f32[4]\n"
            "%add: f32[4] = aten.add.Tensor(%x, other=1, alpha=1) named add_\n"
            "%c: f32[4] = aten.sin.default(%add)\n"
            "return %c\n");
}

TEST(Pipeline, Skips) {
  PassOptions options;
  options.skip = {"dead_code", "simplify_ops"};
  Result<Graph> g = run_passes(parse(kText), options);
  ASSERT_TRUE(g.ok());
  EXPECT_NE(to_string(g.value()).find("aten.clone"), std::string::npos);
  options.skip = {"dead_cod"};
  EXPECT_EQ(run_passes(parse(kText), options).error().code, ErrorCode::bad_option);
}

// outer: wrap_with_set_grad_enabled(False, graph, x, w), with graph(a, b) = relu_(a) * b
Graph wrapped(std::string_view target, std::vector<Argument> leading) {
  Graph outer = parse(R"(
input user %x: f32[4]
input user %w: f32[4]
%y: f32[4] = aten.mul.Tensor(%x, %w)
%z: f32[4] = aten.add.Tensor(%y, %x)
return %z
)");
  Graph inner;
  inner.pool = outer.pool;
  TensorType type = outer.values[0].tensor();
  ValueId a = inner.add_value({"x", type, NodeId()}), b = inner.add_value({"b", type, NodeId()});
  ValueId r = inner.add_value({"relu_", type, NodeId(size_t{0})}), m = inner.add_value({"mul", type, NodeId(size_t{1})});
  inner.inputs.push_back({GraphInput::Kind::user, a, "x", {}, {}, 0});
  inner.inputs.push_back({GraphInput::Kind::user, b, "b", {}, {}, 1});
  inner.nodes.push_back({"aten.relu_.default", "relu_", {"self"}, {a}, {r}, {}});
  inner.nodes.push_back({"aten.mul.Tensor", "mul", {"self", "other"}, {r, b}, {m}, {}});
  GraphOutput out;
  out.value = m;
  inner.outputs.push_back(out);

  Node& call = outer.nodes[0];
  ValueId x = std::get<ValueId>(call.args[0]), w = std::get<ValueId>(call.args[1]);
  call.target = target;
  call.args = std::move(leading);
  call.args.push_back(SubgraphRef{std::make_shared<const Graph>(std::move(inner))});
  call.args.push_back(x);
  call.args.push_back(w);
  call.arg_names.assign(call.args.size(), "");
  return outer;
}

TEST(InlineWrappers, BodiesTakeTheirPlace) {
  Graph g = wrapped("higher_order.wrap_with_set_grad_enabled", {Argument(false)});
  ASSERT_TRUE(verify(g).ok());
  Result<Graph> after = run_passes(std::move(g));
  ASSERT_TRUE(after.ok()) << after.error().to_string();
  // The write inside is a write to the program's input.
  EXPECT_EQ(to_string(after.value()),
            "functional program\n"
            "input user %x: f32[4]\n"
            "input user %w: f32[4]\n"
            "%relu: f32[4] = aten.relu.default(%x) named relu_\n"
            "%mul: f32[4] = aten.mul.Tensor(%relu, %w)\n"
            "%z: f32[4] = aten.add.Tensor(%mul, %relu, alpha=1)\n"
            "return input x = %relu\n"
            "return %z\n");
}

TEST(InlineWrappers, Autocast) {
  auto args = [](bool enabled) { return std::vector<Argument>{std::string("cpu"), NoneArg{}, enabled, false}; };
  EXPECT_TRUE(run_passes(wrapped("higher_order.wrap_with_autocast", args(false))).ok());
  Result<Graph> refused = run_passes(wrapped("higher_order.wrap_with_autocast", args(true)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature);
}

TEST(InlineWrappers, OperandsMustFit) {
  Graph g = wrapped("higher_order.wrap_with_set_grad_enabled", {Argument(false)});
  g.nodes[0].args.pop_back();
  g.nodes[0].arg_names.pop_back();
  EXPECT_FALSE(run_passes(std::move(g)).ok());
}

// Real training IR with a mutated buffer and its decomposed form give the same program.
TEST(Pipeline, BothFormsOfTheCounterAgree) {
  auto text = [](const std::string& name) {
    Result<Graph> g = read_program_file(std::string(COIL_SOURCE_DIR) + "/tests/fuzz/seeds/reader/" + name);
    EXPECT_TRUE(g.ok());
    Result<Graph> after = run_passes(std::move(g).value());
    EXPECT_TRUE(after.ok());
    std::string s = to_string(after.value());
    for (std::string_view suffix : {"_1", "_2", "_3", " named add_"}) {
      for (size_t at; (at = s.find(suffix)) != std::string::npos;) s.erase(at, suffix.size());
    }
    return s;
  };
  EXPECT_EQ(text("counter.pt2"), text("counter_core.pt2"));
}

}  // namespace
}  // namespace coil
