// What the implicit-gemm convolutions share: the tables that turn a tile's rows (output pixels) and columns of k (tap, channel)
// into addresses, the copies of slabs of k into shared memory, and the way from accumulators in shared memory to the epilogue.
//
// The product: rows are output pixels ((n * oh) + y) * ow + x, columns the channels of one group, k = (ky * kw + kx) * ic_g + c.
// The weight is [oc][kh][kw][ic_g], so both operands of a tile are slabs [row][k] in shared memory, filled by cp.async with zeros
// where a tap lies outside the image.
#ifndef COIL_DEVICE_CUDA_CONV_TILE_H_
#define COIL_DEVICE_CUDA_CONV_TILE_H_

#include "cuda/base.h"
#include "cuda/mma.h"
#include "cuda/params.h"
#include "cuda/shared_memory.h"

namespace cd {

// A place in the image: an element offset and the line and column it belongs to. Of a row: its window's first tap (may lie
// outside). Of a column of k: the way from there.
struct alignas(16) ConvPlace {
  i64 offset;
  int y, x;
};
constexpr int kConvNowhere = -(1 << 29);  // a line outside any image, whatever is added

// The problem in 32 bits, as a block needs it.
struct ConvShape {
  int ic_g, oc_g, k, slabs;       // slabs of BK
  int m0, n0, group, rank, rows;  // this block's first pixel and channel (within the group), its part of k, the pixels of all
};

// Blocks: x = ((tile_m * tiles_n + tile_n) * groups + group) * split + part of k.
template <int BM, int BN, int BK, int SPLIT>
CD_FN ConvShape conv_shape(const CudaConv2d& t) {
  ConvShape s;
  const int ic_g = (int)t.ic / t.groups;
  s.ic_g = ic_g > 0 ? ic_g : 1;  // of no channels there is no k to take apart (the gradient of a weight by no images)
  s.oc_g = (int)t.oc / t.groups;
  s.k = ic_g * t.kh * t.kw;
  s.slabs = (s.k + BK - 1) / BK;
  s.rows = (int)(t.n * t.oh * t.ow);
  u32 b = blockIdx.x;
  s.rank = b % SPLIT;
  b /= SPLIT;
  s.group = b % (u32)t.groups;
  b /= (u32)t.groups;
  const u32 tiles_n = (u32)(s.oc_g + BN - 1) / BN;
  s.n0 = (int)(b % tiles_n) * BN;
  s.m0 = (int)(b / tiles_n) * BM;
  return s;
}

// By THREADS threads, of which this one is `thread`.
template <int BM, int THREADS>
CD_FN void conv_fill_rows(const CudaConv2d& t, const ConvShape& s, ConvPlace* rows, int thread) {
  const u32 ow = (u32)t.ow, oh = (u32)t.oh;
#pragma unroll 1
  for (int i = thread; i < BM; i += THREADS) {
    const int pixel = s.m0 + i;
    ConvPlace p = {0, kConvNowhere, 0};
    if (pixel < s.rows) {
      const u32 line = (u32)pixel / ow, image = line / oh;
      p.x = (int)((u32)pixel - line * ow) * t.stride_w - t.pad_w;
      p.y = (int)(line - image * oh) * t.stride_h - t.pad_h;
      p.offset = image * t.x_n + p.y * t.x_h + p.x * t.x_w + (i64)s.group * s.ic_g * t.x_c;
    }
    rows[i] = p;
  }
}

CD_FN ConvPlace conv_tap(const CudaConv2d& t, const ConvShape& s, int k) {
  const u32 tap = (u32)k / (u32)s.ic_g, ky = tap / (u32)t.kw;
  const int c = k - (int)tap * s.ic_g, dx = (int)(tap - ky * t.kw) * t.dilation_w, dy = (int)ky * t.dilation_h;
  return {c * t.x_c + dy * t.x_h + dx * t.x_w, k < s.k ? dy : kConvNowhere, dx};
}

// One element, or 16 bytes of them, into shared memory.
template <class T, int VEC>
CD_FN void conv_copy(u32 to, const T* from, bool inside) {
  if constexpr (VEC * sizeof(T) >= 4) {
    copy_async<(int)(VEC * sizeof(T))>(to, from, inside ? (int)(VEC * sizeof(T)) : 0);
  } else {
    shared_store_2(to, inside ? __ldg((const unsigned short*)from) : (unsigned short)0);
  }
}

// Fills a slab's input rows with 16 bytes of channels at a time: channels are next to each other and ic_g is a multiple of VEC.
// A thread stays at one column of k; `tap` is where it is and moves on by a slab at each call.
template <class T, int BM, int BK, int PITCH, int THREADS>
struct ConvInput {
  static constexpr int VEC = 16 / sizeof(T), CHUNKS = BK / VEC, STEP = THREADS / CHUNKS;
  int c, kx, ky;

