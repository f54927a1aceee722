// Windows of pools, and the few of them that can show a pixel: a gradient looks at those and not at all outputs.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "lower/lowering.h"

namespace coil::lowering {

struct Window {
  size_t first;  // the first spatial dimension
  std::vector<int64_t> kernel, stride, padding, dilation;
};

// The arguments kernel_size, stride, padding and dilation of a pool over the last `dims` dimensions of x.
Window pool_window(const Op& op, const View& x, size_t dims);

// The number within its window of the element that a pool takes the largest from: the first one of equal elements, but the last NaN, as eager does.
// `seen`: the element at point k of the window of output c.
View winning_point(Op& op, DType type, const Sizes& sizes, const Sizes& window, FunctionRef<Expr(Coordinates, Coordinates)> seen);

// The coordinates of a point in its window from its number, as values of `type` (i64, or i32 where the window's points are fewer than that).
std::vector<Expr> point_coordinates(Op& op, Expr number, const Sizes& window, DType type);
// The type in which the numbers of an image's pixels are counted: half the bits where they are known to be enough.
DType pixel_type(const Sizes& image);

// Elements that the average divides by: the window's, cut at the image (or, when padding counts, at the padded image).
Expr window_divisor(Op& op, const View& x, const Window& w, Coordinates c, bool count_padding, const Sizes& out_sizes);
// The same along each spatial dimension.
Sizes window_extents(Op& op, const View& x, const Window& w, Coordinates c, bool count_padding, const Sizes& out_sizes);

// The windows along one dimension that can show a pixel. Window o shows the pixels o * stride - padding + t * dilation, t in [0, kernel).
class WindowsOver {
 public:
  WindowsOver(int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);

  // Each pixel has this many candidates: the last windows that begin at it or before, or, where dilation makes those too many, one for each
  // point of a window.
  int64_t count() const { return by_windows_ ? windows_ : kernel_; }

  struct Candidate {
    Expr window;  // its number, which may be none
    Expr point;   // t, where the window shows the pixel
    Expr shows;   // whether it does, if it is a window at all
  };
  Candidate candidate(Expr pixel, Expr number) const;

 private:
  int64_t kernel_, stride_, padding_, dilation_, span_, windows_;
  bool by_windows_;
};

// Windows of an adaptive pool: output o sees [floor(o * in / out), ceil((o + 1) * in / out)). Those that see pixel o are found in the same way:
// of `in` windows over `out` pixels they are [begin, end).
struct AdaptiveDim {
  Expr begin, end, widest;
};
AdaptiveDim adaptive_dim(ExprPool& pool, Expr o, Expr in, Expr out);

}  // namespace coil::lowering
