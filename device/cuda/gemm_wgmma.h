// Matrix products of bf16 and f16 on Hopper's tensor cores (sm_90a): TMA, wgmma, specialised warps.
//
//   gemm_wgmma        a persistent grid. A block of 384 threads computes tiles of 128 x BN, one after the other. The third warpgroup's one
//                     thread loads steps of 64 along k into STAGES buffers, also those of the next tile while this one is finished; two
//                     warpgroups multiply 64 x BN each and finish their part through shared memory, so that consecutive lanes call the
//                     epilogue for consecutive columns.
//   gemm_wgmma_split  a tile of BM x BN a block, or SPLIT blocks of a cluster, each a part of k: products that would not fill the machine.
//                     BM / 64 warpgroups multiply. The operands come by TMA (one more warp), or with COPY by cp.async (a warpgroup more):
//                     then they may have any strides and alignment.
// DOWN x ACROSS blocks of a cluster take as many neighbouring tiles: those in a row of them share the loads of a, those in a column those of
// b, so that each line is read from the L2 cache once for all (TMA's multicast).
// TMA: t.map_a[0] of a k-contiguous a (A_K): box of BM / ACROSS rows x 64 of k; else 64 / ACROSS of k x 64 rows. t.map_b of a k-contiguous b
// (B_K): box of BN / DOWN columns of b x 64 of k; else 64 / DOWN of k x 64. The lines of all batches follow one another in a map: a batch begins
// (batch stride) / (line stride) lines after the one before. Needs k > 0; k-strided operands of several batches: k % 64 == 0.
// PHASES = 2, 4, 8 (A_K, not B_K, one batch): every so many rows of a are multiples of 16, 32 or 64 bytes apart. t.map_a[p] holds the rows p,
// p + PHASES, ... from such a multiple before them (cuda_phase_map); a tile is of rows of one such class. TMA cannot begin between multiples
// of 16 bytes (an illegal instruction), and pieces that begin between those of 32 take it half as long again, so that such a tile's k begins a
// few early: b's lines are shifted with it (those before its first are zeros), and what a holds there, the end of another row, is set to zero.
#ifndef COIL_DEVICE_CUDA_GEMM_WGMMA_H_
#define COIL_DEVICE_CUDA_GEMM_WGMMA_H_

#include "cuda/gemm_mma.h"
#include "cuda/wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

// What loaders and multipliers agree upon: stages of a and b in shared memory and two barriers each.
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K>
struct WgmmaStages {
  static constexpr int kBytesA = BM * 64 * 2, kBytesB = (B_K ? BN : (BN + 63) / 64 * 64) * 64 * 2, kBytes = STAGES * (kBytesA + kBytesB);
  u32 a, b, full, empty;  // shared addresses
  u32 stage = 0, phase = 0;

  __device__ __forceinline__ WgmmaStages(u32 base, u32 barriers) : a(base), b(base + STAGES * kBytesA), full(barriers), empty(barriers + 8 * STAGES) {}
  // By one thread. full: arrivals that make a stage full; empty: those that empty it.
  __device__ __forceinline__ void init(int fulls, int empties) const {
    for (int s = 0; s < STAGES; ++s) barrier_init(full + 8 * s, fulls), barrier_init(empty + 8 * s, empties);
    barrier_init_done();
  }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  // Zeros in the first columns of a warpgroup's 64 rows; all of its threads are to call.
  __device__ __forceinline__ void clear(int columns, int group) const {
    const int row = threadIdx.x % 128;
    if (row < 64) {
      const u32 line = a + stage * kBytesA + group * 8192 + row * 128;
      for (int c = 0; c < columns; ++c) asm volatile("st.shared.u16 [%0], %1;" ::"r"(line + (c / 8 ^ row % 8) * 16 + c % 8 * 2), "h"((u16)0) : "memory");  // swizzled
    }
    async_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
  }
  // One step's products are under way while the one before is released. steps > 0. shift: columns of the first step to clear.
  template <class F>
  __device__ __forceinline__ void multiply(float (&d)[BN / 2], int steps, int group, int shift, const F& release) {
    u32 previous = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, advance()) {
      barrier_wait(full + 8 * stage, phase);
      if (step == 0 && shift > 0) clear(shift, group);
      // A warpgroup's 64 rows are 64 lines of a k-contiguous tile, or a slab of the other kind: 8192 bytes in.
      const u64 da = wgmma_tile(a + stage * kBytesA + group * 8192, 8192), db = wgmma_tile(b + stage * kBytesB, 8192);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        wgmma<A_K ? 0 : 1, B_K ? 0 : 1>(T{}, d, da + q * (A_K ? 2 : 128), db + q * (B_K ? 2 : 128), (step | q) != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (step) release(empty + 8 * previous);
      previous = stage;
    }
    wgmma_wait<0>();
    release(empty + 8 * previous);
  }
};

