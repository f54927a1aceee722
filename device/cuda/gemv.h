// Matrix products with few rows (decode, classifier heads): the time is that of reading b once.
//
//   gemv_mma   bf16 and f16, b as [n, k] (a linear layer's weight). Tensor cores with the roles swapped: 16 columns of the result are
//              mma's rows, 8 * GROUPS rows of a its columns. A lane takes 16 bytes along k of two columns and of a row at once; the order
//              of k inside a step is free as long as both operands agree, so fragments come straight from memory.
//   gemv_dot   f32 and f64, b as [n, k]: a warp per 16 bytes' worth of columns.
//   gemv_axpy  all types, b as [k, n]: a lane owns 16 bytes' worth of columns, the k axis is spread over lanes and warps.
// Any strides and alignment are right; contiguous ones as named are fast. More rows than one block takes are walked by grid.y.
// SPLIT: as in gemm_simt.h. Sums are over fixed trees.
#ifndef COIL_DEVICE_CUDA_GEMV_H_
#define COIL_DEVICE_CUDA_GEMV_H_

#include "cuda/gemm_tile.h"

namespace cd {

// 16 bytes read once: not kept in L1.
CD_FN uint4 load_stream(const void* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// 16 bytes as load_stream reads them, in the order of the program's other volatile statements: not behind the wait for the kernel before this one.
CD_FN uint4 load_early(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// 16 bytes by accesses of B bytes.
template <int B>
CD_FN uint4 load_chunk(const void* p) {
  if constexpr (B == 16) {
    return load_stream(p);
  } else if constexpr (B == 8) {
    const uint2 x = __ldg((const uint2*)p), y = __ldg((const uint2*)p + 1);
    return make_uint4(x.x, x.y, y.x, y.y);
  } else {
    const u32* w = (const u32*)p;
    return make_uint4(__ldg(w), __ldg(w + 1), __ldg(w + 2), __ldg(w + 3));
  }
}
// The first `count` (8 or more: all, 0 or less: none) of 8 two-byte elements, the others 0.
template <class T>
CD_FN uint4 load_elements(const T* p, i64 stride, int count) {
  u32 w[4];
#pragma unroll
  for (int e = 0; e < 8; e += 2) {
    const u32 low = e < count ? p[e * stride].bits : 0, high = e + 1 < count ? p[(e + 1) * stride].bits : 0;
    w[e / 2] = low | high << 16;
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

template <class T, int GROUPS>
CD_FN void gemv_mma_step(float (&acc)[GROUPS][4], uint4 w0, uint4 w1, const uint4 (&x)[GROUPS]) {
  const u32 first[4] = {w0.x, w1.x, w0.y, w1.y}, second[4] = {w0.z, w1.z, w0.w, w1.w};
#pragma unroll
  for (int g = 0; g < GROUPS; ++g) {
    mma<T>(acc[g], first, x[g].x, x[g].y);
    mma<T>(acc[g], second, x[g].z, x[g].w);
  }
}

// Whole turns of all warps by accesses of B bytes, from k; returns where they stopped. A warp's UNROLL steps follow one another, so that it reads whole lines
// of memory at once. The loads of the next turn are under way across the loop's end: where they are used in the same turn, ptxas puts most of them behind the
// first products to save registers.
template <class T, int B, int GROUPS, int WARPS, int UNROLL>
CD_FN int gemv_mma_turns(float (&acc)[GROUPS][4], const T* w0, const T* w1, const T* const (&x)[GROUPS], int k, int k_end) {
  constexpr int kTurn = WARPS * 32 * UNROLL;
  const int own = (int)threadIdx.x / 32 * (32 * UNROLL);
  if (k + kTurn > k_end) return k;
  uint4 a0[UNROLL], a1[UNROLL], b[UNROLL][GROUPS];
  const auto fetch = [&](int u) {
    const int at = k + own + u * 32;
    a0[u] = load_chunk<B>(w0 + at);
    a1[u] = load_chunk<B>(w1 + at);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) b[u][g] = B == 16 ? __ldg((const uint4*)(x[g] + at)) : load_chunk<B>(x[g] + at);
  };
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) fetch(u);
#pragma unroll 1
  for (k += kTurn; k + kTurn <= k_end; k += kTurn) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      gemv_mma_step<T>(acc, a0[u], a1[u], b[u]);
      fetch(u);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) gemv_mma_step<T>(acc, a0[u], a1[u], b[u]);
  return k;
}

// One step of this warp alone, at k, of which it has `count` elements (8 or more: all). wide: the whole ones are 16 aligned bytes.
template <class T, int GROUPS>
CD_FN void gemv_mma_piece(float (&acc)[GROUPS][4], const CudaGemm& t, const T* w0, const T* w1, const T* const (&x)[GROUPS], int k, int count, bool wide) {
  uint4 a0, a1, b[GROUPS];
  if (wide && count >= 8) {
    a0 = load_chunk<16>(w0 + k), a1 = load_chunk<16>(w1 + k);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) b[g] = load_chunk<16>(x[g] + k);
  } else {
    a0 = load_elements(w0 + k * t.b_row, t.b_row, count), a1 = load_elements(w1 + k * t.b_row, t.b_row, count);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) b[g] = load_elements(x[g] + k * t.a_col, t.a_col, count);
  }
  gemv_mma_step<T>(acc, a0, a1, b);
}

