// How the bytes of a constant lie in a package. The plan knows two layouts; any other is a name that a target gives it (TargetTraits::packings), and means
// something to who makes the bytes (codegen/packings.h) and to the kernels that read them.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <string_view>

namespace coil {

class Packing {
 public:
  static constexpr size_t kMostLetters = 23;

  constexpr Packing() : Packing("plain") {}
  // Longer names are cut: a reader of texts asks `fits` before.
  constexpr explicit Packing(std::string_view name) { std::copy_n(name.begin(), std::min(name.size(), kMostLetters), letters_.begin()); }
  static constexpr bool fits(std::string_view name) { return !name.empty() && name.size() <= kMostLetters; }

  constexpr std::string_view name() const { return letters_.data(); }
  auto operator<=>(const Packing&) const = default;

 private:
  std::array<char, kMostLetters + 1> letters_{};
};

inline constexpr Packing kPlain;                        // as the program has it, in row-major order
inline constexpr Packing kPaddedLines("padded_lines");  // n lines of k elements, batch_stride apart

}  // namespace coil
