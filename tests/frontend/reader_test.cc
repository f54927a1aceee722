// The reader on small programs written out here, and what it says about broken ones.
#include "frontend/input_paths.h"
#include "tests/frontend/program_files.h"

namespace coil {
namespace {

TEST(Reader, SmallProgram) {
  EXPECT_EQ(read(Files()),
            "program of PyTorch 2.15.0+cpu\n"
            "dim s77: 1..64\n"
            "input parameter %w: f32[3] = layer.w holds [0, 0, 0]\n"
            "input user %x: f32[s77, 3]\n"
            "%mul: f32[s77, 3] = aten.mul.Tensor(%x, %w)  # model.py:7\n"
            "return %mul\n"
            "in_spec [1, {}]\n"
            "out_spec [1, null]\n"
            "arguments [x]\n");
}

TEST(Reader, DimensionNames) {
  ReadOptions options;
  options.dim_names = {{"x:0", "batch"}};
  EXPECT_NE(read(Files(), options).find("input user %x: f32[batch, 3]"), std::string::npos);
  options.dim_names = {{"s77", "batch"}};
  EXPECT_NE(read(Files(), options).find("dim batch (s77): 1..64"), std::string::npos);
  Files files;
  files.dims = R"({"x:0": "rows", "gone": "a", "x:1": "static"})";
  EXPECT_NE(read(files).find("f32[rows, 3]"), std::string::npos);
  EXPECT_NE(read(files, options).find("f32[batch, 3]"), std::string::npos);  // the caller's names go first
  options.dim_names = {{"s78", "batch"}};
  expect_error(Files(), "COIL-E106", "no dimension 's78'", options);
  options.dim_names = {{"y:0", "batch"}};
  expect_error(Files(), "COIL-E106", "no tensor input 'y'", options);
  options.dim_names = {{"x:5", "batch"}};
  expect_error(Files(), "COIL-E106", "2 dimensions", options);
  for (const char* name :
       {"a b", "", "1a", "workers", "i0", "i12", "true", "nan", "a.b", "a\nb", "\xC3\xA9"}) {  // formulas of sizes give some a meaning of their own
    options.dim_names = {{"x:0", name}};
    expect_error(Files(), "COIL-E106", "cannot name", options);
  }
  for (const char* name : {"_", "i", "i0x", "worker", "I0"}) {
    options.dim_names = {{"x:0", name}};
    EXPECT_NE(read(Files(), options).find(fmt::format("f32[{}, 3]", name)), std::string::npos);
  }
}

// A symbol stands in formulas, and coil has symbols of its own.
TEST(Reader, SymbolsAreWords) {
  for (const char* name : {"coil.workers", "workers", "i3", "a b", "a\\n", "s77 ", "", "77", "s\\u00e9"}) {
    Files files;
    files.with(R"j("expr_str":"Symbol('s77')j", fmt::format(R"j("expr_str":"Symbol('{})j", name));
    expect_error(files, "COIL-E104", "");
  }
}

// 100 bytes of it are kept, but no half of a character.
TEST(Reader, LongVersionsAreCutBetweenCharacters) {
  Files files;
  std::string version = "v";
  for (int i = 0; i < 80; ++i) version += "\xC3\xA9";
  files.with("2.15.0", version);
  const std::string text = read(files), first = text.substr(0, text.find('\n'));
  EXPECT_EQ(first, "program of PyTorch " + quoted_name(version.substr(0, 99)));
}

TEST(Reader, OtherInputsAndOutputs) {
  Files files;
  files
      .with(R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],)",
            R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}},{"constant_input":{"name":"k","value":{"as_int":3}}}],)")
      .with(R"({"as_tensor":{"name":"x"}}],)", R"({"as_tensor":{"name":"x"}},{"as_int":3}],)")
      .with(R"("outputs":[{"as_tensor":{"name":"mul"}}],)",
            R"("outputs":[{"as_tensor":{"name":"mul"}},{"as_none":true},{"as_float":"-Infinity"},{"as_tensor":{"name":"mul"}}],)")
      .with(R"("output_specs":[{"user_output")", R"("output_specs":[{"user_output":{"arg":{"as_none":true}}},{"user_output":{"arg":{"as_none":true}}},)"
                                                 R"({"user_output":{"arg":{"as_none":true}}},{"user_output")");
  std::string text = read(files);
  EXPECT_NE(text.find("input fixed k = 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("return %mul\nreturn None\nreturn -inf\nreturn %mul\n"), std::string::npos) << text;
}

TEST(Reader, SizesAreExpressionsAndTheirNodesVanish) {
  Files files;
  files
      .with(R"("nodes":[)",
            R"("nodes":[{"target":"torch.ops.aten.sym_size.int","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}}},{"name":"dim","arg":{"as_int":0}}],
    "outputs":[{"as_sym_int":{"as_name":"n"}}],"metadata":{}},)")
      .with(R"("sym_int_values":{})", R"j("sym_int_values":{"n":{"as_expr":{"expr_str":"Mul(Integer(2), Symbol('s77'))","hint":null}}})j")
      .with(R"({"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1})", R"({"name":"other","arg":{"as_sym_int":{"as_name":"n"}},"kind":1})");
  EXPECT_NE(read(files).find("aten.mul.Tensor(%x, other=2*s77)"), std::string::npos) << read(files);
}