// Grid: x = cdiv(n, 16) * SPLIT, y = cdiv(m, 8 * GROUPS), z = batches (or fewer). Block: WARPS warps. No dynamic shared memory.
template <class T, int GROUPS, int WARPS, int SPLIT, class E>
CD_FN void gemv_mma(const CudaGemm& t, const E& epilogue) {
  constexpr int kRows = 8 * GROUPS, kPitch = 20;  // 20: pairs of a fragment lie in different banks, fours stay aligned
  __shared__ __align__(16) float partial[WARPS][kRows][kPitch];
  __shared__ __align__(16) float stage[kRows * 16];
  const int m = (int)t.m, n = (int)t.n, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int col0 = (int)(blockIdx.x / SPLIT) * 16, row0 = (int)blockIdx.y * kRows;
  const int per_part = (cdiv((int)t.k, 64) + SPLIT - 1) / SPLIT * 64;
  const int k_begin = (int)(blockIdx.x % SPLIT) * per_part, k_end = min((int)t.k, k_begin + per_part);
  const int lane_k = lane % 4 * 8;
  const int width = t.a_col != 1 || t.b_row != 1 ? 2 : min(access_width(t.a, t.a_row, t.a_batch, 2), access_width(t.b, t.b_col, t.b_batch, 2));
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    // Columns and rows beyond the matrix read the last one's: what comes of it is dropped.
    const T* w = (const T*)t.b + batch * t.b_batch;
    const T* w0 = w + min(col0 + lane / 4, n - 1) * t.b_col + lane_k * t.b_row;
    const T* w1 = w + min(col0 + lane / 4 + 8, n - 1) * t.b_col + lane_k * t.b_row;
    const T* x[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) x[g] = (const T*)t.a + batch * t.a_batch + min(row0 + g * 8 + lane / 4, m - 1) * t.a_row + lane_k * t.a_col;
    float acc[GROUPS][4] = {};
    constexpr int kMost = GROUPS > 1 ? 2 : 4;  // steps under way, as far as registers allow; more of them leave fewer blocks on a multiprocessor
    int k = k_begin;
    if (width == 16) {
      k = gemv_mma_turns<T, 16, GROUPS, WARPS, kMost>(acc, w0, w1, x, k, k_end);
      if constexpr (kMost > 2) k = gemv_mma_turns<T, 16, GROUPS, WARPS, 2>(acc, w0, w1, x, k, k_end);
    } else if (width == 8) {
      k = gemv_mma_turns<T, 8, GROUPS, WARPS, 2>(acc, w0, w1, x, k, k_end);
    } else if (width == 4) {
      k = gemv_mma_turns<T, 4, GROUPS, WARPS, 2>(acc, w0, w1, x, k, k_end);
    }
    k += warp * 32;
#pragma unroll 1
    for (; k < k_end; k += WARPS * 32) {
      // Not clamped to 0 .. 8: ptxas 13.0 makes one instruction of the clamp and of a comparison with its limit, and that one is
      // true below 0 too.
      const int count = k_end - k - lane_k;
      gemv_mma_piece<T>(acc, t, w0, w1, x, k, count, width == 16);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
      for (int e = 0; e < 4; ++e) partial[warp][g * 8 + lane % 4 * 2 + e % 2][lane / 4 + e / 2 * 8] = acc[g][e];
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < kRows * 16; item += WARPS * 32) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) sum += partial[i][item / 16][item % 16];
      stage[item] = sum;
    }
    finish_tile<T, kRows, 16, WARPS * 32, SPLIT>(stage, batch, row0, col0, m, n, epilogue);
  }
}

