// Convolution of bfloat16 or float16 as an implicit gemm on Hopper's tensor cores (sm_90a): cp.async, TMA, wgmma, a persistent grid of
// specialised warps. See conv_tile.h for the shape of the product.
//
// A block computes tiles of 64 G pixels x BN channels with G warpgroups that multiply and one that loads steps of 64 along k into
// STAGES buffers, also those of the next tile while this one is finished. The input comes 16 bytes (8 channels) a copy with zeros for
// taps outside the image, into the lines of 128 bytes that wgmma's swizzle wants; the weight comes by TMA.
// SPLIT > 1: the blocks of a cluster share one tile, each sums a part of k; then a block computes one tile only.
// Needs channels next to each other, ic / groups > 0 a multiple of 8, x and its other strides multiples of 16 bytes;
// t.map_w: the weight [oc][kh * kw * ic / groups], box of BN rows x 64. Launch: threads 128 (G + 1); SPLIT == 1: at most one block a
// multiprocessor and not more than tiles; else a cluster a tile.
#ifndef COIL_DEVICE_CUDA_CONV_WGMMA_H_
#define COIL_DEVICE_CUDA_CONV_WGMMA_H_

#include "cuda/conv_tile.h"
#include "cuda/wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

// Counts as one of the barrier's arrivals when all of this thread's copies so far are there.
CD_FN void copy_arrive(u32 barrier) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }
// What this thread knows to be in shared memory is seen by TMA and wgmma.
CD_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <class T, int G, int BN, int STAGES, int SPLIT>
struct ConvWgmma {
  static constexpr int BM = 64 * G, kBytesA = BM * 128, kBytesB = BN * 128, kLoaders = 128, kRows = BM / 16;
  const CudaConv2d& t;
  ConvShape s;            // m0, n0, group of the tile at hand
  u32 a, b, full, empty;  // shared addresses: stages of the input and the weight, barriers
  ConvPlace* places;      // of a tile's rows
  u32 tiles, tiles_n;
  int begin, end;  // steps along k
  u32 stage = 0, phase = 0;

  CD_METHOD void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  CD_METHOD void position(u32 tile) {
    const u32 groups = (u32)t.groups, of_group = tile / groups, tile_m = of_group / tiles_n;
    s.group = (int)(tile - of_group * groups);
    s.m0 = (int)tile_m * BM;
    s.n0 = (int)(of_group - tile_m * tiles_n) * BN;
  }

  // By the 128 threads that load. A thread stays at one column of 8 channels of the step and takes every 16th row.
  CD_METHOD void load_tile(int thread) {
    sync_some(1, kLoaders);  // nobody reads the tile before's places any more
    conv_fill_rows<BM, kLoaders>(t, s, places, thread);
    sync_some(1, kLoaders);
    const int chunk = thread % 8, line = thread / 8;
    const u32 to = a + line * 128 + ((chunk ^ (line & 7)) << 4);
    const T* from[kRows];
    int y[kRows], x[kRows];
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      const ConvPlace p = places[line + 16 * i];
      from[i] = (const T*)t.x + p.offset;
      y[i] = p.y, x[i] = p.x;
    }
    const u32 ih = (u32)t.ih, iw = (u32)t.iw, first = (u32)begin * 64 + chunk * 8, tap = first / (u32)s.ic_g;
    int c = (int)(first - tap * s.ic_g), ky = (int)(tap / (u32)t.kw), kx = (int)(tap - (u32)ky * t.kw);
#pragma unroll 1
    for (int step = begin; step < end; step++, advance()) {
      const u32 barrier = full + 8 * stage;
      const bool beyond = ky >= t.kh;  // behind the last channel of the last tap
      const int dy = beyond ? kConvNowhere : ky * t.dilation_h, dx = kx * t.dilation_w;
      const i64 way = beyond ? 0 : dy * t.x_h + dx * t.x_w + c;
      barrier_wait(empty + 8 * stage, phase ^ 1);
      if (thread == 0) {
        barrier_expect(barrier, kBytesB);
        tma_load(b + stage * kBytesB, &t.map_w, barrier, step * 64, s.group * s.oc_g + s.n0);
      }
#pragma unroll
      for (int i = 0; i < kRows; i++) {
        const bool inside = (u32)(y[i] + dy) < ih && (u32)(x[i] + dx) < iw;
        copy_async_16(to + stage * kBytesA + i * 2048, from[i] + way, inside ? 16 : 0);
      }
      copy_arrive(barrier);
      for (c += 64; c >= s.ic_g; c -= s.ic_g) {
        if (++kx < t.kw) continue;
        kx = 0;
        ky++;
      }
    }
  }

  CD_METHOD void release(u32 of) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * of);
  }
  // One step's products are under way while the one before is released.
  CD_METHOD void multiply_tile(float (&d)[BN / 2], int group) {
    u32 previous = 0;
    if (SPLIT > 1 && begin >= end) {
#pragma unroll
      for (int i = 0; i < BN / 2; i++) d[i] = 0;
      return;
    }
#pragma unroll 1
    for (int step = begin; step < end; step++, advance()) {
      barrier_wait(full + 8 * stage, phase);
      fence_async_proxy();
      const u64 da = wgmma_tile(a + stage * kBytesA + group * 8192, 8192), db = wgmma_tile(b + stage * kBytesB, 8192);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < 4; q++) wgmma<0, 0>(T{}, d, da + q * 2, db + q * 2, (step - begin | q) != 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (step > begin) release(previous);
      previous = stage;
    }
    wgmma_wait<0>();
    release(previous);
  }

  // 64 columns at a time through the warp's own 16 x 64 floats; row0: the warp's first.
  template <class E>
  CD_METHOD void finish(const float (&d)[BN / 2], float* buffer, int row0, const E& epilogue) const {
    const int lane = threadIdx.x % 32;
    const bool aligned = s.group == 0 || s.oc_g % 8 == 0;
#pragma unroll
    for (int part = 0; part < BN / 64; part++) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const int row = lane / 4 + 8 * (i >> 1 & 1), column = 8 * (i >> 2) + lane % 4 * 2;
        *(float2*)(buffer + stage_index<float, 64>(row, column)) = make_float2(d[part * 32 + i], d[part * 32 + i + 1]);
      }
      __syncwarp();
