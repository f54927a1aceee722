#include "frontend/signature.h"

#include <fmt/format.h>

#include "frontend/errors.h"

namespace coil {
namespace {

// The stored tensor must be the one that the graph was traced with.
Status check_data(const Graph& graph, const GraphInput& in) {
  const TensorType& type = graph.value(in.value).tensor();
  bool same = type.dtype == in.data.dtype && type.sizes.size() == in.data.sizes.size();
  for (size_t i = 0; same && i < type.sizes.size(); ++i) same = type.sizes[i]->is_constant() && type.sizes[i]->as_int() == in.data.sizes[i];
  if (same) return ok_status();
  return Error{ErrorCode::bad_weights,
               fmt::format("weight '{}' is stored as {}[{}], but the program uses it as {}", in.name, name(in.data.dtype), fmt::join(in.data.sizes, ", "),
                           to_string(graph, type)),
               {},
               {}};
}

Status add_weight(GraphReader& reader, GraphInput in, JsonValue spec, std::string_view name_key, WeightStore& weights) {
  TRY(JsonValue arg, spec.get("arg"));
  TRY(std::string_view arg_name, arg.get_string("name"));
  TRY(std::string_view fqn, spec.get_string(name_key));
  in.name = fqn;
  TRY(in.value, reader.define_input(arg_name));
  if (!reader.graph().value(in.value).is_tensor()) return bad_program(fmt::format("weight '{}' is not a tensor", fqn.substr(0, 300)));
  TRY(in.data, weights.get(fqn));
  TRY_STATUS(check_data(reader.graph(), in));
  reader.graph().inputs.push_back(std::move(in));
  return ok_status();
}

// A non-tensor input that the export specialised on.
Status add_fixed(GraphReader& reader, std::string_view name, int position, JsonUnion value) {
  GraphInput in;
  in.kind = GraphInput::Kind::fixed;
  in.name = name;
  in.position = position;
  if (value.key == "as_int") {
    TRY(int64_t v, value.value.as_int());
    in.fixed_value = v;
  } else if (value.key == "as_float") {
    TRY(double v, value.value.as_double());
    in.fixed_value = v;
  } else if (value.key == "as_bool") {
    TRY(bool v, value.value.as_bool());
    in.fixed_value = v;
  } else if (value.key == "as_string") {
    TRY(std::string_view v, value.value.as_string());
    in.fixed_value = std::string(v);
  } else if (value.key != "as_none") {
    return unsupported(fmt::format("input '{}' is of kind '{}', which is not supported", name.substr(0, 200), value.key.substr(0, 64)));
  }
  reader.graph().inputs.push_back(std::move(in));
  return ok_status();
}

void note_user_input(GraphReader& reader, JsonValue spec) {
  const auto arg = spec.find("arg");
  if (!arg) return;
  if (const auto tensor = arg->find("as_tensor")) reader.note_input(text_or_empty(*tensor, "name"));
  if (const auto number = arg->find("as_sym_int")) reader.note_input(text_or_empty(*number, "as_name"));
}

Status add_user_input(GraphReader& reader, JsonValue spec, int position) {
  TRY(JsonValue arg, spec.get("arg"));
  TRY(JsonUnion u, as_union(arg));
  bool is_tensor = u.key == "as_tensor", is_symint = u.key == "as_sym_int" && u.value.find("as_name").has_value();
  if (!is_tensor && !is_symint) return add_fixed(reader, fmt::format("input_{}", position), position, u);
  GraphInput in;
  TRY(std::string_view name, u.value.get_string(is_tensor ? "name" : "as_name"));
  TRY(in.value, reader.define_input(name));
  in.kind = reader.graph().value(in.value).is_tensor() ? GraphInput::Kind::user : GraphInput::Kind::user_symint;
  in.name = name;
  in.position = position;
  reader.graph().inputs.push_back(std::move(in));
  return ok_status();
}

Status add_output(GraphReader& reader, JsonUnion spec, JsonValue graph_output) {
  struct Kind {
    std::string_view key, target_key;
    GraphOutput::Kind kind;
  };
  static constexpr Kind kKinds[] = {{"user_output", "", GraphOutput::Kind::user},
                                    {"buffer_mutation", "buffer_name", GraphOutput::Kind::buffer_mutation},
                                    {"parameter_mutation", "parameter_name", GraphOutput::Kind::buffer_mutation},  // a state like any other
                                    {"user_input_mutation", "user_input_name", GraphOutput::Kind::input_mutation}};
  for (const Kind& k : kKinds) {
    if (k.key != spec.key) continue;
    TRY(GraphOutput out, read_result(reader, graph_output));
    out.kind = k.kind;
    if (!k.target_key.empty()) {
      TRY(std::string_view target, spec.value.get_string(k.target_key));
      out.target = target;
      auto* v = std::get_if<ValueId>(&out.value);
      if (!v || !reader.graph().value(*v).is_tensor()) return bad_program(fmt::format("the new value of '{}' is not a tensor", target.substr(0, 200)));
    }
    reader.graph().outputs.push_back(std::move(out));
    return ok_status();
  }
  if (spec.key == "token") return ok_status();  // orders effects, see GraphReader::read_effect
  return unsupported(fmt::format("an output of kind '{}' is not supported", spec.key.substr(0, 64)),
                     "export the model for inference: torch.export.export(model.eval(), ...)");
}

}  // namespace

Status read_input_specs(GraphReader& reader, JsonValue signature, WeightStore& weights) {
  TRY(JsonArray specs, signature.get_array("input_specs"));
  TRY(JsonArray inputs, reader.json().get_array("inputs"));
  if (specs.size() != inputs.size()) return bad_program(fmt::format("the graph has {} inputs and the signature {}", inputs.size(), specs.size()));
  for (JsonValue item : specs) {
    if (const auto spec = item.find("user_input")) note_user_input(reader, *spec);
  }
  int position = 0;
  for (JsonValue item : specs) {
    TRY(JsonUnion spec, as_union(item));
    GraphInput in;
    if (spec.key == "parameter") {
      in.kind = GraphInput::Kind::parameter;
      TRY_STATUS(add_weight(reader, std::move(in), spec.value, "parameter_name", weights));
    } else if (spec.key == "buffer") {
      in.kind = GraphInput::Kind::buffer;
      TRY_STATUS(add_weight(reader, std::move(in), spec.value, "buffer_name", weights));
    } else if (spec.key == "tensor_constant") {
      in.kind = GraphInput::Kind::constant;
      TRY_STATUS(add_weight(reader, std::move(in), spec.value, "tensor_constant_name", weights));
    } else if (spec.key == "user_input") {
      TRY_STATUS(add_user_input(reader, spec.value, position++));
    } else if (spec.key == "constant_input") {
      TRY(std::string_view name, spec.value.get_string("name"));
      TRY(JsonValue value, spec.value.get("value"));
      TRY(JsonUnion u, as_union(value));
      TRY_STATUS(add_fixed(reader, name, position++, u));
    } else if (spec.key != "custom_obj" && spec.key != "token") {  // an object is an error where it is used
      return unsupported(fmt::format("an input of kind '{}' is not supported", spec.key.substr(0, 64)));
    }
  }
  return ok_status();
}

Status read_output_specs(GraphReader& reader, JsonValue signature) {
  TRY(JsonArray specs, signature.get_array("output_specs"));
  TRY(JsonArray outputs, reader.json().get_array("outputs"));
  if (specs.size() != outputs.size()) return bad_program(fmt::format("the graph has {} outputs and the signature {}", outputs.size(), specs.size()));
  for (size_t i = 0; i < specs.size(); ++i) {
    TRY(JsonUnion spec, as_union(specs[i]));
    TRY_STATUS(add_output(reader, spec, outputs[i]));
  }
  return ok_status();
}

Status read_call_spec(Graph& graph, JsonValue graph_module) {
  auto entries = graph_module.find("module_call_graph");
  if (!entries) return ok_status();
  TRY(JsonArray list, entries->as_array());
  for (JsonValue entry : list) {
    auto fqn = entry.find("fqn");
    auto signature = entry.find("signature");
    if (!fqn || !signature) continue;
    TRY(std::string_view name, fqn->as_string());
    if (!name.empty()) continue;
    graph.in_spec = text_or_empty(*signature, "in_spec");
    graph.out_spec = text_or_empty(*signature, "out_spec");
    if (auto names = signature->find("forward_arg_names")) {
      TRY(JsonArray strings, names->as_array());
      for (JsonValue s : strings) {
        TRY(std::string_view text, s.as_string());
        graph.forward_arg_names.emplace_back(text);
      }
    }
  }
  return ok_status();
}

}  // namespace coil