// Of four consecutive lanes lane t has pair t of each of four groups of eight columns; afterwards it has group t.
CD_FN void transpose_quad(float (&x)[8]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int low = (bit == 1 ? i / 2 * 4 : i / 2 * 2) + i % 2, high = low + 2 * bit;
      const bool keeps_high = (lane & bit) != 0;
      const float got = __shfl_xor_sync(~0u, keeps_high ? x[low] : x[high], bit);
      (keeps_high ? x[low] : x[high]) = got;
    }
  }
}

// Rows of a whose addresses are equal modulo what PHASES rows are a multiple of, at most 128 bytes, and the result's rows that they make.
template <int PHASES>
struct RowClass {
  int phase = 0, shift = 0, rows;  // shift: columns before the first that the class's map has
  __device__ __forceinline__ explicit RowClass(const CudaGemm& t, int tile_m = 0) : rows((int)t.m) {
    if constexpr (PHASES > 1) {
      phase = tile_m % PHASES;
      const u64 apart = (u64)(PHASES * t.a_row * 2), unit = min(apart & (0 - apart), (u64)128);
      shift = (int)(((u64)t.a + (u64)(phase * t.a_row * 2)) % unit / 2);
      rows = (int)(t.m - phase + PHASES - 1) / PHASES;
    }
  }
};
// Tiles of `size` rows, those of all classes.
template <int PHASES>
CD_FN int row_tiles(const CudaGemm& t, int size) {
  return PHASES == 1 ? (int)cdiv(t.m, (i64)size) : PHASES * (int)cdiv(cdiv(t.m, (i64)PHASES), (i64)size);
}
template <int PHASES, class E>
struct ClassEpilogue {
  const E& epilogue;
  int phase;
  __device__ __forceinline__ bool straight() const
    requires requires(const E& e) { e.straight(); }
  {
    return epilogue.straight();
  }
  template <int W>
  __device__ __forceinline__ void wide(i64 batch, int row, int col, const float (&acc)[W]) const {
    epilogue.wide(batch, row * PHASES + phase, col, acc);
  }
  template <int W>
  __device__ __forceinline__ void operator()(i64 batch, int row, int col, const float (&acc)[W], int count) const {
    epilogue(batch, row * PHASES + phase, col, acc, count);
  }
};

// Lines between batches in the maps.
template <bool A_K, bool B_K>
struct WgmmaBatches {
  int a, b;
  __device__ __forceinline__ explicit WgmmaBatches(const CudaGemm& t)
      : a(t.batch > 1 ? (int)(t.a_batch / (A_K ? t.a_row : t.a_col)) : 0), b(t.batch > 1 ? (int)(t.b_batch / (B_K ? t.b_col : t.b_row)) : 0) {}
};

// The blocks that share loads: their tiles' places in the cluster, and who waits for whom.
template <int DOWN, int ACROSS>
struct WgmmaShare {
  static constexpr int kBlocks = DOWN * ACROSS, kReached = DOWN + ACROSS - 1;  // kReached: blocks that fill one's stages, itself among them
  int first, down, across;  // first: the rank of the first of them; others of the cluster have other parts of k

