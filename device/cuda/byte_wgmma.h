// Products of bytes with many rows on Hopper's tensor cores (sm_90a): wgmma m64nNk32 of signed bytes, whose operands TMA brings.
//
// The weight is wgmma's first operand: a warpgroup has 64 of its columns and all ROWS rows of the tile. So numbers of 4 bits become bytes in the registers
// that the tensor cores read (a lane's word of a line is its fragment, see bytes.h), a thread needs the scales of two columns alone, and few rows waste little.
//
// Sums within a group are exact. One that ends within a step has a fresh accumulator (wgmma that does not add), which becomes floats while the next group is
// multiplied: of groups of 32 and 64 the conversions take longer than the products. Sums of groups are added one after the other; parts of k (SPLIT blocks of
// a cluster) are whole groups.
#ifndef COIL_DEVICE_CUDA_BYTE_WGMMA_H_
#define COIL_DEVICE_CUDA_BYTE_WGMMA_H_

#include "cuda/bytes.h"
#include "cuda/wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

// Stages of a tile's operands in shared memory: 128 bytes of each of the weight's lines, and the numbers of a's rows that meet them, 128 of each row (a slab)
// after the other. Both lie as TMA's swizzle leaves them. The first thread also asks for them: a warp for that alone would take a quarter of the registers
// from the others.
template <class KIND, int COLUMNS, int ROWS, int STAGES>
struct ByteSteps {
  static constexpr int kStep = 1024 / KIND::kBits, kSlabs = kStep / 128, kBytesW = COLUMNS * 128, kBytesX = kSlabs * ROWS * 128;
  static_assert(kBytesW + kBytesX == byte_wgmma_stage(KIND::kBits, COLUMNS, ROWS));
  const CudaBytes& t;
  u32 w, x, full, empty;         // shared addresses
  int row0, col0, first, steps;  // of the tile
  u32 stage = 0, phase = 0;

  __device__ __forceinline__ ByteSteps(const CudaBytes& t, u32 base, u32 barriers)
      : t(t), w(base), x(base + STAGES * kBytesW), full(barriers), empty(barriers + 8 * STAGES) {}
  __device__ __forceinline__ void init() const {
    for (int s = 0; s < STAGES; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, COLUMNS / 16);
    barrier_init_done();
  }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  // By one thread: step number i of the tile's.
  __device__ __forceinline__ void load(int i) const {
    const u32 to = (u32)(i % STAGES), barrier = full + 8 * to;
    barrier_expect(barrier, kBytesW + kBytesX);
    tma_load(w + to * kBytesW, &t.map_b, barrier, (first + i) * 128, col0);
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) tma_load(x + to * kBytesX + s * (ROWS * 128), &t.map_a, barrier, (first + i) * kStep + s * 128, row0);
  }
  // By the first warp, with a number of 0 or more: once all have left step i, its stage is filled again.
  __device__ __forceinline__ void refill(int i) const {
    if (threadIdx.x >= 32 || i + STAGES >= steps) return;
    if (threadIdx.x == 0) {
      barrier_wait(empty + (u32)(8 * (i % STAGES)), (u32)(i / STAGES) & 1);
      load(i + STAGES);
    }
    __syncwarp();
  }
  // By a warp that has read a stage.
  __device__ __forceinline__ void release(u32 which) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * which);
  }
  // The 32 numbers of number q of a step: of all rows, and of the columns of this warpgroup.
  __device__ __forceinline__ u64 rows(int q) const { return wgmma_tile(x + stage * kBytesX + (u32)(q / 4 * (ROWS * 128)), 8192) + (u64)(q % 4 * 2); }
  __device__ __forceinline__ u64 columns(int q) const { return wgmma_tile(w + stage * kBytesW + threadIdx.x / 128 * 8192, 8192) + (u64)(q * 2); }
  // Those of 4 bits, 16 times as large, in registers.
  __device__ __forceinline__ void widen(int q, u32 (&a)[4]) const {
    const int lane = threadIdx.x % 32;
    const u32 line = w + stage * kBytesW + threadIdx.x / 32 * (16 * 128) + (u32)(lane / 4 * 128);  // lines 8 further down have the same swizzle
    const u32 at = line + (u32)(((q ^ (lane / 4)) * 16) + lane % 4 * 4), low = shared_load_4(at), high = shared_load_4(at + 8 * 128);
    a[0] = first_numbers(low), a[1] = first_numbers(high), a[2] = other_numbers(low), a[3] = other_numbers(high);
  }
  // The sum of those of row r.
  __device__ __forceinline__ i32 count(int q, int r, i32 sum) const {
    const u32 line = x + stage * kBytesX + (u32)(q / 4 * (ROWS * 128) + r * 128);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float raw[4];
      shared_load_16(line + (u32)(((q % 4 * 2 + h) ^ (r % 8)) * 16), raw);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum = byte_dot(__float_as_uint(raw[i]), 0x01010101u, sum);
    }
    return sum;
  }
};

