// Strong ids: rows of one table cannot be mistaken for rows of another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace coil {

template <class Tag>
struct Id {
  int32_t index = -1;

  Id() = default;
  explicit Id(int32_t i) : index(i) {}
  explicit Id(size_t i) : index(static_cast<int32_t>(i)) {}
  bool valid() const { return index >= 0; }
  auto operator<=>(const Id&) const = default;
};

}  // namespace coil

template <class Tag>
struct std::hash<coil::Id<Tag>> {
  size_t operator()(coil::Id<Tag> id) const { return std::hash<int32_t>()(id.index); }
};
