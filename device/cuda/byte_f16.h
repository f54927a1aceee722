// Products of bytes with many rows by wgmma in float16 (sm_90a), for weights in short groups: there int8's tensor cores are faster than what makes floats of
// each group's sums (byte_wgmma.h).
//
// Both factors become float16 on the way to the tensor cores. A row's number is one exactly. A weight's number, less its zero point, is multiplied by its
// group's scale, which rounds to 11 bits; sums are float32 over all groups. SHIFT: scales count 2^SHIFT times, so that all factors are in float16's range, and
// results 2^-SHIFT times.
//
// The weight is wgmma's first operand, as in byte_wgmma.h, and is widened in the registers that the tensor cores read. The rows are widened by warps for that
// alone (CONVERTERS), from the stages that TMA fills to a ring of halves: 64 numbers of each row, in lines as TMA's swizzle has them. Of each 16 numbers a
// half has first those whose place is even, four apart, then the others: so the low (or high) halves of a word of 4-bit numbers, masked, are pairs as
// fragments want them, and 8-bit numbers take the same order.
#ifndef COIL_DEVICE_CUDA_BYTE_F16_H_
#define COIL_DEVICE_CUDA_BYTE_F16_H_

#include "cuda/byte_wgmma.h"

namespace cd {

#ifdef CD_HAS_WGMMA

// Pairs of float16: each operation rounds once.
CD_FN u32 subtract_pairs(u32 a, u32 b) {
  u32 r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
CD_FN u32 multiply_pairs(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
CD_FN u32 multiply_add_pairs(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// Four signed bytes as float16: those of places 0 and 2, those of 1 and 3. With 128 added they are the last bits of 1024 + 128 + the number.
CD_FN void widen_bytes(u32 bytes, u32& even, u32& odd) {
  constexpr u32 k1024 = 0x64646464u, k1152 = 0x64806480u;
  const u32 x = bytes ^ 0x80808080u;
  even = subtract_pairs(__byte_perm(x, k1024, 0x4240), k1152);
  odd = subtract_pairs(__byte_perm(x, k1024, 0x4341), k1152);
}
// Eight numbers of 4 bits, in two's complement: of the bytes' low halves, then of the high ones. With 8 added, a low one is the last bits of 1024 + 8 + the
// number, a high one those of 1024 + 16 (8 + the number).
CD_FN void widen_halves(u32 bytes, u32 (&low)[2], u32 (&high)[2]) {
  constexpr u32 kLow = 0x000f000fu, kHigh = 0x00f000f0u, k1032 = 0x64086408u, kSixteenth = 0x2c002c00u, kMinus72 = 0xd480d480u;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 x = i ? bytes >> 8 : bytes;
    low[i] = subtract_pairs((x & kLow) ^ k1032, k1032);
    high[i] = multiply_add_pairs((x & kHigh) ^ 0x64806480u, kSixteenth, kMinus72);
  }
}

// Scales and zero points as the weight's fragments want them, float16, of all columns of a tile and of the groups of a step. They lie in shared memory, in
// turns of four steps, [group][column]: those of short groups are too many for a multiplying thread to have asked for in time.
template <class KIND, int COLUMNS, int SHIFT, int THREADS>
struct F16Scales {
  static constexpr int kGroup = KIND::kGroup, kStep = 1024 / KIND::kBits, kGroups = (int)byte_f16_groups(KIND::kBits, kGroup), kOwn = COLUMNS / THREADS;
  static constexpr int kTable = kGroups * COLUMNS * 2, kTables = KIND::kHasZero ? 2 : 1, kBytes = 4 * kTables * kTable;
  static_assert(COLUMNS % THREADS == 0 && (kGroup == 16 || kGroup % 32 == 0) && kBytes == byte_f16_scales(KIND::kBits, kGroup, COLUMNS, KIND::kHasZero));
  typename KIND::Scale scale[kOwn][kGroups];
  typename KIND::Zero zero[kOwn][kGroups];

  // The group of the first number of a step.
  __device__ __forceinline__ static int first_of(int step) {
    if constexpr (kGroup < 32) return step * (kStep / kGroup);
    else return step * (kStep / 32) / (kGroup / 32);
  }
  template <class S>
  __device__ __forceinline__ static void fetch(S (&to)[kGroups], const void* table, i64 group_step, i64 line, int first, int last) {
    if constexpr (!kSame<S, NoTable>) {
      constexpr int kVector = 16 / (int)sizeof(S);
      const S* from = (const S*)table + line;
      if constexpr (kGroups % kVector == 0) {
        if (group_step == 1 && first + kGroups - 1 <= last && (u64)(from + first) % 16 == 0) {
#pragma unroll
          for (int g = 0; g < kGroups; g += kVector) {
            const uint4 v = __ldg((const uint4*)(from + first + g));
#pragma unroll
            for (int i = 0; i < kVector; ++i) to[g + i] = ((const S*)&v)[i];
          }
          return;
        }
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) to[g] = from[min(first + g, last) * group_step];  // behind the last group numbers meet zeros
    }
  }
  // By converting thread number `thread`: its columns' in a step, a whole step before they are stored.
  __device__ __forceinline__ void load(const CudaBytes& t, int step, int col0, int thread) {
    const int last = (int)t.k / kGroup - 1, first = min(first_of(step), last);
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const i64 column = min(col0 + thread + c * THREADS, (int)t.n - 1);
      fetch(scale[c], t.scale, t.scale_group, column * t.scale_col, first, last);
      fetch(zero[c], t.zero, t.zero_group, column * t.zero_col, first, last);
    }
  }
  __device__ __forceinline__ void store(u32 to, int thread) const {
    constexpr float kTimes = SHIFT < 0 ? 1.0f / (float)(1ll << -SHIFT) : (float)(1ll << SHIFT);
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const u32 at = to + (u32)((g * COLUMNS + thread + c * THREADS) * 2);
        shared_store_2(at, to_f16(table_float(scale[c][g], 1.0f) * kTimes).bits);
        if constexpr (KIND::kHasZero) shared_store_2(at + kTable, to_f16(table_float(zero[c][g], 0.0f)).bits);
      }
    }
  }
};

