// See conv_amx.h. A task is some lines of one image's result and some panels of output channels. The lines of the image that they see are copied once,
// with the padding around them, pixel by pixel of one group's channels. Pixels of the result are counted along the copy's lines, which are longer than the
// result's by what a window reaches: then a tap moves all of them by the same distance, so that 16 pixels are rows of a register at a fixed stride, and
// the sums of pixels beyond a line's end are thrown away. With strides the copy has a part for each phase (the remainder of a column or line by the
// stride): in each of them the pixels that one tap reads are neighbours again. A pixel's channels are followed by zeros up to a whole step.
#include "conv_amx.h"

#include "amx.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

#ifdef __AVX512F__
namespace {

constexpr int64_t kMostStride = 8;
constexpr int64_t kMostRows = 320;                       // of a task, whose sums stay in the second cache
constexpr int64_t kMostSteps = 512, kBroughtSteps = 16;  // of a panel at a time: of pairs of k, and that become pairs, which stay in the first cache
constexpr int64_t kSlack = 16;                           // pixels behind the copy that the last register of rows may read
static_assert(kMostRows % kAmxRows == 0);

// Cycles: one step of one row and panel, a step of a panel brought into pairs, a row's step gathered by the implicit product, 64 bytes of the copy.
constexpr double kRowStep = 3, kPairStep = 80, kGatheredStep = 8, kCopiedLine = 4;

// The phases of one dimension that taps read, and how far taps reach in them.
struct Phases {
  int64_t stride, dilation, count = 0, reach = 0;
  int64_t phase_of[kMostStride], slot_of[kMostStride];

  Phases(int64_t taps, int64_t by, int64_t dilated) : stride(by), dilation(dilated) {
    for (int64_t phase = 0; phase < stride; phase++) {
      bool used = false;
      for (int64_t t = 0; t < taps; t++) used |= t * dilation % stride == phase;
      slot_of[phase] = count;
      if (used) phase_of[count++] = phase;
    }
    for (int64_t t = 0; t < taps; t++) reach = max64(reach, shift(t));
  }
  int64_t slot(int64_t tap) const { return slot_of[tap * dilation % stride]; }
  int64_t shift(int64_t tap) const { return tap * dilation / stride; }
};

struct Plan {
  int64_t group_ic, group_oc, panels;
  int64_t tap_steps, steps, pixel_bytes;
  Phases down, across;
  int64_t width;      // pixels of a line of the copy
  int64_t lines = 0;  // of a task's result; 0: none fit
  int64_t strips, panel_blocks = 1, tasks = 0;
  double cost = 0;  // of a line

  int64_t rows(int64_t of) const { return (of - 1) * width + width - across.reach; }
  int64_t phase_bytes(int64_t of) const { return (of + down.reach) * width * pixel_bytes; }
  int64_t copy_bytes(int64_t of) const { return down.count * across.count * phase_bytes(of) + kSlack * pixel_bytes; }

  explicit Plan(const CoilConv2d& c)
      : group_ic(c.ic / c.groups),
        group_oc(c.oc / c.groups),
        panels(ceil_div(group_oc, kPanel)),
        tap_steps(ceil_div(group_ic, kAmxStep)),
        steps(c.kh * c.kw * tap_steps),
        pixel_bytes(tap_steps * kAmxStep * 2),
        down(c.kh, c.stride_h, c.dilation_h),
        across(c.kw, c.stride_w, c.dilation_w),
        width(c.ow + across.reach) {
    for (int64_t some = 1; some <= c.oh && rows(some) <= kMostRows && copy_bytes(some) <= COIL_GEMM_WORKER_BYTES; some++) {
      const double work = ceil_div(rows(some), 16) * 16 * panels * steps * kRowStep + panels * steps * kPairStep + copy_bytes(some) / 64 * kCopiedLine;
      // Strips of a few lines less at the end would waste what the others save.
      const double whole = work * ceil_div(c.oh, some) / c.oh;
      if (lines == 0 || whole < cost) lines = some, cost = whole;
    }
  }

  // A line's cost by the implicit product.
  double implicit_cost(const CoilConv2d& c) const {
    const int64_t of_product = ceil_div(c.kh * c.kw * group_ic, kAmxStep);
    const double pairs = static_cast<double>(c.ow) / kAmxBlockRows * panels * of_product * kPairStep;
    return c.ow * of_product * (panels * kRowStep + ceil_div(panels, kAmxPanels) * kGatheredStep) + pairs;
  }

