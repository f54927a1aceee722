// Values of a graph in the file: their types and definitions, nested graphs and results. The nodes: graph_nodes.cc.
#include "frontend/graph_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "frontend/errors.h"

namespace coil {
namespace {

constexpr int kMaxGraphDepth = 12;
constexpr int64_t kMaxElements = int64_t{1} << 48;

Result<std::unordered_map<std::string_view, JsonValue>> read_table(JsonValue graph, std::string_view key) {
  std::unordered_map<std::string_view, JsonValue> table;
  std::optional<JsonValue> json = graph.find(key);
  if (!json) return table;  // older files lack sym_float_values
  TRY(auto object, json->as_object());
  table.reserve(object.size());
  for (auto [name, value] : object) table.insert_or_assign(name, value);
  return table;
}

}  // namespace

Status GraphReader::read_values() {
  graph_.pool = context_.pool;
  if (depth_ > kMaxGraphDepth) return bad_program(fmt::format("graphs are nested more than {} deep", kMaxGraphDepth));
  TRY(tensors_, read_table(json_, "tensor_values"));
  TRY(sym_ints_, read_table(json_, "sym_int_values"));
  TRY(sym_bools_, read_table(json_, "sym_bool_values"));
  TRY(sym_floats_, read_table(json_, "sym_float_values"));
  return ok_status();
}

void GraphReader::note_input(std::string_view name) {
  if (const auto number = sym_ints_.find(name); number != sym_ints_.end()) context_.symbols.note_integer(number->second);
  const auto tensor = tensors_.find(name);
  if (tensor == tensors_.end()) return;
  const auto sizes = tensor->second.get_array("sizes");
  if (!sizes.ok()) return;  // who defines the tensor says so
  for (JsonValue size : sizes.value()) context_.symbols.note_size(size);
}

Result<TensorType> GraphReader::tensor_type(JsonValue meta, std::string_view name) {
  TensorType type;
  TRY(int64_t layout, meta.get_int("layout"));
  if (layout != 7) return Error{ErrorCode::unsupported_feature, fmt::format("'{}' is not a dense (strided) tensor", name), {}, {}, std::string(name)};
  TRY(int64_t dtype, meta.get_int("dtype"));
  TRY(type.dtype, read_dtype(dtype));
  TRY(JsonValue device, meta.get("device"));
  TRY(DeviceArg d, read_device(device));
  type.device = d.type;
  TRY(auto sizes, meta.get_array("sizes"));
  TRY(auto strides, meta.get_array("strides"));
  if (sizes.size() > 64 || sizes.size() != strides.size())
    return bad_program(fmt::format("'{}' has {} sizes and {} strides", name, sizes.size(), strides.size()));
  int64_t elements = 1;
  auto read = [&](JsonArray list, std::vector<Expr>& out, bool is_size) -> Status {
    for (JsonValue item : list) {
      TRY(Expr e, context_.symbols.sym_int(item));
      if (e->is_constant()) {
        int64_t v = e->as_int();
        if (v < 0 || v > kMaxElements) return bad_program(fmt::format("'{}' has a size or stride of {}", name, v));
        if (is_size && (__builtin_mul_overflow(elements, std::max<int64_t>(v, 1), &elements) || elements > kMaxElements)) {
          return bad_program(fmt::format("'{}' is larger than any memory", name));
        }
      }
      out.push_back(e);
    }
    return ok_status();
  };
  TRY_STATUS(read(sizes, type.sizes, true));
  TRY_STATUS(read(strides, type.strides, false));
  return type;
}

Result<ValueId> GraphReader::define_tensor(std::string_view name, NodeId producer) {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return bad_program(fmt::format("'{}' has no entry in tensor_values", name.substr(0, 200)));
  if (defined_.contains(name)) return bad_program(fmt::format("'{}' is defined twice", name.substr(0, 200)));
  TRY(TensorType type, tensor_type(it->second, name));
  ValueId id = graph_.add_value({std::string(name), std::move(type), producer});
  defined_[name] = id;
  return id;
}

Result<ValueId> GraphReader::define_input(std::string_view name) {
  if (tensors_.contains(name)) return define_tensor(name, NodeId());
  if (defined_.contains(name)) return bad_program(fmt::format("'{}' is defined twice", name.substr(0, 200)));
  return value(name);
}

Result<ValueId> GraphReader::value(std::string_view name) {
  if (auto it = defined_.find(name); it != defined_.end()) return it->second;
  if (sym_ints_.contains(name)) {
    TRY(Expr e, sym_int(name));
    return defined_[name] = graph_.add_value({std::string(name), e, NodeId()});
  }
  if (sym_floats_.contains(name)) return Error{ErrorCode::unsupported_feature, fmt::format("'{}' is a float that depends on sizes or data", name), {}, {}};
  return bad_program(fmt::format("'{}' is {}", name.substr(0, 200), tensors_.contains(name) ? "used before it is computed" : "not a value of the graph"));
}

Result<Expr> GraphReader::sym_int(std::string_view name) {
  auto it = sym_ints_.find(name);
  if (it == sym_ints_.end()) return bad_program(fmt::format("'{}' has no entry in sym_int_values", name.substr(0, 200)));
  return context_.symbols.sym_int(it->second);
}

Result<Condition> GraphReader::sym_bool(std::string_view name) {
  auto it = sym_bools_.find(name);
  if (it == sym_bools_.end()) return bad_program(fmt::format("'{}' has no entry in sym_bool_values", name.substr(0, 200)));
  return context_.symbols.sym_bool(it->second);
}

Result<double> GraphReader::sym_float(std::string_view name) {
  auto it = sym_floats_.find(name);
  if (it == sym_floats_.end()) return bad_program(fmt::format("'{}' has no entry in sym_float_values", name.substr(0, 200)));
  return context_.symbols.sym_float(it->second);
}

Result<SubgraphRef> GraphReader::subgraph(JsonValue json) {
  TRY(Graph g, read_nested(context_, json, depth_ + 1));
  return SubgraphRef{std::make_shared<const Graph>(std::move(g))};
}

Result<Graph> GraphReader::read_nested(ReaderContext& context, JsonValue json, int depth) {
  GraphReader reader(context, json, depth);
  TRY_STATUS(reader.read_values());
  TRY(auto inputs, json.get_array("inputs"));
  for (JsonValue input : inputs) {
    TRY(JsonUnion u, as_union(input));
    GraphInput in;
    in.position = static_cast<int>(reader.graph_.inputs.size());
    if (u.key != "as_tensor" && u.key != "as_sym_int") {
      return Error{ErrorCode::unsupported_feature, fmt::format("a nested graph has an input of kind '{}'", u.key.substr(0, 64)), {}, {}};
    }
    TRY(std::string_view name, u.value.get_string(u.key == "as_tensor" ? "name" : "as_name"));
    TRY(in.value, reader.define_input(name));
    in.kind = reader.graph_.value(in.value).is_tensor() ? GraphInput::Kind::user : GraphInput::Kind::user_symint;
    in.name = name;
    reader.graph_.inputs.push_back(std::move(in));
  }
  TRY_STATUS(reader.read_nodes());
  TRY(auto outputs, json.get_array("outputs"));
  for (JsonValue output : outputs) {
    TRY(GraphOutput out, read_result(reader, output));
    reader.graph_.outputs.push_back(std::move(out));
  }
  return std::move(reader.graph_);
}

Result<GraphOutput> read_result(GraphReader& reader, JsonValue argument) {
  TRY(JsonUnion u, as_union(argument));
  GraphOutput out;
  if (u.key == "as_sym_int") {
    if (auto name = u.value.find("as_name")) {
      TRY(out.name, name->as_string());
      TRY(out.value, reader.value(out.name));
      return out;
    }
  }
  TRY(Argument a, read_argument(reader, argument));
  if (auto* v = std::get_if<ValueId>(&a)) {
    out.value = *v;
    out.name = reader.graph().value(*v).name;
  } else if (std::holds_alternative<NoneArg>(a)) {
    out.value = std::monostate();
  } else if (auto* e = std::get_if<Expr>(&a); e && (*e)->is_constant()) {
    out.value = (*e)->as_int();
  } else if (auto* d = std::get_if<double>(&a)) {
    out.value = *d;
  } else if (auto* b = std::get_if<bool>(&a)) {
    out.value = *b;
  } else if (auto* s = std::get_if<std::string>(&a)) {
    out.value = std::move(*s);
  } else {
    return Error{ErrorCode::unsupported_feature, fmt::format("an output of kind '{}' is not supported", u.key.substr(0, 64)), {}, {}};
  }
  return out;
}

}  // namespace coil
