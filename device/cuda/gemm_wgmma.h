// Matrix products of bf16, f16 and (gemm_wgmma_split by TMA alone) tf32 on Hopper's tensor cores (sm_90a): TMA, wgmma, specialised warps.
//
//   gemm_wgmma        a persistent grid. A block of BM * 2 + 128 threads computes tiles of BM x BN, one after the other. The last warpgroup's one
//                     thread loads steps of 64 along k into STAGES buffers, also those of the next tile while this one is finished; BM / 64
//                     warpgroups multiply 64 x BN each and finish their part through shared memory, so that consecutive lanes call the
//                     epilogue for consecutive columns.
//   gemm_wgmma_split  a tile of BM x BN a block, or SPLIT blocks of a cluster, each a part of k: products that would not fill the machine.
//                     BM / 64 warpgroups multiply. The operands come by TMA (one more warp), or with COPY by cp.async (a warpgroup more):
//                     then they may have any strides and alignment.
// DOWN x ACROSS blocks of a cluster take as many neighbouring tiles: those in a row of them share the loads of a, those in a column those of
// b, so that each line is read from the L2 cache once for all (TMA's multicast).
// TMA's maps: wgmma_stages.h. CLASSES = 2, 4, 8 (A_K, one batch): rows of a that TMA reads badly or not at all (wgmma_rows.h).
#ifndef COIL_DEVICE_CUDA_GEMM_WGMMA_H_
#define COIL_DEVICE_CUDA_GEMM_WGMMA_H_

#include "cuda/gemm_mma.h"
#include "cuda/wgmma_rows.h"

namespace cd {

#ifdef CD_HAS_WGMMA

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

template <class T, int BM, int BN, int STAGES, int DOWN, int ACROSS, bool A_K, bool B_K, int CLASSES>
struct WgmmaGemm : WgmmaPipeline<T, BM, BN, STAGES, A_K, B_K, CLASSES> {
  using Pipeline = WgmmaPipeline<T, BM, BN, STAGES, A_K, B_K, CLASSES>;
  static_assert(BM == 128 || (BM == 192 && CLASSES == 1));
  static constexpr int kCluster = DOWN * ACROSS, kMultipliers = (int)multipliers(BM);
  static constexpr int kBuffers = (int)gemm_wgmma_buffers(BM, CLASSES), kPiece = kBuffers / (BM * 4);  // of each line: what the stages leave room for
  const CudaGemm& t;
  const WgmmaBatches<A_K, B_K> batches;
  const WgmmaShare<DOWN, ACROSS> share;
  const int tiles_m, tiles_n, tiles;  // a cluster's

  __device__ __forceinline__ WgmmaGemm(const CudaGemm& t, u32 base, u32 barriers)
      : Pipeline(base, barriers),
        t(t),
        batches(t),
        tiles_m((int)cdiv(t.m, (i64)(DOWN * BM))),
        tiles_n((int)cdiv(t.n, (i64)(ACROSS * BN))),
        tiles(tiles_m * tiles_n * (int)t.batch) {}