  void cut(const CoilConv2d& c, int32_t workers) {
    const auto count = [&] { return c.n * c.groups * ceil_div(c.oh, lines) * panel_blocks; };
    // Smaller tasks until every worker has a few, so that a slow one holds up nobody: fewer panels, for which the lines are copied again, then fewer lines.
    if (workers > 1 && count() < 4 * workers) panel_blocks = min64(panels, ceil_div(4 * workers, count()));
    while (workers > 1 && count() < 2 * workers && lines > 1) lines = (lines + 1) / 2;
    strips = ceil_div(c.oh, lines);
    tasks = count();
  }
};

struct AmxConv {
  const CoilConv2d& c;
  const Plan& plan;
  CoilEpilogue epilogue;
  const void* epilogue_context;

  typedef uint16_t Step __attribute__((ext_vector_type(32)));

  // Pixels of one line that lie `step` elements apart.
  void copy_pixels(const BFloat16* from, int64_t step, int64_t count, char* to) const {
    const bool whole = plan.group_ic % kAmxStep == 0;
    if (whole && step == plan.group_ic) {
      memcpy(to, from, static_cast<size_t>(count * plan.pixel_bytes));
      return;
    }
    for (int64_t i = 0; i < count; i++, from += step, to += plan.pixel_bytes) {
      if (!whole) store_raw(to + plan.pixel_bytes - 64, Step(0));
      copy_row(from, plan.group_ic, reinterpret_cast<BFloat16*>(to));
    }
  }

  // One phase of line y of an image, whose first column is x0.
  void copy_line(const BFloat16* image, int64_t y, int64_t x0, char* to) const {
    const int64_t width = plan.width, pixel = plan.pixel_bytes;
    int64_t first = min64(max64(ceil_div(-x0, c.stride_w), 0), width), end = max64(min64(ceil_div(c.iw - x0, c.stride_w), width), first);
    if (y < 0 || y >= c.ih) first = end = width;
    memset(to, 0, static_cast<size_t>(first * pixel));
    if (first < end) copy_pixels(image + y * c.x_h + (x0 + first * c.stride_w) * c.x_w, c.stride_w * c.x_w, end - first, to + first * pixel);
    memset(to + end * pixel, 0, static_cast<size_t>((width - end) * pixel));
  }

  // What `lines` lines of the result from oy0 on see.
  void copy_image(const BFloat16* image, int64_t oy0, int64_t lines, char* to) const {
    for (int64_t i = 0; i < plan.down.count; i++) {
      for (int64_t j = 0; j < plan.across.count; j++, to += plan.phase_bytes(plan.lines)) {
        for (int64_t line = 0; line < lines + plan.down.reach; line++) {
          const int64_t y = (oy0 + line) * c.stride_h + plan.down.phase_of[i] - c.pad_h;
          copy_line(image, y, plan.across.phase_of[j] - c.pad_w, to + line * plan.width * plan.pixel_bytes);
        }
      }
    }
  }

  // Where the first pixel's numbers of a step are in the copy.
  int32_t place(int64_t step) const {
    const int64_t tap = step / plan.tap_steps, y = tap / c.kw, x = tap % c.kw;
    const int64_t part = plan.down.slot(y) * plan.across.count + plan.across.slot(x);
    const int64_t pixels = plan.down.shift(y) * plan.width + plan.across.shift(x);
    return static_cast<int32_t>(part * plan.phase_bytes(plan.lines) + pixels * plan.pixel_bytes + step % plan.tap_steps * kAmxStep * 2);
  }

  // Steps [first, first + count) of a panel as pairs of k: in place, or in the buffer.
  const void* pairs_of(const BFloat16* panel, int64_t first, int64_t count, uint16_t* buffer) const {
    if (c.w_pairs) return panel + first * kAmxStep * kPanel;
    uint16_t* pairs = buffer;
    if (plan.group_ic % kAmxStep == 0) {
      amx_pairs(count * kAmxStep, panel + first * kAmxStep * kPanel, pairs);
      return buffer;
    }
    for (int64_t step = first; step < first + count; step++, pairs += kAmxStep * kPanel) {
      const int64_t tap = step / plan.tap_steps, channel = step % plan.tap_steps * kAmxStep;
      amx_pairs(min64(plan.group_ic - channel, kAmxStep), panel + (tap * plan.group_ic + channel) * kPanel, pairs);
    }
    return buffer;
  }