  CD_METHOD void start(const CudaConv2d& t, const ConvShape& s, int slab) {
    const u32 k = slab * BK + threadIdx.x % CHUNKS * VEC, tap = k / (u32)s.ic_g;
    c = (int)(k - tap * s.ic_g);
    ky = (int)(tap / (u32)t.kw);
    kx = (int)(tap - (u32)ky * t.kw);
  }
  CD_METHOD void load(const CudaConv2d& t, const ConvShape& s, const ConvPlace* rows, u32 to) {
    const int dy = ky < t.kh ? ky * t.dilation_h : kConvNowhere, dx = kx * t.dilation_w;
    const i64 way = dy * t.x_h + dx * t.x_w + c;
    const u32 ih = (u32)t.ih, iw = (u32)t.iw;
    const T* x = (const T*)t.x;
#pragma unroll
    for (int row = threadIdx.x / CHUNKS, i = 0; i < (BM + STEP - 1) / STEP; i++, row += STEP) {
      if (BM % STEP != 0 && row >= BM) break;
      const ConvPlace p = rows[row];
      const bool inside = (u32)(p.y + dy) < ih && (u32)(p.x + dx) < iw;
      conv_copy<T, VEC>(to + (row * PITCH + threadIdx.x % CHUNKS * VEC) * (int)sizeof(T), x + (inside ? p.offset + way : 0), inside);
    }
    for (c += BK; c >= s.ic_g; c -= s.ic_g) {
      if (++kx < t.kw) continue;
      kx = 0;
      ky++;
    }
  }
};

// The same element by element, for any strides. `taps` holds the slab's columns.
template <class T, int BM, int BK, int PITCH, int THREADS>
CD_FN void conv_load_elements(const CudaConv2d& t, const ConvPlace* rows, const ConvPlace* taps, u32 to) {
  const u32 ih = (u32)t.ih, iw = (u32)t.iw;
  const T* x = (const T*)t.x;
  const bool along_k = t.x_c == 1;  // else consecutive lanes take consecutive pixels
#pragma unroll 2
  for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
    const int row = along_k ? i / BK : i % BM, column = along_k ? i % BK : i / BM;
    const ConvPlace p = rows[row], d = taps[column];
    const bool inside = (u32)(p.y + d.y) < ih && (u32)(p.x + d.x) < iw;
    conv_copy<T, 1>(to + (row * PITCH + column) * (int)sizeof(T), x + (inside ? p.offset + d.offset : 0), inside);
  }
}

// Rows n0.. of the group's weight, VEC elements at a time.
template <class T, int VEC, int BN, int BK, int PITCH, int THREADS>
CD_FN void conv_load_weight(const CudaConv2d& t, const ConvShape& s, int slab, u32 to) {
  constexpr int CHUNKS = BK / VEC;
  const T* w = (const T*)t.w + (i64)(s.group * s.oc_g + s.n0) * s.k;
#pragma unroll 2
  for (int i = threadIdx.x; i < BN * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, column = i % CHUNKS * VEC, k = slab * BK + column;
    const bool inside = s.n0 + row < s.oc_g && k < s.k;
    conv_copy<T, VEC>(to + (row * PITCH + column) * (int)sizeof(T), w + (inside ? (i64)row * s.k + k : 0), inside);
  }
}

// Slabs of both operands through a ring of STAGES in shared memory: stage [BM + BN][PITCH].
template <class T, int BM, int BN, int BK, int PITCH, int THREADS, int STAGES>
struct ConvRing {
  static constexpr int VEC = 16 / sizeof(T), STAGE_BYTES = (BM + BN) * PITCH * (int)sizeof(T);
  static constexpr int TABLE_BYTES = (BM + 2 * BK) * (int)sizeof(ConvPlace), BYTES = STAGES * STAGE_BYTES + TABLE_BYTES;
  const CudaConv2d& t;
  const ConvShape& s;
  ConvPlace *rows, *taps;
  u32 stages;
  int next, end;  // the slab to be fetched next, and the last plus one
  int to;         // its stage
  bool vectors, weight_vectors;
  ConvInput<T, BM, BK, PITCH, THREADS> input;