// Stages as ByteSteps has them, and behind them HALVES of rows in float16, each with two barriers of its own. Two warpgroups multiply: a thread has two columns
// of each 128.
template <class KIND, int COLUMNS, int ROWS, int STAGES, int HALVES, int CONVERTERS, int SHIFT>
struct ByteF16 : ByteSteps<KIND, COLUMNS, ROWS, STAGES> {
  using Steps = ByteSteps<KIND, COLUMNS, ROWS, STAGES>;
  static constexpr int kMultipliers = kByteF16Multipliers, kTiles = COLUMNS / 128, kOfStep = Steps::kStep / 64, kBytesHalf = ROWS * 128;
  using Scales = F16Scales<KIND, COLUMNS, SHIFT, CONVERTERS * 32>;
  u32 halves, tables, ready, taken;  // shared addresses
  u32 half = 0, half_phase = 0;

  __device__ __forceinline__ ByteF16(const CudaBytes& t, u32 base, u32 barriers)
      : Steps(t, base, barriers),
        halves(base + STAGES * (Steps::kBytesW + Steps::kBytesX)),
        tables(halves + HALVES * kBytesHalf),
        ready(barriers + 16 * STAGES),
        taken(ready + 8 * HALVES) {}
  __device__ __forceinline__ void init() const {
    for (int s = 0; s < STAGES; ++s) barrier_init(this->full + 8 * s, 1), barrier_init(this->empty + 8 * s, kMultipliers / 32 + CONVERTERS);
    for (int h = 0; h < HALVES; ++h) barrier_init(ready + 8 * h, CONVERTERS), barrier_init(taken + 8 * h, kMultipliers / 32);
    barrier_init_done();
  }
  __device__ __forceinline__ void advance_half() {
    if (++half == HALVES) half = 0, half_phase ^= 1;
  }

  // --- By the warps that widen rows; the first one's first lane asks for what comes.
  __device__ __forceinline__ void convert() {
    const int thread = (int)threadIdx.x - kMultipliers, warp = thread / 32, lane = thread % 32;
    Scales scales;
    if (this->steps > 0) scales.load(this->t, this->first, this->col0, thread);
#pragma unroll 1
    for (int i = 0; i < this->steps; ++i, this->advance()) {
      barrier_wait(this->full + 8 * this->stage, this->phase);
#pragma unroll 1
      for (int h = 0; h < kOfStep; ++h, advance_half()) {
        barrier_wait(taken + 8 * half, half_phase ^ 1);
        if (h == 0) {  // nobody reads those of four steps before
          scales.store(tables_of(i), thread);
          if (i + 1 < this->steps) scales.load(this->t, this->first + i + 1, this->col0, thread);
        }
        convert_half(h, warp, lane);
        async_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(ready + 8 * half);
      }
      this->release(this->stage);
      if (warp > 0 || i == 0 || i - 1 + STAGES >= this->steps) continue;
      if (lane == 0) {
        barrier_wait(this->empty + (u32)(8 * ((i - 1) % STAGES)), (u32)((i - 1) / STAGES) & 1);
        this->load(i - 1 + STAGES);
      }
      __syncwarp();
    }
  }
  // Half h of the stage: a warp takes eight rows at once, eight lanes the same 16 numbers of each.
  __device__ __forceinline__ void convert_half(int h, int warp, int lane) const {
    const u32 from = this->x + this->stage * Steps::kBytesX + (u32)(h / 2 * (ROWS * 128)), to = halves + half * kBytesHalf;
    const int piece = lane / 8;
#pragma unroll 4
    for (int r = warp * 8; r < ROWS; r += CONVERTERS * 8) {
      const u32 line = (u32)((r + lane % 8) * 128), swizzle = (u32)(lane % 8);
      float raw[4];
      u32 even[4], odd[4];
      shared_load_16(from + line + ((u32)(h % 2 * 4 + piece) ^ swizzle) * 16, raw);
#pragma unroll
      for (int w = 0; w < 4; ++w) widen_bytes(__float_as_uint(raw[w]), even[w], odd[w]);
      shared_store_16(to + line + ((u32)(piece * 2) ^ swizzle) * 16, even[0], even[1], even[2], even[3]);
      shared_store_16(to + line + ((u32)(piece * 2 + 1) ^ swizzle) * 16, odd[0], odd[1], odd[2], odd[3]);
    }
  }

