// The table of all lowerings: each family of operators adds its rows.
#include "lower/aliases.h"
#include "lower/families.h"
#include "lower/lower.h"
#include "lower/lowering.h"

namespace coil {
namespace lowering {
namespace {

Table make_table() {
  Table t;
#define FAMILY(name) add_##name(t);
#include "lower/families.def"
#undef FAMILY
  add_aliases(t);
  return t;
}

}  // namespace

const Table& table() {
  static const Table instance = make_table();
  return instance;
}

}  // namespace lowering

bool has_lowering(std::string_view target) {
  return lowering::table().contains(target) || lowering::complex_table().contains(target) || lowering::float8_table().contains(target);
}

std::vector<std::string> lowered_operators() {
  std::vector<std::string> names;
  for (const auto& [name, lowering] : lowering::table()) names.push_back(name);
  return names;
}

}  // namespace coil
