// What loaders and multipliers of the wgmma kernels share: stages of the operands in shared memory, and blocks of a cluster that share loads.
// TMA: t.map_a[0] of a k-contiguous a (A_K): box of BM / ACROSS rows x 64 of k; else 64 / ACROSS of k x 64 rows. t.map_b of a k-contiguous b
// (B_K): box of BN / DOWN columns of b x 64 of k; else 64 / DOWN of k x 64. The lines of all batches follow one another in a map: a batch begins
// (batch stride) / (line stride) lines after the one before. Needs k > 0; k-strided operands of several batches: k % 64 == 0. Of tf32 a step is 32 of k,
// and both operands are k-contiguous.
#ifndef COIL_DEVICE_CUDA_WGMMA_STAGES_H_
#define COIL_DEVICE_CUDA_WGMMA_STAGES_H_

#include "cuda/wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

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
  // By a warp that has read a's part of a stage, or b's: to the blocks that fill it.
  __device__ __forceinline__ void release_a(u32 barrier) const {
    const int lane = threadIdx.x % 32;
    if constexpr (ACROSS == 1) {
      if (lane == 0) barrier_arrive(barrier);
    } else if (lane < ACROSS) {
      barrier_arrive_at(barrier, first + down * ACROSS + lane);
    }
  }
  __device__ __forceinline__ void release_b(u32 barrier) const {
    const int lane = threadIdx.x % 32;
    if constexpr (DOWN == 1) {
      if (lane == 0) barrier_arrive(barrier);
    } else if (lane < DOWN) {
      barrier_arrive_at(barrier, first + lane * ACROSS + across);
    }
  }
  // By a warp that has read a stage of both.
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

// One thread's part of a step's BM x 64 of a (lines of k, or of rows), from row0 and k.
template <int BM, bool A_K, int DOWN, int ACROSS>
CD_FN void wgmma_load_a(const WgmmaShare<DOWN, ACROSS>& share, const CudaTensorMap* map, u32 to, u32 barrier, int line, int row0, int k) {
  const auto load = [&](u32 at, int x, int y) {
    if constexpr (ACROSS == 1) tma_load(at, map, barrier, x, line + y);
    else tma_load_multicast(at, map, barrier, x, line + y, share.in_row());
  };
  if constexpr (A_K) {
    constexpr int kRows = BM / ACROSS;
    load(to + share.across * kRows * 128, k, row0 + share.across * kRows);
  } else {
    const int part = share.across * (64 / ACROSS);  // lines of k
#pragma unroll
    for (int i = 0; i < BM / 64; ++i) load(to + i * 8192 + part * 128, row0 + i * 64, k + part);
  }
}
// And of its 64 x BN of b.
template <int BN, bool B_K, int DOWN, int ACROSS>
CD_FN void wgmma_load_b(const WgmmaShare<DOWN, ACROSS>& share, const CudaTensorMap* map, u32 to, u32 barrier, int line, int col0, int k) {
  const auto load = [&](u32 at, int x, int y) {
    if constexpr (DOWN == 1) tma_load(at, map, barrier, x, line + y);
    else tma_load_multicast(at, map, barrier, x, line + y, share.in_column());
  };
  if constexpr (B_K) {
    constexpr int kColumns = BN / DOWN;
    load(to + share.down * kColumns * 128, k, col0 + share.down * kColumns);
  } else {
    const int part = share.down * (64 / DOWN);
#pragma unroll
    for (int i = 0; i < (BN + 63) / 64; ++i) load(to + i * 8192 + part * 128, col0 + i * 64, k + part);
  }
}

// What loaders and multipliers agree upon: stages of a and b in shared memory and two barriers each.
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K>
struct WgmmaStages {
  static constexpr int kStep = 128 / (int)sizeof(T);  // elements along k
  static constexpr int kBytesA = BM * 128, kBytesB = (B_K ? BN : (BN + 63) / 64 * 64) * 128, kBytes = STAGES * (kBytesA + kBytesB);
  u32 a, b, full, empty;  // shared addresses
  u32 stage = 0, phase = 0;

  __device__ __forceinline__ WgmmaStages(u32 base, u32 barriers) : a(base), b(base + STAGES * kBytesA), full(barriers), empty(barriers + 8 * STAGES) {}
  // By one thread. fulls: arrivals that make a stage full; empties: those that empty it.
  __device__ __forceinline__ void init(int fulls, int empties) const {
    for (int s = 0; s < STAGES; ++s) barrier_init(full + 8 * s, fulls), barrier_init(empty + 8 * s, empties);
    barrier_init_done();
  }
  // For loads by TMA that so many warps use.
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void init(const WgmmaShare<DOWN, ACROSS>& share, int warps) const {
    init(1, warps * share.kReached);
  }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  // By one thread: the steps from number `first` on. line_a, line_b: where the batch begins in the maps.
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void load(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm& t, int line_a, int line_b, int row0, int col0, int first,
                                       int steps) {
#pragma unroll 1
    for (int step = first; step < first + steps; ++step, advance()) {
      const u32 barrier = full + 8 * stage;
      barrier_wait(empty + 8 * stage, phase ^ 1);
      barrier_expect(barrier, kBytesA + kBytesB);
      wgmma_load_a<BM, A_K>(share, t.map_a, a + stage * kBytesA, barrier, line_a, row0, step * kStep);
      wgmma_load_b<BN, B_K>(share, &t.map_b, b + stage * kBytesB, barrier, line_b, col0, step * kStep);
    }
  }
  // By a warpgroup, for its 64 rows. One step's products are under way while the one before is released. steps > 0.
  template <int DOWN, int ACROSS>
  __device__ __forceinline__ void multiply(const WgmmaShare<DOWN, ACROSS>& share, const CudaGemm&, float (&d)[BN / 2], int steps) {
    const u32 rows = threadIdx.x / 128 * 8192;  // 64 lines of a k-contiguous tile, or a slab of the other kind
    u32 previous = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, advance()) {
      barrier_wait(full + 8 * stage, phase);
      const u64 da = wgmma_tile(a + stage * kBytesA + rows, 8192), db = wgmma_tile(b + stage * kBytesB, 8192);
      wgmma_fence();
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        wgmma<A_K ? 0 : 1, B_K ? 0 : 1>(T{}, d, da + q * (A_K ? 2 : 128), db + q * (B_K ? 2 : 128), (step | q) != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (step) share.release(empty + 8 * previous);
      previous = stage;
    }
    wgmma_wait<0>();
    share.release(empty + 8 * previous);
  }
};

#endif

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_WGMMA_STAGES_H_
