// See convolution_forms.h.
#include "lower/convolution_forms.h"

#include <algorithm>

namespace coil::lowering {
namespace {

int64_t taps_of(const View& w) {
  int64_t taps = 1;
  for (size_t i = 2; i < w.rank(); ++i) taps *= w.sizes[i]->as_int();
  return taps;
}

// Of all groups together; 0: not known, or none.
int64_t odd_channels(const Op& op, const View& x) {
  const int64_t vector = op.session.options.channel_vector;
  const int64_t channels = const_int(x.sizes[1]).value_or(0);
  return vector > 0 && channels % vector != 0 ? channels : 0;
}

// Channels that there are, of those that there are with zeros.
View filled_up(Op& op, const std::string& what, const View& v, Expr channels) {
  Sizes sizes = v.sizes;
  sizes[1] = channels;
  return op.rec.pointwise(op.name + what, v.dtype, sizes,
                          [&](Coordinates c) { return masked(inside(c[1], v.sizes[1]), op.rec.at(v, c), op.constant(0, v.dtype)); });
}

}  // namespace

std::optional<ConvolutionForm> as_patches(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) {
  if (odd_channels(op, x) == 0 || g.groups != 1 || taps_of(w) == 1) return std::nullopt;
  for (size_t i = 0; i < g.dims; ++i) {
    const int64_t kernel = w.sizes[2 + i]->as_int();
    if (g.stride[i] != kernel || g.padding[i] != 0 || (g.dilation[i] != 1 && kernel != 1)) return std::nullopt;
  }
  const Sizes window(w.sizes.begin() + 1, w.sizes.end());  // channels, then the kernel
  const Expr all = product(op.pool, window);
  Sizes pixels = sizes, single(w.rank(), op.pool.index(1));
  pixels[1] = all;
  single[0] = w.sizes[0], single[1] = all;
  ConvolutionForm form{op.rec.view(x, pixels,
                                   [&](Coordinates c) {
                                     std::vector<Expr> at = from_row_major(c[1], window);
                                     for (size_t i = 0; i < g.dims; ++i) at[1 + i] = c[2 + i] * g.stride[i] + at[1 + i];
                                     at.insert(at.begin(), c[0]);
                                     return at;
                                   }),
                       op.rec.view(w, single,
                                   [&](Coordinates c) {
                                     std::vector<Expr> at = from_row_major(c[1], window);
                                     at.insert(at.begin(), c[0]);
                                     return at;
                                   }),
                       g};
  std::fill(form.geometry.stride.begin(), form.geometry.stride.end(), 1);
  std::fill(form.geometry.dilation.begin(), form.geometry.dilation.end(), 1);
  return form;
}

ConvolutionForm with_whole_vectors(Op& op, const View& x, const View& w, const Geometry& g) {
  // So few numbers of a window are gathered one by one: the first layer of a network of images.
  constexpr int64_t kFewChannels = 4, kFewNumbers = 256;
  const int64_t channels = odd_channels(op, x), vector = op.session.options.channel_vector;
  const bool few = channels <= kFewChannels && channels * taps_of(w) <= kFewNumbers;
  if (channels == 0 || few || g.groups != 1 || taps_of(w) == 1 || byte_size(x.dtype) != 2) return {x, w, g};
  const Expr whole = op.pool.index((channels + vector - 1) / vector * vector);
  return {filled_up(op, ".channels", x, whole), filled_up(op, ".weight", w, whole), g};
}

}  // namespace coil::lowering