  __device__ __forceinline__ WgmmaShare() {
    const int rank = kBlocks == 1 ? 0 : (int)cluster_rank();
    first = rank / kBlocks * kBlocks;
    down = rank % kBlocks / ACROSS;
    across = rank % ACROSS;
  }
  __device__ __forceinline__ u16 in_row() const { return (u16)(((1 << ACROSS) - 1) << (first + down * ACROSS)); }
  __device__ __forceinline__ u16 in_column() const {
    int blocks = 0;
#pragma unroll
    for (int d = 0; d < DOWN; ++d) blocks |= 1 << (first + d * ACROSS + across);
    return (u16)blocks;
  }
  // By a warp that has read a stage.
  __device__ __forceinline__ void release(u32 barrier) const {
    const int lane = threadIdx.x % 32;
    if constexpr (kBlocks == 1) {
      if (lane == 0) barrier_arrive(barrier);
    } else if (lane < kReached) {
      const int other = lane - ACROSS, row = other + (other >= down);  // of the column, itself left out
      barrier_arrive_at(barrier, lane < ACROSS ? first + down * ACROSS + lane : first + row * ACROSS + across);
    }
  }
};

// One thread loads its part of a step's BM x 64 of a and 64 x BN of b, once the stage is free. line_a, line_b: where the batch begins in the maps.
template <int PHASES, class T, int BM, int BN, int STAGES, bool A_K, bool B_K, int DOWN, int ACROSS>
CD_FN void wgmma_load_step(const WgmmaStages<T, BM, BN, STAGES, A_K, B_K>& s, const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, int line_a, int line_b, int row0,
                           int col0, int k, const RowClass<PHASES>& rows) {
  static_assert(PHASES == 1 || (A_K && !B_K));
  const u32 barrier = s.full + 8 * s.stage, to_a = s.a + s.stage * s.kBytesA, to_b = s.b + s.stage * s.kBytesB;
  barrier_wait(s.empty + 8 * s.stage, s.phase ^ 1);
  barrier_expect(barrier, s.kBytesA + s.kBytesB);
  const auto load_a = [&](u32 to, int x, int y) {
    if constexpr (ACROSS == 1) tma_load(to, &t.map_a[rows.phase], barrier, x, line_a + y);
    else tma_load_multicast(to, &t.map_a[rows.phase], barrier, x, line_a + y, share.in_row());
  };
  const auto load_b = [&](u32 to, int x, int y) {
    if constexpr (DOWN == 1) tma_load(to, &t.map_b, barrier, x, line_b + y);
    else tma_load_multicast(to, &t.map_b, barrier, x, line_b + y, share.in_column());
  };
  if constexpr (A_K) {
    constexpr int kRows = BM / ACROSS;
    load_a(to_a + share.across * kRows * 128, k, row0 + share.across * kRows);
  } else {
    const int part = share.across * (64 / ACROSS);  // lines of k
#pragma unroll
    for (int i = 0; i < BM / 64; ++i) load_a(to_a + i * 8192 + part * 128, row0 + i * 64, k + part);
  }
  if constexpr (B_K) {
    constexpr int kColumns = BN / DOWN;
    load_b(to_b + share.down * kColumns * 128, k, col0 + share.down * kColumns);
  } else {
    const int part = share.down * (64 / DOWN);
#pragma unroll
    for (int i = 0; i < s.kBytesB / 8192; ++i) load_b(to_b + i * 8192 + part * 128, col0 + i * 64, k - rows.shift + part);
  }
}

template <class T, int BN, int STAGES, int DOWN, int ACROSS, bool A_K, bool B_K, int PHASES>
struct WgmmaGemm : WgmmaStages<T, 128, BN, STAGES, A_K, B_K> {
  using Stages = WgmmaStages<T, 128, BN, STAGES, A_K, B_K>;
  using Stages::advance;
  static constexpr int kCluster = DOWN * ACROSS;
  const CudaGemm& t;
  const WgmmaBatches<A_K, B_K> batches;
  const WgmmaShare<DOWN, ACROSS> share;
  const int tiles_m, tiles_n, tiles;  // a cluster's