// Adds up what the lanes have; then every lane has all sums: lane i finishes row i.
template <class T, int ROWS, int W, class E>
CD_FN void finish_dots(T (&acc)[ROWS][W], i64 batch, int row0, int col0, int m, int n, const E& epilogue) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < W; ++j)
#pragma unroll
      for (int s = 16; s; s >>= 1) acc[i][j] += __shfl_xor_sync(~0u, acc[i][j], s);
  T mine[W];
#pragma unroll
  for (int j = 0; j < W; ++j) mine[j] = acc[0][j];
#pragma unroll
  for (int i = 1; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < W; ++j) mine[j] = lane == i ? acc[i][j] : mine[j];
  if (lane < ROWS && row0 + lane < m) epilogue(batch, row0 + lane, col0, mine, min(W, n - col0));
}

// Grid: x = cdiv(n, WARPS * 16 / sizeof(T)), y = cdiv(m, ROWS), z = batches (or fewer). Block: WARPS warps.
template <class T, int ROWS, int WARPS, class E>
CD_FN void gemv_dot(const CudaGemm& t, const E& epilogue) {
  constexpr int W = kWidth<T>, V = 16 / (int)sizeof(T), kUnroll = ROWS >= 4 ? 1 : 2, kStep = 32 * V;
  const int m = (int)t.m, n = (int)t.n, k_end = (int)t.k, lane = threadIdx.x % 32;
  const int col0 = (int)(blockIdx.x * WARPS + threadIdx.x / 32) * W, row0 = (int)blockIdx.y * ROWS;
  if (col0 >= n || row0 >= m) return;
  const bool wide = t.a_col == 1 && t.b_row == 1 && aligned_to(16, t.a, t.a_row, t.a_batch, sizeof(T)) && aligned_to(16, t.b, t.b_col, t.b_batch, sizeof(T));
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    const T* w[W];
    const T* x[ROWS];
#pragma unroll
    for (int j = 0; j < W; ++j) w[j] = (const T*)t.b + batch * t.b_batch + min(col0 + j, n - 1) * t.b_col;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) x[i] = (const T*)t.a + batch * t.a_batch + min(row0 + i, m - 1) * t.a_row;
    T acc[ROWS][W] = {};
    int k = lane * V;
    if (wide) {
#pragma unroll 1
      for (; k + (kUnroll - 1) * kStep + V <= k_end; k += kUnroll * kStep) {
        uint4 fw[kUnroll][W];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
          for (int j = 0; j < W; ++j) fw[u][j] = load_stream(w[j] + k + u * kStep);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
          for (int i = 0; i < ROWS; ++i) {
            const uint4 fx = __ldg((const uint4*)(x[i] + k + u * kStep));
#pragma unroll
            for (int e = 0; e < V; ++e)
#pragma unroll
              for (int j = 0; j < W; ++j) acc[i][j] += ((const T*)&fw[u][j])[e] * ((const T*)&fx)[e];
          }
      }
    } else {
      k = lane;
    }
    // The rest, element by element: of this lane's next pieces of 16 bytes, or every 32nd.
    const int piece = wide ? V : 1;
#pragma unroll 1
    for (; k < k_end; k += 32 * piece) {
#pragma unroll 1
      for (int e = k; e < min(k + piece, k_end); ++e) {
        T fx[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) fx[i] = x[i][e * t.a_col];
#pragma unroll
        for (int j = 0; j < W; ++j) {
          const T fw = w[j][e * t.b_row];
#pragma unroll
          for (int i = 0; i < ROWS; ++i) acc[i][j] += fx[i] * fw;
        }
      }
    }
    finish_dots(acc, batch, row0, col0, m, n, epilogue);
  }
}