// The scales and zero points of a thread's two columns in the groups that end within a step. What is asked for in one step is used in the next.
template <class KIND, int GROUPS>
struct ByteScales {
  static constexpr float kNumber = KIND::kBits == 4 ? 16.0f : 1.0f;  // what a number counts
  float scale[GROUPS][2], zero[GROUPS][2];

  __device__ __forceinline__ void load(const CudaBytes& t, int first, int col) {
    const int groups = (int)t.k / KIND::kGroup, n = (int)t.n;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int group = first + g, at = min(col + 8 * c, n - 1);
        const bool inside = group < groups;  // behind the last one sums are 0
        scale[g][c] = inside ? KIND::scale_of(t, group, at) / kNumber : 0.0f;
        if constexpr (KIND::kHasZero) zero[g][c] = inside ? KIND::zero_of(t, group, at) * kNumber : 0.0f;
      }
    }
  }
};

// A warpgroup's sums of a tile: number i of a thread is row 8 (i / 4) + 2 (lane % 4) + i % 2 of the tile, and column lane / 4 + 8 (i / 2 % 2) of its warp's 16.
template <class KIND, int COLUMNS, int ROWS, int STAGES>
struct ByteProducts : ByteSteps<KIND, COLUMNS, ROWS, STAGES> {
  using Steps = ByteSteps<KIND, COLUMNS, ROWS, STAGES>;
  static constexpr int kGroup = KIND::kGroup, kStep = Steps::kStep, kParts = kStep / 32;
  static constexpr bool kWithin = kGroup > 0 && kGroup <= kStep;      // groups end within steps
  static constexpr int kGroups = kWithin ? kStep / kGroup : 1;        // in a step
  static constexpr int kSteps = kGroup > kStep ? kGroup / kStep : 1;  // of a group
  static constexpr bool kCounts = KIND::kHasZero;                     // sums of a's numbers
  static constexpr int kOwnRows = (ROWS + 127) / 128;                 // that a thread counts
  static_assert(kGroup == 0 || (kWithin ? kStep % kGroup == 0 && kGroup % 32 == 0 : kGroup % kStep == 0));
  using Steps::Steps;

  // Multiplies a step's part number q. add: to what the sums are.
  __device__ __forceinline__ void part(i32 (&sum)[ROWS / 2], int q, u32 (&a)[4], bool add) const {
    if constexpr (KIND::kBits == 4) wgmma_bytes(sum, a, this->rows(q), add);
    else wgmma_bytes(sum, this->columns(q), this->rows(q), add);
  }