  __device__ __forceinline__ WgmmaGemm(const CudaGemm& t, u32 base, u32 barriers)
      : Stages(base, barriers), t(t), batches(t), tiles_m(row_tiles<PHASES>(t, DOWN * 128)), tiles_n((int)cdiv(t.n, (i64)(ACROSS * BN))),
        tiles(tiles_m * tiles_n * (int)t.batch) {}

  __device__ __forceinline__ int steps(const RowClass<PHASES>& rows) const { return (int)cdiv(t.k + rows.shift, (i64)64); }
  __device__ __forceinline__ RowClass<PHASES> position(int tile, int& batch, int& row0, int& col0) const {
    batch = tile / (tiles_m * tiles_n);
    int tile_m, tile_n;
    tile_position((u32)(tile - batch * (tiles_m * tiles_n)), (u32)tiles_m, (u32)tiles_n, tile_m, tile_n);
    row0 = (tile_m / PHASES * DOWN + share.down) * 128;
    col0 = (tile_n * ACROSS + share.across) * BN;
    return RowClass<PHASES>(t, tile_m);
  }
  __device__ __forceinline__ void load_tiles() {
#pragma unroll 1
    for (int tile = blockIdx.x / kCluster; tile < tiles; tile += gridDim.x / kCluster) {
      int batch, row0, col0;
      const RowClass<PHASES> rows = position(tile, batch, row0, col0);
      const int count = steps(rows);
#pragma unroll 1
      for (int step = 0; step < count; ++step, advance()) wgmma_load_step(*this, share, t, batch * batches.a, batch * batches.b, row0, col0, step * 64, rows);
    }
  }
  // A warp's 16 of m rows. Where all of them are inside, straight from the registers; else 64 columns at a time through the warp's own 16 x 64
  // floats, in a loop of less code.
  template <class E>
  __device__ __forceinline__ void finish(const float (&d)[BN / 2], float* buffer, int batch, int row0, int col0, int m, const E& epilogue) const {
    const int lane = threadIdx.x % 32, n = (int)t.n;
    if constexpr (requires { epilogue.straight(); }) {
      if (epilogue.straight() && row0 + 16 <= m && col0 + BN <= n) {
#pragma unroll
        for (int c = 0; c < BN / 16; ++c) {
          float x[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) x[i] = d[c / 2 * 16 + i / 2 * 4 + c % 2 * 2 + i % 2];
          transpose_quad(x);
          epilogue.wide(batch, row0 + lane / 4 + c % 2 * 8, col0 + c / 2 * 32 + lane % 4 * 8, x);
        }
        return;
      }
    }
#pragma unroll
    for (int c = 0; c < (BN + 63) / 64; ++c) {
      constexpr int kLast = BN % 64 ? BN % 64 : 64;  // columns of the last piece
      const int groups = (c == (BN + 63) / 64 - 1 ? kLast : 64) / 8;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const int row = lane / 4 + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + lane % 4 * 2;
        if (c * 32 + i < BN / 2) *(float2*)(buffer + stage_index<float, 64>(row, col)) = make_float2(d[c * 32 + i], d[c * 32 + i + 1]);
      }
      __syncwarp();
#pragma unroll 1
      for (int item = lane; item < 16 * groups; item += 32) {
        const int row = item / groups, col = item % groups * 8;
        float x[8];
        *(float4*)x = *(const float4*)(buffer + stage_index<float, 64>(row, col));
        *(float4*)(x + 4) = *(const float4*)(buffer + stage_index<float, 64>(row, col + 4));
        if (row0 + row < m && col0 + c * 64 + col < n) epilogue(batch, row0 + row, col0 + c * 64 + col, x, min(8, n - col0 - c * 64 - col));
      }
    }
  }
};

#endif