TEST(Reader, DataDependentSizes) {
  Files files;
  files
      .with(R"("nodes":[)",
            R"j("nodes":[{"target":"torch.ops.mylib.count.default","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}}}],
    "outputs":[{"as_sym_int":{"as_name":"n"}}],"metadata":{"stack_trace":"File \"m.py\", line 3, in f\n    n = mylib.count(x)"}},)j")
      .with(R"("sym_int_values":{})", R"j("sym_int_values":{"n":{"as_expr":{"expr_str":"Symbol('u0', integer=True)","hint":null}}})j")
      .with(R"({"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1})", R"({"name":"other","arg":{"as_sym_int":{"as_name":"n"}},"kind":1})");
  expect_error(files, "COIL-E105", "read at m.py:3 in f: n = mylib.count(x)) | model.py:7 in forward");
}

// item() is a 0-d tensor; it must have one element and may not be a size.
TEST(Reader, NumbersFromData) {
  Files files;
  files
      .with(R"("nodes":[)", R"j("nodes":[{"target":"torch.ops.aten.item.default","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}}}],
    "outputs":[{"as_sym_int":{"as_name":"n"}}],"metadata":{}},)j")
      .with(R"("sym_int_values":{})", R"j("sym_int_values":{"n":{"as_expr":{"expr_str":"Symbol('u0', integer=True)","hint":null}}})j")
      .with(R"({"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1})", R"({"name":"other","arg":{"as_sym_int":{"as_name":"n"}},"kind":1})");
  expect_error(files, "COIL-E104", "not exactly one element");
  const std::string dynamic = R"j([{"as_expr":{"expr_str":"Symbol('s77', positive=True, integer=True)","hint":{"as_int":4}}},{"as_int":3}])j";
  files.with(R"("x":{"dtype":7,"sizes":)" + dynamic, R"("x":{"dtype":5,"sizes":[{"as_int":1},{"as_int":1}])");
  const std::string text = read(files);
  EXPECT_NE(text.find("%n: i64[] = prims.convert_element_type.default(%n_element, dtype=i64)"), std::string::npos) << text;
  EXPECT_NE(text.find("aten.mul.Tensor(%x, %n)"), std::string::npos) << text;
}