  // Counts of rows of a step: of its groups to `to` (those of another warpgroup have their own), or to `own`, if none ends.
  __device__ __forceinline__ void count_step(float* to, i32 (&own)[kOwnRows], bool ends) const {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int r = (int)threadIdx.x % 128 + i * 128;
      if (r >= ROWS) continue;
#pragma unroll
      for (int q = 0; q < kParts; ++q) {
        own[i] = this->count(q, r, own[i]);
        if constexpr (kGroup > 0) {
          if (kWithin ? (q + 1) * 32 % kGroup == 0 : q == kParts - 1 && ends)
            to[(kWithin ? (q + 1) * 32 / kGroup - 1 : 0) * ROWS + r] = (float)own[i], own[i] = 0;
        }
      }
    }
  }

  // A sum of a group as a float, exactly. Converting takes a pipe of its own that is slow: every other sum of a short group, which is less than 2^22, is put
  // into the mantissa of 1.5 * 2^23 instead.
  __device__ __forceinline__ static float as_float(i32 sum, bool in_mantissa) {
    return kGroup <= 128 && in_mantissa ? __int_as_float(sum + 0x4b400000) - 12582912.0f : (float)sum;
  }
  __device__ __forceinline__ static void add_group(i32 (&sum)[ROWS / 2], float (&value)[ROWS / 2], const float (&scale)[2], const float (&zero)[2],
                                                   [[maybe_unused]] const float* counts) {
    wgmma_hold(sum);
#pragma unroll
    for (int i = 0; i < ROWS / 2; i += 4) {
      float2 numbers = make_float2(0, 0);
      if constexpr (kCounts) numbers = *(const float2*)(counts + i * 2 + (int)threadIdx.x % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float x = as_float(sum[i + e], e % 2);
        if constexpr (kCounts) x -= (e % 2 ? numbers.y : numbers.x) * zero[e / 2];
        value[i + e] += x * scale[e / 2];
      }
    }
  }

  // A group that lies within a step: asks for its products.
  __device__ __forceinline__ void ask_group(i32 (&sum)[ROWS / 2], u32 (&a)[kGroup / 32 + 1][4], int g) const {
    constexpr int kOf = kGroup / 32;
    if constexpr (KIND::kBits == 4) {
#pragma unroll
      for (int q = 0; q < kOf; ++q) this->widen(g * kOf + q, a[q]);
    }
    wgmma_fence();
#pragma unroll
    for (int q = 0; q < kOf; ++q) part(sum, g * kOf + q, a[q], q > 0);
    wgmma_commit();
  }

  // Groups that end. counts: of this warpgroup, two steps.
  __device__ __forceinline__ void multiply_groups(float (&value)[ROWS / 2], float* counts, int col) {
    i32 sum[ROWS / 2], own[kOwnRows] = {};
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) value[i] = 0;
    ByteScales<KIND, kGroups> scales, next;
    next.load(this->t, this->first / kSteps * kGroups, col);
