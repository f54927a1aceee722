// How fast a GPU reads weights one after the other where each product of one row needs the one before it: what bounds a token's step (docs/design/cuda.md).
//
//   nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -o weight_chain bench/weight_chain.cu && ./weight_chain
//
// Sixteen layers of Llama-3.2-1B's shape without attention: q, k and v (with a norm), o, gate and up (with a norm), down; 1,946 MB of bf16. Three ways:
//   launches   a kernel for each product; each starts while the one before ends, and asks for its weights before it waits for the rows
//   ring       one kernel, whose blocks meet between products; a thread copies what it reads itself, across these meetings
//   paced      one kernel; a warp copies by TMA, of which at most LIMIT stages are under way: the others wait in shared memory
// MEET = false leaves the meetings out (wrong numbers): what the reads alone take. Numbers of a run: bench/log/gpu.md.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

using u32 = unsigned;
using bf16 = __nv_bfloat16;

struct Product {
  const bf16* weights;  // [columns, k]
  const bf16* row;
  bf16* result;
  int columns, k, tile;  // tile: 8 or 16 columns
  bool norm;
};

constexpr int kSms = 132, kRowBytes = 16384;  // of an H200; of the longest row

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy_16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}
template <int N>
__device__ __forceinline__ void copies_under_way() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void multiply(float (&sum)[4], uint4 w0, uint4 w1, uint4 x) {
  const auto step = [&](u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  };
  step(w0.x, w1.x, w0.y, w1.y, x.x, x.y);
  step(w0.z, w1.z, w0.w, w1.w, x.z, x.w);
}
template <int THREADS>
__device__ __forceinline__ void meet_in_block() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ void meet(u32* counter, u32 target) {
  meet_in_block<THREADS>();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    u32 found;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
    while ((int)(found - target) < 0);
  }
  meet_in_block<THREADS>();
}

// The row, or its norm, in shared memory.
template <int WARPS>
__device__ void place_row(const Product& p, bf16* x) {
  constexpr int kThreads = WARPS * 32;
  __shared__ float parts[WARPS];
  float sum = 0;
  for (int i = threadIdx.x; i < p.k / 8; i += kThreads) {
    const uint4 v = __ldcg((const uint4*)p.row + i);
    ((uint4*)x)[i] = v;
    for (int e = 0; e < 4; ++e) {
      const float2 f = __bfloat1622float2(((const __nv_bfloat162*)&v)[e]);
      sum += f.x * f.x + f.y * f.y;
    }
  }
  if (p.norm) {
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    meet_in_block<kThreads>();
    sum = 0;
    for (int i = 0; i < WARPS; ++i) sum += parts[i];
    const float scale = rsqrtf(sum / p.k + 1e-5f);
    for (int i = threadIdx.x; i < p.k / 8; i += kThreads) {
      for (int e = 0; e < 4; ++e) {
        __nv_bfloat162& pair = ((__nv_bfloat162*)x)[4 * i + e];
        const float2 f = __bfloat1622float2(pair);
        pair = __floats2bfloat162_rn(f.x * scale, f.y * scale);
      }
    }
  }
  meet_in_block<kThreads>();
}
// The warps' sums of a tile, added in their order.
template <int WARPS>
__device__ void finish_tile(const Product& p, int tile, const float (&sum)[4], float (&parts)[WARPS][20]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane % 4 == 0) parts[warp][lane / 4] = sum[0], parts[warp][lane / 4 + 8] = sum[2];
  meet_in_block<WARPS * 32>();
  if (threadIdx.x < p.tile) {
    float total = 0;
    for (int i = 0; i < WARPS; ++i) total += parts[i][threadIdx.x];
    p.result[tile * p.tile + threadIdx.x] = __float2bfloat16(total);
  }
}

template <int WARPS, int UNROLL, int STAGES>
struct Ring {
  static constexpr int kLine = WARPS * 512, kStage = kLine * 2 * UNROLL, kTurn = WARPS * 32 * UNROLL, kBytes = kRowBytes + STAGES * kStage;
};

