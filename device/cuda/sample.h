// The kernels that choose the next token of each row of logits, by the rules of cuda/sample_rules.h: the tokens are those that the runtime chooses on the CPU.
// A row is a column of blocks; the last one that is done goes on with what all have found. In order: sample_begin (which ends it where the most likely token is
// asked for), sample_select for top-k and for top-p (four passes each), sample_choose.
#ifndef COIL_DEVICE_CUDA_SAMPLE_H_
#define COIL_DEVICE_CUDA_SAMPLE_H_

#include "cuda/base.h"
#include "cuda/sample_rules.h"

namespace cd {

// Other blocks of this kernel have written it.
template <class T>
CD_FN T shared_by_blocks(const T* p) {
  return *(const volatile T*)p;
}

struct SampleChunk {
  i64 begin, end;
  CD_METHOD explicit SampleChunk(i64 vocabulary, i64 block) : begin(block * sample_chunk(vocabulary)), end(begin + sample_chunk(vocabulary)) {
    if (end > vocabulary) end = vocabulary;
  }
};

CD_FN SampleScratch& sample_scratch(const CudaSample& row) { return *(SampleScratch*)row.scratch; }
CD_FN f32* sample_logits(const CudaSample& row) { return (f32*)((SampleScratch*)row.scratch + 1); }

// Whether this block is the last one of its row. What the blocks have written before is then seen.
CD_FN bool is_last_block(SampleScratch& s) {
  __shared__ u32 last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&s.ticket, 1u) == gridDim.x - 1;
    if (last) s.ticket = 0;
    __threadfence();
  }
  __syncthreads();
  return last != 0;
}

// The sum of the values of this thread and those before it; *all: of the block's.
CD_FN u64 sum_up_to(u64 value, u64* all) {
  __shared__ u64 warps[kSampleThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u64 other = __shfl_up_sync(~0u, value, d);
    if (lane >= d) value += other;
  }
  __syncthreads();  // the former sum has been read
  if (lane == 31) warps[warp] = value;
  __syncthreads();
  u64 before = 0, sum = 0;
#pragma unroll
  for (int w = 0; w < kSampleThreads / 32; ++w) {
    if (w < warp) before += warps[w];
    sum += warps[w];
  }
  *all = sum;
  return before + value;
}

// The row has its token, or the reason why not. One thread.
CD_FN void sample_finish(const CudaSample& row, SampleScratch& s, i64 result) {
  bool halt = result < 0;
  if (result >= 0) {
    s.chosen = (u32)result;
    if (row.seen) row.seen[result / 32] |= 1u << (result % 32);
    if (row.next_token && row.token_bytes == 8) *(i64*)row.next_token = result;
    else if (row.next_token) *(i32*)row.next_token = (i32)result;
    if (row.next_place && row.place_bytes == 8) *(i64*)row.next_place = (i64)row.place;
    else if (row.next_place) *(i32*)row.next_place = (i32)row.place;
    for (int i = 0; i < row.num_stop; ++i) halt |= row.stop[i] == result;
  }
  s.halt = halt;
  s.most_likely = 0;
  *(volatile i64*)row.result = result;
}

// The logit of token i after bias, penalty and what the caller allows.
template <class M>
CD_FN f32 sample_logit(const CudaSample& row, i64 i) {
  f32 x = to_f32(((const M*)row.logits)[i]);
  if (row.bias) x = x + row.bias[i];
  if (row.seen && (row.seen[i / 32] >> (i % 32) & 1)) x = x > 0.0f ? x / row.penalty : x * row.penalty;
  return row.allowed && !row.allowed[i] ? -inf32() : x;
}

// NaN above everything, what cannot come below.
CD_FN u64 sample_key(f32 x, i64 token) {
  if (x != x) return ~(u64)0;
  const u32 order = sample_order(__float_as_uint(x));
  return order == kSampleNever ? 0 : (u64)order << 32 | (u32) ~(u32)token;
}

template <class M>
CD_FN void sample_begin(const CudaSample& row, i64 vocabulary) {
  __shared__ u64 warps[kSampleThreads / 32];
  SampleScratch& s = sample_scratch(row);
  if (!row.first && s.halt) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *(volatile i64*)row.result = kSampleHalted;
    return;
  }
  f32* logits = sample_logits(row);
  const SampleChunk chunk(vocabulary, blockIdx.x);
  u64 best = 0;
  for (i64 i = chunk.begin + threadIdx.x; i < chunk.end; i += kSampleThreads) {
    const f32 x = sample_logit<M>(row, i);
    logits[i] = x;
    const u64 key = sample_key(x, i);
    best = key > best ? key : best;
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const u64 other = __shfl_xor_sync(~0u, best, d);
    best = other > best ? other : best;
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kSampleThreads / 32; ++w) best = warps[w] > best ? warps[w] : best;
    atomicMax(&s.most_likely, best);
  }
  if (!is_last_block(s) || threadIdx.x != 0) return;
  best = shared_by_blocks(&s.most_likely);
  if (row.flag && *(const volatile i32*)row.flag) return sample_finish(row, s, kSampleFault);
  if (best == ~(u64)0) return sample_finish(row, s, kSampleNaN);
  if (best == 0) return sample_finish(row, s, kSampleNothing);
  if (row.temperature == 0.0f) return sample_finish(row, s, (i64)(u32) ~(u32)best);
  s.threshold = 0, s.ties = 0, s.halt = 0;
}