TEST(Reader, Assertions) {
  auto files = [](std::string_view condition) {
    Files f;
    f.with(R"("nodes":[)",
           R"("nodes":[{"target":"torch.ops.aten._assert_scalar.default","inputs":[{"name":"self","arg":{"as_sym_bool":{"as_name":"c"}}},
      {"name":"assert_msg","arg":{"as_string":"too small"}}],"outputs":[],"metadata":{}},)");
    f.with(R"("sym_bool_values":{})", R"("sym_bool_values":{"c":{"as_expr":{"expr_str":")" + std::string(condition) + R"(","hint":null}}})");
    return f;
  };
  EXPECT_EQ(read(files("GreaterThan(Symbol('s77'), Integer(1))")), read(Files()));
  EXPECT_NE(read(files("GreaterThan(Symbol('s77'), Integer(2))")).find("\nasserts 2 <= s77 else \"too small\""), std::string::npos);
  expect_error(files("StrictGreaterThan(Symbol('s77'), Integer(64))"), "COIL-E104", "always fails: too small");
  expect_error(files("StrictGreaterThan(Symbol('u3'), Integer(64))"), "COIL-E105", "u3");
}

TEST(Reader, Versions) {
  expect_error(Files().with(R"("major":8)", R"("major":6)"), "COIL-E101", "schema 6.20; coil reads schema 7.x and 8.x (PyTorch 2.5 and later)");
  expect_error(Files().with(R"("major":8)", R"("major":9)"), "COIL-E101", "schema 9.20");
  EXPECT_EQ(read(Files().with(R"("minor":20)", R"("minor":99)")), read(Files()));
  Files files;
  files.version = "1";
  expect_error(files, "COIL-E013", "version is '1'");
  files = Files();
  files.format = "zip";
  expect_error(files, "COIL-E013", "format is 'zip'");
}

TEST(Reader, OtherArchives) {
  Files files;
  files.program.clear();
  expect_error(files, "COIL-E013", "no exported program");
  files.more = {{"serialized_exported_program.json", R"({"schema_version":{"major":6,"minor":3},"torch_version":"2.4.1"})"}};
  expect_error(files, "COIL-E101", "PyTorch 2.4.1 with schema 6.3");
  files.more = {{"data/aotinductor/model/x.so", "x"}};
  expect_error(files, "COIL-E013", "compiled package");
  files.more = {{"constants.pkl", "x"}};
  expect_error(files, "COIL-E013", "TorchScript");
  files.more = {{"models/a.json", std::string(kProgram)}, {"models/b.json", std::string(kProgram)}};
  expect_error(files, "COIL-E013", "a, b");
}

TEST(Reader, BrokenPrograms) {
  auto name = [](std::string_view from, std::string_view to) { return Files().with(from, to); };
  expect_error(name(R"("arg":{"as_tensor":{"name":"w"}},"kind":1)", R"("arg":{"as_tensor":{"name":"nope"}},"kind":1)"), "COIL-E104",
               "'nope' is not a value of the graph | model.py:7");
  expect_error(name(R"("arg":{"as_tensor":{"name":"w"}},"kind":1)", R"("arg":{"as_tensor":{"name":"mul"}},"kind":1)"), "COIL-E104",
               "used before it is computed");
  expect_error(name(R"("outputs":[{"as_tensor":{"name":"mul"}}],
    "metadata")",
                    R"("outputs":[{"as_tensor":{"name":"x"}}],"metadata")"),
               "COIL-E104", "defined twice");
  expect_error(name(R"({"name":"other")", R"({"name":"another")"), "COIL-E104", "argument 'other' is missing");
  expect_error(name(R"({"name":"other")", R"({"name":"third","arg":{"as_int":1}},{"name":"other")"), "COIL-E104", "no argument 'third'");
  expect_error(name(R"("arg":{"as_tensor":{"name":"w"}},"kind":1)", R"("arg":{"as_string":"w"},"kind":1)"), "COIL-E104", "is a string");
  expect_error(name(R"("arg":{"as_tensor":{"name":"w"}},"kind":1)", R"("arg":{"as_custom_obj":{"name":"w","class_fqn":"a"}},"kind":1)"), "COIL-E105", "custom");
  expect_error(name(R"("arg":{"as_tensor":{"name":"w"}},"kind":1)", R"("arg":{"as_new_thing":1},"kind":1)"), "COIL-E105", "as_new_thing");
  expect_error(name(R"("mul":{"dtype":7)", R"("mul":{"dtype":14)"), "COIL-E103", "14");
  expect_error(name(R"("mul":{"dtype":7)", R"("mul":{"dtype":77)"), "COIL-E103", "77");
  expect_error(name(R"("strides":[{"as_int":3},)", R"("strides":[)"), "COIL-E104", "2 sizes and 1 strides");
  expect_error(name(R"({"as_int":3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":3})",
                    R"({"as_int":-3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":3})"),
               "COIL-E104", "-3");
  expect_error(name(R"("min_val":1,"max_val":64)", R"("min_val":65,"max_val":64)"), "COIL-E104", "65 to 64");
  expect_error(name(R"({"user_output":{"arg")", R"({"loss_output":{"arg")"), "COIL-E105", "loss_output");
  expect_error(name(R"("input_specs":[{"parameter":{"arg":{"name":"w"},"parameter_name":"layer.w"}},)", R"("input_specs":[)"), "COIL-E104",
               "2 inputs and the signature 1");
  expect_error(name(R"("nodes":[{)", R"("nodes":[3,{)"), "COIL-E012", "models/model.json");
  expect_error(name(R"("nodes":[{)", R"("nodes":[{{)"), "COIL-E012", "");
}

