// Convolutions over numbers of channels that a target does not load in whole vectors, as others that it is quicker at.
#pragma once

#include <optional>

#include "lower/convolution.h"

namespace coil::lowering {

struct ConvolutionForm {
  View x, w;  // as of convolution()
  Geometry geometry;
};

// Windows that neither overlap nor leave anything out (patches of an image, kernel = stride): one pixel of all of a window's numbers for each, side by side.
// The result has the same sizes. Null where windows are otherwise, or LowerOptions::channel_vector takes the channels as they are.
std::optional<ConvolutionForm> as_patches(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes);

// 16-bit channels with zeros up to whole vectors, beside a weight that has zeros there too. The same convolution where there is nothing to fill up.
ConvolutionForm with_whole_vectors(Op& op, const View& x, const View& w, const Geometry& g);

}  // namespace coil::lowering