// Whether the row ended before this kernel.
CD_FN bool sample_is_over(const CudaSample& row, const SampleScratch& s) { return row.temperature == 0.0f || s.halt; }

CD_FN f32 sample_largest(const SampleScratch& s) { return __uint_as_float(sample_bits((u32)(s.most_likely >> 32))); }

// How far a logit lies below the largest, in parts of 1 / 64: most logits lie in bins of their own kind.
CD_FN u32 sample_bin(f32 x, f32 largest) {
  const f32 gap = x == largest ? 0.0f : largest - x;
  return gap < 31.96875f ? (u32)(gap * 64.0f) : kSampleBins - 1;
}

// The bin of a token in a pass: of distances in the first one, then of the digits of its order, the largest first; -1: it is in none of the bins that are left.
CD_FN i32 sample_digit(const SampleScratch& s, f32 x, f32 largest, int pass) {
  const u32 order = sample_order(__float_as_uint(x));
  if (order == kSampleNever) return -1;
  const u32 bin = sample_bin(x, largest);
  if (pass == 0) return (i32)bin;
  if (bin != s.bin) return -1;
  if (pass == 1) return (i32)(2047 - (order >> 21));
  if (pass == 2) return order >> 21 == s.prefix ? (i32)(2047 - (order >> 10 & 2047)) : -1;
  return order >> 10 == s.prefix ? (i32)(1023 - (order & 1023)) : -1;
}

// The last block's part of a pass: the bin in which what is asked for is reached, counted in tokens or in shares.
CD_FN void sample_narrow(const CudaSample& row, SampleScratch& s, bool by_share, int pass) {
  constexpr int kOwn = kSampleBins / kSampleThreads;
  u64 sums[kOwn], counts[kOwn], own_sum = 0, own_count = 0, all_sums, all_counts;
#pragma unroll
  for (int b = 0; b < kOwn; ++b) {
    const int bin = threadIdx.x * kOwn + b;
    own_sum += sums[b] = shared_by_blocks(s.sums + bin), own_count += counts[b] = shared_by_blocks(s.counts + bin);
    s.sums[bin] = 0, s.counts[bin] = 0;
  }
  u64 sum = sum_up_to(own_sum, &all_sums) - own_sum, count = sum_up_to(own_count, &all_counts) - own_count;
  u64 left = s.left, above = s.above;
  const u32 prefix = s.prefix;
  if (pass == 0) {
    left = by_share ? sample_target(row.top_k ? s.total : all_sums, row.top_p) : row.top_k;
    above = 0;
  }
  __syncthreads();  // all have read
  const u64 all = by_share ? all_sums : all_counts, before = by_share ? sum : count;
  if (left > all && threadIdx.x == 0) s.selecting = 0, s.threshold = 0, s.ties = 0, s.total = all_sums;  // only tokens are fewer than asked for
  if (!(before < left && left <= before + (by_share ? own_sum : own_count))) return;
  int b = 0;
  for (u64 reached = before; b < kOwn - 1 && reached + (by_share ? sums[b] : counts[b]) < left; ++b) {
    reached += by_share ? sums[b] : counts[b];
    sum += sums[b], count += counts[b];
  }
  const u32 bin = threadIdx.x * kOwn + b;
  left -= by_share ? sum : count;
  s.left = left, s.above = above + sum;
  if (pass == 0) s.selecting = 1, s.bin = bin;
  if (pass == 1) s.prefix = 2047 - bin;
  if (pass == 2) s.prefix = prefix << 11 | (2047 - bin);
  if (pass < 3) return;
  const u64 share = sums[b] / counts[b];  // equal logits, equal shares
  s.threshold = prefix << 10 | (1023 - bin);
  s.ties = by_share ? (left + share - 1) / share : left;
  s.total = above + sum + s.ties * share;
}