TEST(Reader, NestedGraphsHaveALimit) {
  std::string graph = R"({"inputs":[],"outputs":[],"nodes":[],"tensor_values":{}})";
  for (int i = 0; i < 40; ++i) {
    graph =
        R"({"inputs":[],"outputs":[],"tensor_values":{},"nodes":[{"target":"torch.ops.higher_order.cond","inputs":[{"name":"","arg":{"as_graph":{"name":"g","graph":)" +
        graph + R"(}}}],"outputs":[],"metadata":{}}]})";
  }
  Files files;
  files.with(R"({"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1})", R"({"name":"other","arg":{"as_graph":{"name":"g","graph":)" + graph + "}}}");
  expect_error(files, "COIL-E104", "nested more than");
}

// Real programs of PyTorch 2.15, as they came.
TEST(Reader, RealPrograms) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(COIL_SOURCE_DIR) / "tests/fuzz/seeds/reader")) {
    if (entry.path().extension() == ".pt2") names.push_back(entry.path().string());
  }
  ASSERT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    Result<Graph> graph = read_program_file(name);
    ASSERT_TRUE(graph.ok()) << name << ": " << graph.error().to_string();
    EXPECT_TRUE(graph.value().torch_version.starts_with(name.find("torch_2.7") == std::string::npos ? "2.15.0" : "2.7.1"));
    EXPECT_FALSE(graph.value().in_spec.empty());
    EXPECT_GE(graph.value().nodes.size(), 3u);
  }
}

TEST(Reader, TruncatedFilesAreErrors) {
  std::vector<uint8_t> bytes = Files().archive();
  for (size_t size = 0; size < bytes.size(); size += 7) {
    Result<ZipReader> zip = ZipReader::from_bytes(std::span(bytes).first(size), "net.pt2");
    EXPECT_FALSE(zip.ok() && read_program(zip.value()).ok()) << size;
  }
}

TEST(Reader, NoFile) { EXPECT_EQ(read_program_file("/nonexistent/x.pt2").error().code, ErrorCode::file_not_found); }

