// Reductions and scans within a warp and a block, in a fixed order: the same input gives the same bits.
#ifndef COIL_DEVICE_CUDA_REDUCE_H_
#define COIL_DEVICE_CUDA_REDUCE_H_

#include "cuda/base.h"

namespace cd {

struct Sum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) {
    return add(a, b);
  }
};
struct Product {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) {
    return mul(a, b);
  }
};
struct Maximum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) {
    return maximum(a, b);
  }
};
struct Minimum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) {
    return minimum(a, b);
  }
};

// log(exp(a) + exp(b)): of one number and -inf, the identity, that number to the last digit.
struct LogSum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) {
    const T high = maximum(a, b), low = minimum(a, b);
    return isinf(high) ? high : high + log1p(exp(low - high));
  }
};

// Whether (x, xi) goes before (a, ai): NaN is the extreme, of equals the earlier one counts.
template <class T>
CD_FN bool argmax_better(T a, i64 ai, T x, i64 xi) {
  if (isnan(a) || isnan(x)) return isnan(x) && (!isnan(a) || xi < ai);
  return x > a || (x == a && xi < ai);
}
template <class T>
CD_FN bool argmin_better(T a, i64 ai, T x, i64 xi) {
  if (isnan(a) || isnan(x)) return isnan(x) && (!isnan(a) || xi < ai);
  return x < a || (x == a && xi < ai);
}
struct Argmax {
  template <class T>
  static __device__ __forceinline__ bool better(T a, i64 ai, T x, i64 xi) {
    return argmax_better(a, ai, x, xi);
  }
};
struct Argmin {
  template <class T>
  static __device__ __forceinline__ bool better(T a, i64 ai, T x, i64 xi) {
    return argmin_better(a, ai, x, xi);
  }
};

template <class T>
CD_FN T shuffle_xor(T x, int mask) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(~0u, (i32)x, mask);
  else return __shfl_xor_sync(~0u, x, mask);
}
template <class T>
CD_FN T shuffle_up(T x, int delta) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_up_sync(~0u, (i32)x, delta);
  else return __shfl_up_sync(~0u, x, delta);
}

template <class T>
CD_FN T shuffle_from(T x, int lane) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_sync(~0u, (i32)x, lane);
  else return __shfl_sync(~0u, x, lane);
}

// Shared memory of a block's reductions: two sets, used in turn, so that one barrier a reduction is enough. `kSlots` partial results.
template <int kSlots>
struct Slots {
  u64 value[2][kSlots];
  i64 index[2][kSlots];
};
// The same for sums alone, of which no place is asked.
template <int kSlots>
struct ValueSlots {
  u64 value[2][kSlots];
};
template <class T>
CD_FN void put(u64* slot, T x) {
  *(T*)slot = x;
}
template <class T>
CD_FN T get(const u64* slot) {
  return *(const T*)slot;
}

// The largest of some values and the sum of exp(value - largest) in one pass: a running pair, rescaled when the largest grows.
// -inf, from which nothing is to be taken, counts as 0 in exp.
template <class T>
CD_FN T softmax_base(T top) {
  return top == -(T)inf32() ? (T)0 : top;
}
template <int G, int W, class T>
CD_FN void softmax_step(T& top, T& sum, const T (&x)[G][W]) {
  T now = top;
#pragma unroll
  for (int i = 0; i < G * W; ++i) now = maximum(now, x[i / W][i % W]);
  const T base = softmax_base(now);
  if (!(now == top)) sum *= exp(top - base), top = now;
#pragma unroll
  for (int i = 0; i < G * W; ++i) sum += quick_exp(x[i / W][i % W] - base);  // what is far below the largest hardly counts
}
// This thread's part of the sum, for the largest of all.
template <class T>
CD_FN T softmax_part(T top, T sum, T top_of_all) {
  return sum * exp(top - softmax_base(top_of_all));
}

// All threads of a row get the result. A row is T threads in order, T a multiple of 32; with T = 32 a block may hold several rows.
template <class Op, int T, class S, class V>
CD_FN V row_reduce(V x, S& slots, int set) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = Op::combine(x, shuffle_xor(x, mask));
  if constexpr (T > 32) {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) put(&slots.value[set][warp], x);
    __syncthreads();
    x = get<V>(&slots.value[set][0]);
#pragma unroll
    for (int i = 1; i < T / 32; ++i) x = Op::combine(x, get<V>(&slots.value[set][i]));
  }
  return x;
}
template <class Op, int T, class S, class V>
CD_FN i64 row_reduce_index(V x, i64 xi, S& slots, int set) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const V y = shuffle_xor(x, mask);
    const i64 yi = shuffle_xor(xi, mask);
    if (Op::better(x, xi, y, yi)) x = y, xi = yi;
  }
  if constexpr (T > 32) {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) put(&slots.value[set][warp], x), slots.index[set][warp] = xi;
    __syncthreads();
    x = get<V>(&slots.value[set][0]);
    xi = slots.index[set][0];
    for (int i = 1; i < T / 32; ++i) {
      const V y = get<V>(&slots.value[set][i]);
      const i64 yi = slots.index[set][i];
      if (Op::better(x, xi, y, yi)) x = y, xi = yi;
    }
  }
  return xi;
}

