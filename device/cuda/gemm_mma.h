// Matrix products of bf16, f16 and tf32 (float32 rounded on its way into the product) on the tensor cores by mma.sync (sm_80 and later):
// any strides, any alignment.
//
// A block computes BM x BN elements in steps of BK; warps own WM x WN of it. Operands lie in shared memory as they lie in memory,
// k-contiguous ([row][k]) or row-contiguous ([k][row]), in lines of 16-byte chunks permuted so that ldmatrix meets no bank conflict;
// ldmatrix transposes where needed, but for tf32, whose rows are then read word by word. STAGES steps are under way by cp.async of 16, 8 or 4 bytes, whichever
// the operand's address and strides allow (found out once, uniform over the grid); 2-byte alignment and strided operands go through registers. A_K, B_K: k is
// the axis to walk (it is contiguous, or nothing is). SPLIT: as in gemm_simt.h.
#ifndef COIL_DEVICE_CUDA_GEMM_MMA_H_
#define COIL_DEVICE_CUDA_GEMM_MMA_H_

#include "cuda/gemm_tile.h"

namespace cd {

// Chunks (16 bytes) of a line are permuted by the line's number: 8 lines that ldmatrix reads together lie in different banks.
template <int CHUNKS>
CD_FN int line_swizzle(int line) {
  static_assert(CHUNKS >= 8 || CHUNKS == 4 || CHUNKS == 2);
  return CHUNKS >= 8 ? line & 7 : CHUNKS == 4 ? (line >> 1) & 3 : (line >> 2) & 1;
}

// Words of lines along the rows are read one by one: 4 lines and 2 chunks of each together.
template <class T, int CHUNKS, bool K_MAJOR>
CD_FN int mma_swizzle(int line) {
  constexpr bool kWords = sizeof(T) == 4 && !K_MAJOR;
  static_assert(!kWords || CHUNKS >= 8);
  return kWords ? (line & 3) << 1 : line_swizzle<CHUNKS>(line);
}

// One operand's way into shared memory. SLABS: a row-contiguous operand lies in slabs of 64 rows, lines of 128 bytes, as wgmma wants it
// (a k-contiguous one with BK = 64 does so anyway). `thread` is 0 .. THREADS - 1.
template <class T, int ROWS, int BK, int THREADS, bool K_MAJOR, bool SLABS = false>
struct MmaLoader {
  static constexpr int kSize = sizeof(T), kElements = 16 / kSize;  // of a chunk
  static constexpr int kChunks = (K_MAJOR ? BK : ROWS) / kElements, kLines = K_MAJOR ? ROWS : BK, kTotal = kChunks * kLines;
  static constexpr int kItems = (kTotal + THREADS - 1) / THREADS, kStep = THREADS / kChunks, kBytes = ROWS * BK * kSize;
  static constexpr bool kWhole = kTotal % THREADS == 0, kSlabs = SLABS && !K_MAJOR;
  static constexpr int kItemBytes = kStep * (kSlabs ? 128 : kChunks * 16);
  static_assert(THREADS % kChunks == 0 && kStep % (kSize == 4 && !K_MAJOR ? 4 : 8) == 0, "a thread's lines are permuted alike");
  static_assert(!kSlabs || (ROWS % 64 == 0 && kSize == 2));

  const T* from;  // this thread's first chunk of the next step
  i64 along_stride, item_stride, k_stride;
  u32 place;                 // of the first chunk in a stage
  int line, left, k, width;  // this thread's first line; rows from this thread's first to the matrix's end; its first k; bytes an access moves, 2: elements

  // first: the tile's first element at k = 0; rows: how many the matrix has from there.
  __device__ __forceinline__ void start(int thread, const void* operand, i64 first, i64 row_stride, i64 column_stride, i64 batch_stride, int rows,
                                        int k_begin) {
    const int chunk = thread % kChunks, row = K_MAJOR ? thread / kChunks : chunk * kElements;
    const i64 other_stride = K_MAJOR ? row_stride : column_stride;
    line = thread / kChunks;
    along_stride = K_MAJOR ? column_stride : row_stride;
    k_stride = column_stride * BK;
    item_stride = other_stride * kStep;
    k = k_begin + (K_MAJOR ? chunk * kElements : line);
    left = rows - row;
    from = (const T*)operand + first + k * column_stride + row * row_stride;
    width = along_stride == 1 ? access_width(operand, other_stride, batch_stride, kSize) : 2;
    place = kSlabs ? (u32)(chunk / 8 * BK * 128 + line * 128 + ((chunk ^ line) & 7) * 16)
                   : (u32)(line * kChunks + (chunk ^ mma_swizzle<T, kChunks, K_MAJOR>(line))) * 16;
  }