// Products [first, last) of the table. LAUNCHES: one of them, behind the kernel before; else all, with meetings in between (MEET).
template <int WARPS, int UNROLL, int STAGES, bool LAUNCHES, bool MEET>
__global__ void __launch_bounds__(WARPS * 32, 1) ring(const Product* table, int first, int last, u32* counter) {
  using R = Ring<WARPS, UNROLL, STAGES>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float parts[2][WARPS][20];
  if (LAUNCHES) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  unsigned char* const own_ring = shared + kRowBytes + threadIdx.x * 16;
  const u32 address = shared_address(own_ring);
  const int own = (int)threadIdx.x / 32 * 32 * UNROLL + threadIdx.x % 4 * 8, column = threadIdx.x % 32 / 4;
  int product = first, turn = 0, tile = blockIdx.x, slot = 0, which = 0;  // what is asked for next; the stage that is read next
  Product asked = table[first];
  const auto skip = [&] {
    for (; product < last && tile * asked.tile >= asked.columns; tile = blockIdx.x)
      if (++product < last) asked = table[product];
  };
  skip();
  const auto ask = [&](int to) {
    if (product < last) {
      const bf16* line = asked.weights + (long)(tile * asked.tile + column) * asked.k + own + turn * R::kTurn;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        copy_16(address + to * R::kStage + 2 * u * R::kLine, line + u * 32);
        if (asked.tile == 16) copy_16(address + to * R::kStage + (2 * u + 1) * R::kLine, line + 8l * asked.k + u * 32);
      }
      if (++turn == asked.k / R::kTurn) turn = 0, tile += gridDim.x, skip();
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int s = 0; s < STAGES - 1; ++s) ask(s);
  if (LAUNCHES) asm volatile("griddepcontrol.wait;" ::: "memory");
  for (int i = first; i < last; ++i) {
    const Product p = table[i];
    if (!LAUNCHES && MEET && i > 0) meet<WARPS * 32>(counter, i * gridDim.x);
    place_row<WARPS>(p, (bf16*)shared);
    for (int t = blockIdx.x; t * p.tile < p.columns; t += gridDim.x, which ^= 1) {
      float sum[4] = {};
      for (int n = 0; n < p.k / R::kTurn; ++n) {
        ask(slot == 0 ? STAGES - 1 : slot - 1);
        copies_under_way<STAGES - 1>();
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          const unsigned char* w = own_ring + slot * R::kStage + 2 * u * R::kLine;
          multiply(sum, *(const uint4*)w, p.tile == 16 ? *(const uint4*)(w + R::kLine) : uint4{}, *(const uint4*)((bf16*)shared + own + n * R::kTurn + u * 32));
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
      }
      finish_tile<WARPS>(p, t, sum, parts[which]);
    }
  }
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier), "r"(parity)
               : "memory");
}
template <int STAGES>
struct Place {
  int slot = 0;
  u32 parity;
  __device__ void next() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

template <int WARPS, int PIECE, int STAGES>
struct Paced {
  static constexpr int kPitch = PIECE * 2 + 64, kStage = 8 * kPitch, kSteps = PIECE / (WARPS * 32), kBytes = kRowBytes + STAGES * kStage;
};

// The copying warp: all stages in their order, at most LIMIT of them under way.
template <int WARPS, int PIECE, int STAGES, int LIMIT>
__device__ void copy_stages(const Product* table, int products, unsigned char* stages, unsigned long long* full, unsigned long long* empty) {
  using P = Paced<WARPS, PIECE, STAGES>;
  const int lane = threadIdx.x % 32;
  Place<STAGES> at{0, 1}, late{0, 0};
  int under_way = 0;
  for (int i = 0; i < products; ++i) {
    const Product p = table[i];
    for (int t = blockIdx.x; t * p.tile < p.columns; t += gridDim.x) {
      for (int k = 0; k < p.k; k += PIECE) {
        for (int half = 0; half < p.tile / 8; ++half, at.next()) {
          wait_for(shared_address(&empty[at.slot]), at.parity);
          if (under_way == LIMIT) wait_for(shared_address(&full[late.slot]), late.parity), late.next();
          else ++under_way;
          const u32 barrier = shared_address(&full[at.slot]);
          if (lane == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(16 * PIECE) : "memory");
          __syncwarp();
          if (lane < 8)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             shared_address(stages + at.slot * P::kStage + lane * P::kPitch)),
                         "l"(p.weights + (long)(t * p.tile + half * 8 + lane) * p.k + k), "n"(PIECE * 2), "r"(barrier)
                         : "memory");
        }
      }
    }
  }
}

