// Products of groups whose sizes are data (CudaGroupedGemm), all in one launch. A block finds its group by the list of ends; the host knows only how many
// tiles there can be. Ends that decrease or leave the operands raise the flag, and nothing outside the operands is read or written for them.
#ifndef COIL_DEVICE_CUDA_GROUPED_GEMM_H_
#define COIL_DEVICE_CUDA_GROUPED_GEMM_H_

#include "cuda/gemm_simt.h"
#include "cuda/gemm_wgmma.h"

namespace cd {

// Where group number `group` begins and ends, inside [0, size].
struct GroupRange {
  int begin, end;
};
CD_FN i64 group_end(const CudaGroupedGemm& t, int group) { return t.ends_wide ? ((const i64*)t.ends)[group] : (i64)((const i32*)t.ends)[group]; }
CD_FN GroupRange group_range(const CudaGroupedGemm& t, int group, int size) {
  const i64 begin = group > 0 ? max((i64)0, min(group_end(t, group - 1), (i64)size)) : 0;
  const i64 end = group < (int)t.batch ? max(begin, min(group_end(t, group), (i64)size)) : size;
  return {(int)begin, (int)end};
}

// By one block of the grid: whether the ends are what they should be.
CD_FN void check_ends(const CudaGroupedGemm& t, int size, i32* flag, i32 kernel) {
  for (int group = threadIdx.x; group < (int)t.batch; group += blockDim.x) {
    const i64 begin = group > 0 ? group_end(t, group - 1) : 0, end = group_end(t, group);
    if (begin > end || begin < 0 || end > size) checked_index(-1, 1, flag, kernel);
  }
}

// A tile of rows: its group (`batch`: the rows that no group has), its first row, and where the group's rows begin and end.
struct GroupTile {
  int group, row0, begin, end;
};

// The tile of that number, counted through all groups; group -1: there are fewer. By whole warps.
template <int BM>
CD_FN GroupTile find_tile(const CudaGroupedGemm& t, int number) {
  const int lane = threadIdx.x % 32, groups = (int)t.batch;
#pragma unroll 1
  for (int first = 0; first <= groups; first += 32) {
    GroupRange r = {0, 0};
    if (first + lane <= groups) r = group_range(t, first + lane, (int)t.m);
    const int count = cdiv(r.end - r.begin, BM);
    int sum = count;  // of these lanes up to this one
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int below = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += below;
    }
    const u32 behind = __ballot_sync(~0u, sum > number);
    if (behind) {
      const int source = __ffs((int)behind) - 1;
      const int begin = __shfl_sync(~0u, r.begin, source), end = __shfl_sync(~0u, r.end, source), before = __shfl_sync(~0u, sum - count, source);
      return {first + source, begin + (number - before) * BM, begin, end};
    }
    number -= __shfl_sync(~0u, sum, 31);
  }
  return {-1, 0, 0, 0};
}

// The tile of this block; false: there is none. Grid: x = tiles of n times (tiles of m + groups + 1) by rows, tiles of m times groups by depth. By rows
// neighbouring blocks have the same rows. Operands are given from where the group begins: the loaders see how its first elements are aligned.
template <class T, int BM, int BN, bool DEPTH>
CD_FN bool grouped_place(const CudaGroupedGemm& t, TilePlace& place) {
  const int tiles_n = (int)cdiv(t.n, (i64)BN);
  if constexpr (DEPTH) {
    const int tiles_m = (int)cdiv(t.m, (i64)BM), group = (int)(blockIdx.x / (u32)(tiles_m * tiles_n));
    if (group >= (int)t.batch) return false;
    int tile_m, tile_n;
    tile_position(blockIdx.x - (u32)(group * tiles_m * tiles_n), (u32)tiles_m, (u32)tiles_n, tile_m, tile_n);
    const GroupRange r = group_range(t, group, (int)t.k);
    place = {(const T*)t.a + r.begin * t.a_col, (const T*)t.b + r.begin * t.b_row, 0, 0, group, tile_m * BM, tile_n * BN, (int)t.m, 0, r.end - r.begin};
  } else {
    const GroupTile tile = find_tile<BM>(t, (int)(blockIdx.x / (u32)tiles_n));
    if (tile.group < 0) return false;
    const bool none = tile.group == (int)t.batch;  // rows of no group
    const i64 skipped = tile.begin * t.a_row;
    place = {(const T*)t.a + skipped, t.b, -skipped, none ? 0 : tile.group * t.b_batch, 0, tile.row0, (int)(blockIdx.x % (u32)tiles_n) * BN, tile.end, 0,
             none ? 0 : (int)t.k};
  }
  return true;
}

