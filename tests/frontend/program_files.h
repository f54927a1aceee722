// Programs as archives in memory: what the tests of the reader read.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/zip_writer.h"
#include "expr/name_text.h"
#include "frontend/program_reader.h"
#include "tests/paths.h"

namespace coil {

inline constexpr std::string_view kProgram = R"j({"graph_module":{"graph":{
 "inputs":[{"as_tensor":{"name":"w"}},{"as_tensor":{"name":"x"}}],
 "outputs":[{"as_tensor":{"name":"mul"}}],
 "nodes":[{"target":"torch.ops.aten.mul.Tensor","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}},"kind":1},
    {"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1}],"outputs":[{"as_tensor":{"name":"mul"}}],
    "metadata":{"stack_trace":"File \"/home/me/model.py\", line 7, in forward\n    return x * self.w","nn_module_stack":"L__self__,,Net"},"name":"mul"}],
 "tensor_values":{"w":{"dtype":7,"sizes":[{"as_int":3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":1}],"storage_offset":{"as_int":0},"layout":7},
  "x":{"dtype":7,"sizes":[{"as_expr":{"expr_str":"Symbol('s77', positive=True, integer=True)","hint":{"as_int":4}}},{"as_int":3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":3},{"as_int":1}],"storage_offset":{"as_int":0},"layout":7},
  "mul":{"dtype":7,"sizes":[{"as_expr":{"expr_str":"Symbol('s77', positive=True, integer=True)","hint":{"as_int":4}}},{"as_int":3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":3},{"as_int":1}],"storage_offset":{"as_int":0},"layout":7}},
 "sym_int_values":{},"sym_bool_values":{},"is_single_tensor_return":false,"custom_obj_values":{},"sym_float_values":{}},
 "signature":{"input_specs":[{"parameter":{"arg":{"name":"w"},"parameter_name":"layer.w"}},{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],
   "output_specs":[{"user_output":{"arg":{"as_tensor":{"name":"mul"}}}}]},
 "module_call_graph":[{"fqn":"","signature":{"inputs":[],"outputs":[],"in_spec":"[1, {}]","out_spec":"[1, null]","forward_arg_names":["x"]}}],
 "metadata":{},"treespec_namedtuple_fields":{}},
 "opset_version":{"aten":10},"range_constraints":{"s77":{"min_val":1,"max_val":64}},"schema_version":{"major":8,"minor":20},
 "verifiers":["TRAINING"],"torch_version":"2.15.0+cpu","guards_code":[]})j";

inline constexpr std::string_view kWeights =
    R"({"config":{"layer.w":{"path_name":"weight_0","is_param":true,"use_pickle":false,"tensor_meta":{"dtype":7,
 "sizes":[{"as_int":3}],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[{"as_int":1}],"storage_offset":{"as_int":0},"layout":7}}}})";

struct Files {
  std::string program = std::string(kProgram), weights = std::string(kWeights), dims, format = "pt2", version = "0";
  std::string storage = std::string(12, '\0');
  std::vector<std::pair<std::string, std::string>> more;

  static void replace(std::string& text, std::string_view from, std::string_view to) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  Files& with(std::string_view from, std::string_view to) {
    replace(program, from, to);
    return *this;
  }
  Files& with_weights(std::string_view from, std::string_view to) {
    replace(weights, from, to);
    return *this;
  }

  std::vector<uint8_t> archive() const {
    ZipWriter zip = ZipWriter::in_memory();
    auto add = [&](const std::string& name, std::string_view content) { EXPECT_TRUE(zip.add("net/" + name, content).ok()); };
    if (!program.empty()) add("models/model.json", program);
    add("data/weights/model_weights_config.json", weights);
    add("data/constants/model_constants_config.json", R"({"config":{}})");
    add("data/weights/weight_0", storage);
    add("archive_format", format);
    add("archive_version", version);
    if (!dims.empty()) add("extra/coil_dims.json", dims);
    for (const auto& [name, content] : more) add(name, content);
    return zip.finish_in_memory();
  }
};

// The graph's text, or "COIL-E104: message | where".
inline std::string read(const Files& files, const ReadOptions& options = {}) {
  std::vector<uint8_t> bytes = files.archive();
  Result<ZipReader> zip = ZipReader::from_bytes(bytes, "net.pt2");
  if (!zip.ok()) return zip.error().to_string();
  Result<Graph> graph = read_program(zip.value(), options);
  if (graph.ok()) return to_string(graph.value());
  return error_name(graph.error().code) + ": " + graph.error().message + " | " + graph.error().where;
}

inline void expect_error(const Files& files, std::string_view code, std::string_view part, const ReadOptions& options = {}) {
  std::string text = read(files, options);
  EXPECT_TRUE(text.starts_with(code)) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace coil
