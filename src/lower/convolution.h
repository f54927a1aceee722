// What the convolutions and their gradients share.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

struct Geometry {
  size_t dims;  // spatial
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
};

std::vector<int64_t> spatial(std::vector<int64_t> v, size_t dims);

// Of x[n, ic, ...] with w[oc, ic / groups, ...] (transposed: w[ic, oc / groups, ...]), with results of these sizes: more or less
// padding at the far side is a matter of the sizes.
View convolution(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes);

// Whether the templates take such numbers; other types are summed by loops.
bool has_convolution_template(const View& x, const View& w);
// x[n, c, d, h, w] as images [n * od, c * kd, h, w] for each output depth: by group, tap in depth and channel of the group, which lie side by
// side where x has its channels so. `g` becomes the geometry that is left.
View depth_folded(Op& op, const View& x, int64_t kernel, Expr out_depth, Geometry& g);

}  // namespace coil::lowering
