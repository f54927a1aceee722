// coil_conv2d_f64: coil_conv2d for doubles, as an implicit gemm or depthwise.
#define COIL_DOUBLE 1
#include "conv_source.h"
#include "conv_weight.h"
#include "depthwise.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

void multiply(const CoilConv2d& c, const ConvSource<double>& source, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  Product p = conv_product(c, source.group_k, to);
  p.columns_are_batches = true;
  p.scratch = c.scratch;
  p.asked_tiles = c.block_tiles;
  p.asked_panels = c.block_panels;
  plan_conv(p, c, source.stride_in_place(), host);
  BlockRunner<const ConvSource<double>>{p, source}.run(host);
}

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_conv2d_f64)(const CoilConv2d* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  if (args->n * args->oh * args->ow * args->oc <= 0) return;
  const CoilConv2d c = args->w_plain ? pack_plain_weight(*args, host) : *args;
  if (c.depthwise) return depthwise_conv2d(c, host);
  const auto* x = static_cast<const double*>(c.x);
  if (c.x_c == 1 || c.ic == 1) return multiply(c, ConvSource<double>(c, x, c.x_n, c.x_h, c.x_w), host);
  auto* copied = static_cast<double*>(copied_input(c, host));
  const int64_t line = c.iw * c.ic;
  ChannelsLast<double, double>{c, copied}.run_all(host);
  multiply(c, ConvSource<double>(c, copied, c.ih * line, line, c.ic), host);
}