  // The sums of one panel, for all rows of the copy that a line of the result or the gap behind it holds.
  void multiply(const char* copy, const BFloat16* panel, int64_t rows, int64_t cols, float* sums) const {
    alignas(64) uint16_t buffer[kBroughtSteps * kAmxStep * kPanel];
    int32_t places[kMostSteps];
    const int64_t most = c.w_pairs ? kMostSteps : kBroughtSteps;
    for (int64_t first = 0; first < plan.steps; first += most) {
      const int64_t count = min64(most, plan.steps - first);
      const void* pairs = pairs_of(panel, first, count, buffer);
      for (int64_t i = 0; i < count; i++) places[i] = place(first + i);
      for (int64_t r = 0; r < rows; r += kAmxRows) {
        amx_window_product(count, copy + r * plan.pixel_bytes, places, plan.pixel_bytes, pairs, rows - r > 16, cols > 16, sums + r * kPanel, first > 0);
      }
    }
  }

  // Pixels [row, row + lines * ow) of the results; their sums come with a gap behind each line.
  void finish(int64_t row, int64_t lines, int64_t col, int64_t cols, float* sums) const {
    const int64_t line = c.ow * kPanel;
    for (int64_t l = 1; l < lines && plan.width > c.ow; l++) {
      const float* from = sums + l * plan.width * kPanel;
      float* to = sums + l * line;
      for (int64_t i = 0; i < line; i += kLanes) store(to + i, load(from + i));
    }
    for (int64_t r = 0; r < lines * c.ow; r += kAmxRows) {
      epilogue(epilogue_context, 0, row + r, col, min64(kAmxRows, lines * c.ow - r), cols, sums + r * kPanel, kPanel);
    }
  }

  void run_task(int64_t task, int32_t worker) const {
    alignas(64) float sums[kMostRows * kPanel];
    const int64_t block = task % plan.panel_blocks, strip = task / plan.panel_blocks;
    const int64_t oy0 = strip % plan.strips * plan.lines, lines = min64(plan.lines, c.oh - oy0);
    const int64_t group = strip / plan.strips % c.groups, image = strip / plan.strips / c.groups;
    char* copy = static_cast<char*>(c.scratch) + worker * int64_t{COIL_GEMM_WORKER_BYTES};
    copy_image(static_cast<const BFloat16*>(c.x) + image * c.x_n + group * plan.group_ic, oy0, lines, copy);
    amx_begin();
    for (int64_t p = plan.panels * block / plan.panel_blocks; p < plan.panels * (block + 1) / plan.panel_blocks; p++) {
      const int64_t cols = min64(kPanel, plan.group_oc - p * kPanel);
      const int64_t k = c.kh * c.kw * plan.group_ic;
      multiply(copy, static_cast<const BFloat16*>(c.w) + (group * plan.panels + p) * k * kPanel, plan.rows(lines), cols, sums);
      finish((image * c.oh + oy0) * c.ow, lines, group * plan.group_oc + p * kPanel, cols, sums);
    }
    amx_end();
  }
};

}  // namespace

bool can_amx_conv2d(const CoilConv2d& c) {
  const int64_t group_ic = c.ic / c.groups, k = c.kh * c.kw * group_ic;
  if (c.dtype != COIL_BFLOAT16 || (c.x_c != 1 && c.ic != 1) || c.n * c.oh * c.ow < kFewestAmxRows) return false;
  // The copies take the memory of partial sums, which products of fewer k have not.
  if (k <= COIL_GEMM_UNBLOCKED_K(2) || c.stride_h > kMostStride || c.stride_w > kMostStride) return false;
  return has_amx() && Plan(c).lines > 0;
}

bool fits_amx_conv2d(const CoilConv2d& c) {
  const bool pixels = c.kh * c.kw == 1 && c.stride_h == 1 && c.stride_w == 1;  // which the product reads in place
  if (pixels || !can_amx_conv2d(c)) return false;
  const Plan plan(c);
  return plan.cost < plan.implicit_cost(c);
}

void amx_conv2d(const CoilConv2d& c, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  Plan plan(c);
  plan.cut(c, host->num_workers);
  const AmxConv kernel = {c, plan, c.epilogue ? c.epilogue : store_tile, c.epilogue ? c.epilogue_context : &to};
  Product p = {};
  p.batch = 1, p.m = c.n * c.oh * c.ow, p.n = c.oc, p.k = plan.steps * kAmxStep, p.tasks = plan.tasks;
  run_tasks(kernel, p, host);
}
#else
bool can_amx_conv2d(const CoilConv2d&) { return false; }
bool fits_amx_conv2d(const CoilConv2d&) { return false; }
void amx_conv2d(const CoilConv2d&, const CoilHost*) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
