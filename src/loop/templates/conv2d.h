// Convolutions of images.
#pragma once

#include <array>
#include <optional>

#include "loop/templates/parts.h"

namespace coil {

// out[n, oc, oh, ow] (logical order), x[n, ic, ih, iw], weight[oc, ic / groups, kh, kw] a whole buffer. No bias.
// x's variables: n, c, h, w over its own sizes. Of integers (x i8 or u8, weight i8, out i32): the exact sums of (x - x_zero) *
// weight over what lies inside of x; x_zero is a number that x can hold.
struct Conv2d {
  Operand x;
  std::vector<Expr> x_sizes;  // n, ic, ih, iw
  BufferId weight;
  std::array<int64_t, 2> kernel{}, stride{}, padding{}, dilation{};
  int64_t groups = 1;
  int64_t x_zero = 0;

  static constexpr const char* kName = "conv2d";
  static constexpr bool kTakesEpilogue = true;
  static constexpr bool kChecksData = false;
  static constexpr const char* kSummed = "k";
};

TemplateParts parts(Conv2d& def);
std::string problem(const LoopProgram& program, const Loop& loop, const Conv2d& def);
std::string text(const LoopText& words, const Conv2d& def);
void read(LoopReader& words, Conv2d& def);  // what text() wrote
DimRange narrowable(const Conv2d& def, size_t dim, const DimRange& wanted, Expr size);
void narrow(Conv2d& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at);
TemplateTiles tiles(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& results);
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& results);
Expr operations(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& results);
std::vector<Expr> work_sizes(const Conv2d& def, const std::vector<Expr>& results);
TemplateLimits limits(ExprPool& pool, const Conv2d& def, const std::vector<Expr>& results);

}  // namespace coil
