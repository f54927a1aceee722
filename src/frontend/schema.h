// Operator schemas: argument names, types and defaults of the ATen operators, from the table that tools/make_schemas.py writes.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace coil {

// The schema language's types, without what makes no difference to a compiler (SymInt and int are one).
enum class SchemaType : uint8_t { tensor, integer, scalar, floating, boolean, string, dtype, memory_format, layout, device, generator, other };

struct SchemaArg {
  std::string_view name;
  SchemaType type = SchemaType::other;
  bool list = false;      // int[], Tensor[], Tensor?[] ...
  bool optional = false;  // the argument itself may be None
  int list_size = 0;      // the 2 of int[2]: one integer stands for two; 0: none given
  bool keyword_only = false;
  bool written = false;                          // Tensor(a!)
  std::optional<std::string_view> default_text;  // as written in the schema: "[1, 1]", "None", "1.", "\"none\""
};

struct Schema {
  std::string_view name;  // "aten.add.Tensor"
  std::vector<SchemaArg> args;
  std::vector<SchemaArg> returns;
};

// The schema of "aten.add.Tensor"; nullopt: not in the table (custom and unknown operators). The views point into the table.
std::optional<Schema> find_schema(std::string_view target);

// Parses one line of the table. nullopt: malformed.
std::optional<Schema> parse_schema(std::string_view line);

}  // namespace coil