// Guards become checks unless the ranges imply them; s77 is 1..64.
TEST(Reader, Guards) {
  const auto checks = [](std::string_view guards) {
    Files files;
    files.with("\"guards_code\":[]", "\"guards_code\":[" + std::string(guards) + "]");
    const std::string graph = read(files);
    if (graph.starts_with("COIL-E")) return graph.substr(0, 9);
    std::string text;
    for (size_t at = graph.find("assumes "); at != graph.npos; at = graph.find("assumes ", at + 1)) {
      text += (text.empty() ? "" : "; ") + graph.substr(at + 8, graph.find('\n', at) - at - 8);
    }
    return text;
  };
  EXPECT_EQ(checks(R"("L['x'].size()[0] <= 64", "L['x'].size()[1] == 3", "L['x'].size()[0] != 0")"), "");
  EXPECT_EQ(checks(R"j("2*L['x'].size()[0] < 50", "(L['x'].size()[0] % 4) == 0")j"), "2*s77 < 50; s77%4 == 0");
  EXPECT_EQ(checks(R"j("2 <= L['x'].size()[0] <= 6*9")j"), "2 <= s77 and s77 <= 54");
  EXPECT_EQ(checks(R"j("not (L['x'].size()[0] // 2 == 5 or L['x'].size()[0] - 3 > -L['x'].size()[1] + 8)")j"), "s77//2 != 5 and s77 - 3 <= 5");
  EXPECT_EQ(checks(R"j("Max(L['x'].size()[0], 7) == 7 and True")j"), "max(s77, 7) == 7");
  EXPECT_EQ(checks(R"("L['x'].size()[0] > 64")"), "COIL-E104");
  for (const char* unreadable : {"L['y'].size()[0] == 1", "L['x'].size()[2] == 1", "L['x'].size()[0]", "L['x'].size()[0] == ", "x == 1",
                                 "L['x'].stride()[0] == 3", "L['x'].size()[0] == 1.5", "L['x'].size()[0] === 1", "f(L['x'].size()[0]) == 1", "Symbol(1) == 1",
                                 "Symbol() == 1", "L == 1", "L['x' == 1", "not", "((((1", "1 == 99999999999999999999"}) {
    EXPECT_EQ(checks("\"" + std::string(unreadable) + "\""), "COIL-E105") << unreadable;
  }
  EXPECT_EQ(checks("3"), "COIL-E012");
  EXPECT_EQ(checks(R"("L['kw']['x'].size()[0] != 7")"), "s77 != 7");  // x is a key that **kw took
  EXPECT_EQ(checks(R"("L['x']['x'].size()[0] != 7")"), "COIL-E105");  // but no argument's own key
  EXPECT_EQ(checks(R"("L['kw']['kw']['x'].size()[0] != 7")"), "COIL-E105");
}

TEST(Reader, PathsOfInputs) {
  const std::string leaf = R"({"type":null,"context":null,"children_spec":[]})";
  const auto node = [](std::string type, std::string context, std::string children) {
    return R"({"type":")" + type + R"(","context":")" + context + R"(","children_spec":[)" + children + "]}";
  };
  const auto spec = [&](std::string positional, std::string keys, std::string by_key) {
    return "[1," + node("builtins.tuple", "null", node("builtins.tuple", "null", positional) + "," + node("builtins.dict", keys, by_key)) + "]";
  };
  using Paths = std::vector<std::string>;
  const std::string dict = node("builtins.dict", R"([\"x\",\"y\"])", leaf + "," + node("builtins.list", "null", leaf));
  EXPECT_EQ(input_paths(spec(leaf + "," + dict, R"([\"k\"])", leaf), {"d_x", "d", "k"}), (Paths{"d_x", "d\nx", "d\ny\n0", "k"}));
  EXPECT_EQ(input_paths(spec(node("collections.namedtuple", "null", leaf + "," + leaf) + "," + leaf, "[]", ""), {"n", "x"}), (Paths{"", "", "x"}));
  EXPECT_EQ(input_paths(spec(leaf, "[]", ""), {}), Paths{""});
  EXPECT_EQ(input_paths(spec(node("builtins.dict", "[3]", leaf), "[]", ""), {"d"}), Paths{""});
  for (const char* broken : {"", "[1, {}]", "[1]", "{}", R"([1,{"children_spec":[3,4]}])"}) EXPECT_EQ(input_paths(broken, {"x"}), Paths{}) << broken;
}

}  // namespace
}  // namespace coil
