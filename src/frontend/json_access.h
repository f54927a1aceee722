// Shorthands for reading the program's JSON.
#pragma once

#include <string_view>

#include "base/json_read.h"

namespace coil {

// Unions are objects of one key: {"as_int": 3}.
struct JsonUnion {
  std::string_view key;
  JsonValue value;
};
inline Result<JsonUnion> as_union(JsonValue v) {
  TRY(auto member, v.as_union());
  return JsonUnion{member.first, member.second};
}

// An optional string: empty when absent or of another kind.
inline std::string_view text_or_empty(JsonValue object, std::string_view key) {
  auto v = object.find(key);
  if (!v || !v->is_string()) return {};
  return v->as_string().value();
}

}  // namespace coil
