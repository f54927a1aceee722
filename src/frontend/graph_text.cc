#include "frontend/graph_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "frontend/arguments.h"
#include "frontend/dim_names.h"
#include "frontend/schema.h"
#include "graph/parse.h"

namespace coil {
namespace {

// Of a functional form that only the pass `functionalize` has ("aten.fill_diagonal.default") it is that of the form in place.
std::optional<Schema> schema_of(std::string_view target) {
  std::optional<Schema> schema = find_schema(target);
  const size_t overload = target.rfind('.');
  if (schema || overload == std::string_view::npos) return schema;
  return find_schema(std::string(target.substr(0, overload)) + "_" + std::string(target.substr(overload)));
}

std::vector<std::string> written_arguments(std::string_view target) {
  std::vector<std::string> names;
  if (const std::optional<Schema> schema = schema_of(target)) {
    for (const SchemaArg& a : schema->args) names.emplace_back(a.name);
  }
  return names;
}

// Where the reader of programs leaves an argument as it is (GraphReader::bind_arguments), and where passes do: values stand for numbers.
bool is_taken(const SchemaArg& schema, const Argument& argument) {
  return std::holds_alternative<ValueId>(argument) || std::holds_alternative<NoneArg>(argument) || schema.type == SchemaType::other;
}

Status check_node(ExprPool& pool, Node& node, LeftOut left_out) {
  const std::optional<Schema> schema = schema_of(node.target);
  if (!schema) return ok_status();
  for (size_t i = 0; i < node.args.size(); ++i) {
    const auto known = std::find_if(schema->args.begin(), schema->args.end(), [&](const SchemaArg& a) { return a.name == node.arg_names[i]; });
    if (known == schema->args.end())
      return Error{ErrorCode::bad_program, fmt::format("{} has no argument '{}'", node.target, shown(node.arg_names[i])), "", ""};
    if (is_taken(*known, node.args[i])) continue;
    TRY(node.args[i], coerce(pool, std::move(node.args[i]), *known));
  }
  if (left_out == LeftOut::stays_out) return ok_status();
  Node whole = node;
  whole.arg_names.clear();
  whole.args.clear();
  for (const SchemaArg& a : schema->args) {
    const Argument* given = node.find(a.name);
    TRY(Argument argument, given ? Result<Argument>(*given) : default_argument(pool, a));
    whole.arg_names.emplace_back(a.name);
    whole.args.push_back(std::move(argument));
  }
  node = std::move(whole);
  return ok_status();
}

}  // namespace

Result<Graph> read_graph_text(std::string_view text, LeftOut left_out) {
  TRY(Graph graph, parse_graph(text, {written_arguments, [&](ExprPool& pool, Node& node) { return check_node(pool, node, left_out); }}));
  for (size_t i = 0; i < graph.pool->num_symbols(); ++i) {
    const Symbol& s = graph.pool->symbol_info(SymbolId(i));
    for (const std::string& name : {s.name, s.label}) {
      if (!is_dimension_name(name))
        return Error{ErrorCode::bad_program, fmt::format("'{}' cannot name a dynamic dimension", clipped(shown(name), 100)), "", ""};
    }
  }
  return graph;
}

}  // namespace coil
