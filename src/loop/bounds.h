// Whether definitions read inside of their buffers. What the sizes of a program promise is true only where they go together.
#pragma once

#include <optional>
#include <string>

#include "loop/loop.h"

namespace coil {

// What is read where there is nothing, in words: "'x' of sizes [4, 8] is read at [0, 8]". nullopt: none of the points that were looked at does so. A read
// that the ranges of its variables prove to be inside is inside; of another one the ends of its domain and some points between are looked at, under the
// conditions that it stands in. Sizes that are not constant are looked at by examples that `checks` hold for: all of them have to be wrong. Sizes from data
// are not looked at.
class Bounds {
 public:
  Bounds(const LoopProgram& program, const std::vector<SizeCheck>& checks) : program_(program), checks_(checks) {}

  std::optional<std::string> outside(Expr body, const std::vector<Expr>& domain);
  std::optional<std::string> outside(const Loop& loop);

 private:
  std::optional<std::string> outside(const Operand& operand, const std::vector<Expr>& domain);
  std::optional<std::string> outside_template(const Loop& loop);
  std::optional<std::string> tried(Expr body, const std::vector<Expr>& domain);
  bool inside(Expr load, const std::vector<Expr>& domain, const std::vector<Expr>& conditions) const;
  bool all_inside(Expr body, const std::vector<Expr>& domain) const;

  const LoopProgram& program_;
  const std::vector<SizeCheck>& checks_;
  int64_t steps_ = int64_t{1} << 22;  // evaluated nodes that are left, so that a large program takes no longer than a small one
};

}  // namespace coil
