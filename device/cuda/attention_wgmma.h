// softmax(q k^T * scale + mask) v of bfloat16 or float16 on Hopper's tensor cores (sm_90a): TMA, wgmma, specialised warps.
//
// A block has 64 * GROUPS queries of one head and walks over blocks of BN keys, the last one first: with a causal mask only the first
// few need it. One thread of the last warpgroup loads queries, keys and values; each other warpgroup keeps 64 rows' output, maximum and
// sum in registers. The products of the next keys and of the last values run while a warpgroup is at its exponentials, and the warpgroups
// take turns to start theirs, so that tensor cores and exponentials overlap (Shah et al., FlashAttention-3, 2024).
#ifndef COIL_DEVICE_CUDA_ATTENTION_WGMMA_H_
#define COIL_DEVICE_CUDA_ATTENTION_WGMMA_H_

#include "cuda/attention_tile.h"
#include "cuda/wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

// Where a block works and what lies where in its shared memory: tiles as slabs of 64 columns, each row of a slab 128 bytes.
template <class T, bool CAUSAL, int D, int BN, int GROUPS, int STAGES>
struct WgmmaAttention {
  static constexpr int kRows = 64 * GROUPS, kSlabQ = kRows * 128, kBytesQ = D / 64 * kSlabQ, kSlab = BN * 128, kBytes = D / 64 * kSlab;
  const CudaAttention& t;
  static_assert(kBytesQ + 2 * STAGES * kBytes + 8 * (4 * STAGES + 1) <= attention_wgmma_shared(D, kRows, BN, STAGES));
  u32 q, k, v, q_full, k_full, k_empty, v_full, v_empty;  // shared addresses
  int q0, head, batch, blocks;

  __device__ __forceinline__ WgmmaAttention(const CudaAttention& t, u32 base) : t(t), q(base), k(q + kBytesQ), v(k + STAGES * kBytes) {
    q_full = v + STAGES * kBytes;
    k_full = q_full + 8, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
    const int q_len = (int)t.q_len, kv_len = (int)t.kv_len, tiles = (q_len + kRows - 1) / kRows;
    const u32 heads = (u32)(t.heads * t.batch), place = blockIdx.x % heads;
    q0 = (tiles - 1 - (int)(blockIdx.x / heads)) * kRows;  // causal: the longest first
    head = (int)(place % (u32)t.heads), batch = (int)(place / (u32)t.heads);
    blocks = (min(kv_len, CAUSAL ? q0 + kRows : kv_len) + BN - 1) / BN;
  }
  // By one thread.
  __device__ __forceinline__ void init() const {
    tma_prefetch(&t.map_q), tma_prefetch(&t.map_k), tma_prefetch(&t.map_v);
    barrier_init(q_full, 1);
    for (int s = 0; s < STAGES; s++) {
      barrier_init(k_full + 8 * s, 1), barrier_init(v_full + 8 * s, 1);
      barrier_init(k_empty + 8 * s, 4 * GROUPS), barrier_init(v_empty + 8 * s, 4 * GROUPS);
    }
    barrier_init_done();
  }
  __device__ __forceinline__ void load(u32 to, const CudaTensorMap* map, u32 barrier, int slab, int row, int head) const {
    barrier_expect(barrier, D / 64 * slab);
#pragma unroll
    for (int i = 0; i < D / 64; i++) tma_load_rows(to + i * slab, map, barrier, i * 64, row, head, batch);
  }
  __device__ __forceinline__ void load_all() const {
    const int kv_head = head / (int)(t.heads / t.kv_heads);
    load(q, &t.map_q, q_full, kSlabQ, q0, head);
    u32 stage = 0, phase = 1;
#pragma unroll 1
    for (int block = blocks - 1; block >= 0; block--) {
      barrier_wait(k_empty + 8 * stage, phase);
      load(k + stage * kBytes, &t.map_k, k_full + 8 * stage, kSlab, block * BN, kv_head);
      barrier_wait(v_empty + 8 * stage, phase);
      load(v + stage * kBytes, &t.map_v, v_full + 8 * stage, kSlab, block * BN, kv_head);
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
  }
  // s = q k^T of a warpgroup's rows and a stage's keys; enqueued.
  __device__ __forceinline__ void scores(float (&s)[BN / 2], int group, u32 stage) const {
    const u64 dq = wgmma_tile(q + group * 8192, 8192), dk = wgmma_tile(k + stage * kBytes, 8192);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) wgmma<0, 0>(T{}, s, dq + i / 4 * (kSlabQ / 16) + i % 4 * 2, dk + i / 4 * (kSlab / 16) + i % 4 * 2, i != 0);
    wgmma_commit();
  }
  // o += p v of a stage's values; enqueued.
  __device__ __forceinline__ void weigh(float (&o)[D / 2], const u32 (&p)[BN / 16][4], u32 stage, bool add) const {
    const u64 dv = wgmma_tile(v + stage * kBytes, kSlab);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BN / 16; i++) wgmma<1>(T{}, o, p[i], dv + i * 128, add || i != 0);
    wgmma_commit();
  }
};