  __device__ __forceinline__ u32 tables_of(int i) const { return tables + (u32)(i % 4 * (Scales::kTables * Scales::kTable)); }

  // --- By the warpgroups that multiply.
  // Pairs of a column's numbers, less the zero point, times the scale.
  __device__ __forceinline__ static u32 scaled(u32 numbers, [[maybe_unused]] u32 zero, u32 scale) {
    if constexpr (KIND::kHasZero) numbers = subtract_pairs(numbers, zero);
    return multiply_pairs(numbers, scale);
  }
  __device__ __forceinline__ static u32 pair_at(u32 address) { return (u32)shared_load_2(address) * 0x10001u; }
  // The fragments of a piece of the stage, 32 numbers along k of all columns, in two steps of 16. scales: where those of the piece's first group begin.
  __device__ __forceinline__ void widen_weight(int piece, u32 scales, u32 (&a)[kTiles][2][4]) const {
    constexpr int kNext = KIND::kGroup < 32 ? COLUMNS * 2 : 0;  // from the scales of the first 16 numbers to those of the others
    const int lane = threadIdx.x % 32;
    const u32 line = this->w + this->stage * Steps::kBytesW + threadIdx.x / 32 * (16 * 128) + (u32)(lane / 4 * 128 + lane % 4 * 4);
    const u32 own = scales + (threadIdx.x / 32 * 16 + (u32)lane / 4) * 2;
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      const int tile = i / 2, c = i % 2, column = tile * 128 + c * 8;  // columns 8 further down have the same swizzle
      const auto word = [&](int at) { return shared_load_4(line + (u32)(column * 128) + (u32)((at ^ (lane / 4)) * 16)); };
      u32 x[2][2];
      if constexpr (KIND::kBits == 4) {
        widen_halves(word(piece), x[0], x[1]);
      } else {
#pragma unroll
        for (int q = 0; q < 2; ++q) widen_bytes(word(piece * 2 + q), x[q][0], x[q][1]);
      }
      u32 scale = pair_at(own + (u32)(column * 2)), zero = 0;
      if constexpr (KIND::kHasZero) zero = pair_at(own + (u32)(column * 2 + Scales::kTable));
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        if (q == 1 && kNext > 0) {
          scale = pair_at(own + (u32)(column * 2 + kNext));
          if constexpr (KIND::kHasZero) zero = pair_at(own + (u32)(column * 2 + kNext + Scales::kTable));
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) a[tile][q][c + 2 * e] = scaled(x[q][e], zero, scale);
      }
    }
  }
  // How many groups behind the first one of step number i here a piece of it begins.
  __device__ __forceinline__ int group_of(int i, int piece) const {
    constexpr int kGroup = KIND::kGroup, kStep = Steps::kStep;
    if constexpr (kGroup % kStep == 0) return 0;
    else if constexpr (kStep % kGroup == 0) return piece * 32 / kGroup;
    else return ((this->first + i) * (kStep / 32) + piece) / (kGroup / 32) - Scales::first_of(this->first + i);
  }
  // While the products of one piece run, the fragments of the next are made.
  __device__ __forceinline__ void multiply(float (&d)[kTiles][ROWS / 2]) {
    u32 a[2][kTiles][2][4];
    u32 previous = 0;
#pragma unroll 1
    for (int i = 0; i < this->steps; ++i, this->advance()) {
      barrier_wait(this->full + 8 * this->stage, this->phase);
#pragma unroll
      for (int piece = 0; piece < Steps::kStep / 32; ++piece) {
        const int side = piece % 2;                                 // of a half
        if (side == 0) barrier_wait(ready + 8 * half, half_phase);  // a step's scales are there with its first half
        widen_weight(piece, tables_of(i) + (u32)(group_of(i, piece) * COLUMNS * 2), a[side]);
        const u64 rows = wgmma_tile(halves + half * kBytesHalf, 8192);
        wgmma_fence();
#pragma unroll
        for (int q = 0; q < 2; ++q)
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) wgmma<0>(f16{}, d[tile], a[side][tile][q], rows + (u64)(side * 4 + q * 2), (i | piece | q) != 0);
        wgmma_commit();
        if (piece == Steps::kStep / 32 - 1) this->release(this->stage);  // all lanes have their words
        wgmma_wait<1>();                                                 // the piece before is multiplied
        if (side == 0 && (i | piece) != 0) release_half(previous);
        if (side == 1) previous = half, advance_half();
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) wgmma_hold(d[tile]);
  }
  __device__ __forceinline__ void release_half(u32 which) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(taken + 8 * which);
  }
};

