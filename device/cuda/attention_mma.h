// softmax(q k^T * scale + mask) v of bfloat16 or float16 on tensor cores (mma.sync, sm_80 and later), without the score matrix.
//
// A block has WARPS * 16 * MT queries of one head and walks over blocks of BN keys, which come by cp.async one block ahead. A warp
// keeps its rows' output, running maximum and running sum in registers; softmax is in base 2.
#ifndef COIL_DEVICE_CUDA_ATTENTION_MMA_H_
#define COIL_DEVICE_CUDA_ATTENTION_MMA_H_

#include "cuda/attention_tile.h"

namespace cd {

// Scores become exponentials; what was summed up before is brought to the new maximum.
template <int MT, int BN, int D>
CD_FN void attention_mma_softmax(float (&s)[MT][BN / 8][4], float (&o)[MT][D / 8][4], float (&highest)[MT][2], float (&total)[MT][2], float factor) {
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float m = highest[i][h];
#pragma unroll
      for (int j = 0; j < BN / 8; j++) m = fmaxf(m, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float base = m == -inf32() ? 0.0f : m * factor;
      const float keep = exp2_approx(fmaf(highest[i][h], factor, -base));
      highest[i][h] = m;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) {
          s[i][j][e] = exp2_approx(fmaf(s[i][j][e], factor, -base));
          sum += s[i][j][e];
        }
      }
      total[i][h] = total[i][h] * keep + sum;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        o[i][j][2 * h] *= keep;
        o[i][j][2 * h + 1] *= keep;
      }
    }
  }
}