#pragma unroll 1
      for (int item = lane; item < 128; item += 32) {
        const int row = item / 8, column = item % 8 * 8, count = min(8, s.oc_g - s.n0 - part * 64 - column);
        if (row0 + row >= s.rows || count <= 0) continue;
        float v[8];
        *(float4*)v = *(const float4*)(buffer + stage_index<float, 64>(row, column));
        *(float4*)(v + 4) = *(const float4*)(buffer + stage_index<float, 64>(row, column + 4));
        const int channel = s.group * s.oc_g + s.n0 + part * 64 + column;
        // Groups of other sizes than multiples of 8 come one by one.
        const int calls = aligned ? 1 : count;
#pragma unroll 1
        for (int w = 0; w < calls; w++) {
          if (w > 0) {
#pragma unroll
            for (int i = 0; i + 1 < 8; i++) v[i] = v[i + 1];
          }
          epilogue(0, row0 + row, channel + w, v, aligned ? count : 1);
        }
      }
    }
  }
};

#endif

// Dynamic shared memory: conv_wgmma_shared.
template <class T, int G, int BN, int STAGES, int SPLIT, class E>
CD_FN void conv_wgmma(const CudaConv2d& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Conv = ConvWgmma<T, G, BN, STAGES, SPLIT>;
  constexpr int BM = 64 * G, LD = BN + 8, THREADS = (int)warpgroup_threads(G);
  static_assert(SPLIT == 1 || BM * LD * 4 <= STAGES * (Conv::kBytesA + Conv::kBytesB));
  extern __shared__ __align__(1024) unsigned char cd_conv_shared[];
  const u32 base = shared_address(cd_conv_shared);
  constexpr int OUT = STAGES * (Conv::kBytesA + Conv::kBytesB), PLACES = OUT + (SPLIT == 1 ? G * 16384 : 0), BARRIERS = PLACES + BM * 16;
  static_assert(BARRIERS + 16 * STAGES <= conv_wgmma_shared(G, BN, STAGES, SPLIT > 1));
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(base + BARRIERS + 8 * i, Conv::kLoaders + 1), barrier_init(base + BARRIERS + 8 * (STAGES + i), G * 4);
    barrier_init_done();
  }
  __syncthreads();
  ConvShape s = conv_shape<BM, BN, 64, SPLIT>(t);
  const u32 tiles_n = (u32)(s.oc_g + BN - 1) / BN, tiles = (u32)((s.rows + BM - 1) / BM) * tiles_n * (u32)t.groups;
  const int begin = SPLIT > 1 ? (int)((i64)s.slabs * s.rank / SPLIT) : 0, end = SPLIT > 1 ? (int)((i64)s.slabs * (s.rank + 1) / SPLIT) : s.slabs;
  Conv conv{t,       s,     base, base + STAGES * Conv::kBytesA, base + BARRIERS, base + BARRIERS + 8 * STAGES, (ConvPlace*)(cd_conv_shared + PLACES), tiles,
            tiles_n, begin, end};
  if constexpr (SPLIT == 1) {
    if (group == G) {
#pragma unroll 1
      for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        conv.position(tile);
        conv.load_tile(thread);
      }
      copy_commit(), copy_wait<0>();
    } else {
      float d[BN / 2];
      float* const buffer = (float*)(cd_conv_shared + OUT) + threadIdx.x / 32 * 1024;
#pragma unroll 1
      for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        conv.position(tile);
        conv.multiply_tile(d, group);
        conv.finish(d, buffer, conv.s.m0 + threadIdx.x / 32 * 16, epilogue);
      }
    }
  } else {
    // The sums take the place of the stages when all have been read.
    float* const sums = (float*)cd_conv_shared;
    if (group == G) {
      conv.load_tile(thread);
      copy_commit(), copy_wait<0>();
    } else {
      float d[BN / 2];
      conv.multiply_tile(d, group);
      sync_some(2, G * 128);
      const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
      for (int i = 0; i < BN / 2; i += 2) {
        *(float2*)(sums + (row + 8 * (i >> 1 & 1)) * LD + 8 * (i >> 2) + lane % 4 * 2) = make_float2(d[i], d[i + 1]);
      }
    }
    __syncwarp();
    conv_finish<float, 8, BM, BN, LD, THREADS, SPLIT>(conv.s, sums, epilogue);
  }
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_WGMMA_H_
