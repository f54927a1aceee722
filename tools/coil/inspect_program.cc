// coil inspect of an exported program: signature, dynamic dimensions, operators.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "frontend/program_reader.h"
#include "inspect.h"
#include "terminal.h"

namespace coil::tool {
namespace {

const char* kind_name(GraphInput::Kind kind) {
  switch (kind) {
    case GraphInput::Kind::parameter: return "parameter";
    case GraphInput::Kind::buffer: return "buffer";
    case GraphInput::Kind::constant: return "constant";
    case GraphInput::Kind::user: return "tensor";
    case GraphInput::Kind::user_symint: return "integer";
    case GraphInput::Kind::fixed: return "fixed";
  }
  return "";
}

std::string fixed_text(const GraphInput& in) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) return "None";
        else if constexpr (std::is_same_v<T, bool>) return v ? "True" : "False";
        else return fmt::format("{}", v);
      },
      in.fixed_value);
}

std::string type_text(const Graph& graph, const GraphInput& in) {
  if (in.kind == GraphInput::Kind::fixed) return fixed_text(in);
  const ValueInfo& value = graph.value(in.value);
  if (value.is_tensor()) return to_string(graph, value.tensor());
  const Expr* e = std::get_if<Expr>(&value.type);
  return e ? to_string(*e) : "";
}

Json inputs_json(const Graph& graph) {
  Json rows = Json::array();
  for (const GraphInput& in : graph.inputs) {
    if (in.position < 0) continue;
    rows.push_back({{"position", in.position}, {"name", in.name}, {"kind", kind_name(in.kind)}, {"type", type_text(graph, in)}});
  }
  return rows;
}

Json outputs_json(const Graph& graph) {
  Json rows = Json::array();
  for (const GraphOutput& out : graph.outputs) {
    Json row = {{"name", out.name}};
    if (out.kind != GraphOutput::Kind::user) row["writes"] = out.target;
    if (const ValueId* id = std::get_if<ValueId>(&out.value); id && graph.value(*id).is_tensor()) row["type"] = to_string(graph, graph.value(*id).tensor());
    rows.push_back(std::move(row));
  }
  return rows;
}

Json describe(const Graph& graph, const InspectArguments& a) {
  Json symbols = Json::array(), ops = Json::object(), weights = Json::object();
  for (size_t i = 0; i < graph.pool->num_symbols(); ++i) {
    const Symbol& s = graph.pool->symbol_info(SymbolId(static_cast<int32_t>(i)));
    symbols.push_back({{"name", s.label}, {"export_name", s.name}, {"min", s.min}, {"max", s.max == INT64_MAX ? Json(nullptr) : Json(s.max)}});
  }
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) ++counts[n.target];
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.second > y.second; });
  for (const auto& [op, n] : sorted) ops[op] = n;
  std::map<std::string, std::pair<size_t, uint64_t>> tensors;
  for (const GraphInput& in : graph.inputs) {
    if (in.position >= 0) continue;
    auto& [count, bytes] = tensors[kind_name(in.kind)];
    ++count;
    bytes += in.data.bytes.size();
  }
  for (const auto& [kind, total] : tensors) weights[kind] = {{"count", total.first}, {"bytes", total.second}};
  return {{"model", a.model},
          {"kind", "program"},
          {"torch", graph.torch_version},
          {"schema", graph.schema_version},
          {"inputs", inputs_json(graph)},
          {"outputs", outputs_json(graph)},
          {"symbols", symbols},
          {"weights", weights},
          {"nodes", graph.nodes.size()},
          {"ops", ops}};
}

std::string to_text(const Json& d) {
  const Style style;
  std::string text = fmt::format("{}: exported program, PyTorch {}, schema {}\n", style.bold(d["model"].get<std::string>()), d["torch"].get<std::string>(),
                                 d["schema"].get<std::string>());
  Table inputs, outputs, symbols, ops(2, {0}), weights;
  for (const Json& in : d["inputs"])
    inputs.add({fmt::format("in_{}", in["position"].get<int>()), in["name"].get<std::string>(), in["kind"].get<std::string>(), in["type"].get<std::string>()});
  int position = 0;
  for (const Json& out : d["outputs"]) {
    if (out.contains("writes")) {
      outputs.add({"", out["name"].get<std::string>(), "writes " + out["writes"].get<std::string>()});
    } else {
      outputs.add({fmt::format("out_{}", position++), out["name"].get<std::string>(), out.value("type", "")});
    }
  }
  for (const Json& s : d["symbols"]) {
    const std::string range =
        s["max"].is_null() ? fmt::format("at least {}", s["min"].get<int64_t>()) : fmt::format("{} to {}", s["min"].get<int64_t>(), s["max"].get<int64_t>());
    const bool renamed = s["name"] != s["export_name"];
    symbols.add({s["name"].get<std::string>(), range, renamed ? style.dim(s["export_name"].get<std::string>()) : ""});
  }
  for (const auto& [op, n] : d["ops"].items()) ops.add({std::to_string(n.get<int>()), op});
  for (const auto& [kind, total] : d["weights"].items())
    weights.add({count_text(total["count"].get<size_t>(), kind), bytes_text(total["bytes"].get<uint64_t>())});
  text += style.bold("Inputs") + "\n" + inputs.text() + style.bold("Outputs") + "\n" + outputs.text();
  if (!symbols.empty()) text += style.bold("Dynamic dimensions") + "\n" + symbols.text();
  if (!weights.empty()) text += style.bold("Weights") + "\n" + weights.text();
  return text + style.bold("Operators") + "\n" + ops.text();
}

}  // namespace

Result<int> inspect_program(const ZipReader& zip, const InspectArguments& a) {
  ReadOptions options;
  options.model_name = a.program;
  options.check_weights = false;  // nothing is computed with them
  Result<Graph> graph = read_program(zip, options);
  if (!graph.ok()) {
    if (graph.error().where.empty()) graph.error().where = a.model;
    return std::move(graph).error();
  }
  const Json description = describe(graph.value(), a);
  put(a.json ? json_text(description) : to_text(shown_texts(description)));
  return 0;
}

}  // namespace coil::tool