// The first `columns` elements, at most V, of lines [k, min(k + COUNT, k_end)) of b, zeros behind them. wide: all are there, 16 aligned bytes of each.
template <class T, int COUNT, int V>
CD_FN void load_lines(T (&x)[COUNT][V], const T* w, const CudaGemm& t, int k, int k_end, int columns, bool wide) {
#pragma unroll
  for (int u = 0; u < COUNT; ++u) *(uint4*)x[u] = make_uint4(0, 0, 0, 0);
  if (wide) {
#pragma unroll
    for (int u = 0; u < COUNT; ++u) *(uint4*)x[u] = load_stream(w + (k + u) * t.b_row);
  } else {
#pragma unroll 1
    for (int e = 0; e < min(V, columns); ++e) {
#pragma unroll
      for (int u = 0; u < COUNT; ++u) {
        if (k + u >= k_end) continue;
        const T value = w[(k + u) * t.b_row + e * t.b_col];
#pragma unroll
        for (int c = 0; c < V; ++c)
          if (c == e) x[u][c] = value;
      }
    }
  }
}

// Grid: x = cdiv(n, 32) * SPLIT, y = cdiv(m, ROWS), z = batches (or fewer). Block: WARPS warps.
template <class T, int ROWS, int WARPS, int SPLIT, class E>
CD_FN void gemv_axpy(const CudaGemm& t, const E& epilogue) {
  using R = reg_t<T>;
  constexpr int V = 16 / (int)sizeof(T), kAcross = 32 / V, kDown = 32 / kAcross, kUnroll = V > 4 ? V : 4, kStep = WARPS * kDown * kUnroll;
  __shared__ __align__(16) R partial[WARPS][ROWS][32];
  __shared__ __align__(16) R stage[ROWS * 32];
  const int m = (int)t.m, n = (int)t.n, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int col0 = (int)(blockIdx.x / SPLIT) * 32, row0 = (int)blockIdx.y * ROWS, col = col0 + lane % kAcross * V;
  const int per_part = (cdiv((int)t.k, kUnroll) + SPLIT - 1) / SPLIT * kUnroll;
  const int k_begin = (int)(blockIdx.x % SPLIT) * per_part, k_end = min((int)t.k, k_begin + per_part);
  const int columns = n - col;  // more than V: V
  const bool wide_b = t.b_col == 1 && columns >= V && aligned_to(16, t.b, t.b_row, t.b_batch, sizeof(T));
  const bool wide_a = t.a_col == 1 && aligned_to(16, t.a, t.a_row, t.a_batch, sizeof(T));
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    const T* w = (const T*)t.b + batch * t.b_batch + col * t.b_col;
    const T* x[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) x[i] = (const T*)t.a + batch * t.a_batch + min(row0 + i, m - 1) * t.a_row;
    R acc[ROWS][V] = {};
#pragma unroll 1
    for (int k = k_begin + (warp * kDown + lane / kAcross) * kUnroll; k < k_end; k += kStep) {
      const bool whole = k + kUnroll <= k_end;
      alignas(16) T fw[kUnroll][V];
      load_lines(fw, w, t, k, k_end, columns, wide_b && whole);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        R fx[kUnroll];
        if (wide_a && whole) {
          load<kUnroll>(fx, x[i] + k);
        } else {
#pragma unroll
          for (int u = 0; u < kUnroll; ++u) fx[u] = k + u < k_end ? load1(x[i] + (k + u) * t.a_col) : R(0);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
          for (int c = 0; c < V; ++c) acc[i][c] += fx[u] * unpack(fw[u][c]);
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int c = 0; c < V; ++c) {
#pragma unroll
        for (int s = kAcross; s < 32; s <<= 1) acc[i][c] += __shfl_xor_sync(~0u, acc[i][c], s);
        if (lane < kAcross) partial[warp][i][lane * V + c] = acc[i][c];
      }
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < ROWS * 32; item += WARPS * 32) {
      R sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) sum += partial[i][item / 32][item % 32];
      stage[stage_index<R, 32>(item / 32, item % 32)] = sum;
    }
    finish_tile<T, ROWS, 32, WARPS * 32, SPLIT>(stage, batch, row0, col0, m, n, epilogue);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMV_H_
