// softmax(q k^T * scale + mask) v of float32 on the CUDA cores, without the score matrix.
//
// A block has WARPS * 8 * TM queries of one head and walks over blocks of BN keys in shared memory. A warp's lanes are 8 x 4: each
// has TM rows 8 apart, of the scores BN / 4 columns 4 apart, of the output D / 16 groups of 4 columns. Weights go from the scores'
// places to those of the second product through shared memory of the warp.
#ifndef COIL_DEVICE_CUDA_ATTENTION_SIMT_H_
#define COIL_DEVICE_CUDA_ATTENTION_SIMT_H_

#include "cuda/attention_tile.h"

namespace cd {

// M: see attention_masked; D: dim and v_dim rounded up to 64, 128 or 256. Shared memory: attention_simt_shared.
// Blocks: x = (batch * heads + head) * query tiles + tile.
template <class M, bool CAUSAL, int D, int BN, int WARPS, int TM, int BUFFERS>
CD_FN void attention_simt(const CudaAttention& t) {
  constexpr int BM = WARPS * 8 * TM, PITCH = D + 4, THREADS = WARPS * 32, TILE = BN * PITCH * 4, TN = BN / 4, ON = D / 16;
  constexpr int P_PITCH = BN + 4;
  static_assert(((BM + BUFFERS * 2 * BN) * PITCH + BM * P_PITCH) * 4 <= attention_simt_shared(D, BM, BN, BUFFERS));
  extern __shared__ __align__(128) unsigned char shared[];
  const int q_len = (int)t.q_len, kv_len = (int)t.kv_len, tiles = (q_len + BM - 1) / BM;
  const int tile = tiles - 1 - (int)(blockIdx.x % (u32)tiles);  // causal: the longest first
  const u32 place = blockIdx.x / (u32)tiles;
  const int head = (int)(place % (u32)t.heads), batch = (int)(place / (u32)t.heads), kv_head = head / (int)(t.heads / t.kv_heads);
  const int q0 = tile * BM, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* k = (const float*)t.k + batch * t.k_batch + kv_head * t.k_head;
  const float* v = (const float*)t.v + batch * t.v_batch + kv_head * t.v_head;
  const float* rows_q = (const float*)t.q + batch * t.q_batch + head * t.q_head;
  const int alignment = attention_alignment<float>(t.k, t.k_batch, t.k_head, t.k_row) | attention_alignment<float>(t.v, t.v_batch, t.v_head, t.v_row) << 8 |
                        attention_alignment<float>(t.q, t.q_batch, t.q_head, t.q_row) << 16;
  const u32 s_q = shared_address(shared), s_kv = s_q + BM * PITCH * 4;
  const int blocks = (min(kv_len, CAUSAL ? q0 + BM : kv_len) + BN - 1) / BN;
  // Queues a block's keys and values; the first time the queries too, in pieces of BN rows.
  const auto fetch = [&](int block) {
    const int pieces = block > 0 ? 2 : 2 + (BM + BN - 1) / BN;
    const u32 to = s_kv + (block % BUFFERS) * 2 * TILE;
#pragma unroll 1
    for (int i = block < blocks ? 0 : 2; i < pieces; i++) {
      const bool queries = i > 1;
      attention_load<float, BN, D, PITCH, THREADS>(queries ? s_q + (i - 2) * TILE : to + i * TILE,
                                                   queries ? rows_q
                                                   : i     ? v
                                                           : k,
                                                   queries ? t.q_row
                                                   : i     ? t.v_row
                                                           : t.k_row,
                                                   queries ? q0 + (i - 2) * BN : block * BN, queries ? q_len : kv_len, (int)(i == 1 ? t.v_dim : t.dim),
                                                   alignment >> 8 * min(i, 2) & 255);
    }
    copy_commit();
  };
  static_assert(BM % BN == 0);

  const float scale = attention_scale(t);
  const M* mask = (const M*)t.mask + batch * t.mask_batch + head * t.mask_head;
  const int row = warp * 8 * TM + (lane >> 1 & 1 | lane >> 2 & 6), column = lane & 1 | lane >> 1 & 2;
  const float* my_q = (const float*)shared + row * PITCH;
  float* weights = (float*)(shared + (BM + BUFFERS * 2 * BN) * PITCH * 4) + row * P_PITCH;
  float4 o[TM][ON] = {};
  float highest[TM], total[TM] = {};
#pragma unroll
  for (int i = 0; i < TM; i++) highest[i] = -inf32();

#pragma unroll 1
  for (int block = 1 - BUFFERS; block < blocks; block++) {
    if constexpr (BUFFERS == 1) {
      __syncthreads();  // nobody reads the block before any more
      fetch(block);
      copy_wait<0>();
      __syncthreads();
    } else {
      copy_wait<0>();
      __syncthreads();
      fetch(block + 1);
      if (block < 0) continue;
    }
    const float* my_k = (const float*)(shared + BM * PITCH * 4 + (block % BUFFERS) * 2 * TILE) + column * PITCH;
    const float* my_v = (const float*)(shared + BM * PITCH * 4 + (block % BUFFERS) * 2 * TILE + TILE) + column * 4;
    float s[TM][TN] = {};
#pragma unroll 2
    for (int d = 0; d < D; d += 4) {
      float4 x[TM];
#pragma unroll
      for (int i = 0; i < TM; i++) x[i] = *(const float4*)(my_q + 8 * i * PITCH + d);
#pragma unroll
      for (int j = 0; j < TN; j++) {
        const float4 y = *(const float4*)(my_k + 4 * j * PITCH + d);
#pragma unroll
        for (int i = 0; i < TM; i++) s[i][j] = fmaf(x[i].w, y.w, fmaf(x[i].z, y.z, fmaf(x[i].y, y.y, fmaf(x[i].x, y.x, s[i][j]))));
      }
    }
    const int col0 = block * BN + column;
#pragma unroll
    for (int i = 0; i < TM; i++) {
      const int at_row = q0 + row + 8 * i, seen = (CAUSAL ? min(at_row + 1, kv_len) : kv_len) - col0;
      const M* at = mask + min(at_row, q_len - 1) * t.mask_row + col0 * t.mask_col;
      float m = highest[i];
#pragma unroll
      for (int j = 0; j < TN; j++, at += 4 * t.mask_col) {
        s[i][j] = 4 * j < seen ? attention_masked(s[i][j] * scale, at, t.highest_fill) : -inf32();
        m = fmaxf(m, s[i][j]);
      }
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 4));
      const float base = m == -inf32() ? 0.0f : m, keep = exp2_approx(highest[i] - base);
      highest[i] = m;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < TN; j++) {
        const float p = exp2_approx(s[i][j] - base);
        sum += p;
        weights[8 * i * P_PITCH + column + 4 * j] = p;
      }
      total[i] = total[i] * keep + sum;
#pragma unroll
      for (int j = 0; j < ON; j++) o[i][j] = make_float4(o[i][j].x * keep, o[i][j].y * keep, o[i][j].z * keep, o[i][j].w * keep);
    }
    __syncwarp();
