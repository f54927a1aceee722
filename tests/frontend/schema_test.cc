#include "frontend/schema.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string_view>

#include "frontend/arguments.h"
#include "frontend/provenance.h"

namespace coil {
namespace {

TEST(Schema, FindsAndParses) {
  std::optional<Schema> s = find_schema("aten.max_pool2d.default");
  ASSERT_TRUE(s);
  ASSERT_EQ(s->args.size(), 6u);
  EXPECT_EQ(s->args[1].name, "kernel_size");
  EXPECT_TRUE(s->args[1].list);
  EXPECT_EQ(s->args[1].list_size, 2);
  EXPECT_EQ(s->args[2].default_text, "[]");
  EXPECT_EQ(s->args[5].type, SchemaType::boolean);
  EXPECT_EQ(s->returns.size(), 1u);
  EXPECT_FALSE(find_schema("aten.max_pool2d"));
  EXPECT_FALSE(find_schema("mylib.op.default"));
  EXPECT_FALSE(find_schema(""));
}

TEST(Schema, AliasesOptionalsAndLists) {
  std::optional<Schema> s =
      parse_schema("aten.f.x(Tensor(a!) self, Tensor?[] indices, *, ScalarType? dtype=None, Tensor(b -> *)[] l) -> (Tensor(a!), Tensor[])");
  ASSERT_TRUE(s);
  ASSERT_EQ(s->args.size(), 4u);
  EXPECT_EQ(s->args[0].type, SchemaType::tensor);
  EXPECT_FALSE(s->args[0].keyword_only);
  EXPECT_TRUE(s->args[1].list);
  EXPECT_FALSE(s->args[1].optional);
  EXPECT_TRUE(s->args[2].optional && s->args[2].keyword_only);
  EXPECT_TRUE(s->args[3].list);
  ASSERT_EQ(s->returns.size(), 2u);
  EXPECT_TRUE(s->returns[1].list);
  EXPECT_FALSE(parse_schema("aten.f.x(Tensor self"));
}

constexpr std::string_view kTable[] = {
#include "frontend/aten_schemas.inc"
};

// Every line of the table is a schema that is found by its name, and every default has a value; numbers of 8 bits with a point are no type of coil's.
TEST(Schema, WholeTableIsReadable) {
  EXPECT_GT(std::size(kTable), 3000u);
  ExprPool pool;
  for (std::string_view line : kTable) {
    ASSERT_TRUE(parse_schema(line)) << line;
    const std::optional<Schema> s = find_schema(line.substr(0, line.find('(')));
    ASSERT_TRUE(s) << line;
    for (const SchemaArg& a : s->args) {
      if (!a.default_text || a.name == "float8_dtype") continue;
      EXPECT_TRUE(default_argument(pool, a).ok()) << line << ": " << a.name;
    }
  }
}

TEST(Schema, DefaultsHaveTheirTypes) {
  ExprPool pool;
  auto value = [&](std::string_view target, std::string_view arg) {
    std::optional<Schema> s = find_schema(target);
    for (const SchemaArg& a : s->args) {
      if (a.name == arg) return default_argument(pool, a).value();
    }
    return Argument(OpaqueArg{"absent"});
  };
  EXPECT_EQ(std::get<Expr>(value("aten.add.Tensor", "alpha")), pool.index(1));
  EXPECT_EQ(std::get<std::string>(value("aten.gelu.default", "approximate")), "none");
  EXPECT_EQ(std::get<std::vector<Expr>>(value("aten.max_pool2d.default", "padding")), (std::vector<Expr>{pool.index(0), pool.index(0)}));
  EXPECT_EQ(std::get<double>(value("aten.scaled_dot_product_attention.default", "dropout_p")), 0.0);
  EXPECT_EQ(std::get<MemoryFormat>(value("aten.contiguous.default", "memory_format")), MemoryFormat::contiguous);
  EXPECT_TRUE(std::holds_alternative<NoneArg>(value("aten.clamp.default", "min")));
}

TEST(Schema, Coercions) {
  ExprPool pool;
  SchemaArg floating{"p", SchemaType::floating}, ints{"stride", SchemaType::integer, true};
  ints.list_size = 2;
  EXPECT_EQ(std::get<double>(coerce(pool, Argument(pool.index(2)), floating).value()), 2.0);
  EXPECT_EQ(std::get<std::vector<Expr>>(coerce(pool, Argument(pool.index(3)), ints).value()).size(), 2u);
  EXPECT_EQ(std::get<std::vector<Expr>>(coerce(pool, Argument(std::vector<ValueId>{}), ints).value()).size(), 0u);
  EXPECT_FALSE(coerce(pool, Argument(std::string("x")), ints).ok());
  EXPECT_FALSE(coerce(pool, Argument(NoneArg{}), floating).ok());
  EXPECT_FALSE(coerce(pool, Argument(std::string("x")), SchemaArg{"self", SchemaType::tensor}).ok());
}

TEST(Provenance, InnermostFrameOfTheUser) {
  Origin o = make_origin(
      "File \"/home/me/model.py\", line 22, in forward\n    return self.conv(x)\n"
      "  File \"/usr/lib/python3/site-packages/torch/nn/modules/conv.py\", line 554, in forward\n    return "
      "self._conv_forward(input)",
      "L__self__,,__main__.Net;L__self___conv,encoder.conv,torch.nn.modules.conv.Conv2d");
  EXPECT_EQ(o.source, "model.py:22 in forward");
  EXPECT_EQ(o.source_line, "return self.conv(x)");
  EXPECT_EQ(o.module_path, "encoder.conv");
}

TEST(Provenance, LibrariesAreTheUsersCode) {
  Origin o = make_origin(
      "File \"/a/run.py\", line 3, in forward\n    self.bert(x)\n  File \"/v/site-packages/transformers/bert.py\", line 9, in "
      "forward\n    x = x + y\n"
      "  File \"/v/site-packages/torch/_tensor.py\", line 40, in add",
      "");
  EXPECT_EQ(o.source, "bert.py:9 in forward");
  EXPECT_EQ(o.source_line, "x = x + y");
}

TEST(Provenance, OnlyPyTorch) {
  EXPECT_EQ(make_origin("File \"torch/fx/passes/runtime_assert.py\", line 24, in insert", "").source, "runtime_assert.py:24 in insert");
  EXPECT_EQ(make_origin("", "").source, "");
  EXPECT_EQ(make_origin("nonsense\nFile \"", "x,y").source, "");
}

}  // namespace
}  // namespace coil