// An epilogue may have wide(batch, row, col, acc): eight columns in wide accesses, allowed where straight() is true.
// Launch: clusters of DOWN * ACROSS, at most as many as run at once, __launch_bounds__(384, 1). Dynamic shared memory: STAGES * (128 + BN) * 128 +
// 32768 + 16 * STAGES bytes.
template <class T, int BN, int STAGES, int DOWN, int ACROSS, bool A_K, bool B_K, int PHASES, class E>
CD_FN void gemm_wgmma(const CudaGemm& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Gemm = WgmmaGemm<T, BN, STAGES, DOWN, ACROSS, A_K, B_K, PHASES>;
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const int group = threadIdx.x / 128;
  Gemm gemm(t, shared_address(cd_gemm_shared), shared_address(cd_gemm_shared) + Gemm::kBytes + 8 * 4096);
  if (threadIdx.x == 0) {
    for (int p = 0; p < PHASES; ++p) tma_prefetch(&t.map_a[p]);
    tma_prefetch(&t.map_b);
    gemm.init(1, gemm.share.kReached * 8);
  }
  if constexpr (Gemm::kCluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  if (group == 2) {
    registers_down<40>();
    if (threadIdx.x < 288 && elect_one()) gemm.load_tiles();
  } else {
    registers_up<232>();
    float d[BN / 2];
    const int warp = threadIdx.x / 32;
    float* const buffer = (float*)(cd_gemm_shared + Gemm::kBytes) + warp * 1024;
#pragma unroll 1
    for (int tile = blockIdx.x / Gemm::kCluster; tile < gemm.tiles; tile += gridDim.x / Gemm::kCluster) {
      int batch, row0, col0;
      const RowClass<PHASES> rows = gemm.position(tile, batch, row0, col0);
      gemm.multiply(d, gemm.steps(rows), group, rows.shift, [&](u32 barrier) { gemm.share.release(barrier); });
      if constexpr (PHASES == 1) {
        gemm.finish(d, buffer, batch, row0 + warp * 16, col0, rows.rows, epilogue);
      } else {
        gemm.finish(d, buffer, batch, row0 + warp * 16, col0, rows.rows, ClassEpilogue<PHASES, E>{epilogue, rows.phase});
      }
    }
  }
  if constexpr (Gemm::kCluster > 1) {
    __syncwarp();
    cluster_sync();  // no block leaves while another may still write or signal into it
  }
#endif
}

#ifdef CD_HAS_WGMMA

// A warpgroup loads a block's steps by cp.async. A stage is announced kLag steps after its copies were issued.
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K>
CD_FN void wgmma_copy(WgmmaStages<T, BM, BN, STAGES, A_K, B_K>& s, const CudaGemm& t, i64 batch, int row0, int col0, int first, int steps) {
  constexpr int kLag = STAGES - 2;
  static_assert(kLag >= 1);
  const int thread = threadIdx.x % 128, k_end = min((int)t.k, (first + steps) * 64);
  MmaLoader<T, BM, 64, 128, A_K, true> a;
  a.start(thread, t.a, batch * t.a_batch + row0 * t.a_row, t.a_row, t.a_col, t.a_batch, (int)t.m - row0, first * 64);
  MmaLoader<T, BN, 64, 128, B_K, true> b;
  b.start(thread, t.b, batch * t.b_batch + col0 * t.b_col, t.b_col, t.b_row, t.b_batch, (int)t.n - col0, first * 64);
  u32 announced = 0;
#pragma unroll 1
  for (int step = 0; step < steps + kLag; ++step) {
    if (step < steps) {
      barrier_wait(s.empty + 8 * s.stage, s.phase ^ 1);
      a.fetch(s.a + s.stage * s.kBytesA, k_end);
      b.fetch(s.b + s.stage * s.kBytesB, k_end);
      s.advance();
    }
    copy_commit();
    if (step < kLag) continue;
    copy_wait<kLag>();
    async_fence();
    barrier_arrive(s.full + 8 * announced);
    announced = announced + 1 == STAGES ? 0 : announced + 1;
  }
}

#endif

// Grid: x = (tiles of m / DOWN) * (tiles of n / ACROSS) * batches * SPLIT * DOWN * ACROSS, clusters of the last three. Block: BM * 2 + (COPY ? 128 :
// 32) threads. Dynamic shared memory: the larger of STAGES * (BM + BN) * 128 and BM * BN * 4, and 16 * STAGES bytes.
template <class T, int BM, int BN, int STAGES, int SPLIT, int DOWN, int ACROSS, bool A_K, bool B_K, bool COPY, int PHASES, class E>
CD_FN void gemm_wgmma_split(const CudaGemm& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Stages = WgmmaStages<T, BM, BN, STAGES, A_K, B_K>;
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  constexpr int kMultipliers = BM * 2, kThreads = kMultipliers + (COPY ? 128 : 32), kBarriers = Stages::kBytes > BM * BN * 4 ? Stages::kBytes : BM * BN * 4, kShare = DOWN * ACROSS;
  static_assert(!COPY || kShare == 1);
  Stages stages(shared_address(cd_gemm_shared), shared_address(cd_gemm_shared) + kBarriers);
  const WgmmaShare<DOWN, ACROSS> share;
  if (threadIdx.x == 0) {
    if constexpr (!COPY) {
      for (int p = 0; p < PHASES; ++p) tma_prefetch(&t.map_a[p]);
      tma_prefetch(&t.map_b);
    }
    stages.init(COPY ? 128 : 1, kMultipliers / 32 * share.kReached);
  }
  const int tiles_m = row_tiles<PHASES>(t, BM * DOWN), tiles_n = (int)cdiv(t.n, (i64)(BN * ACROSS)), tile = (int)(blockIdx.x / (SPLIT * kShare));
  const int part = (int)(blockIdx.x / kShare % SPLIT), batch = tile / (tiles_m * tiles_n);
  int tile_m, tile_n;
  tile_position((u32)(tile - batch * (tiles_m * tiles_n)), (u32)tiles_m, (u32)tiles_n, tile_m, tile_n);
  const RowClass<PHASES> rows(t, tile_m);
  const int row0 = (tile_m / PHASES * DOWN + share.down) * BM, col0 = (tile_n * ACROSS + share.across) * BN;
  const int all = (int)cdiv(t.k + rows.shift, (i64)64), per_part = (all + SPLIT - 1) / SPLIT, first = part * per_part, steps = max(0, min(all - first, per_part));
  if constexpr (kShare == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const out = (float*)cd_gemm_shared;
  if (threadIdx.x >= kMultipliers) {
    if constexpr (COPY) {
      wgmma_copy(stages, t, batch, row0, col0, first, steps);
    } else {
      if (elect_one()) {
        const WgmmaBatches<A_K, B_K> batches(t);
#pragma unroll 1
        for (int k = first * 64; k < (first + steps) * 64; k += 64, stages.advance()) {
          wgmma_load_step(stages, share, t, batch * batches.a, batch * batches.b, row0, col0, k, rows);
        }
      }
      __syncwarp();
    }
    __syncthreads();
  } else {
    float d[BN / 2];
    if (steps > 0) {
      stages.multiply(d, steps, warp / 4, first == 0 ? rows.shift : 0, [&](u32 barrier) { share.release(barrier); });
    } else {
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) d[i] = 0;
    }
    __syncthreads();  // all have read the stages
#pragma unroll
    for (int i = 0; i < BN / 2; i += 2) {
      const int row = warp * 16 + lane / 4 + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + lane % 4 * 2;
      *(float2*)(out + stage_index<float, BN>(row, col)) = make_float2(d[i], d[i + 1]);
    }
  }
  if constexpr (PHASES == 1) {
    finish_tile<T, BM, BN, kThreads, SPLIT, kShare>(out, batch, row0, col0, rows.rows, (int)t.n, epilogue);
  } else {
    finish_tile<T, BM, BN, kThreads, SPLIT, kShare>(out, batch, row0, col0, rows.rows, (int)t.n, ClassEpilogue<PHASES, E>{epilogue, rows.phase});
  }
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_WGMMA_H_