#pragma unroll 1
    for (int n = 0; n < BN; n += 4) {
      float4 p[TM];
#pragma unroll
      for (int i = 0; i < TM; i++) p[i] = *(const float4*)(weights + 8 * i * P_PITCH + n);
#pragma unroll
      for (int e = 0; e < 4; e++) {
#pragma unroll
        for (int j = 0; j < ON; j++) {
          const float4 y = *(const float4*)(my_v + (n + e) * PITCH + 16 * j);
#pragma unroll
          for (int i = 0; i < TM; i++) {
            const float w = e == 0 ? p[i].x : e == 1 ? p[i].y : e == 2 ? p[i].z : p[i].w;
            o[i][j] = make_float4(fmaf(w, y.x, o[i][j].x), fmaf(w, y.y, o[i][j].y), fmaf(w, y.z, o[i][j].z), fmaf(w, y.w, o[i][j].w));
          }
        }
      }
    }
    __syncwarp();
  }
  if (blocks == 0) copy_wait<0>();

  const int v_dim = (int)t.v_dim;
  const bool vectors = v_dim % 4 == 0 && attention_alignment<float>(t.o, t.o_batch, t.o_head, t.o_row) == 16;
#pragma unroll
  for (int i = 0; i < TM; i++) {
    float sum = total[i];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 4);
    const float inverse = attention_inverse(t, sum);
    const int at_row = q0 + row + 8 * i;
    if (at_row >= q_len) continue;
    float* out = (float*)t.o + batch * t.o_batch + head * t.o_head + at_row * t.o_row;
#pragma unroll
    for (int j = 0; j < ON; j++) {
      const int at = column * 4 + 16 * j;
      const float4 r = make_float4(o[i][j].x * inverse, o[i][j].y * inverse, o[i][j].z * inverse, o[i][j].w * inverse);
      if (vectors) {
        if (at < v_dim) *(float4*)(out + at) = r;
      } else {
        if (at < v_dim) out[at] = r.x;
        if (at + 1 < v_dim) out[at + 1] = r.y;
        if (at + 2 < v_dim) out[at + 2] = r.z;
        if (at + 3 < v_dim) out[at + 3] = r.w;
      }
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_SIMT_H_
