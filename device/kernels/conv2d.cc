// coil_conv2d as an implicit gemm of what conv_source.h gathers.
// Depthwise convolutions, those of several images with small maps and 3x3 ones with transformed weights have kernels of their own.
#include "amx.h"
#include "conv_amx.h"
#include "conv_integer.h"
#include "conv_source.h"
#include "conv_weight.h"
#include "depthwise.h"
#include "few_outputs.h"
#include "first_conv.h"
#include "narrow_groups.h"
#include "pairs.h"
#include "small_maps.h"
#include "winograd.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// Pixels that may be bfloat16 for dot products, beside weights that may be widened.
template <class T>
struct MixedConvSource : ConvSource<T> {
  bool bits = false;  // pixels are copied without widening
  using ConvSource<T>::ConvSource;
  using ConvSource<T>::c;

  void pack_a(int64_t group, int64_t row, int64_t rows, int64_t k0, int64_t k, float* out, int64_t stride = kRowStride) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits) return this->gather_rows(group, row, rows, k0, k, PixelCopier<T, T>(), reinterpret_cast<T*>(out), 2 * stride);
    }
    ConvSource<T>::pack_a(group, row, rows, k0, k, out, stride);
  }

  int64_t stride_in_place() const { return ConvSource<T>::stride_in_place(__is_same(T, float) || (bits && this->group_ic % 2 == 0)); }

  bool has_pairs() const { return c.w_pairs; }
  bool b_in_place() const { return bits || !c.w_pairs; }

  PanelChunk panel_b(int64_t group, int64_t panel, int64_t k0, int64_t k, float* buffer, int64_t tiles) const {
    const void* w = this->next_b(group, panel, k0);
    if (c.w_pairs) {
      if (bits) return {w, kPairs, COIL_BFLOAT16};
      widen_pairs(static_cast<const BFloat16*>(w), k, buffer);
      return {buffer, kPanel, COIL_FLOAT32};
    }
    if (c.dtype == COIL_FLOAT32 || bits || !widens_panel<Float16>(tiles)) return {w, kPanel, c.dtype};
    with_dtype(c.dtype, [&](auto* type) { copy_row(static_cast<decltype(type)>(w), k * kPanel, buffer); });
    return {buffer, kPanel, COIL_FLOAT32};
  }
};

template <class Source>
void multiply(const CoilConv2d& c, Source& source, void* scratch, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  Product p = conv_product(c, source.group_k, to);
  p.columns_are_batches = true;
  p.bfloat16_dot = source.bits;
  p.scratch = scratch;
  p.asked_tiles = c.block_tiles;
  p.asked_panels = c.block_panels;
  if (source.bits && suits_amx(p)) {
    plan_amx(p, host->num_workers);
    return AmxRunner<Source>{p, source}.run(host);
  }
  plan_conv(p, c, source.stride_in_place(), host);
  BlockRunner<Source>{p, source}.run(host);
}

template <class T>
void conv2d(const CoilConv2d& c, const CoilHost* host) {
  if (c.n * c.oh * c.ow * c.oc <= 0) return;
  const int64_t rows = c.n * c.oh * c.ow;
  const bool dot = __is_same(T, BFloat16) && ((rows >= kFewestDotRows && has_bfloat16_dot()) || (rows >= kFewestAmxRows && has_amx()));
  if (c.x_c == 1 || c.ic == 1) {
    // (One channel: its stride is never used.)
    MixedConvSource<T> source(c, static_cast<const T*>(c.x), c.x_n, c.x_h, c.x_w);
    source.bits = dot;
    multiply(c, source, c.scratch, host);
    return;
  }
  void* copied = copied_input(c, host);
  const int64_t line = c.iw * c.ic;
  if constexpr (__is_same(T, BFloat16)) {
    if (dot && c.ic == 3 && c.x_w == 1) {
      ChannelsLast<T, T>{c, static_cast<T*>(copied)}.run_all(host);
      MixedConvSource<T> source(c, static_cast<const T*>(copied), c.ih * line, line, c.ic);
      source.bits = true;
      multiply(c, source, c.scratch, host);
      return;
    }
  }
  ChannelsLast<T, float>{c, static_cast<float*>(copied)}.run_all(host);
  MixedConvSource<float> source(c, static_cast<const float*>(copied), c.ih * line, line, c.ic);
  multiply(c, source, c.scratch, host);
}

// A matrix unit multiplies several times what Winograd's filtering saves.
bool prefers_direct(const CoilConv2d& c) { return c.w_direct && c.dtype == COIL_BFLOAT16 && c.n * c.oh * c.ow >= kFewestAmxRows && has_amx(); }

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_conv2d)(const CoilConv2d* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  if (args->n * args->oh * args->ow * args->oc <= 0) return;
  if (args->dtype == COIL_UINT8 || args->dtype == COIL_INT8) return args->depthwise ? depthwise_conv2d(*args, host) : integer_conv2d(*args, host);
  if (args->ic <= 0) {  // sums of nothing: the gradient of a weight by no images
    CoilConv2d empty = *args;
    empty.x_c = 1;
    return with_dtype(empty.dtype, [&](auto* type) { conv2d<__remove_cvref(decltype(*type))>(empty, host); });
  }
  CoilConv2d conv = args->w_plain ? (args->winograd ? transform_plain_weight(*args, host) : pack_plain_weight(*args, host)) : *args;
  if (conv.depthwise) return depthwise_conv2d(conv, host);
  if (conv.few_outputs) return few_outputs_conv2d(conv, host);
  if (conv.narrow_groups) return narrow_groups_conv2d(conv, host);
  if (conv.winograd && !prefers_direct(conv)) return winograd_conv2d(conv, host);
  if (conv.winograd) conv.w = conv.w_direct;
  if (!conv.implicit && fits_small_maps(conv)) return small_maps_conv2d(conv, host);
  if (!conv.implicit && fits_first_conv(conv)) return first_conv2d(conv, host);
  if (!conv.implicit && fits_amx_conv2d(conv)) return amx_conv2d(conv, host);
  with_dtype(conv.dtype, [&](auto* type) { conv2d<__remove_cvref(decltype(*type))>(conv, host); });
}