#pragma unroll 1
    for (int i = 0; i < this->steps; ++i, this->advance()) {
      const int in_group = i % kSteps;
      if (in_group == 0) {
        scales = next;
        next.load(this->t, ((this->first + i) / kSteps + 1) * kGroups, col);
      }
      if (i >= 2) this->refill(i - 2);  // (not the step before: the other warpgroup may still be in it)
      barrier_wait(this->full + 8 * this->stage, this->phase);
      float* const own_counts = counts + (kCounts ? i / kSteps % 2 * (kGroups * ROWS) : 0);
      const bool ends = in_group == kSteps - 1;
      if constexpr (kCounts) {
        count_step(own_counts, own, ends);
        named_sync<128>(1 + (int)threadIdx.x / 128);
      }
      if constexpr (kWithin && kGroups > 1) {  // two groups in turn: while one becomes floats, the next is multiplied
        i32 other[ROWS / 2];
        u32 a[2][kGroup / 32 + 1][4];
        ask_group(sum, a[0], 0);
#pragma unroll
        for (int g = 0; g < kGroups; g += 2) {
          ask_group(other, a[1], g + 1);
          wgmma_wait<1>();
          add_group(sum, value, scales.scale[g], scales.zero[g], own_counts + g * ROWS);
          if (g + 2 < kGroups) {
            ask_group(sum, a[0], g + 2);
            wgmma_wait<1>();
          } else {
            wgmma_wait<0>();
            this->release(this->stage);
          }
          add_group(other, value, scales.scale[g + 1], scales.zero[g + 1], own_counts + (g + 1) * ROWS);
        }
      } else {
        multiply_step(sum, in_group > 0);
        wgmma_wait<0>();
        this->release(this->stage);
        if (ends) add_group(sum, value, scales.scale[0], scales.zero[0], own_counts);
      }
    }
  }

  // All of a step.
  __device__ __forceinline__ void multiply_step(i32 (&sum)[ROWS / 2], bool add) const {
    u32 a[kParts][4];
    if constexpr (KIND::kBits == 4) {
#pragma unroll
      for (int q = 0; q < kParts; ++q) this->widen(q, a[q]);
    }
    wgmma_fence();
#pragma unroll
    for (int q = 0; q < kParts; ++q) part(sum, q, a[q], add || q > 0);
    wgmma_commit();
  }

  // One group of all. counts: the rows' sums, by the first warpgroup.
  __device__ __forceinline__ void multiply_all(i32 (&sum)[ROWS / 2], i32* counts) {
    [[maybe_unused]] i32 own[kOwnRows] = {};
    u32 previous = 0;
#pragma unroll 1
    for (int i = 0; i < this->steps; ++i, this->advance()) {
      barrier_wait(this->full + 8 * this->stage, this->phase);
      if constexpr (kCounts) {
        if (threadIdx.x < 128) count_step(nullptr, own, false);
      }
      if constexpr (KIND::kBits == 4) {  // the next step's numbers go where this one's are
        multiply_step(sum, i > 0);
        if (i) this->refill(i - 1);
        wgmma_wait<0>();
        this->release(this->stage);
      } else {
        multiply_step(sum, i > 0);
        wgmma_wait<1>();
        if (i) this->release(previous), this->refill(i - 1);
        previous = this->stage;
      }
    }
    wgmma_wait<0>();
    wgmma_hold(sum);
    if constexpr (KIND::kBits == 8) this->release(previous);
    if constexpr (kCounts) {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        const int r = (int)threadIdx.x + i * 128;
        if (threadIdx.x < 128 && r < ROWS) counts[r] = own[i];
      }
    }
  }
};

// What blocks of a cluster add up: what groups have come to, or sums of products.
template <bool GROUPS>
struct ByteStaged {
  using Type = float;
};
template <>
struct ByteStaged<false> {
  using Type = i32;
};

// The epilogue of sums of all of k, which the blocks of a cluster have added up: they are scaled here. counts: shared address of the parts' sums of a's rows.
template <class KIND, int SPLIT, class E>
struct ByteFinish {
  const CudaBytes& t;
  const E& epilogue;
  u32 counts;
  int row0;
  static constexpr int kColumns = narrow_columns<E>();

  __device__ __forceinline__ i32 numbers(int row) const {
    i32 sum = 0;
    if constexpr (KIND::kHasZero) {
      const u32 at = counts + (u32)(row - row0) * 4;
      if constexpr (SPLIT == 1) {
        sum = (i32)shared_load_4(at);
      } else {
#pragma unroll
        for (int part = 0; part < SPLIT; ++part) sum += cluster_load(cluster_address(at, part));
      }
    }
    return sum;
  }
  template <int W>
  __device__ __forceinline__ void scale(int row, int col, const i32 (&acc)[W], typename KIND::Sum (&out)[W]) const {
    const i32 all = numbers(row);
#pragma unroll
    for (int i = 0; i < W; ++i) out[i] = KIND::value(t, 0, min(col + i, (int)t.n - 1), acc[i], all);
  }
  __device__ __forceinline__ bool takes_columns() const {
    if constexpr (kColumns > 0) return epilogue.takes_columns();
    else return false;
  }
  template <int W>
  __device__ __forceinline__ void columns(i64 batch, int row, int col, const i32 (&acc)[W]) const {
    typename KIND::Sum out[W];
    scale(row, col, acc, out);
    epilogue.columns(batch, row, col, out);
  }
  template <int W>
  __device__ __forceinline__ void operator()(i64 batch, int row, int col, const i32 (&acc)[W], int count) const {
    typename KIND::Sum out[W];
    scale(row, col, acc, out);
    epilogue(batch, row, col, out, count);
  }
};