  __device__ __forceinline__ void position(int tile, int& batch, int& row0, int& col0) const {
    batch = tile / (tiles_m * tiles_n);
    int tile_m, tile_n;
    tile_position((u32)(tile - batch * (tiles_m * tiles_n)), (u32)tiles_m, (u32)tiles_n, tile_m, tile_n);
    row0 = (tile_m * DOWN + share.down) * BM;
    col0 = (tile_n * ACROSS + share.across) * BN;
  }
  __device__ __forceinline__ void load_tiles() {
    const int steps = (int)cdiv(t.k, (i64)64);
#pragma unroll 1
    for (int tile = blockIdx.x / kCluster; tile < tiles; tile += gridDim.x / kCluster) {
      int batch, row0, col0;
      position(tile, batch, row0, col0);
      this->load(share, t, batch * batches.a, batch * batches.b, row0, col0, 0, steps);
    }
  }
  // Whether a warp's 16 lines of the tile go straight from the registers: all of its rows and columns are inside, and stores are wide.
  template <class E>
  __device__ __forceinline__ bool straight(int row0, int col0, const E& epilogue) const {
    if constexpr (requires { epilogue.straight(); }) {
      const int first = (int)threadIdx.x / 32 * 16;
      return epilogue.straight() && row0 + (CLASSES > 1 ? BM : first + 16) <= (int)t.m && col0 + BN <= (int)t.n;
    } else {
      return false;
    }
  }
  // Then what the epilogue reads for eight columns comes by cp.async: for so many times eight before the tile is multiplied, for the rest as these are
  // finished. Each lane copies into its own part of the warp's buffer what it reads itself.
  template <class E>
  __device__ static constexpr int ahead() {
    if constexpr (requires { E::kAhead; }) {
      constexpr int kFit = kPiece * 2 / E::kAhead;  // of a lane's share of 16 x kPiece floats
      return kFit < 2 ? 0 : kFit < BN / 16 ? kFit : BN / 16;
    } else {
      return 0;
    }
  }
  template <class E>
  __device__ __forceinline__ void read_ahead(int c, float* buffer, int batch, int row0, int col0, const E& epilogue) const {
    if (c < BN / 16) epilogue.ahead(shared_address(buffer) + slot<E>(c), batch, row_of(row0, c), col_of(col0, c));
    copy_commit();
  }
  template <class E>
  __device__ __forceinline__ void begin_ahead(float* buffer, int batch, int row0, int col0, const E& epilogue) const {
    __syncwarp();  // the tile before may have been finished through the buffer
#pragma unroll
    for (int c = 0; c < ahead<E>(); ++c) read_ahead(c, buffer, batch, row0, col0, epilogue);
  }
  template <class E>
  __device__ __forceinline__ void finish_straight(const float (&d)[BN / 2], float* buffer, int batch, int row0, int col0, const E& epilogue) const {
#pragma unroll
    for (int c = 0; c < BN / 16; ++c) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = d[c / 2 * 16 + i / 2 * 4 + c % 2 * 2 + i % 2];
      transpose_quad(x);
      if constexpr (ahead<E>() > 0) {
        copy_wait<ahead<E>() - 1>();
        epilogue.wide(batch, row_of(row0, c), col_of(col0, c), x, (const unsigned char*)buffer + slot<E>(c));
        read_ahead(c + ahead<E>(), buffer, batch, row0, col0, epilogue);
      } else {
        epilogue.wide(batch, row_of(row0, c), col_of(col0, c), x);
      }
    }
  }
  // A warp's 16 lines of the tile, kPiece columns at a time through the warp's own 16 x kPiece floats, in a loop of less code.
  template <class E>
  __device__ __forceinline__ void finish(const float (&d)[BN / 2], float* buffer, int batch, int row0, int col0, const E& epilogue) const {
    const int lane = threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16, m = (int)t.m, n = (int)t.n;
    const auto row_of = [&](int line) { return row0 + class_row<BM, CLASSES>(first + line); };
#pragma unroll
    for (int c = 0; c < (BN + kPiece - 1) / kPiece; ++c) {
      constexpr int kLast = BN % kPiece ? BN % kPiece : kPiece;  // columns of the last piece
      const int groups = (c == (BN + kPiece - 1) / kPiece - 1 ? kLast : kPiece) / 8;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kPiece / 2; i += 2) {
        const int line = lane / 4 + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + lane % 4 * 2, at = c * (kPiece / 2) + i;
        if (at < BN / 2) *(float2*)(buffer + stage_index<float, kPiece>(line, col)) = make_float2(d[at], d[at + 1]);
      }
      __syncwarp();
      constexpr int kColumns = narrow_columns<E>();
      if constexpr (kColumns > 0) {
        if (epilogue.takes_columns()) {
          const auto columns = [&](int line, int at) {
            const int col = col0 + c * kPiece + at;
            finish_columns<kColumns, 8, float>(epilogue, batch, row_of(line), col, n - col,
                                               [&](int i) { return buffer[stage_index<float, kPiece>(line, at + i)]; });
          };
          // A lane stays at its columns, so that little is done for each line but the value's way from here to memory.
#pragma unroll
          for (int at = lane * kColumns; at < groups * 8; at += 32 * kColumns) {
            if (col0 + c * kPiece + at >= n) continue;
            if (row0 + BM <= m) {
#pragma unroll 8
              for (int line = 0; line < 16; ++line) columns(line, at);
            } else {
#pragma unroll 1
              for (int line = 0; line < 16; ++line) {
                if (row_of(line) < m) columns(line, at);
              }
            }
          }
          continue;
        }
      }
#pragma unroll 1
      for (int item = lane; item < 16 * groups; item += 32) {
        const int line = item / groups, row = row_of(line), at = item % groups * 8, col = col0 + c * kPiece + at;
        float x[8];
        *(float4*)x = *(const float4*)(buffer + stage_index<float, kPiece>(line, at));
        *(float4*)(x + 4) = *(const float4*)(buffer + stage_index<float, kPiece>(line, at + 4));
        if (row < m && col < n) epilogue(batch, row, col, x, min(8, n - col));
      }
    }
  }

 private:
  // The c-th eight columns of a row that a lane finishes.
  __device__ __forceinline__ static int row_of(int row0, int c) {
    return row0 + class_row<BM, CLASSES>((int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + c % 2 * 8);
  }
  __device__ __forceinline__ static int col_of(int col0, int c) { return col0 + c / 2 * 32 + (int)threadIdx.x % 4 * 8; }
  template <class E>
  __device__ __forceinline__ static u32 slot(int c) {
    return (u32)((c % ahead<E>() * 32 + (int)threadIdx.x % 32) * E::kAhead);
  }
};

