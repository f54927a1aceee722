#include "frontend/dim_names.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace coil {
namespace {

Error bad_dim_name(std::string message, std::string hint = {}) { return Error{ErrorCode::bad_dimension, std::move(message), {}, std::move(hint)}; }

std::string known_dimensions(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.pool->num_symbols(); ++i) text += (i ? ", " : "") + graph.pool->symbol_info(SymbolId(i)).name;
  return text.empty() ? "the program has no dynamic dimension" : "the program's dynamic dimensions are " + text;
}

// The symbol behind "s77" or "x:0"; an invalid id: a static dimension.
Result<SymbolId> resolve(const Graph& graph, const std::string& key) {
  size_t colon = key.rfind(':');
  if (colon == std::string::npos) {
    if (auto id = graph.pool->find_symbol(key)) return *id;
    return bad_dim_name(fmt::format("the program has no dimension '{}'", key), known_dimensions(graph));
  }
  std::string_view input = std::string_view(key).substr(0, colon);
  for (const GraphInput& in : graph.inputs) {
    if (in.name != input || !in.value.valid() || !graph.value(in.value).is_tensor()) continue;
    const std::vector<Expr>& sizes = graph.value(in.value).tensor().sizes;
    size_t dim = sizes.size();
    const char* end = key.data() + key.size();
    auto [stop, error] = std::from_chars(key.data() + colon + 1, end, dim);
    if (error != std::errc() || stop != end || dim >= sizes.size())
      return bad_dim_name(fmt::format("'{}': input '{}' has {} dimensions", key, input, sizes.size()));
    return sizes[dim]->kind == ExprKind::symbol ? SymbolId(sizes[dim]->id) : SymbolId();
  }
  std::string tensors;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind == GraphInput::Kind::user && in.value.valid() && graph.value(in.value).is_tensor()) tensors += (tensors.empty() ? "" : ", ") + in.name;
  }
  return bad_dim_name(fmt::format("'{}': the program has no tensor input '{}'", key, input), "its tensor inputs: " + tensors.substr(0, 200));
}

}  // namespace

bool is_dimension_name(std::string_view s) {
  constexpr std::string_view kDigits = "0123456789";
  const bool word = !s.empty() && s.size() <= 64 && kDigits.find(s[0]) == s.npos &&
                    s.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == s.npos;
  for (const std::string_view other : {"workers", "true", "false", "inf", "nan"}) {
    if (s == other) return false;
  }
  return word && !(s[0] == 'i' && s.size() > 1 && s.find_first_not_of(kDigits, 1) == s.npos);
}

Status apply_dim_names(Graph& graph, const std::map<std::string, std::string>& names, bool strict) {
  for (const auto& [key, label] : names) {
    Result<SymbolId> id = resolve(graph, key);
    if (!id.ok()) {
      if (strict) return std::move(id).error();
      continue;
    }
    if (!id.value().valid()) continue;
    if (!is_dimension_name(label))
      return bad_dim_name(fmt::format("'{}' cannot name a dimension", clipped(label, 100)),
                          "use letters, digits and underscores, and another word than a formula has a meaning for (workers, i0)");
    for (size_t i = 0; i < graph.pool->num_symbols(); ++i) {
      if (SymbolId(i) != id.value() && graph.pool->symbol_info(SymbolId(i)).label == label) {
        return bad_dim_name(fmt::format("two different dimensions would be named '{}'", label));
      }
    }
    graph.pool->set_symbol_label(id.value(), label);
  }
  return ok_status();
}

}  // namespace coil
