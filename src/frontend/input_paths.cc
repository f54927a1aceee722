#include "frontend/input_paths.h"

#include <fmt/format.h>

#include <optional>

#include "frontend/json_access.h"

namespace coil {
namespace {

constexpr size_t kMaxInputs = 1 << 20;

// The keys of a container's children; nothing for kinds other than tuples, lists and dictionaries of strings.
std::optional<std::vector<std::string>> keys_of(JsonValue node, size_t children) {
  std::vector<std::string> keys;
  const std::string_view type = text_or_empty(node, "type");
  if (type == "builtins.tuple" || type == "builtins.list") {
    for (size_t i = 0; i < children; ++i) keys.push_back(std::to_string(i));
    return keys;
  }
  if (type != "builtins.dict") return std::nullopt;
  const Result<JsonDoc> context = JsonDoc::parse(text_or_empty(node, "context"), "the keys of an argument");
  if (!context.ok()) return std::nullopt;
  const Result<JsonArray> names = context.value().root().as_array();
  if (!names.ok() || names.value().size() != children) return std::nullopt;
  for (const JsonValue name : names.value()) {
    const Result<std::string_view> text = name.as_string();
    if (!text.ok()) return std::nullopt;
    keys.emplace_back(text.value());
  }
  return keys;
}

class Walk {
 public:
  std::vector<std::string> paths;

  // Adds the leaves of a node whose own path is `path` (none: what is in it has none either). False: not a specification.
  bool add(JsonValue node, const std::optional<std::string>& path) {
    const Result<JsonArray> children = node.get_array("children_spec");
    if (!children.ok() || paths.size() >= kMaxInputs) return false;
    const auto type = node.find("type");
    if (!type) {
      paths.push_back(path.value_or(""));
      return true;
    }
    const auto keys = path ? keys_of(node, children.value().size()) : std::nullopt;
    for (size_t i = 0; i < children.value().size(); ++i) {
      if (!add(children.value()[i], keys ? std::optional(*path + kPathStep + (*keys)[i]) : std::nullopt)) return false;
    }
    return true;
  }
};

}  // namespace

std::vector<std::string> input_paths(std::string_view in_spec, const std::vector<std::string>& arg_names) {
  const Result<JsonDoc> document = JsonDoc::parse(in_spec, "the specification of the arguments");
  if (!document.ok()) return {};
  const Result<JsonArray> top = document.value().root().as_array();  // [version, node]
  if (!top.ok() || top.value().size() != 2) return {};
  const Result<JsonArray> call = top.value()[1].get_array("children_spec");  // (positional arguments, those by keyword)
  if (!call.ok() || call.value().size() != 2) return {};
  Walk walk;
  size_t argument = 0;
  for (const JsonValue group : call.value()) {
    const Result<JsonArray> arguments = group.get_array("children_spec");
    if (!arguments.ok()) return {};
    for (const JsonValue node : arguments.value()) {
      const std::optional<std::string> name = argument < arg_names.size() ? std::optional(arg_names[argument]) : std::nullopt;
      ++argument;
      if (!walk.add(node, name)) return {};
    }
  }
  return std::move(walk.paths);
}

}  // namespace coil
