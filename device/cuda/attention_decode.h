// softmax(q k^T * scale + mask) v for few queries, bound by reading k and v once: decoding with a cache.
//
// A block serves ROWS queries (of the heads that share a key head, or of several positions) of one key head and a part of the keys.
// LANES lanes of a warp hold one key's row, 16 bytes each, so that a warp takes 32 / LANES keys at a time; each such team keeps its
// own output, maximum and sum. A turn's keys, values and masks are asked for while the turn before is computed, the first ones in
// front of the queries: of a few hundred keys a block has one turn, and what it takes is the way to memory. The block puts its teams'
// parts together in a fixed order and sends the result to the block of the cluster that finishes these columns.
#ifndef COIL_DEVICE_CUDA_ATTENTION_DECODE_H_
#define COIL_DEVICE_CUDA_ATTENTION_DECODE_H_

#include "cuda/attention_tile.h"

namespace cd {

// V elements of a row as they come from memory.
template <class T, int V>
struct AttentionPiece {
  static_assert(V * sizeof(T) == 16);
  uint4 bits;

  // Columns [column, column + V), zeros from `dim` on.
  __device__ __forceinline__ void fetch(const T* from, int column, int dim, bool vectors) {
    if (vectors) {
      bits = column < dim ? *(const uint4*)(from + column) : make_uint4(0, 0, 0, 0);
    } else {
      T e[V];
#pragma unroll
      for (int i = 0; i < V; i++) e[i] = column + i < dim ? from[column + i] : T{};
      bits = *(const uint4*)e;
    }
  }
  __device__ __forceinline__ void unpack(float (&r)[V]) const {
#pragma unroll
    for (int i = 0; i < V; i++) r[i] = cd::unpack(((const T*)&bits)[i]);
  }
};

// --- several blocks of a cluster share the keys
CD_FN void attention_cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// x to the place that `address` is in the shared memory of the cluster's block `rank`.
template <int SPLIT>
CD_FN void attention_send(u32 address, int rank, float x) {
  if constexpr (SPLIT == 1) {
    shared_store_4(address, __float_as_uint(x));
  } else {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.f32 [a], %2;}" ::"r"(address), "r"(rank), "f"(x) : "memory");
#endif
  }
}

// What a team found of one row.
template <int C, int V>
struct AttentionRow {
  float o[C][V], highest, total;
};

// Keys [first, first + TEAMS * AHEAD) of a part that ends at `end`: those of this team.
template <class T, class M, int C, int V, int ROWS, int AHEAD, int TEAMS, int LANES>
struct AttentionTurn {
  AttentionPiece<T, V> k[AHEAD][C], v[AHEAD][C];
  float mask[ROWS][AHEAD];

  template <class Call>
  __device__ __forceinline__ void fetch(const Call& t, int first, int end) {
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const i64 key = max(min(first + a * TEAMS + team, end - 1), 0);
#pragma unroll
      for (int c = 0; c < C; c++) k[a][c].fetch(t.k + key * t.k_row, (c * LANES + lane) * V, t.dim, t.k_vectors);
    }
    if constexpr (!kSame<M, NoMask>) {
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) mask[r][a] = attention_addend(t.mask[r] + max(min(first + a * TEAMS + team, end - 1), 0) * t.mask_col);
      }
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const i64 key = max(min(first + a * TEAMS + team, end - 1), 0);
#pragma unroll
      for (int c = 0; c < C; c++) v[a][c].fetch(t.v + key * t.v_row, (c * LANES + lane) * V, t.v_dim, t.v_vectors);
    }
  }

  // Row number r, of which keys up to `seen` are seen.
  template <class Call>
  __device__ __forceinline__ void add(const Call& t, int r, AttentionRow<C, V>& row, const float (&q)[C][V], int first, int seen) const {
    const int team = threadIdx.x / LANES;
    float s[AHEAD], m = row.highest;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      s[a] = 0;
#pragma unroll
      for (int c = 0; c < C; c++) {
        float x[V];
        k[a][c].unpack(x);
#pragma unroll
        for (int i = 0; i < V; i++) s[a] = fmaf(q[c][i], x[i], s[a]);
      }
#pragma unroll
      for (int step = LANES / 2; step > 0; step /= 2) s[a] += __shfl_xor_sync(~0u, s[a], step);
      if constexpr (!kSame<M, NoMask>) s[a] = attention_masked_by<M>(s[a], mask[r][a], t.highest_fill);
      if (first + a * TEAMS + team >= seen) s[a] = -inf32();
      m = fmaxf(m, s[a]);
    }
    const float base = m == -inf32() ? 0.0f : m, keep = exp2_approx(row.highest - base);
    row.highest = m;
    row.total *= keep;