// A stage: PIECE numbers of 8 columns, whose lines begin in different banks.
template <int WARPS, int PIECE, int STAGES, int LIMIT, bool MEET>
__global__ void __launch_bounds__(WARPS * 32 + 32, 1) paced(const Product* table, int products, u32* counter) {
  using P = Paced<WARPS, PIECE, STAGES>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float parts[2][WARPS][20];
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* const stages = shared + kRowBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[s])), "n"(WARPS) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warp == WARPS) return copy_stages<WARPS, PIECE, STAGES, LIMIT>(table, products, stages, full, empty);
  Place<STAGES> at{0, 0};
  int which = 0;
  for (int i = 0; i < products; ++i) {
    const Product p = table[i];
    if (MEET && i > 0) meet<WARPS * 32>(counter, i * gridDim.x);
    place_row<WARPS>(p, (bf16*)shared);
    for (int t = blockIdx.x; t * p.tile < p.columns; t += gridDim.x, which ^= 1) {
      float sum[4] = {};
      for (int k = 0; k < p.k; k += PIECE) {
        const unsigned char* line[2];
        int slots[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          slots[half] = at.slot, line[half] = stages + at.slot * P::kStage + lane / 4 * P::kPitch;
          if (half < p.tile / 8) wait_for(shared_address(&full[at.slot]), at.parity), at.next();
        }
#pragma unroll
        for (int u = 0; u < P::kSteps; ++u) {
          const int place = (warp * P::kSteps + u) * 32 + lane % 4 * 8;
          multiply(sum, *(const uint4*)(line[0] + place * 2), p.tile == 16 ? *(const uint4*)(line[1] + place * 2) : uint4{},
                   *(const uint4*)((bf16*)shared + k + place));
        }
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (lane == 0 && half < p.tile / 8) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[slots[half]])) : "memory");
        }
      }
      finish_tile<WARPS>(p, t, sum, parts[which]);
    }
  }
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
__global__ void fill(bf16* p, long n, u32 seed, float scale) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
    u32 h = (u32)i * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u, h ^= h >> 13;
    p[i] = __float2bfloat16(((int)(h & 0xffff) - 32768) / 32768.0f * scale);
  }
}

struct Chain {
  std::vector<Product> products;
  Product* table = nullptr;
  u32* counter = nullptr;
  bf16* hidden = nullptr;
  double bytes = 0;
  std::vector<float> wanted;  // the first way's result

  static bf16* made(long n, float scale) {
    bf16* p;
    check(cudaMalloc(&p, n * 2), "memory");
    fill<<<1024, 256>>>(p, n, (u32)n, scale);
    return p;
  }

  Chain() {
    hidden = made(2048, 1);
    bf16 *qkv = made(3072, 1), *attended = made(2048, 1), *gated = made(16384, 1);
    const auto add = [&](int columns, int k, int tile, bf16* row, bf16* result, bool norm) {
      products.push_back({made((long)columns * k, 0.03f), row, result, columns, k, tile, norm}), bytes += 2.0 * columns * k;
    };
    for (int layer = 0; layer < 16; ++layer) {
      add(3072, 2048, 8, hidden, qkv, true), add(2048, 2048, 16, qkv, attended, false);
      add(16384, 2048, 16, attended, gated, true), add(2048, 8192, 16, gated, hidden, false);
    }
    check(cudaMalloc(&table, products.size() * sizeof(Product)), "memory"), check(cudaMalloc(&counter, 4), "memory");
    check(cudaMemcpy(table, products.data(), products.size() * sizeof(Product), cudaMemcpyHostToDevice), "copy");
  }