// A thread's two rows of a warpgroup's 64 x BN scores.
template <class M, bool CAUSAL, int BN>
struct WgmmaSoftmax {
  static constexpr bool kAdds = !kSame<M, NoMask> && !kSame<M, bool>;
  const CudaAttention& t;
  const M* mask;
  const float scale, factor;
  const int row, column;  // the first of each
  float highest[2], total[2] = {};
  reg_t<M> values[kSame<M, NoMask> ? 2 : BN / 4];

  __device__ __forceinline__ WgmmaSoftmax(const CudaAttention& t, int batch, int head, int row0)
      : t(t),
        mask((const M*)t.mask + batch * t.mask_batch + head * t.mask_head),
        scale(attention_scale(t)),
        factor(kAdds ? 1.0f : scale),
        row(row0 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4),
        column((int)threadIdx.x % 4 * 2) {
    highest[0] = highest[1] = -inf32();
  }
  // The mask's elements of the first row and the keys from col0 on: asked for early, so that they come while products run.
  __device__ __forceinline__ void fetch(int col0) {
    if constexpr (!kSame<M, NoMask>) read_mask(at(row), col0);
  }
  // Keys from col0 on that are not to be seen become minus infinity, the mask is added.
  __device__ __forceinline__ void hide(float (&s)[BN / 2], int col0, int first_row) {
    if (kSame<M, NoMask> && col0 + BN <= (int)t.kv_len && (!CAUSAL || col0 + BN <= first_row + 1)) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (!kSame<M, NoMask> && h == 1 && t.mask_row != 0) read_mask(at(row + 8), col0);
      const int seen = min((int)t.kv_len, CAUSAL ? row + 8 * h + 1 : (int)t.kv_len) - col0 - column;
#pragma unroll
      for (int i = 0; i < BN / 4; i++) {
        float& x = s[i / 2 * 4 + 2 * h + i % 2];
        const bool sees = i / 2 * 8 + i % 2 < seen;
        if constexpr (kSame<M, bool>) {
          x = sees && values[i] ? x : -inf32();
        } else if constexpr (kAdds) {
          x = sees ? attention_masked_by<M>(x * scale, (float)values[i], t.highest_fill) : -inf32();
        } else {
          x = sees ? x : -inf32();
        }
      }
    }
  }
  __device__ __forceinline__ const M* at(int r) const { return mask + min(r, (int)t.q_len - 1) * t.mask_row; }
  __device__ __forceinline__ void read_mask(const M* line, int col0) {
    const M* const from = line + (col0 + column) * t.mask_col;
    if (t.mask_col == 1 && (u64)from % (2 * sizeof(M)) == 0 && col0 + BN <= (int)t.kv_len) {
#pragma unroll
      for (int j = 0; j < BN / 8; j++) load((reg_t<M>(&)[2])values[2 * j], from + j * 8);
    } else {
#pragma unroll
      for (int i = 0; i < BN / 4; i++) {
        const int key = i / 2 * 8 + i % 2;
        if (col0 + column + key < (int)t.kv_len) values[i] = load1(from + key * t.mask_col);
      }
    }
  }
  // Scores become weights; keep[h]: what the weights before are to be multiplied with.
  __device__ __forceinline__ void weights(float (&s)[BN / 2], float (&keep)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float m = highest[h];
#pragma unroll
      for (int j = 0; j < BN / 8; j++) m = fmaxf(m, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float base = m == -inf32() ? 0.0f : m * factor;
      keep[h] = exp2_approx(fmaf(highest[h], factor, -base));
      highest[h] = m;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
#pragma unroll
        for (int e = 4 * j + 2 * h; e < 4 * j + 2 * h + 2; e++) {
          s[e] = exp2_approx(fmaf(s[e], factor, -base));
          sum += s[e];
        }
      }
      total[h] = total[h] * keep[h] + sum;
    }
  }
};

template <class T, int BN>
CD_FN void wgmma_pack(u32 (&p)[BN / 16][4], const float (&s)[BN / 2]) {
#pragma unroll
  for (int i = 0; i < BN / 4; i++) p[i / 4][i % 4] = pack2<T>(s[2 * i], s[2 * i + 1]);
}

// A warpgroup's 64 rows through the queries' place in shared memory, of which a warp writes and reads its own 16 rows.
template <class T, int D, int SLAB>
CD_FN void attention_store(const CudaAttention& t, float (&o)[D / 2], const float (&total)[2], u32 rows, int batch, int head, int row0) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float sum = total[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float inverse = attention_inverse(t, sum);
    const int row = warp * 16 + lane / 4 + 8 * h;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
      shared_store_4(rows + j / 8 * SLAB + row * 128 + ((j % 8 ^ row % 8) * 16) + lane % 4 * 4,
                     pack2<T>(o[4 * j + 2 * h] * inverse, o[4 * j + 2 * h + 1] * inverse));
    }
  }
  __syncwarp();
  const int v_dim = (int)t.v_dim, q_len = (int)t.q_len;
  T* const out = (T*)t.o + batch * t.o_batch + head * t.o_head;
  const bool whole = v_dim % 8 == 0 && attention_alignment<T>(t.o, t.o_batch, t.o_head, t.o_row) == 16;
