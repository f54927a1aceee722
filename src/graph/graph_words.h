// Words that a graph's text uses for arguments, for its printer and its reader.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "expr/name_text.h"
#include "graph/graph.h"

namespace coil {

// In the order of the enumerations.
inline constexpr std::array<std::string_view, 4> kFormatWords = {"contiguous", "channels_last", "channels_last_3d", "preserve"};
inline constexpr std::array<std::string_view, 3> kDeviceWords = {"cpu", "cuda", "other"};
inline constexpr std::array<std::string_view, 6> kInputWords = {"parameter", "buffer", "constant", "user", "symint", "fixed"};

// The name that a text begins with; empty: it begins with none.
inline std::string_view first_word(std::string_view text) {
  if (text.empty() || !begins_name(text[0])) return {};
  return text.substr(0, static_cast<size_t>(std::find_if_not(text.begin(), text.end(), in_name) - text.begin()));
}

// "graph12".
inline bool is_subgraph_word(std::string_view word) {
  return word.size() > 5 && word.starts_with("graph") && word.find_first_not_of("0123456789", 5) == std::string_view::npos;
}

// Whether an argument that begins with the word is no size: a size with such a name stands in `size(...)`.
inline bool is_argument_word(std::string_view word) {
  static constexpr std::string_view kOthers[] = {"None",    "True",   "False",  "tensors", "floats", "bools", "size",
                                                 "complex", "layout", "opaque", "strided", "inf",    "nan"};
  const auto in = [&](const auto& list) { return std::find(std::begin(list), std::end(list), word) != std::end(list); };
  return in(kOthers) || in(kFormatWords) || in(kDeviceWords) || is_subgraph_word(word) || dtype_from_name(word).has_value();
}

// Whether the operator has a schema, so that the names of its arguments follow from their positions.
inline bool has_known_arguments(std::string_view target) {
  static constexpr std::string_view kNamespaces[] = {"aten.", "prims.", "quantized_decomposed.", "torch_nn.", "torchao."};
  return std::any_of(std::begin(kNamespaces), std::end(kNamespaces), [&](std::string_view space) { return target.starts_with(space); });
}

}  // namespace coil
