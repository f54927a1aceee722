// softmax(q k^T * scale + mask) v for few queries, bound by reading k and v once: decoding with a cache.
//
// A block serves ROWS queries (of the heads that share a key head, or of several positions) of one key head and a part of the keys.
// LANES lanes of a warp hold one key's row, 16 bytes each, so that a warp takes 32 / LANES keys at a time; each such team keeps its
// own output, maximum and sum, which the block, then the blocks of the cluster put together in a fixed order.
#ifndef COIL_DEVICE_CUDA_ATTENTION_DECODE_H_
#define COIL_DEVICE_CUDA_ATTENTION_DECODE_H_

#include "cuda/attention_tile.h"

namespace cd {

// Columns [column, column + V) of a row, zeros from `dim` on.
template <class T, int V>
CD_FN void attention_row(float (&r)[V], const T* from, int column, int dim, bool vectors) {
  if (vectors) {
    if (column < dim) {
      load<V>(r, from + column);
    } else {
#pragma unroll
      for (int i = 0; i < V; i++) r[i] = 0;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) r[i] = column + i < dim ? load1(from + column + i) : 0.0f;
  }
}

// --- several blocks of a cluster share the keys
CD_FN void attention_cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
template <int SPLIT>
CD_FN float attention_remote(u32 address, int rank) {
  float r = 0;
  if constexpr (SPLIT == 1) {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(r) : "r"(address) : "memory");
  } else {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.f32 %0, [a];}" : "=f"(r) : "r"(address), "r"(rank) : "memory");
#endif
  }
  return r;
}

