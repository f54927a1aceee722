// The windows of a convolution's output pixels, gathered into rows of (tap, channel).
#ifndef COIL_DEVICE_KERNELS_WINDOWS_H_
#define COIL_DEVICE_KERNELS_WINDOWS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// The input as the gatherer sees it: channels-last, elements of T.
template <class T>
struct Windows {
  static constexpr int64_t kMostK = 512;  // of one call of gather_rows
  const CoilConv2d& c;
  const T* x;
  int64_t x_n, x_h, x_w;
  int64_t group_ic, group_k;
  // A run is what is contiguous in memory for one output pixel: the channels of one tap, or of all taps of a line.
  int64_t runs_per_line, run_taps;

  Windows(const CoilConv2d& conv, const T* input, int64_t n_stride, int64_t h_stride, int64_t w_stride)
      : c(conv), x(input), x_n(n_stride), x_h(h_stride), x_w(w_stride), group_ic(conv.ic / conv.groups) {
    group_k = c.kh * c.kw * group_ic;
    const bool line_is_run = x_w == group_ic && c.dilation_w == 1;
    runs_per_line = line_is_run ? 1 : c.kw;
    run_taps = line_is_run ? c.kw : 1;
  }

  // A piece of a run that falls into one chunk of k.
  struct Piece {
    int64_t from;           // where it is, relative to the window's first pixel
    int32_t line, column;   // of its run in the image, relative likewise
    int32_t offset, count;  // in the run
  };

  // The pieces of [k0, k0 + k), in order.
  int cut(int64_t k0, int64_t k, Piece* pieces) const {
    const int64_t run_size = run_taps * group_ic;
    int64_t run = k0 / run_size, offset = k0 % run_size;
    int pieces_count = 0;
    for (; k > 0; run++, offset = 0) {
      const int64_t line = run / runs_per_line * c.dilation_h, column = run % runs_per_line * c.dilation_w;
      const int64_t count = min64(run_size - offset, k);
      pieces[pieces_count++] = {line * x_h + column * x_w + offset, static_cast<int32_t>(line), static_cast<int32_t>(column), static_cast<int32_t>(offset),
                                static_cast<int32_t>(count)};
      k -= count;
    }
    return pieces_count;
  }

  // One pixel whose window begins at line y, column x0 of the image; `window` points there (and is used only inside it).
  template <class Copier>
  COIL_INLINE_MEMBER void gather_pixel(const T* window, int64_t y, int64_t x0, const Piece* pieces, int count, const Copier& copier,
                                       typename Copier::Out* out) const {
    const bool inside = y >= 0 && x0 >= 0 && y + (c.kh - 1) * c.dilation_h < c.ih && x0 + (c.kw - 1) * c.dilation_w < c.iw;
    if (inside) {
      for (int i = 0; i < count; out += pieces[i++].count) copier.copy(window + pieces[i].from, pieces[i].count, out);
      return;
    }
    for (int i = 0; i < count; out += pieces[i++].count) {
      const int64_t iy = y + pieces[i].line;
      copy_border(window + pieces[i].from, iy >= 0 && iy < c.ih, x0 + pieces[i].column, pieces[i].offset, pieces[i].count, copier, out);
    }
  }

  // `count` elements from `offset` of the run that begins at image column ix; what lies outside the image is padding. `from` is
  // where the first would be.
  template <class Copier>
  void copy_border(const T* from, bool line_inside, int64_t ix, int64_t offset, int64_t count, const Copier& copier, typename Copier::Out* out) const {
    // Padding, pixels, padding, in this order: each part may run over into the next.
    const int64_t first = max64(-ix, 0), last = min64(c.iw - ix, run_taps);
    int64_t begin = max64(first * group_ic - offset, 0), end = min64(last * group_ic - offset, count);
    if (!line_inside || begin >= end) begin = end = count;
    copier.pad(begin, out);
    copier.copy(from + begin, end - begin, out + begin);
    copier.pad(count - end, out + end);
  }

  // The elements [k0, k0 + k) of `rows` windows from `row`, `stride` elements apart. The copier may write a vector more than a row has.
  template <class Copier>
  __attribute__((noinline)) void gather_rows(int64_t group, int64_t row, int64_t rows, int64_t k0, int64_t k, const Copier& copier, typename Copier::Out* out,
                                             int64_t stride) const {
    Piece pieces[kMostK];
    const int count = cut(k0, k, pieces);
    int64_t ox = row % c.ow, oy = row / c.ow % c.oh, image = row / c.ow / c.oh;
    for (int64_t r = 0; r < rows; r++, out += stride) {
      const int64_t y = oy * c.stride_h - c.pad_h, x0 = ox * c.stride_w - c.pad_w;
      gather_pixel(x + image * x_n + group * group_ic + y * x_h + x0 * x_w, y, x0, pieces, count, copier, out);
      if (++ox < c.ow) continue;
      ox = 0;
      if (++oy < c.oh) continue;
      oy = 0;
      image++;
    }
  }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_WINDOWS_H_