// The block is Y lines of X threads; the threads of a column hold parts of one result, and all of them get it.
template <class Op, int X, int Y, class S, class V>
CD_FN V column_reduce(V x, S& slots, int set) {
  put(&slots.value[set][threadIdx.x], x);
  __syncthreads();
  const int column = threadIdx.x % X;
  x = get<V>(&slots.value[set][column]);
#pragma unroll
  for (int i = 1; i < Y; ++i) x = Op::combine(x, get<V>(&slots.value[set][i * X + column]));
  return x;
}
// The same where each thread has parts of W results side by side: warps join their lines, then one thread each column's warps.
template <class Op, int X, int Y, int W, class S, class V>
CD_FN void columns_reduce(V (&x)[W], S& slots, int set) {
  constexpr int kWarps = X * Y / 32, kWide = X * W;
  static_assert(X <= 32 && X * Y % 32 == 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = lane % X * W;
#pragma unroll
  for (int v = 0; v < W; ++v) {
#pragma unroll
    for (int mask = 16; mask >= X; mask /= 2) x[v] = Op::combine(x[v], shuffle_xor(x[v], mask));
    if (lane < X) put(&slots.value[set][warp * kWide + column + v], x[v]);
  }
  __syncthreads();
  for (int c = threadIdx.x; c < kWide; c += X * Y) {
    V total = get<V>(&slots.value[set][c]);
    for (int w = 1; w < kWarps; ++w) total = Op::combine(total, get<V>(&slots.value[set][w * kWide + c]));
    put(&slots.value[set][kWarps * kWide + c], total);
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < W; ++v) x[v] = get<V>(&slots.value[set][kWarps * kWide + column + v]);
}
template <class Op, int X, int Y, class S, class V>
CD_FN i64 column_reduce_index(V x, i64 xi, S& slots, int set) {
  put(&slots.value[set][threadIdx.x], x);
  slots.index[set][threadIdx.x] = xi;
  __syncthreads();
  const int column = threadIdx.x % X;
  x = get<V>(&slots.value[set][column]);
  xi = slots.index[set][column];
  for (int i = 1; i < Y; ++i) {
    const V y = get<V>(&slots.value[set][i * X + column]);
    const i64 yi = slots.index[set][i * X + column];
    if (Op::better(x, xi, y, yi)) x = y, xi = yi;
  }
  return xi;
}

// Each lane's values of x[g][v], value (g * 32 + lane) * W + v of the warp's, become the scan of its W; returns that of the whole warp. left[g]: of what is
// left of the lane in a line, and of the lines before; lane 0 has nothing for line 0.
template <class Op, int G, int W, class V>
CD_FN V scan_lines(V (&x)[G][W], V (&left)[G]) {
  const int lane = threadIdx.x % 32;
  V total;
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int v = 1; v < W; ++v) x[g][v] = Op::combine(x[g][v - 1], x[g][v]);
    V own = x[g][W - 1];
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const V y = shuffle_up(own, delta);
      if (lane >= delta) own = Op::combine(y, own);
    }
    left[g] = shuffle_up(own, 1);
    const V line = shuffle_from(own, 31);
    if (g > 0) left[g] = lane > 0 ? Op::combine(total, left[g]) : total;
    total = g > 0 ? Op::combine(total, line) : line;
  }
  return total;
}
template <class Op, int G, int W, class V>
CD_FN void add_before(V (&x)[G][W], const V (&left)[G], V before) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const V first = g > 0 || lane > 0 ? Op::combine(before, left[g]) : before;
#pragma unroll
    for (int v = 0; v < W; ++v) x[g][v] = Op::combine(first, x[g][v]);
  }
}

// Inclusive scan over a block of T threads: in place, after `carry`, which becomes the last value's result for all. Warps follow one
// another; a warp has G lines of 32 x W values, so that it reads and writes whole lines: x[g][v] is value (g * 32 + lane) * W + v of it.
template <class Op, int T, int G, int W, class S, class V>
CD_FN void block_scan(V (&x)[G][W], V& carry, S& slots) {
  const int warp = threadIdx.x / 32;
  V left[G];
  const V total = scan_lines<Op>(x, left);
  if (threadIdx.x % 32 == 0) put(&slots.value[0][warp], total);
  __syncthreads();
  V before = carry;
#pragma unroll
  for (int i = 0; i < T / 32; ++i) {
    if (i == warp) before = carry;
    carry = Op::combine(carry, get<V>(&slots.value[0][i]));
  }
  __syncthreads();
  add_before<Op>(x, left, before);
}

// The same of each warp by itself.
template <class Op, int G, int W, class V>
CD_FN void warp_scan(V (&x)[G][W], V& carry) {
  V left[G];
  const V total = scan_lines<Op>(x, left), before = carry;
  carry = Op::combine(carry, total);
  add_before<Op>(x, left, before);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_REDUCE_H_