#endif

// Grid: x = tiles of m * tiles of n * SPLIT, clusters of SPLIT. Block: 256 + CONVERTERS * 32 threads. Dynamic shared memory: byte_f16_shared. Maps as
// byte_wgmma's. ROLES, of four converters: they leave registers to the others while products run.
template <class KIND, int COLUMNS, int ROWS, int STAGES, int HALVES, int CONVERTERS, bool ROLES, int SPLIT, int SHIFT, class E>
CD_FN void byte_f16(const CudaBytes& t, const E& epilogue) {
#ifdef CD_HAS_WGMMA
  using Products = ByteF16<KIND, COLUMNS, ROWS, STAGES, HALVES, CONVERTERS, SHIFT>;
  constexpr int kThreads = (int)byte_f16_threads(CONVERTERS), kTiles = Products::kTiles;
  constexpr int kBarriers = (int)byte_f16_shared(KIND::kBits, KIND::kGroup, COLUMNS, ROWS, STAGES, HALVES, KIND::kHasZero) - 16 * (STAGES + HALVES);
  constexpr int kAll = 168, kMore = 208, kFewer = 88;  // registers of a thread
  static_assert(!ROLES || CONVERTERS == 4);
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const u32 base = shared_address(cd_gemm_shared);
  Products products(t, base, base + kBarriers);
  const int part = (int)(blockIdx.x % SPLIT), all = cdiv((int)t.k, Products::kStep), share = cdiv(all, SPLIT);
  int tile_m, tile_n;
  tile_position(blockIdx.x / SPLIT, (u32)cdiv((int)t.m, ROWS), (u32)cdiv((int)t.n, COLUMNS), tile_m, tile_n);
  const int row0 = tile_m * ROWS, col0 = tile_n * COLUMNS;
  products.row0 = row0, products.col0 = col0, products.first = part * share, products.steps = max(0, min(all - part * share, share));
  if (threadIdx.x == Products::kMultipliers) {
    tma_prefetch(&t.map_a), tma_prefetch(&t.map_b);
    products.init();
    for (int i = 0; i < min(STAGES, products.steps); ++i) products.load(i);
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 + lane / 4;  // the first of a multiplier's columns
  float d[kTiles][ROWS / 2];
  const bool converts = threadIdx.x >= Products::kMultipliers;
  if (converts) {
    if constexpr (ROLES) registers_down<kFewer>();
    products.convert();
    if constexpr (ROLES) registers_up<kAll>();
  } else {
    if constexpr (ROLES) registers_up<kMore>();
    if (products.steps > 0) {
      products.multiply(d);
    } else {
#pragma unroll
      for (int i = 0; i < kTiles * ROWS / 2; ++i) d[i / (ROWS / 2)][i % (ROWS / 2)] = 0;  // of a part of no steps
    }
    if constexpr (ROLES) registers_down<kAll>();  // in front of the barrier: the others wait for them there
  }
  __syncthreads();  // all have read the stages
  constexpr float kTimes = SHIFT < 0 ? (float)(1ll << -SHIFT) : 1.0f / (float)(1ll << SHIFT);
  float* const out = (float*)cd_gemm_shared;
  if (!converts) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < ROWS / 2; ++i) {
        out[stage_index<float, COLUMNS>(i / 4 * 8 + lane % 4 * 2 + i % 2, own + tile * 128 + i / 2 % 2 * 8)] = d[tile][i] * kTimes;
      }
  }
  finish_tile<bf16, ROWS, COLUMNS, kThreads, SPLIT>(out, (i64)0, row0, col0, (int)t.m, (int)t.n, epilogue);
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BYTE_F16_H_