#endif

// Grid: x = tiles of m * tiles of n * SPLIT, clusters of SPLIT. Block: COLUMNS * 2 threads. Dynamic shared memory: byte_wgmma_shared. t.map_a: boxes of ROWS
// rows of 128 numbers; t.map_b: of COLUMNS lines of 128 bytes.
template <class KIND, int COLUMNS, int ROWS, int STAGES, int SPLIT, class E>
CD_FN void byte_wgmma(const CudaBytes& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Products = ByteProducts<KIND, COLUMNS, ROWS, STAGES>;
  using Staged = typename ByteStaged<(KIND::kGroup > 0)>::Type;
  constexpr int kStages = (int)byte_wgmma_stage(KIND::kBits, COLUMNS, ROWS) * STAGES, kBehind = kStages > 4 * COLUMNS * ROWS ? kStages : 4 * COLUMNS * ROWS;
  constexpr int kCounts = Products::kCounts ? (int)byte_wgmma_counts(COLUMNS, ROWS, KIND::kGroup ? Products::kGroups : 0) : 0;
  static_assert(kBehind + kCounts + 16 * STAGES <= byte_wgmma_shared(KIND::kBits, COLUMNS, ROWS, STAGES, kCounts));
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const u32 base = shared_address(cd_gemm_shared);
  Products products(t, base, base + kBehind + kCounts);
  const int part = (int)(blockIdx.x % SPLIT), all = cdiv((int)t.k, Products::kStep), share = cdiv(cdiv(all, Products::kSteps), SPLIT) * Products::kSteps;
  int tile_m, tile_n;
  tile_position(blockIdx.x / SPLIT, (u32)cdiv((int)t.m, ROWS), (u32)cdiv((int)t.n, COLUMNS), tile_m, tile_n);
  const int row0 = tile_m * ROWS, col0 = tile_n * COLUMNS;
  products.row0 = row0, products.col0 = col0, products.first = part * share, products.steps = max(0, min(all - part * share, share));
  if (threadIdx.x == 0) {
    tma_prefetch(&t.map_a), tma_prefetch(&t.map_b);
    products.init();
    for (int i = 0; i < min(STAGES, products.steps); ++i) products.load(i);
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, col = threadIdx.x / 32 * 16 + lane / 4;
  Staged d[ROWS / 2];
  if constexpr (KIND::kGroup > 0) {
    float* const counts = (float*)(cd_gemm_shared + kBehind) + (int)threadIdx.x / 128 * (2 * Products::kGroups * ROWS);
    products.multiply_groups(d, counts, col0 + col);
  } else {
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) d[i] = 0;  // of a part of no steps
    products.multiply_all(d, (i32*)(cd_gemm_shared + kBehind));
  }
  __syncthreads();  // all have read the stages
  Staged* const out = (Staged*)cd_gemm_shared;
#pragma unroll
  for (int i = 0; i < ROWS / 2; ++i) out[stage_index<Staged, COLUMNS>(i / 4 * 8 + lane % 4 * 2 + i % 2, col + i / 2 % 2 * 8)] = d[i];
  if constexpr (KIND::kGroup > 0) {
    finish_tile<bf16, ROWS, COLUMNS, COLUMNS * 2, SPLIT>(out, (i64)0, row0, col0, (int)t.m, (int)t.n, epilogue);
  } else {
    const ByteFinish<KIND, SPLIT, E> finish{t, epilogue, base + kBehind, row0};
    finish_tile<bf16, ROWS, COLUMNS, COLUMNS * 2, SPLIT>(out, (i64)0, row0, col0, (int)t.m, (int)t.n, finish);
  }
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BYTE_WGMMA_H_