  // Elements of this thread's chunk i that are there, in front of the others: all or more, or 0 or less: none.
  __device__ __forceinline__ int count(int i, int k_end) const {
    if constexpr (K_MAJOR) {
      return i * kStep < left ? k_end - k : 0;
    } else {
      return k + i * kStep < k_end ? left : 0;
    }
  }
  __device__ __forceinline__ bool mine(int i) const { return kWhole || line + i * kStep < kLines; }

  // Puts the next BK values of every row into the stage; those at k_end and beyond and those of rows beyond the matrix are 0.
  __device__ __forceinline__ void fetch(u32 stage, int k_end) {
    stage += place;
    if (width == 16) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        if (mine(i)) copy_async_16(stage + i * kItemBytes, from + i * item_stride, max(0, min(kElements, count(i, k_end))) * kSize);
      }
    } else if (width == 8) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        if (!mine(i)) continue;
        const T* p = from + i * item_stride;
        const int there = count(i, k_end);
        copy_async_8(stage + i * kItemBytes, p, max(0, min(kElements / 2, there)) * kSize);
        copy_async_8(stage + i * kItemBytes + 8, p + kElements / 2, max(0, min(kElements / 2, there - kElements / 2)) * kSize);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kItems; ++i) {
        if (mine(i)) fetch_narrow(stage + i * kItemBytes, from + i * item_stride, count(i, k_end));
      }
    }
    from += k_stride, k += BK;
  }
  __device__ __forceinline__ void fetch_narrow(u32 to, const T* p, int there) const {
    constexpr int kPair = 4 / kSize;  // elements of a word
    if (width == 4) {
#pragma unroll
      for (int e = 0; e < kElements; e += kPair) copy_async_4(to + e * kSize, p + e, max(0, min(kPair, there - e)) * kSize);
    } else {
      u32 words[4];
#pragma unroll
      for (int e = 0; e < kElements; e += kPair) {
        words[e / kPair] = e < there ? p[e * along_stride].bits : 0;
        if constexpr (kPair == 2) words[e / 2] |= (u32)(e + 1 < there ? p[(e + 1) * along_stride].bits : 0) << 16;
      }
      shared_store_16(to, words[0], words[1], words[2], words[3]);
    }
  }
};

// Where a warp's fragments lie: 16 rows (of a or b) and 32 bytes of k per ldmatrix_x4. A_OPERAND: the order of matrices of mma's a, else of
// two columns' worth of b.
template <class T, int ROWS, int BK, bool K_MAJOR, bool A_OPERAND>
struct MmaFragments {
  static constexpr int kChunks = (K_MAJOR ? BK : ROWS) * (int)sizeof(T) / 16, kLine = kChunks * 16;
  static constexpr bool kWords = sizeof(T) == 4 && !K_MAJOR;
  u32 lines, chunk;

  __device__ __forceinline__ void start(int warp_row) {
    const int lane = threadIdx.x % 32;
    if constexpr (kWords) {
      lines = (u32)(lane % 4 * kLine + lane / 4 % 4 * 4);
      chunk = (u32)(warp_row / 4 + lane / 16);
      return;
    }
    const bool far_lines = K_MAJOR == A_OPERAND ? (lane >> 3) & 1 : lane >> 4, far_chunk = K_MAJOR == A_OPERAND ? lane >> 4 : (lane >> 3) & 1;
    const int line = (lane & 7) + 8 * far_lines;
    lines = (u32)((line + (K_MAJOR ? warp_row : 0)) * kLine);
    chunk = (u32)(((K_MAJOR ? 0 : warp_row / 8) + far_chunk) ^ line_swizzle<kChunks>(line)) * 16;
  }
  // The fragment of rows 16 i.. of the warp and bytes 32 q.. along k of the step.
  __device__ __forceinline__ void load(u32 (&r)[4], u32 stage, int i, int q) const {
    if constexpr (kWords) {
      const u32 permuted = (chunk + i * 4) ^ threadIdx.x % 4 * 2;
#pragma unroll
      for (int h = 0; h < 4; ++h) {
        const int far_row = A_OPERAND ? h % 2 : h / 2, far_line = A_OPERAND ? h / 2 : h % 2;
        r[h] = shared_load_4(stage + lines + (q * 8 + far_line * 4) * kLine + (permuted ^ far_row * 2) * 16);
      }
    } else if constexpr (K_MAJOR) {
      ldmatrix_x4(r, stage + lines + i * 16 * kLine + (chunk ^ (q * 32)));
    } else {
      ldmatrix_x4_trans(r, stage + lines + q * 16 * kLine + (chunk ^ (i * 32)));
    }
  }
};