  // Microseconds of a CUDA graph of what `launch` launches: the median of ten, the least, the most; and how far the last result is from the first way's.
  template <class F>
  void measure(const char* name, const F& launch) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t call;
    check(cudaStreamCreate(&stream), "stream"), check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), name);
    launch(stream);
    check(cudaStreamEndCapture(stream, &graph), name), check(cudaGraphInstantiate(&call, graph, 0), name);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    std::vector<float> times;
    for (int round = 0; round < 12; ++round) {
      fill<<<64, 256, 0, stream>>>(hidden, 2048, 2048, 1.0f);
      cudaEventRecord(begin, stream), check(cudaGraphLaunch(call, stream), name), cudaEventRecord(end, stream);
      check(cudaEventSynchronize(end), name);
      float ms;
      cudaEventElapsedTime(&ms, begin, end);
      if (round > 1) times.push_back(ms * 1e3f);
    }
    std::sort(times.begin(), times.end());
    std::vector<bf16> result(2048);
    check(cudaMemcpy(result.data(), hidden, 4096, cudaMemcpyDeviceToHost), name);
    double off = 0, size = 0;
    if (wanted.empty())
      for (const bf16 v : result) wanted.push_back(__bfloat162float(v));
    for (size_t i = 0; i < wanted.size(); ++i) off += std::fabs(__bfloat162float(result[i]) - wanted[i]), size += std::fabs(wanted[i]);
    std::printf("%-42s %7.1f us (%.1f to %.1f) %.2f TB/s, off by %.0e\n", name, times[5], times[0], times[9], bytes / times[5] * 1e-6, off / size);
  }

  template <int WARPS, int UNROLL, int KB, bool LAUNCHES, bool MEET = true>
  void run_ring() {
    constexpr int kStages = KB * 1024 / Ring<WARPS, UNROLL, 2>::kStage, kBytes = Ring<WARPS, UNROLL, kStages>::kBytes;
    const auto kernel = ring<WARPS, UNROLL, kStages, LAUNCHES, MEET>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "shared memory");
    char name[80];
    std::snprintf(name, sizeof name, "%s%s, %d warps, %d lines, %d KB", LAUNCHES ? "launches" : "ring", MEET ? "" : " without meetings", WARPS, UNROLL, KB);
    const int count = (int)products.size();
    measure(name, [&](cudaStream_t stream) {
      check(cudaMemsetAsync(counter, 0, 4, stream), name);
      for (int i = 0; i < (LAUNCHES ? count : 1); ++i) {
        cudaLaunchConfig_t config = {};
        config.gridDim = LAUNCHES ? std::min(kSms, products[i].columns / products[i].tile) : kSms, config.blockDim = WARPS * 32;
        config.dynamicSmemBytes = kBytes, config.stream = stream;
        cudaLaunchAttribute early = {cudaLaunchAttributeProgrammaticStreamSerialization, {}, {}};
        early.val.programmaticStreamSerializationAllowed = 1;
        config.attrs = &early, config.numAttrs = i > 0;
        check(cudaLaunchKernelEx(&config, kernel, (const Product*)table, i, LAUNCHES ? i + 1 : count, counter), name);
      }
    });
  }

  template <int WARPS, int PIECE, int STAGES, int LIMIT, bool MEET = true>
  void run_paced() {
    constexpr int kBytes = Paced<WARPS, PIECE, STAGES>::kBytes;
    const auto kernel = paced<WARPS, PIECE, STAGES, LIMIT, MEET>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "shared memory");
    char name[80];
    std::snprintf(name, sizeof name, "paced%s, %d of %d stages, %d numbers", MEET ? "" : " without meetings", LIMIT, STAGES, PIECE);
    measure(name, [&](cudaStream_t stream) {
      check(cudaMemsetAsync(counter, 0, 4, stream), name);
      kernel<<<kSms, WARPS * 32 + 32, kBytes, stream>>>(table, (int)products.size(), counter);
    });
  }
};

int main() {
  Chain chain;
  chain.run_ring<8, 2, 64, false>(), chain.run_ring<8, 2, 192, false>(), chain.run_ring<8, 2, 192, false, false>();
  chain.run_paced<8, 1024, 11, 2>(), chain.run_paced<8, 1024, 11, 3>(), chain.run_paced<8, 1024, 11, 11>(), chain.run_paced<8, 1024, 11, 4, false>();
  chain.run_ring<8, 2, 64, true>(), chain.run_ring<16, 1, 80, true>(), chain.run_ring<8, 2, 160, true>();
}