// T: bf16 or f16; M: see AttentionMask; D: dim and v_dim rounded up (64, 96, 128, 256).
// Shared memory: attention_mma_shared. Blocks: x = (batch * heads + head) * query tiles + tile.
template <class T, class M, bool CAUSAL, int D, int BN, int WARPS, int MT>
CD_FN void attention_mma(const CudaAttention& t) {
  constexpr int BM = WARPS * 16 * MT, PITCH = D + 8, THREADS = WARPS * 32, TILE = BN * PITCH * 2;
  constexpr bool ADDS = !kSame<M, NoMask> && !kSame<M, bool>, KEEP_Q = D * MT <= 128;
  static_assert(BM * PITCH * 2 + 4 * TILE <= attention_mma_shared(D, BM, BN));
  extern __shared__ __align__(128) unsigned char shared[];
  const int q_len = (int)t.q_len, kv_len = (int)t.kv_len, tiles = (q_len + BM - 1) / BM;
  const int tile = tiles - 1 - (int)(blockIdx.x % (u32)tiles);  // causal: the longest first
  const u32 place = blockIdx.x / (u32)tiles;
  const int head = (int)(place % (u32)t.heads), batch = (int)(place / (u32)t.heads), kv_head = head / (int)(t.heads / t.kv_heads);
  const int q0 = tile * BM, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T* k = (const T*)t.k + batch * t.k_batch + kv_head * t.k_head;
  const T* v = (const T*)t.v + batch * t.v_batch + kv_head * t.v_head;
  const u32 s_q = shared_address(shared), s_kv = s_q + BM * PITCH * 2;
  const int alignment = attention_alignment<T>(t.k, t.k_batch, t.k_head, t.k_row) | attention_alignment<T>(t.v, t.v_batch, t.v_head, t.v_row) << 8 |
                        attention_alignment<T>(t.q, t.q_batch, t.q_head, t.q_row) << 16;
  const int blocks = (min(kv_len, CAUSAL ? q0 + BM : kv_len) + BN - 1) / BN;

  const T* rows_q = (const T*)t.q + batch * t.q_batch + head * t.q_head;
  // Queues a block's keys and values; the first time the queries too, in pieces of BN rows.
  const auto fetch = [&](int block) {
    const int pieces = block > 0 ? 2 : 2 + BM / BN;
    const u32 to = s_kv + (block & 1) * 2 * TILE;
#pragma unroll 1
    for (int i = block < blocks ? 0 : 2; i < pieces; i++) {
      const bool queries = i > 1;
      attention_load<T, BN, D, PITCH, THREADS>(queries ? s_q + (i - 2) * TILE : to + i * TILE,
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

  const float scale = attention_scale(t), factor = ADDS ? 1.0f : fabsf(scale);
  const u32 flip = !ADDS && scale < 0.0f ? 0x80008000u : 0u;  // so that the largest score is the largest product
  const M* mask = (const M*)t.mask + batch * t.mask_batch + head * t.mask_head;
  const u32 from_q = s_q + ((warp * 16 * MT + lane % 16) * PITCH + lane / 16 * 8) * 2;
  const u32 from_k = (lane % 8 + lane / 16 * 8) * PITCH * 2 + lane / 8 % 2 * 16;
  const u32 from_v = TILE + lane % 16 * PITCH * 2 + lane / 16 * 16;
  const int first_row = q0 + warp * 16 * MT + lane / 4;
  u32 q[KEEP_Q ? MT : 1][KEEP_Q ? D / 16 : 1][4];
  float o[MT][D / 8][4] = {}, highest[MT][2], total[MT][2] = {};
#pragma unroll
  for (int i = 0; i < MT; i++) highest[i][0] = highest[i][1] = -inf32();

#pragma unroll 1
  for (int block = -1; block < blocks; block++) {
    copy_wait<0>();
    __syncthreads();
    fetch(block + 1);
    if (block < 0) continue;
    const u32 stage = s_kv + (block & 1) * 2 * TILE;
    if (KEEP_Q && block == 0) {
#pragma unroll
      for (int i = 0; i < (KEEP_Q ? MT : 0); i++) {
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          ldmatrix_x4(q[i][d], from_q + (i * 16 * PITCH + d * 16) * 2);
#pragma unroll
          for (int e = 0; e < 4; e++) q[i][d][e] ^= flip;
        }
      }
    }
    float s[MT][BN / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      u32 a[MT][4];
#pragma unroll
      for (int i = 0; i < MT; i++) {
        if constexpr (!KEEP_Q) ldmatrix_x4(a[i], from_q + (i * 16 * PITCH + d * 16) * 2);
#pragma unroll
        for (int e = 0; e < 4; e++) a[i][e] = KEEP_Q ? q[i][d][e] : a[i][e] ^ flip;
      }
#pragma unroll
      for (int j = 0; j < BN / 16; j++) {
        u32 b[4];
        ldmatrix_x4(b, stage + from_k + (j * 16 * PITCH + d * 16) * 2);
#pragma unroll
        for (int i = 0; i < MT; i++) {
          mma<T>(s[i][2 * j], a[i], b[0], b[1]);
          mma<T>(s[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    const int col0 = block * BN + lane % 4 * 2;
    if (!kSame<M, NoMask> || (block + 1) * BN > kv_len || (CAUSAL && (block + 1) * BN > q0 + warp * 16 * MT)) {
#pragma unroll
      for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int row = first_row + i * 16 + h * 8, seen = (CAUSAL ? min(row + 1, kv_len) : kv_len) - col0;
          const M* at = mask + min(row, q_len - 1) * t.mask_row + col0 * t.mask_col;
#pragma unroll
          for (int j = 0; j < BN / 8; j++, at += 8 * t.mask_col) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
              float& x = s[i][j][2 * h + e];
              x = j * 8 + e < seen ? attention_masked(ADDS ? x * scale : x, at + e * t.mask_col, t.highest_fill) : -inf32();
            }
          }
        }
      }
    }
    attention_mma_softmax<MT, BN, D>(s, o, highest, total, factor);
#pragma unroll
    for (int n = 0; n < BN / 16; n++) {
      u32 p[MT][4];
#pragma unroll
      for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) p[i][e] = pack2<T>(s[i][2 * n + e / 2][e % 2 * 2], s[i][2 * n + e / 2][e % 2 * 2 + 1]);
      }
#pragma unroll
      for (int j = 0; j < D / 16; j++) {
        u32 b[4];
        ldmatrix_x4_trans(b, stage + from_v + (n * 16 * PITCH + j * 16) * 2);
#pragma unroll
        for (int i = 0; i < MT; i++) {
          mma<T>(o[i][2 * j], p[i], b[0], b[1]);
          mma<T>(o[i][2 * j + 1], p[i], b[2], b[3]);
        }
      }
    }
  }

  // Through the queries' place in shared memory, which only this warp's rows are read from and written to.
  if (blocks == 0) copy_wait<0>(), __syncthreads();
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float sum = total[i][h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const float inverse = attention_inverse(t, sum);
      const u32 to = s_q + ((warp * 16 * MT + i * 16 + h * 8 + lane / 4) * PITCH + lane % 4 * 2) * 2;
#pragma unroll
      for (int j = 0; j < D / 8; j++) shared_store_4(to + j * 16, pack2<T>(o[i][j][2 * h] * inverse, o[i][j][2 * h + 1] * inverse));
    }
  }
  __syncwarp();
  const int v_dim = (int)t.v_dim;
  T* out = (T*)t.o + batch * t.o_batch + head * t.o_head;
  const T* result = (const T*)shared + warp * 16 * MT * PITCH;
  const int row0 = q0 + warp * 16 * MT;
  if (v_dim % 8 == 0 && attention_alignment<T>(t.o, t.o_batch, t.o_head, t.o_row) == 16) {
#pragma unroll 2
    for (int i = lane; i < 16 * MT * (D / 8); i += 32) {
      const int row = i / (D / 8), column = i % (D / 8) * 8;
      if (row0 + row < q_len && column < v_dim) *(uint4*)(out + (row0 + row) * t.o_row + column) = *(const uint4*)(result + row * PITCH + column);
    }
  } else {
#pragma unroll 2
    for (int i = lane; i < 16 * MT * D; i += 32) {
      const int row = i / D, column = i % D;
      if (row0 + row < q_len && column < v_dim) out[(row0 + row) * t.o_row + column] = result[row * PITCH + column];
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_MMA_H_