// Where the kernels begin.
template <class T, int BM, int BN, bool DEPTH>
CD_FN bool begin_grouped(const CudaGroupedGemm& t, i32* flag, i32 kernel, TilePlace& place) {
  if (blockIdx.x == 0) check_ends(t, (int)(DEPTH ? t.k : t.m), flag, kernel);
  return grouped_place<T, BM, BN, DEPTH>(t, place);
}

// On the tensor cores by mma.sync; dynamic shared memory as of gemm_mma.
template <class T, int BM, int BN, int BK, int WM, int WN, int STAGES, bool A_K, bool B_K, bool DEPTH, class E>
CD_FN void grouped_mma(const CudaGroupedGemm& t, i32* flag, i32 kernel, const E& epilogue) {
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  TilePlace place;
  if (begin_grouped<T, BM, BN, DEPTH>(t, flag, kernel, place)) gemm_mma_tile<T, BM, BN, BK, WM, WN, STAGES, A_K, B_K, 1>(t, epilogue, place, cd_gemm_shared);
}

// On the CUDA cores; dynamic shared memory as of gemm_simt.
template <class T, int BM, int BN, int BK, int TM, int TN, int STAGES, int SLICES, bool A_K, bool B_K, bool DEPTH, class E>
CD_FN void grouped_simt(const CudaGroupedGemm& t, i32* flag, i32 kernel, const E& epilogue) {
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  TilePlace place;
  if (begin_grouped<T, BM, BN, DEPTH>(t, flag, kernel, place))
    gemm_simt_tile<T, BM, BN, BK, TM, TN, STAGES, SLICES, A_K, B_K, 1>(t, epilogue, place, (T*)cd_gemm_shared);
}

// On Hopper's tensor cores: BM / 64 warpgroups multiply. Operands come by TMA (one more warp; by rows alone, a k-contiguous): the maps are those of the product
// with all rows whose batches are the groups, and a tile's last rows of a may be the next group's, whose results are dropped. Or with COPY by cp.async (a
// warpgroup more). Block: BM * 2 + (COPY ? 128 : 32) threads. Dynamic shared memory: the larger of STAGES * (BM + BN) * 128 and BM * BN * 4, and 16 * STAGES
// bytes.
template <class T, int BM, int BN, int STAGES, bool A_K, bool B_K, bool COPY, bool DEPTH, class E>
CD_FN void grouped_wgmma(const CudaGroupedGemm& t, i32* flag, i32 kernel, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  static_assert(COPY || (A_K && !DEPTH));
  using Stages = WgmmaStages<T, BM, BN, STAGES, A_K, B_K>;
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  constexpr int kMultipliers = (int)multipliers(BM), kThreads = (int)gemm_wgmma_split_threads(BM, 1, COPY),
                kBarriers = Stages::kBytes > BM * BN * 4 ? Stages::kBytes : BM * BN * 4;
  TilePlace place;
  if (!begin_grouped<T, BM, BN, DEPTH>(t, flag, kernel, place)) return;
  Stages stages(shared_address(cd_gemm_shared), shared_address(cd_gemm_shared) + kBarriers);
  const WgmmaShare<1, 1> share;
  const int steps = cdiv(place.k_end, Stages::kStep);
  if (threadIdx.x == 0) {
    if constexpr (COPY) stages.init(128, kMultipliers / 32);
    else tma_prefetch(t.map_a), tma_prefetch(&t.map_b), stages.init(share, kMultipliers / 32);
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const out = (float*)cd_gemm_shared;
  const bool loads = threadIdx.x >= kMultipliers;
  float d[BN / 2];  // a multiplier's
  if (loads) {
    if constexpr (COPY) {
      wgmma_copy(stages, t, place, 0, steps);
    } else {
      if (elect_one()) stages.load(share, t, 0, t.batch > 1 ? (int)(place.b_first / (B_K ? t.b_col : t.b_row)) : 0, place.row0, place.col0, 0, steps);
      __syncwarp();
    }
  } else if (steps > 0) {
    stages.multiply(share, t, d, steps);
  } else {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) d[i] = 0;
  }
  __syncthreads();  // all have read the stages
  if (!loads) {
#pragma unroll
    for (int i = 0; i < BN / 2; i += 2) {
      const int row = warp * 16 + lane / 4 + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + lane % 4 * 2;
      *(float2*)(out + stage_index<float, BN>(row, col)) = make_float2(d[i], d[i + 1]);
    }
  }
  finish_tile<T, BM, BN, kThreads, 1>(out, place.batch, place.row0, place.col0, place.m, (int)t.n, epilogue);
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GROUPED_GEMM_H_