  CD_METHOD ConvRing(const CudaConv2d& params, const ConvShape& shape, unsigned char* shared, int begin_slab, int end_slab)
      : t(params), s(shape), rows((ConvPlace*)shared), taps(rows + BM), stages(shared_address(shared) + TABLE_BYTES), next(begin_slab), end(end_slab), to(0) {
    vectors =
        t.x_c == 1 && s.ic_g % VEC == 0 && ((u64)t.x | (u64)(t.x_n * (i64)sizeof(T)) | (u64)(t.x_h * (i64)sizeof(T)) | (u64)(t.x_w * (i64)sizeof(T))) % 16 == 0;
    weight_vectors = s.k % VEC == 0 && (u64)t.w % 16 == 0;
    conv_fill_rows<BM, THREADS>(t, s, rows, threadIdx.x);
    if (vectors) {
      input.start(t, s, next);
    } else {
      fill_taps(next);
    }
  }
  CD_METHOD void fill_taps(int slab) {
    if (threadIdx.x < BK) taps[(slab & 1) * BK + threadIdx.x] = conv_tap(t, s, slab * BK + threadIdx.x);
  }
  // Starts the copy of the next slab, if there is one; always commits a group.
  CD_METHOD void fetch() {
    if (next < end) {
      const u32 a = stages + to * STAGE_BYTES, b = a + BM * PITCH * (int)sizeof(T);
      if (vectors) {
        input.load(t, s, rows, a);
      } else {
        conv_load_elements<T, BM, BK, PITCH, THREADS>(t, rows, taps + (next & 1) * BK, a);
        fill_taps(next + 1);
      }
      if (weight_vectors) {
        conv_load_weight<T, VEC, BN, BK, PITCH, THREADS>(t, s, next, b);
      } else {
        conv_load_weight<T, 1, BN, BK, PITCH, THREADS>(t, s, next, b);
      }
    }
    copy_commit();
    next++;
    to = to + 1 < STAGES ? to + 1 : 0;
  }
  // Calls multiply(bytes from the start of shared memory to the stage) for each slab. The ring is filled by the same lines, so that they are compiled once.
  template <class F>
  CD_METHOD void run(const F& multiply) {
    const int begin = next;
#pragma unroll 1
    for (int slab = begin - (STAGES - 1), stage = 0; slab < end; slab++) {
      copy_wait<STAGES - 2>();  // the oldest slab under way is there, and
      __syncthreads();          // nobody reads the one before it (or its columns of k) any more
      fetch();
      if (slab < begin) continue;
      multiply(TABLE_BYTES + stage * STAGE_BYTES);
      stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
  }
};

// --- several blocks of a cluster share a tile: each sums a part of k
CD_FN void conv_cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// 16 bytes at the same place of another block of the cluster.
template <class A>
CD_FN void conv_remote(u32 address, int rank, A (&r)[16 / sizeof(A)]) {
#if __CUDA_ARCH__ >= 900
  if constexpr (sizeof(A) == 4) {
    asm volatile("{.reg .b32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];}"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
                 : "r"(address), "r"(rank)
                 : "memory");
  } else {
    asm volatile("{.reg .b32 a; mapa.shared::cluster.u32 a, %2, %3; ld.shared::cluster.v2.f64 {%0, %1}, [a];}"
                 : "=d"(r[0]), "=d"(r[1])
                 : "r"(address), "r"(rank)
                 : "memory");
  }
#endif
}

// The tile's sums lie in shared memory, acc[row * LD + column]; each of the cluster's blocks finishes a part of them. A call has
// W columns from a multiple of W, except in groups whose size is no multiple of W: there columns come one by one.
template <class A, int W, int BM, int BN, int LD, int THREADS, int SPLIT, class E>
CD_FN void conv_finish(const ConvShape& s, const A* acc, const E& epilogue) {
  if constexpr (SPLIT > 1) {
    conv_cluster_sync();
  } else {
    __syncthreads();
  }
  constexpr int CALLS = BM * BN / W, PART = (CALLS + SPLIT - 1) / SPLIT;
  const int first = SPLIT > 1 ? s.rank * PART : 0, last = min(first + PART, CALLS);
  const bool aligned = s.group == 0 || s.oc_g % W == 0;
#pragma unroll 1
  for (int i = first + threadIdx.x; i < last; i += THREADS) {
    const int row = i / (BN / W), column = i % (BN / W) * W, count = min(W, s.oc_g - s.n0 - column);
    if (s.m0 + row >= s.rows || count <= 0) continue;
    const A* from = acc + row * LD + column;
    constexpr int V = 16 / sizeof(A);
    A sum[W];
#pragma unroll
    for (int w = 0; w < W; w++) sum[w] = SPLIT > 1 ? A(0) : from[w];
    if constexpr (SPLIT > 1) {
#pragma unroll
      for (int part = 0; part < SPLIT * (W / V); part++) {  // always in this order
        A v[V];
        conv_remote<A>(shared_address(from + part % (W / V) * V), part / (W / V), v);
#pragma unroll
        for (int w = 0; w < V; w++) sum[part % (W / V) * V + w] += v[w];
      }
    }
    const int channel = s.group * s.oc_g + s.n0 + column;
    if (aligned) {
      epilogue(0, s.m0 + row, channel, sum, count);
    } else {
      for (int w = 0; w < count; w++) {
        const A one[W] = {sum[w]};
        epilogue(0, s.m0 + row, channel + w, one, 1);
      }
    }
  }
  if constexpr (SPLIT > 1) conv_cluster_sync();  // nobody leaves while its sums are read
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_TILE_H_