// T: float, bf16, f16; M: see attention_masked; D: dim and v_dim rounded up to a power of two, 32..256, D * sizeof(T) <= 512 or T
// float; SPLIT: blocks of a cluster that share the keys. Shared memory: attention_decode_shared.
// Blocks: x = ((batch * kv_heads + kv_head) * row tiles + tile) * SPLIT + part; rows are (head of the group) * q_len + position.
template <class T, class M, bool CAUSAL, int D, int ROWS, int WARPS, int SPLIT>
CD_FN void attention_decode(const CudaAttention& t) {
  constexpr int V = 16 / sizeof(T), LANES = D / V < 32 ? D / V : 32, C = D / V / LANES, TEAMS = WARPS * 32 / LANES, THREADS = WARPS * 32;
  constexpr int AHEAD = ROWS * C >= 4 ? 2 : 4, LD = D + 2;
  static_assert((TEAMS + 1) * ROWS * LD * 4 <= attention_decode_shared(D, ROWS, TEAMS));
  extern __shared__ __align__(128) unsigned char shared[];
  float* parts = (float*)shared;  // [team][ROWS][LD]: output, maximum, sum
  const int q_len = (int)t.q_len, kv_len = (int)t.kv_len, group = (int)(t.heads / t.kv_heads), rows = group * q_len;
  const int rank = blockIdx.x % SPLIT, tiles = (rows + ROWS - 1) / ROWS;
  const u32 tile = blockIdx.x / SPLIT % (u32)tiles, place = blockIdx.x / SPLIT / (u32)tiles;
  const int kv_head = (int)(place % (u32)t.kv_heads), batch = (int)(place / (u32)t.kv_heads), row0 = (int)tile * ROWS;
  const int dim = (int)t.dim, v_dim = (int)t.v_dim, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
  const T* k = (const T*)t.k + batch * t.k_batch + kv_head * t.k_head;
  const T* v = (const T*)t.v + batch * t.v_batch + kv_head * t.v_head;
  const bool k_vectors = dim % V == 0 && attention_alignment<T>(t.k, t.k_batch, t.k_head, t.k_row) == 16;
  const bool v_vectors = v_dim % V == 0 && attention_alignment<T>(t.v, t.v_batch, t.v_head, t.v_row) == 16;
  const float scale = attention_scale(t);

  float q[ROWS][C][V], o[ROWS][C][V] = {}, highest[ROWS], total[ROWS] = {};
  int seen[ROWS];
  const M* mask[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const int at = min(row0 + r, rows - 1), head = kv_head * group + at / q_len, position = at % q_len;
    seen[r] = CAUSAL ? min(position + 1, kv_len) : kv_len;
    mask[r] = (const M*)t.mask + batch * t.mask_batch + head * t.mask_head + position * t.mask_row;
    highest[r] = -inf32();
    const T* from = (const T*)t.q + batch * t.q_batch + head * t.q_head + position * t.q_row;
#pragma unroll
    for (int c = 0; c < C; c++) {
      attention_row<T, V>(q[r][c], from, (c * LANES + lane) * V, dim, false);
#pragma unroll
      for (int i = 0; i < V; i++) q[r][c][i] *= scale;
    }
  }
  const int per_part = (kv_len + SPLIT - 1) / SPLIT, end = min(per_part * (rank + 1), kv_len);
#pragma unroll 1
  for (int first = per_part * rank; first < end; first += TEAMS * AHEAD) {  // the same for all lanes, which shuffle
    float x[AHEAD][C][V], y[AHEAD][C][V];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const i64 key = min(first + a * TEAMS + team, end - 1);
#pragma unroll
      for (int c = 0; c < C; c++) attention_row<T, V>(x[a][c], k + key * t.k_row, (c * LANES + lane) * V, dim, k_vectors);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const i64 key = min(first + a * TEAMS + team, end - 1);
#pragma unroll
      for (int c = 0; c < C; c++) attention_row<T, V>(y[a][c], v + key * t.v_row, (c * LANES + lane) * V, v_dim, v_vectors);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float s[AHEAD], m = highest[r];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        s[a] = 0;
#pragma unroll
        for (int c = 0; c < C; c++) {
#pragma unroll
          for (int i = 0; i < V; i++) s[a] = fmaf(q[r][c][i], x[a][c][i], s[a]);
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) s[a] += __shfl_xor_sync(~0u, s[a], step);
        const int key = first + a * TEAMS + team;
        s[a] = key < min(seen[r], end) ? attention_masked(s[a], mask[r] + key * t.mask_col) : -inf32();
        m = fmaxf(m, s[a]);
      }
      const float base = m == -inf32() ? 0.0f : m, keep = exp2_approx(highest[r] - base);
      highest[r] = m;
      total[r] *= keep;
#pragma unroll
      for (int c = 0; c < C; c++) {
#pragma unroll
        for (int i = 0; i < V; i++) o[r][c][i] *= keep;
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const float p = exp2_approx(s[a] - base);
        total[r] += p;
        if (first + a * TEAMS + team < min(seen[r], end)) {  // what is not seen may be NaN
#pragma unroll
          for (int c = 0; c < C; c++) {
#pragma unroll
            for (int i = 0; i < V; i++) o[r][c][i] = fmaf(p, y[a][c][i], o[r][c][i]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float* to = parts + (team * ROWS + r) * LD;
#pragma unroll
    for (int c = 0; c < C; c++) {
#pragma unroll
      for (int i = 0; i < V; i++) to[(c * LANES + lane) * V + i] = o[r][c][i];
    }
    if (lane == 0) to[D] = highest[r], to[D + 1] = total[r];
  }
  __syncthreads();
  // The block's: row r, column d by one thread, parts in order of the teams.
  float* mine = parts + TEAMS * ROWS * LD;
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
    const float* from = parts + i / D * LD;
    float m = -inf32(), sum = 0, value = 0;
#pragma unroll 4
    for (int j = 0; j < TEAMS; j++) m = fmaxf(m, from[j * ROWS * LD + D]);
    const float base = m == -inf32() ? 0.0f : m;
#pragma unroll 4
    for (int j = 0; j < TEAMS; j++) {
      const float w = exp2_approx(from[j * ROWS * LD + D] - base);
      sum = fmaf(w, from[j * ROWS * LD + D + 1], sum);
      value = fmaf(w, from[j * ROWS * LD + i % D], value);
    }
    mine[i / D * LD + i % D] = value;
    if (i % D == 0) mine[i / D * LD + D] = m, mine[i / D * LD + D + 1] = sum;
  }
  if constexpr (SPLIT > 1) {
    attention_cluster_sync();
  } else {
    __syncthreads();
  }
  // The cluster's: block r finishes a part of the columns.
#pragma unroll 1
  for (int i = threadIdx.x + THREADS * rank; i < ROWS * D; i += THREADS * SPLIT) {
    const int r = i / D, column = i % D, at = row0 + r;
    float m = -inf32(), sum = 0, value = 0;
    const u32 from = shared_address(mine + r * LD);
#pragma unroll
    for (int j = 0; j < SPLIT; j++) m = fmaxf(m, attention_remote<SPLIT>(from + D * 4, j));
    const float base = m == -inf32() ? 0.0f : m;
#pragma unroll
    for (int j = 0; j < SPLIT; j++) {
      const float w = exp2_approx(attention_remote<SPLIT>(from + D * 4, j) - base);
      sum = fmaf(w, attention_remote<SPLIT>(from + D * 4 + 4, j), sum);
      value = fmaf(w, attention_remote<SPLIT>(from + column * 4, j), value);
    }
    if (at >= rows || column >= v_dim) continue;
    const int head = kv_head * group + at / q_len, position = at % q_len;
    store1((T*)t.o + batch * t.o_batch + head * t.o_head + position * t.o_row + column, sum == 0.0f ? 0.0f : value / sum);
  }
  if constexpr (SPLIT > 1) attention_cluster_sync();  // nobody leaves while its part is read
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_DECODE_H_