// A pass of finding the tokens that top-k or top-p leaves: all with a higher logit than a threshold, and the first ones of those that have it.
CD_FN void sample_select(const CudaSample& row, i64 vocabulary, bool by_share, int pass) {
  __shared__ u64 sums[kSampleBins];
  __shared__ u32 counts[kSampleBins];
  SampleScratch& s = sample_scratch(row);
  if (sample_is_over(row, s) || !(by_share ? row.top_p : row.top_k) || (pass > 0 && !s.selecting)) return;
  for (int b = threadIdx.x; b < kSampleBins; b += kSampleThreads) sums[b] = 0, counts[b] = 0;
  __syncthreads();
  const f32* logits = sample_logits(row);
  const f32 largest = sample_largest(s);
  const SampleChunk chunk(vocabulary, blockIdx.x);
  for (i64 i = chunk.begin + threadIdx.x; i < chunk.end; i += kSampleThreads) {
    const f32 x = logits[i];
    const i32 bin = sample_digit(s, x, largest, pass);
    if (bin < 0) continue;
    atomicAdd(counts + bin, 1u);
    atomicAdd(sums + bin, sample_share(x, largest, row.temperature));
  }
  __syncthreads();
  for (int b = threadIdx.x; b < kSampleBins; b += kSampleThreads) {
    if (!counts[b]) continue;
    atomicAdd(s.counts + b, counts[b]);
    atomicAdd(s.sums + b, sums[b]);
  }
  if (is_last_block(s)) sample_narrow(row, s, by_share, pass);
}

// A token's share where it is left to choose from; whether it is one of those at the threshold, of which the first ones are.
struct SampleShare {
  u64 share;
  bool tie;
};
CD_FN SampleShare kept_share(const CudaSample& row, const SampleScratch& s, f32 x, f32 largest) {
  const u32 order = sample_order(__float_as_uint(x));
  if (order == kSampleNever || order < s.threshold) return {0, false};
  const u64 share = sample_share(x, largest, row.temperature);
  return {share < row.min_share ? 0 : share, order == s.threshold};
}

// The last block's part of the choice: where it falls in the vocabulary.
CD_FN void sample_find(const CudaSample& row, SampleScratch& s, i64 vocabulary) {
  __shared__ u64 rest;
  __shared__ u64 ties;
  __shared__ i64 block;
  __shared__ i64 token;
  const f32* logits = sample_logits(row);
  const f32 largest = sample_largest(s);
  const bool mine = threadIdx.x < gridDim.x;
  const u64 own = mine ? shared_by_blocks(s.part_sums + threadIdx.x) : 0, equal = mine ? shared_by_blocks(s.part_ties + threadIdx.x) : 0;
  u64 all;
  const u64 equal_before = sum_up_to(equal, &all) - equal, room = s.ties > equal_before ? s.ties - equal_before : 0;
  const u64 at_threshold = s.threshold ? kept_share(row, s, __uint_as_float(sample_bits(s.threshold)), largest).share : 0;
  const u64 weight = own + (room < equal ? room : equal) * at_threshold;
  const u64 up_to = sum_up_to(weight, &all), at = sample_place(row.seed, row.place, all);
  if (up_to - weight <= at && at < up_to) block = threadIdx.x, rest = at - (up_to - weight), ties = room;
  if (threadIdx.x == 0) token = -1;
  __syncthreads();
  const SampleChunk chunk(vocabulary, block);
  u64 passed = 0, equals = 0, before;
  for (i64 tile = chunk.begin; tile < chunk.end; tile += kSampleThreads) {
    const i64 i = tile + threadIdx.x;
    SampleShare x = {0, false};
    if (i < chunk.end) x = kept_share(row, s, logits[i], largest);
    const u64 rank = equals + sum_up_to(x.tie, &before) - x.tie;
    if (x.tie && rank >= ties) x.share = 0;
    equals += before;
    const u64 end = passed + sum_up_to(x.share, &before);
    if (end - x.share <= rest && rest < end) token = i;
    passed += before;
    if (rest < passed) break;  // the same for all threads
  }
  __syncthreads();
  if (threadIdx.x == 0) sample_finish(row, s, token);
}

CD_FN void sample_choose(const CudaSample& row, i64 vocabulary) {
  SampleScratch& s = sample_scratch(row);
  if (sample_is_over(row, s)) return;
  const f32* logits = sample_logits(row);
  const f32 largest = sample_largest(s);
  const SampleChunk chunk(vocabulary, blockIdx.x);
  u64 sum = 0, ties = 0, all_sums, all_ties;
  for (i64 i = chunk.begin + threadIdx.x; i < chunk.end; i += kSampleThreads) {
    const SampleShare x = kept_share(row, s, logits[i], largest);
    sum += x.tie ? 0 : x.share;
    ties += x.tie;
  }
  sum_up_to(sum, &all_sums);
  sum_up_to(ties, &all_ties);
  if (threadIdx.x == 0) s.part_sums[blockIdx.x] = all_sums, s.part_ties[blockIdx.x] = all_ties;
  if (is_last_block(s)) sample_find(row, s, vocabulary);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_SAMPLE_H_
