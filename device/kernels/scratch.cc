// The scratch formulas of kernels.h. The same for every instruction set, hence weak: objects of several may be linked together.
#include "../kernels.h"

#define COIL_ONE_OF_MANY __attribute__((weak))

extern "C" COIL_ONE_OF_MANY int64_t coil_gemm_scratch_bytes(const CoilGemm* args, int32_t num_workers) {
  const int64_t copy = args->b_copied ? args->batch * COIL_GEMM_COPY_BYTES(args->n, args->k, args->dtype == COIL_FLOAT32 ? 4 : 2) : 0;
  return copy + (args->k > COIL_GEMM_UNBLOCKED_K(args->dtype == COIL_FLOAT64 ? 8 : 4) ? num_workers * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES) : 0);
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t winograd_scratch_bytes(const CoilConv2d* args, int32_t num_workers) {
  const int64_t tile = args->winograd, tiles = COIL_WINOGRAD_TILES(tile);
  const int64_t tiles_y = ceil_div(args->oh, tile), tiles_x = ceil_div(args->ow, tile);
  if (args->n * tiles_y * tiles_x <= 0) return 0;
  const int64_t blocks_x = ceil_div(tiles_x, tiles), blocks_y = ceil_div(args->n * tiles_y, tiles / ceil_div(tiles_x, blocks_x));
  const int64_t blocks = blocks_x * blocks_y, most = COIL_WINOGRAD_SPREAD * static_cast<int64_t>(num_workers);
  return (blocks < most ? blocks : most) * COIL_WINOGRAD_BLOCK_BYTES(tile, args->ic);
}

extern "C" COIL_ONE_OF_MANY int64_t coil_conv2d_scratch_bytes(const CoilConv2d* args, int32_t num_workers) {
  if (args->winograd) {
    const int64_t filtering = winograd_scratch_bytes(args, num_workers);
    if (args->w_plain) {  // the transformed weight; the packed one, which it is made of, lies where the windows do later
      const int64_t place = ceil_div(args->oc, COIL_PANEL) * COIL_PANEL * args->ic * 4, places = (args->winograd + 2) * (args->winograd + 2);
      return places * place + (filtering > 9 * place ? filtering : 9 * place);
    }
    CoilConv2d plain = *args;
    plain.winograd = 0;
    const int64_t direct = args->w_direct ? coil_conv2d_scratch_bytes(&plain, num_workers) : 0;
    return filtering > direct ? filtering : direct;
  }
  if (args->dtype == COIL_UINT8 || args->dtype == COIL_INT8) return 0;
  const int64_t groups = args->depthwise || args->narrow_groups ? 1 : args->groups, element = args->dtype == COIL_FLOAT64   ? 8
                                                                                              : args->dtype == COIL_FLOAT32 ? 4
                                                                                                                            : 2;
  const int64_t panel = COIL_PANEL_COLUMNS(element), panels = groups * ceil_div(args->oc / groups, panel);
  const int64_t packed = panels * panel * args->kh * args->kw * (args->ic / args->groups) * element;
  const int64_t weight = args->w_plain ? (packed + 63) / 64 * 64 : 0;
  if (args->depthwise || args->narrow_groups || args->few_outputs) return weight;
  const int64_t k = args->kh * args->kw * (args->ic / args->groups);
  const int64_t partial = k > COIL_GEMM_UNBLOCKED_K(element) ? num_workers * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES) : 0;
  const int64_t channels_last = args->x_c == 1 ? 0 : (args->n * args->ih * args->iw * args->ic * (element == 8 ? 8 : 4) + 63) / 64 * 64;
  return weight + partial + channels_last;
}

extern "C" COIL_ONE_OF_MANY int64_t coil_attention_scratch_bytes(const CoilAttention*, int32_t num_workers) {
  return num_workers * static_cast<int64_t>(COIL_ATTENTION_WORKER_BYTES);
}