#pragma unroll
    for (int c = 0; c < C; c++) {
#pragma unroll
      for (int i = 0; i < V; i++) row.o[c][i] *= keep;
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const float p = exp2_approx(s[a] - base);
      row.total += p;
      if (first + a * TEAMS + team < seen) {  // what is not seen may be NaN
#pragma unroll
        for (int c = 0; c < C; c++) {
          float y[V];
          v[a][c].unpack(y);
#pragma unroll
          for (int i = 0; i < V; i++) row.o[c][i] = fmaf(p, y[i], row.o[c][i]);
        }
      }
    }
  }
};

template <class T, class M, int ROWS>
struct AttentionKeys {
  const T *k, *v;
  const M* mask[ROWS];
  i64 k_row, v_row, mask_col;
  float highest_fill;
  int dim, v_dim;
  bool k_vectors, v_vectors;
};

// Weights of the parts [COUNT] of ROWS rows, whose maxima and sums lie `pitch` floats apart from one part to the next: weights[r * COUNT + part]; `result`
// gets each row's maximum and sum of all parts. Sums are over a fixed tree; warps take rows in turn.
template <int COUNT, int ROWS, int WARPS, class Result>
CD_FN void attention_weights(const float* maxima, int row_step, int pitch, float* weights, const Result& result) {
  constexpr int kOwn = (COUNT + 31) / 32;  // of a lane
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
    float own[kOwn], m = -inf32(), sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      own[i] = maxima[r * row_step + min(lane + i * 32, COUNT - 1) * pitch];
      m = fmaxf(m, own[i]);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
    const float base = m == -inf32() ? 0.0f : m;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      const int part = lane + i * 32;
      if (part >= COUNT) continue;
      const float w = exp2_approx(own[i] - base);
      weights[r * COUNT + part] = w;
      sum = fmaf(w, maxima[r * row_step + part * pitch + 1], sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) result(r, m, sum);
  }
}

// T: float, bf16, f16; M: see attention_masked; D: dim and v_dim rounded up to a power of two, 32..256, D * sizeof(T) <= 512 or T
// float; SPLIT: blocks of a cluster that share the keys. Shared memory: attention_decode_shared.
// Blocks: x = ((batch * kv_heads + kv_head) * row tiles + tile) * SPLIT + part; rows are (head of the group) * q_len + position.
template <class T, class M, bool CAUSAL, int D, int ROWS, int WARPS, int SPLIT>
CD_FN void attention_decode(const CudaAttention& t) {
  constexpr int V = 16 / sizeof(T), LANES = D / V < 32 ? D / V : 32, C = D / V / LANES, TEAMS = WARPS * 32 / LANES, THREADS = WARPS * 32;
  constexpr int AHEAD = ROWS * C >= 4 ? 2 : 4, LD = D + 2;
  constexpr int kTurns = (ROWS * D + THREADS * SPLIT - 1) / (THREADS * SPLIT), kSent = kTurns * THREADS;  // columns of a row that a block finishes, of all rows
  static_assert((TEAMS * ROWS * (LD + 1) + SPLIT * (kSent + 3 * ROWS)) * 4 <= attention_decode_shared(D, ROWS, TEAMS, THREADS, SPLIT));
  extern __shared__ __align__(128) unsigned char shared[];
  float* const parts = (float*)shared;                // [team][ROWS][LD]: output, maximum, sum
  float* const weights = parts + TEAMS * ROWS * LD;   // [ROWS][TEAMS]
  float* const received = weights + TEAMS * ROWS;     // [SPLIT][kSent], from all blocks of the cluster
  float* const extremes = received + SPLIT * kSent;   // [SPLIT][ROWS][2]: maxima and sums, from them too
  float* const shares = extremes + SPLIT * 2 * ROWS;  // [ROWS][SPLIT]
  __shared__ float totals[ROWS];
  const int q_len = (int)t.q_len, kv_len = (int)t.kv_len, group = (int)(t.heads / t.kv_heads), rows = group * q_len;
  const int rank = blockIdx.x % SPLIT, tiles = (rows + ROWS - 1) / ROWS;
  const u32 tile = blockIdx.x / SPLIT % (u32)tiles, place = blockIdx.x / SPLIT / (u32)tiles;
  const int kv_head = (int)(place % (u32)t.kv_heads), batch = (int)(place / (u32)t.kv_heads), row0 = (int)tile * ROWS;
  const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
  AttentionKeys<T, M, ROWS> call;
  call.k = (const T*)t.k + batch * t.k_batch + kv_head * t.k_head, call.v = (const T*)t.v + batch * t.v_batch + kv_head * t.v_head;
  call.k_row = t.k_row, call.v_row = t.v_row, call.mask_col = t.mask_col, call.highest_fill = t.highest_fill, call.dim = (int)t.dim, call.v_dim = (int)t.v_dim;
  call.k_vectors = call.dim % V == 0 && attention_alignment<T>(t.k, t.k_batch, t.k_head, t.k_row) == 16;
  call.v_vectors = call.v_dim % V == 0 && attention_alignment<T>(t.v, t.v_batch, t.v_head, t.v_row) == 16;
  const bool q_vectors = call.dim % V == 0 && attention_alignment<T>(t.q, t.q_batch, t.q_head, t.q_row) == 16;
  AttentionPiece<T, V> raw[ROWS][C];
  int seen[ROWS];
  const int per_part = (kv_len + SPLIT - 1) / SPLIT, begin = per_part * rank, end = min(per_part * (rank + 1), kv_len);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const int at = min(row0 + r, rows - 1), head = kv_head * group + at / q_len, position = at % q_len;
    seen[r] = min(CAUSAL ? position + 1 : kv_len, end);
    call.mask[r] = (const M*)t.mask + batch * t.mask_batch + head * t.mask_head + position * t.mask_row;
    const T* from = (const T*)t.q + batch * t.q_batch + head * t.q_head + position * t.q_row;
#pragma unroll
    for (int c = 0; c < C; c++) raw[r][c].fetch(from, (c * LANES + lane) * V, call.dim, q_vectors);
  }
  AttentionTurn<T, M, C, V, ROWS, AHEAD, TEAMS, LANES> turn;
  if (begin < end) turn.fetch(call, begin, end);
  if constexpr (SPLIT > 1) attention_cluster_sync();  // all blocks are there: their memory may be written
  const float scale = attention_scale(t);
  float q[ROWS][C][V];
  AttentionRow<C, V> row[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    row[r].highest = -inf32(), row[r].total = 0;
#pragma unroll
    for (int c = 0; c < C; c++) {
      raw[r][c].unpack(q[r][c]);
#pragma unroll
      for (int i = 0; i < V; i++) q[r][c][i] *= scale, row[r].o[c][i] = 0;
    }
  }
