// A graph's text is read back: every kind of line and argument, what programs say beside nodes, and text that is none.
#include "graph/parse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coil {
namespace {

OperatorSchemas schemas() {
  return {[](std::string_view target) -> std::vector<std::string> {
            if (target == "aten.add.Tensor") return {"self", "other", "alpha"};
            if (target == "aten.cat.default") return {"tensors", "dim"};
            if (target == "aten.relu.default") return {"self"};
            return {};
          },
          {}};
}

Result<Graph> parse(const std::string& text) { return parse_graph(text, schemas()); }

// Reads it, and writes it again: the same text.
std::string again(const std::string& text) {
  const auto graph = parse(text);
  return graph.ok() ? to_string(graph.value()) : graph.error().to_string();
}

std::string problem(const std::string& text) {
  const auto graph = parse(text);
  return graph.ok() ? "none" : graph.error().message;
}

const char* const kEveryKind =
    "functional program of PyTorch 2.9.1+cpu\n"
    "dim batch (s77): 1..64\n"
    "dim n (u0): -5.. from data\n"
    "dim cpu: 0..9\n"
    "dim None: 2..3\n"
    "assumes batch//65 == 0\n"
    "assumes true\n"
    "asserts batch <= 64 and (batch != 3 or 2*batch < n + 5) also asserted else \"no \\\"three\\\"\" at \"model.py:7\"\n"
    "input parameter %p_w: f32[2, 2] = layer.weight at position 7 stored [1, 2] holds [1.5, -inf, nan, 0]\n"
    "input parameter %p_v: f32[2, 2] = \"0.weight\" tied to layer.weight\n"
    "input buffer %table: f16[100, 8]\n"
    "input constant %z: c64[2] holds [1, -1, 0.5, 2]\n"
    "input constant %odd: u16[2] on cuda holds [7, -1]\n"
    "input user %x: f32[batch, 8] strides [1, batch]\n"
    "input symint %k: size(cpu)\n"
    "input fixed flag = True\n"
    "input fixed scale = -0.5\n"
    "input fixed none = None at position 9\n"
    "input fixed mode = \"a # b\"\n"
    "input user %\"odd name\\x0a\": i64[] on other = \"x in\"\n"
    "integer %twice: 2*batch\n"
    "%relu: f32[batch, 8] = aten.relu.default(%x)  # model.py:13, model.py:20\n"
    "%add: f32[batch, 8] = aten.add.Tensor(%relu, other=2, alpha=1.0) named add_\n"
    "%a: f32[n, 8], %none: None = aten.thing.default(%add, None, %x) binds n, batch named thing\n"
    "%cat: f32[batch, 16] = aten.cat.default([%add, %relu, None], dim=-1)\n"
    "%many: f32[cpu] = ns.op(x=%cat, a=None, b=True, c=[1, 2*batch, size(cpu)], d=[], e=floats [], f=[1.0, -inf], g=bools [], h=[True, False], "
    "i=tensors [], j=\"a\\\\b # \\xc3\\xa4\", k=f32, l=contiguous, m=channels_last_3d, n=cpu, o=cuda:1, p=strided, q=layout(3), r=complex(1.0, nan), "
    "s=opaque(\"as_strings\"), t=size(cpu + 1), u=size(None), v=1e-05, w=1e+20, x2=-0.0, y=-9223372036854775808, \"odd name\"=inf, z=n - 3)\n"
    "%c: f32[batch, 8] = higher_order.cond(%x, graph0, graph1, [%x, %twice])\n"
    "%d: f32[batch, 8] = higher_order.cond(%x, graph0, graph0, [%x])\n"
    "ns.check(%x, assert_msg=\"no\") named check\n"
    "return %c\n"
    "return %d named other\n"
    "return %twice\n"
    "return None\n"
    "return 3 named three\n"
    "return 2.5\n"
    "return False\n"
    "return \"text\"\n"
    "return buffer table = %table\n"
    "return input \"x in\" = %\"odd name\\x0a\"\n"
    "  graph0:\n"
    "    input user %y: f32[batch, 8]\n"
    "    %e: f32[batch, 8] = higher_order.wrap(graph0, %y)\n"
    "    return %e\n"
    "      graph0 in place:\n"
    "        input user %y: f32[batch, 8]\n"
    "        return %y\n"
    "  graph1:\n"
    "    input user %y: f32[batch, 8]\n"
    "    input symint %k: 2*batch\n"
    "    return %y\n"
    "in_spec [1, {\"type\": \"builtins.tuple\", \"context\": \"#\"}]\n"
    "out_spec \" spaces \"\n"
    "arguments [x, \"odd name\"]\n";

TEST(GraphText, EveryKindOfLineIsReadBack) { EXPECT_EQ(again(kEveryKind), kEveryKind); }

TEST(GraphText, EveryKindOfArgumentIsToldApart) {
  const auto graph = parse(kEveryKind);
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  const Node& node = graph.value().nodes[4];
  const auto kind = [&](const char* name) { return node.find(name) ? node.find(name)->index() : std::variant_npos; };
  const auto of = [](Argument a) { return a.index(); };
  EXPECT_EQ(kind("x"), of(ValueId()));
  EXPECT_EQ(kind("c"), of(std::vector<Expr>()));
  EXPECT_EQ(kind("d"), of(std::vector<Expr>()));
  EXPECT_EQ(kind("e"), of(std::vector<double>()));
  EXPECT_EQ(kind("f"), of(std::vector<double>()));
  EXPECT_EQ(kind("g"), of(std::vector<bool>()));
  EXPECT_EQ(kind("h"), of(std::vector<bool>()));
  EXPECT_EQ(kind("i"), of(std::vector<ValueId>()));
  EXPECT_EQ(kind("l"), of(MemoryFormat()));
  EXPECT_EQ(kind("n"), of(DeviceArg()));
  EXPECT_EQ(kind("q"), of(LayoutArg()));
  EXPECT_EQ(kind("s"), of(OpaqueArg()));
  EXPECT_EQ(kind("t"), of(Expr()));
  EXPECT_EQ(kind("u"), of(Expr()));
  EXPECT_EQ(kind("y"), of(Expr()));
  EXPECT_TRUE(std::signbit(std::get<double>(*node.find("x2"))));
  EXPECT_EQ(std::get<std::string>(*node.find("j")), "a\\b # \xc3\xa4");
  // By position: the operator's names, or none where it has no schema.
  EXPECT_EQ(graph.value().nodes[1].arg_names, (std::vector<std::string>{"self", "other", "alpha"}));
  EXPECT_EQ(graph.value().nodes[5].arg_names, (std::vector<std::string>{"", "", "", ""}));
  EXPECT_EQ(graph.value().nodes[0].origins.size(), 2u);
  EXPECT_EQ(graph.value().nodes[0].origins[1].source, "model.py:20");
  // One graph that is used three times, two of them by one node.
  EXPECT_EQ(std::get<SubgraphRef>(graph.value().nodes[6].args[1]).graph, std::get<SubgraphRef>(graph.value().nodes[5].args[1]).graph);
  // What the export assumed of sizes holds again.
  ExprPool& pool = *graph.value().pool;
  EXPECT_TRUE(pool.is_one(floor_div(pool.symbol(SymbolId(size_t{0})), pool.index(65)) + 1));
}

TEST(GraphText, WeightsHaveTheirContentsOrSomeThatFollowFromTheName) {
  const std::string text =
      "program\n"
      "input parameter %a: f32[50]\n"
      "input parameter %b: f32[50]\n"
      "input buffer %v: f32[50] = bn.running_var\n"
      "input constant %c: f32[3] holds [1, 2, 3]\n"
      "return %a\n";
  const auto one = parse(text), other = parse(text);
  ASSERT_TRUE(one.ok() && other.ok()) << one.error().to_string();
  const auto numbers = [](const Result<Graph>& g, size_t i) {
    const TensorData& d = g.value().inputs[i].data;
    const auto* begin = reinterpret_cast<const float*>(d.bytes.data());
    return std::vector<float>(begin, begin + d.bytes.size() / sizeof(float));
  };
  EXPECT_EQ(numbers(one, 0), numbers(other, 0));
  EXPECT_NE(numbers(one, 0), numbers(one, 1));
  for (float x : numbers(one, 2)) EXPECT_TRUE(x >= 0 && x <= 1) << x;
  EXPECT_EQ(numbers(one, 3), (std::vector<float>{1, 2, 3}));
}

TEST(GraphText, ValuesOfOneNameAreToldApart) {
  auto graph = parse("program\ninput user %x: f32[4]\n%y: f32[4] = aten.relu.default(%x)\n%z: f32[4] = aten.relu.default(%y)\nreturn %z\n");
  ASSERT_TRUE(graph.ok());
  graph.value().values[2].name = "y";
  const std::string text = to_string(graph.value());
  EXPECT_NE(text.find("%y_2: f32[4] = aten.relu.default(%y)"), std::string::npos) << text;
  EXPECT_EQ(again(text), text);
}

TEST(GraphText, ALineOfSourceIsNoLineOfText) {
  auto graph = parse("program\ninput user %x: f32[4]\n%y: f32[4] = aten.relu.default(%x)\nreturn %y\n");
  ASSERT_TRUE(graph.ok());
  graph.value().nodes[0].origins = {{"", "a.py:1\nreturn %x", ""}, {"", "b.py:2 in forward", ""}, {"", "", ""}};
  const std::string text = to_string(graph.value());
  EXPECT_NE(text.find("# a.py:1\\nreturn %x, b.py:2\n"), std::string::npos) << text;
  EXPECT_EQ(again(text), text);
}

TEST(GraphText, OnlyItsFirstLineMakesAGraph) {
  EXPECT_TRUE(is_graph_text("program\nx"));
  EXPECT_TRUE(is_graph_text("functional program of PyTorch 2.13.0+cu130\n"));
  EXPECT_FALSE(is_graph_text("program: f32[4] = [i0] 1.0\n"));
  EXPECT_FALSE(is_graph_text("size n = s0 in 1 to 2\n"));
  EXPECT_FALSE(is_graph_text(""));
}

TEST(GraphText, ProblemsNameTheLineAndWhatWasExpected) {
  const std::string x = "program\ninput user %x: f32[4]\n";
  EXPECT_EQ(problem(""), "line 1, column 1: expected 'program' or 'functional program'");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.relu.default(%z)\n"), "line 3, column 34: there is no value '%z' before this line");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.relu.default(%x, 3)\n"), "line 3, column 36: aten.relu.default has 1 arguments");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.add.Tensor(%x, self=%x)\n"), "line 3, column 39: argument 'self' is given twice");
  EXPECT_EQ(problem(x + "%y: f33[4] = aten.relu.default(%x)\n"), "line 3, column 5: expression, column 4: unknown name 'f33'");
  EXPECT_EQ(problem(x + "%x: f32[4] = aten.relu.default(%x)\n"), "line 3, column 35: two values are named '%x'");
  EXPECT_EQ(problem(x + "%y: f32[i0] = aten.relu.default(%x)\n"), "line 3, column 11: expected an expression of sizes");
  EXPECT_EQ(problem(x + "%y: f32[-1] = aten.relu.default(%x)\n"), "line 3, column 13: a size or stride of -1");
  EXPECT_EQ(problem(x + "%y: f32[9223372036854775807*3] = aten.relu.default(%x)\n"), "line 3, column 9: a number that leaves int64");
  EXPECT_EQ(problem(x + "%y: f32[1048576, 1048576, 1048576] = aten.relu.default(%x)\n"), "line 3, column 36: the tensor is larger than any memory");
  EXPECT_EQ(problem(x + "%y: f32[4] strides [1, 1] = aten.relu.default(%x)\n"), "line 3, column 27: 1 sizes and 2 strides");
  EXPECT_EQ(problem(x + "%y: f32[4] on mars = aten.relu.default(%x)\n"), "line 3, column 19: 'mars' is no device");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.relu.default(graph0)\n"), "line 3, column 38: there is no 'graph0:' below");
  EXPECT_EQ(problem(x + "%y: f32[4] = user my.kernel(%x)\n"), "line 3, column 19: a user's kernel, whose code is not in the text");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.relu.default(%x) nonsense\n"), "line 3, column 36: unexpected text");
  EXPECT_EQ(problem(x + "%y: f32[4] = aten.relu.default(%x) binds u0\n"), "line 3, column 44: there is no size 'u0'");
  EXPECT_EQ(problem(x + "input thing %y: f32[4]\n"), "line 3, column 7: expected what the input is: parameter, buffer, constant, user, symint, fixed");
  EXPECT_EQ(problem(x + "input user %y: 3\n"), "line 3, column 17: expected a tensor");
  EXPECT_EQ(problem(x + "input parameter %y: f32[1000000, 1000000]\n"), "line 3, column 42: the constants take more than 4294967296 bytes");
  EXPECT_EQ(problem(x + "input parameter %y: f32[2] holds [1]\n"), "line 3, column 36: expected ','");
  EXPECT_EQ(problem(x + "input parameter %y: f32[2] tied to z\n"), "line 3, column 37: there is no weight 'z' before this line");
  const std::string own = "program\ndim n (u0): 0.. from data\ninput user %x: f32[n]\n%y: f32[n] = aten.relu.default(%x)\n",
                    bound = "%z: f32[n] = aten.nonzero.default(%x) binds n\n";
  EXPECT_EQ(problem(own + bound + "return %y\n"), "aten.relu.default (y) needs the size 'n', which is found in data only by aten.nonzero.default");
  EXPECT_EQ(problem(own.substr(0, own.find("%y")) + bound + "return %z\n"),
            "aten.nonzero.default (z) needs the size 'n', which is found in data only by itself");
  EXPECT_EQ(problem("program\ndim i0: 1..2\n"), "line 2, column 13: 'i0' cannot be the name of a size here: expressions read it as something else");
  EXPECT_EQ(problem("program\ndim n: 3..2\n"), "line 2, column 12: the range is empty");
  EXPECT_EQ(problem(x + "asserts 1 <= 2\n"), "line 3, column 15: expected 'else'");
  EXPECT_EQ(problem(x + "  graph1:\n"), "line 3, column 3: expected 'graph0'");
  EXPECT_EQ(problem(x + "  graph0:\n    return %x\n"), "line 4, column 10: there is no value '%x' before this line");
  std::string deep = "program\n";
  for (int i = 0; i < 20; ++i) deep += std::string(static_cast<size_t>(4 * i), ' ') + "  graph0:\n";
  EXPECT_EQ(problem(deep), "line 14, column 10: graphs are nested too deeply");
  EXPECT_EQ(problem("program\nreturn input x = 3\n"), "line 2, column 18: expected '%'");
}

}  // namespace
}  // namespace coil