#pragma unroll 4
  for (int i = lane; i < 16 * (D / 8); i += 32) {
    const int row = warp * 16 + i / (D / 8), chunk = i % (D / 8), column = chunk * 8;
    if (row0 + row >= q_len || column >= v_dim) continue;
    float f[4];
    shared_load_16(rows + chunk / 8 * SLAB + row * 128 + (chunk % 8 ^ row % 8) * 16, f);
    const u32 x[4] = {__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3])};
    T* const to = out + (row0 + row) * t.o_row + column;
    if (whole) {
      *(uint4*)to = make_uint4(x[0], x[1], x[2], x[3]);
    } else {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (column + e < v_dim) to[e].bits = (u16)(x[e / 2] >> 16 * (e % 2));
      }
    }
  }
}

#endif

// T: bf16 or f16; M: see AttentionMask; D: dim and v_dim rounded up (64, 128, 256). scale > 0, kv_len > 0. t.map_q, map_k, map_v: maps of rows
// (cuda_rows_map) with boxes of 64 * GROUPS, BN and BN rows. Blocks: x = (query tiles) * batch * heads. Launch bounds (128 * (GROUPS + 1), 1).
// Dynamic shared memory: attention_wgmma_shared.
template <class T, class M, bool CAUSAL, int D, int BN, int GROUPS, int STAGES, bool TURNS>
CD_FN void attention_wgmma(const CudaAttention& t) {
#ifdef CD_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char cd_attention_shared[];
  const int group = threadIdx.x / 128;
  const WgmmaAttention<T, CAUSAL, D, BN, GROUPS, STAGES> a(t, shared_address(cd_attention_shared));
  if (threadIdx.x == 0) a.init();
  __syncthreads();
  if (group == GROUPS) {
    registers_down<GROUPS == 3 ? 32 : 40>();
    if (threadIdx.x < 128 * GROUPS + 32 && elect_one()) a.load_all();
    return;
  }
  registers_up<GROUPS == 3 ? 160 : 232>();
  const int row0 = a.q0 + group * 64, first_row = row0 + (int)threadIdx.x % 128 / 32 * 16, lane = threadIdx.x % 32;
  WgmmaSoftmax<M, CAUSAL, BN> softmax(t, a.batch, a.head, row0);
  float s[BN / 2], o[D / 2], keep[2];
  u32 p[BN / 16][4];
  u32 stage = 0, phase = 0;  // of the values; the keys are one block ahead
  u32 next = STAGES > 1, next_phase = STAGES > 1 ? 0 : 1;
  const auto release = [lane](u32 barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  if (TURNS && group == GROUPS - 1) named_arrive<256>(1);
  barrier_wait(a.q_full, 0);
  barrier_wait(a.k_full, 0);
  a.scores(s, group, 0);
  softmax.fetch((a.blocks - 1) * BN);
  wgmma_wait<0>();
  wgmma_hold(s);
  release(a.k_empty);
  softmax.hide(s, (a.blocks - 1) * BN, first_row);
  softmax.weights(s, keep);
  wgmma_pack<T, BN>(p, s);
#pragma unroll 1
  for (int block = a.blocks - 2; block >= 0; block--) {
    barrier_wait(a.k_full + 8 * next, next_phase);
    if (TURNS) named_sync<256>(1 + group);
    a.scores(s, group, next);
    barrier_wait(a.v_full + 8 * stage, phase);
    a.weigh(o, p, stage, block < a.blocks - 2);
    if (TURNS) named_arrive<256>(1 + (group + 1) % GROUPS);
    softmax.fetch(block * BN);
    wgmma_wait<1>();
    wgmma_hold(s);
    release(a.k_empty + 8 * next);
    softmax.hide(s, block * BN, first_row);
    softmax.weights(s, keep);
    wgmma_wait<0>();
    wgmma_hold(o);
    release(a.v_empty + 8 * stage);
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] *= keep[i / 2 % 2];
    wgmma_pack<T, BN>(p, s);
    stage = next, phase = next_phase;
    if (++next == STAGES) next = 0, next_phase ^= 1;
  }
  barrier_wait(a.v_full + 8 * stage, phase);
  a.weigh(o, p, stage, a.blocks > 1);
  wgmma_wait<0>();
  wgmma_hold(o);
  named_sync<128>(8 + group);  // all of the warpgroup have read the queries
  attention_store<T, D, a.kSlabQ>(t, o, softmax.total, a.q + group * 8192, a.batch, a.head, row0);
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_WGMMA_H_
