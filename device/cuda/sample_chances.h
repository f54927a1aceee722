// How likely chosen tokens were, and the most likely ones (cd::SampleChances): by the model's own logits, the same numbers as the runtime's on the CPU. Behind
// the kernels of cuda/sample.h, in order: sample_best, sample_shares. A row is a column of blocks; the last one that is done goes on with what all have found.
#ifndef COIL_DEVICE_CUDA_SAMPLE_CHANCES_H_
#define COIL_DEVICE_CUDA_SAMPLE_CHANCES_H_

#include "cuda/sample.h"

namespace cd {

// The largest value of the block's threads, in all of them.
CD_FN u64 largest_of_block(u64 value) {
  __shared__ u64 warps[kSampleThreads / 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const u64 other = __shfl_xor_sync(~0u, value, d);
    value = other > value ? other : value;
  }
  __syncthreads();  // the former one has been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSampleThreads / 32; ++w) value = warps[w] > value ? warps[w] : value;
  return value;
}

// The largest ranks of items [first, end), `count` of them, in falling order, to `to`; zeros where there are fewer. Ranks differ.
template <class Rank>
CD_FN void largest_ranks(i64 first, i64 end, int count, const Rank& rank, u64* to) {
  u64 below = ~(u64)0;
  for (int n = 0; n < count; ++n) {
    u64 best = 0;
    if (below != 0) {
      for (i64 i = first + threadIdx.x; i < end; i += kSampleThreads) {
        const u64 own = rank(i);
        if (own < below && own > best) best = own;
      }
      below = largest_of_block(best);
    }
    if (threadIdx.x == 0) to[n] = below;
  }
}

template <class M>
CD_FN u32 logit_bits(const CudaSample& row, i64 i) {
  return __float_as_uint(to_f32(((const M*)row.logits)[i]));
}

// The most likely tokens; at least one, whose logit is the largest.
template <class M>
CD_FN void sample_best(const CudaSample& row, i64 vocabulary) {
  if (!row.chances) return;
  SampleScratch& s = sample_scratch(row);
  const int count = row.num_best > 1 ? row.num_best : 1;
  const SampleChunk chunk(vocabulary, blockIdx.x);
  largest_ranks(chunk.begin, chunk.end, count, [&](i64 i) { return sample_rank(logit_bits<M>(row, i), i); }, s.tops[blockIdx.x]);
  if (!is_last_block(s)) return;
  largest_ranks(0, (i64)gridDim.x * count, count, [&](i64 i) { return shared_by_blocks(&s.tops[i / count][i % count]); }, s.best);
  if (threadIdx.x == 0) s.largest = sample_bits((u32)(s.best[0] >> 32));
}

// The shares of all tokens, and then all that is asked for.
template <class M>
CD_FN void sample_shares(const CudaSample& row, i64 vocabulary) {
  if (!row.chances) return;
  SampleScratch& s = sample_scratch(row);
  const f32 largest = __uint_as_float(s.largest);
  const SampleChunk chunk(vocabulary, blockIdx.x);
  u64 sum = 0, all;
  for (i64 i = chunk.begin + threadIdx.x; i < chunk.end; i += kSampleThreads) sum += sample_share(__uint_as_float(logit_bits<M>(row, i)), largest, 1.0f);
  sum_up_to(sum, &all);
  if (threadIdx.x == 0) atomicAdd(&s.shares, all);
  if (!is_last_block(s)) return;
  for (int i = threadIdx.x; i < row.num_best; i += kSampleThreads) *(volatile u64*)(row.chances->best + i) = s.best[i];
  if (threadIdx.x != 0) return;
  *(volatile u64*)&row.chances->total = shared_by_blocks(&s.shares);
  *(volatile u32*)&row.chances->largest = s.largest;
  *(volatile u32*)&row.chances->chosen = logit_bits<M>(row, s.chosen < vocabulary ? s.chosen : 0);
  s.shares = 0;
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_SAMPLE_CHANCES_H_