#endif

// An epilogue may have wide(batch, row, col, acc): eight columns in wide accesses, allowed where straight() is true. And kAhead: so many bytes (16, 32) it
// reads for them, ahead(shared address, batch, row, col), which copies them by cp.async, and wide(..., acc, their place), which reads them there.
// Launch: clusters of DOWN * ACROSS, at most as many as run at once, __launch_bounds__(BM * 2 + 128, 1). Dynamic shared memory: gemm_wgmma_shared.
template <class T, int BM, int BN, int STAGES, int DOWN, int ACROSS, bool A_K, bool B_K, int CLASSES, class E>
CD_FN void gemm_wgmma(const CudaGemm& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Gemm = WgmmaGemm<T, BM, BN, STAGES, DOWN, ACROSS, A_K, B_K, CLASSES>;
  static_assert(Gemm::kBytes + Gemm::kBuffers + wgmma_barriers(STAGES, CLASSES) <= gemm_wgmma_shared(BM, wgmma_columns(BN, B_K), STAGES, CLASSES));
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  Gemm gemm(t, shared_address(cd_gemm_shared), shared_address(cd_gemm_shared) + Gemm::kBytes + Gemm::kBuffers);
  if (threadIdx.x == 0) {
    for (int p = 0; p < CLASSES; ++p) tma_prefetch(&t.map_a[p]);
    tma_prefetch(&t.map_b);
    gemm.init(gemm.share, Gemm::kMultipliers / 32);
  }
  if constexpr (Gemm::kCluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  if (threadIdx.x >= Gemm::kMultipliers) {
    registers_down<BM == 128 ? 40 : 32>();
    if (threadIdx.x < Gemm::kMultipliers + 32 && elect_one()) gemm.load_tiles();
  } else {
    registers_up<BM == 128 ? 232 : 160>();
    float d[BN / 2];
    const int steps = (int)cdiv(t.k, (i64)64);
    float* const buffer = (float*)(cd_gemm_shared + Gemm::kBytes) + threadIdx.x / 32 * (16 * Gemm::kPiece);
#pragma unroll 1
    for (int tile = blockIdx.x / Gemm::kCluster; tile < gemm.tiles; tile += gridDim.x / Gemm::kCluster) {
      int batch, row0, col0;
      gemm.position(tile, batch, row0, col0);
      const bool straight = gemm.straight(row0, col0, epilogue);
      if constexpr (Gemm::template ahead<E>() > 0) {
        if (straight) gemm.begin_ahead(buffer, batch, row0, col0, epilogue);
      }
      gemm.multiply(gemm.share, t, d, steps);
      if constexpr (requires { epilogue.straight(); }) {
        if (straight) {
          gemm.finish_straight(d, buffer, batch, row0, col0, epilogue);
          continue;
        }
      }
      gemm.finish(d, buffer, batch, row0, col0, epilogue);
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
CD_FN void wgmma_copy(WgmmaStages<T, BM, BN, STAGES, A_K, B_K>& s, const CudaGemm& t, const TilePlace& place, int first, int steps) {
  constexpr int kLag = STAGES - 2;
  static_assert(kLag >= 1);
  const int thread = threadIdx.x % 128, k_end = min(place.k_end, (first + steps) * 64);
  MmaLoader<T, BM, 64, 128, A_K, true> a;
  a.start(thread, place.a, place.a_first + place.row0 * t.a_row, t.a_row, t.a_col, t.a_batch, place.m - place.row0, first * 64);
  MmaLoader<T, BN, 64, 128, B_K, true> b;
  b.start(thread, place.b, place.b_first + place.col0 * t.b_col, t.b_col, t.b_row, t.b_batch, (int)t.n - place.col0, first * 64);
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

// Grid: x = (tiles of m / DOWN) * (tiles of n / ACROSS) * batches * SPLIT * DOWN * ACROSS, clusters of the last three. Block: BM * 2 * TURNS + (COPY ?
// 128 : 32) threads. Dynamic shared memory: gemm_wgmma_split_shared.
// TURNS = 2 (CLASSES > 1, BM = 64): OddTurns.
template <class T, int BM, int BN, int STAGES, int SPLIT, int DOWN, int ACROSS, bool A_K, bool B_K, bool COPY, int CLASSES, int TURNS, class E>
CD_FN void gemm_wgmma_split(const CudaGemm& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Stages = WgmmaPipeline<T, BM, BN, STAGES, A_K, B_K, CLASSES, TURNS>;
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  constexpr int kMultipliers = (int)multipliers(BM) * TURNS, kThreads = (int)gemm_wgmma_split_threads(BM, TURNS, COPY),
                kBarriers = Stages::kBytes > BM * BN * 4 ? Stages::kBytes : BM * BN * 4, kShare = DOWN * ACROSS;
  static_assert(!COPY || kShare == 1);
  static_assert(kBarriers + wgmma_barriers(STAGES, CLASSES) <= gemm_wgmma_split_shared(BM, BN, wgmma_columns(BN, B_K), STAGES, CLASSES));
  Stages stages(shared_address(cd_gemm_shared), shared_address(cd_gemm_shared) + kBarriers);
  const WgmmaShare<DOWN, ACROSS> share;
  if (threadIdx.x == 0) {
    if constexpr (!COPY) {
      for (int p = 0; p < CLASSES; ++p) tma_prefetch(&t.map_a[p]);
      tma_prefetch(&t.map_b);
    }
    if constexpr (COPY) stages.init(128, kMultipliers / 32);
    else stages.init(share, kMultipliers / 32);
  }
  const int tiles_m = (int)cdiv(t.m, (i64)(BM * DOWN)), tiles_n = (int)cdiv(t.n, (i64)(BN * ACROSS)), tile = (int)(blockIdx.x / (SPLIT * kShare));
  const int part = (int)(blockIdx.x / kShare % SPLIT), batch = tile / (tiles_m * tiles_n);
  int tile_m, tile_n;
  tile_position((u32)(tile - batch * (tiles_m * tiles_n)), (u32)tiles_m, (u32)tiles_n, tile_m, tile_n);
  const int row0 = (tile_m * DOWN + share.down) * BM, col0 = (tile_n * ACROSS + share.across) * BN;
  const int all = (int)cdiv(t.k, (i64)Stages::kStep), per_part = (all + SPLIT - 1) / SPLIT, first = part * per_part, steps = max(0, min(all - first, per_part));
  if constexpr (kShare == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool loads = threadIdx.x >= kMultipliers;
  float* const out = (float*)cd_gemm_shared;
  float d[BN / 2];  // a multiplier's
  if (loads) {
    if constexpr (COPY) {
      wgmma_copy(stages, t, TilePlace{t.a, t.b, batch * t.a_batch, batch * t.b_batch, batch, row0, col0, (int)t.m, 0, (int)t.k}, first, steps);
    } else {
      if (elect_one()) {
        const WgmmaBatches<A_K, B_K> batches(t);
        stages.load(share, t, batch * batches.a, batch * batches.b, row0, col0, first, steps);
      }
      __syncwarp();
    }
  } else if (steps > 0) {
    stages.multiply(share, t, d, steps);
  } else {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) d[i] = 0;
  }
  const auto place = [&](int i) -> float2& {
    const int row = warp * 16 % BM + lane / 4 + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + lane % 4 * 2;
    return *(float2*)(out + stage_index<float, BN>(row, col));
  };
  const auto put = [&] {
#pragma unroll
    for (int i = 0; i < BN / 2; i += 2) place(i) = make_float2(d[i], d[i + 1]);
  };
  __syncthreads();             // all have read the stages
  if constexpr (TURNS == 2) {  // the first warpgroup adds the second's sums to its own
    if (!loads && warp >= BM / 16) put();
    __syncthreads();
    if (warp < BM / 16) {
#pragma unroll
      for (int i = 0; i < BN / 2; i += 2) d[i] += place(i).x, d[i + 1] += place(i).y;
      put();
    }
  } else {
    if (!loads) put();
  }
  finish_tile<T, BM, BN, kThreads, SPLIT, kShare, CLASSES>(out, batch, row0, col0, (int)t.m, (int)t.n, epilogue);
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_WGMMA_H_