#pragma unroll 1
  for (int first = begin; first < end; first += TEAMS * AHEAD) {  // the same for all lanes, which shuffle
    const auto now = turn;
    if (first + TEAMS * AHEAD < end) turn.fetch(call, first + TEAMS * AHEAD, end);
#pragma unroll
    for (int r = 0; r < ROWS; r++) now.add(call, r, row[r], q[r], first, seen[r]);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float* to = parts + (team * ROWS + r) * LD;
#pragma unroll
    for (int c = 0; c < C; c++) {
#pragma unroll
      for (int i = 0; i < V; i++) to[(c * LANES + lane) * V + i] = row[r].o[c][i];
    }
    if (lane == 0) to[D] = row[r].highest, to[D + 1] = row[r].total;
  }
  __syncthreads();
  // The block's: parts in order of the teams. Thread i % THREADS has item i, which the block i / THREADS % SPLIT finishes.
  attention_weights<TEAMS, ROWS, WARPS>(parts + D, LD, ROWS * LD, weights, [&](int r, float m, float sum) {
#pragma unroll 1
    for (int j = 0; j < SPLIT; j++) {
      attention_send<SPLIT>(shared_address(extremes + (rank * ROWS + r) * 2), j, m);
      attention_send<SPLIT>(shared_address(extremes + (rank * ROWS + r) * 2 + 1), j, sum);
    }
  });
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
    const int r = i / D, column = i % D;
    float value = 0;
#pragma unroll 8
    for (int j = 0; j < TEAMS; j++) value = fmaf(weights[r * TEAMS + j], parts[(j * ROWS + r) * LD + column], value);
    const int chunk = i / THREADS;
    attention_send<SPLIT>(shared_address(received + rank * kSent + chunk / SPLIT * THREADS + threadIdx.x), chunk % SPLIT, value);
  }
  if constexpr (SPLIT > 1) {
    attention_cluster_sync();
  } else {
    __syncthreads();
  }
  // The cluster's.
  if (rank * THREADS >= ROWS * D) return;
  attention_weights<SPLIT, ROWS, WARPS>(extremes, 2, 2 * ROWS, shares, [&](int r, float, float sum) { totals[r] = sum; });
  __syncthreads();
#pragma unroll 1
  for (int n = 0, i = threadIdx.x + THREADS * rank; i < ROWS * D; ++n, i += THREADS * SPLIT) {
    const int r = i / D, column = i % D, at = row0 + r;
    float value = 0;
#pragma unroll
    for (int j = 0; j < SPLIT; j++) value = fmaf(shares[r * SPLIT + j], received[j * kSent + n * THREADS + threadIdx.x], value);
    if (at >= rows || column >= call.v_dim) continue;
    const int head = kv_head * group + at / q_len, position = at % q_len;
    store1((T*)t.o + batch * t.o_batch + head * t.o_head + position * t.o_row + column, totals[r] == 0.0f ? attention_of_nothing(t) : value / totals[r]);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_DECODE_H_