// A warp's sums to their places in a staged tile of rows of BN, from (warp_m, warp_n) on.
template <int BN, int ROWS, int COLUMNS>
CD_FN void store_fragments(float* out, const float (&acc)[ROWS][COLUMNS][4], int warp_m, int warp_n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp_m + i * 16 + h * 8 + lane / 4, col = warp_n + j * 8 + lane % 4 * 2;
        *(float2*)(out + stage_index<float, BN>(row, col)) = make_float2(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
      }
}

template <class T, int BM, int BN, int BK, int WM, int WN, int STAGES, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_mma_tile(const CudaGemm& t, const E& epilogue, const TilePlace& place, unsigned char* shared) {
  constexpr int kWarpsN = BN / WN, THREADS = (int)warp_tile_threads(BM, BN, WM, WN), kStage = (BM + BN) * BK * (int)sizeof(T);
  using LoaderA = MmaLoader<T, BM, BK, THREADS, A_K>;
  using LoaderB = MmaLoader<T, BN, BK, THREADS, B_K>;
  static_assert(STAGES * kStage <= gemm_mma_shared(sizeof(T), BM, BN, BK, STAGES) && LoaderA::kBytes + LoaderB::kBytes <= kStage);
  const int row0 = place.row0, col0 = place.col0, m = place.m, n = (int)t.n;
  const int k_begin = place.k_begin, k_end = place.k_end, steps = k_begin < k_end ? cdiv(k_end - k_begin, BK) : 0;
  const u32 base = shared_address(shared);
  const int warp = threadIdx.x / 32, warp_m = warp / kWarpsN * WM, warp_n = warp % kWarpsN * WN;

  LoaderA a;
  a.start(threadIdx.x, place.a, place.a_first + row0 * t.a_row, t.a_row, t.a_col, t.a_batch, m - row0, k_begin);
  LoaderB b;
  b.start(threadIdx.x, place.b, place.b_first + col0 * t.b_col, t.b_col, t.b_row, t.b_batch, n - col0, k_begin);
  MmaFragments<T, BM, BK, A_K, true> fragments_a;
  fragments_a.start(warp_m);
  MmaFragments<T, BN, BK, B_K, false> fragments_b;
  fragments_b.start(warp_n);

  float acc[WM / 16][WN / 8][4] = {};
  // Loads run STAGES - 1 steps ahead: the first turns only load.
  u32 load_stage = base, stage = base;
#pragma unroll 1
  for (int step = 1 - STAGES; step < steps; ++step) {
    if (step >= 0) {
      copy_wait<STAGES - 2>();
      __syncthreads();
    }
    if (step + STAGES - 1 < steps) {
      a.fetch(load_stage, k_end);
      b.fetch(load_stage + LoaderA::kBytes, k_end);
      load_stage = load_stage == base + (STAGES - 1) * kStage ? base : load_stage + kStage;
    }
    copy_commit();
    if (step < 0) continue;
#pragma unroll
    for (int q = 0; q < BK * (int)sizeof(T) / 32; ++q) {
      u32 fa[WM / 16][4], fb[WN / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) fragments_a.load(fa[i], stage, i, q), round_fragment<T>(fa[i]);
#pragma unroll
      for (int j = 0; j < WN / 16; ++j) fragments_b.load(fb[j], stage + LoaderA::kBytes, j, q), round_fragment<T>(fb[j]);
#pragma unroll
      for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 8; ++j) mma<T>(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
    stage = stage == base + (STAGES - 1) * kStage ? base : stage + kStage;
  }
  copy_wait<0>();
  __syncthreads();

  float* const out = (float*)shared;
  store_fragments<BN>(out, acc, warp_m, warp_n);
  finish_tile<T, BM, BN, THREADS, SPLIT>(out, place.batch, row0, col0, m, n, epilogue);
}

// Grid: x = tiles of m * tiles of n * SPLIT, z = batches (or fewer). Dynamic shared memory: gemm_mma_shared.
template <class T, int BM, int BN, int BK, int WM, int WN, int STAGES, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_mma(const CudaGemm& t, const E& epilogue) {
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  int tile_m, tile_n;
  tile_position(blockIdx.x / SPLIT, (u32)cdiv(t.m, (i64)BM), (u32)cdiv(t.n, (i64)BN), tile_m, tile_n);
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    if (batch != blockIdx.z) __syncthreads();
    gemm_mma_tile<T, BM, BN, BK, WM, WN, STAGES, A_K, B_K, SPLIT>(
        t, epilogue, tile_place<BM, BN, BK, SPLIT>(t, batch, tile_m, tile_n, (int)(blockIdx.x % SPLIT)), cd_gemm_shared);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_MMA_H_
