// Rows joined at the rows of a table that they name, by atomic operations, in any order. Most come to the same in each: sums and products of integers, which
// wrap around, and largest and smallest elements, where a NaN stays and 0.0 is larger than -0.0. Sums and products of floating-point numbers may differ in
// the last digits.
// device/library/join_rows.cc says what the operands are.
#ifndef COIL_DEVICE_CUDA_JOIN_ROWS_H_
#define COIL_DEVICE_CUDA_JOIN_ROWS_H_

#include "cuda/base.h"
#include "cuda/join_rules.h"
#include "cuda/shared_memory.h"

namespace cd {

template <class T>
CD_FN T canonical_nan() {
  if constexpr (kIsF64<T>) return __longlong_as_double(0x7ff8000000000000);
  else return __uint_as_float(0x7fc00000u);
}

template <int HOW, class T>
CD_FN T joined(T a, T b) {
  if constexpr (HOW == kJoinSum) return add(a, b);
  else if constexpr (HOW == kJoinProduct) return mul(a, b);
  else if constexpr (kIsFloat<T>) {
    if (a != a || b != b) return canonical_nan<T>();
    if (a == b) return (copysign((T)1, a) > 0) == (HOW == kJoinLargest) ? a : b;
  }
  return (a > b) == (HOW == kJoinLargest) ? a : b;
}

template <int BYTES>
struct AtomicWord {
  using type = u32;
};
template <>
struct AtomicWord<8> {
  using type = unsigned long long;
};

template <int HOW, class T>
CD_FN void join_at(T* to, T value) {
  using Word = typename AtomicWord<sizeof(T)>::type;
  if constexpr (HOW == kJoinSum) {
    if constexpr (kIsFloat<T>) atomicAdd(to, value);
    else atomicAdd((Word*)to, (Word)value);
    return;
  } else if constexpr (!kIsFloat<T> && HOW != kJoinProduct) {
    if (HOW == kJoinLargest) atomicMax(to, value);
    else atomicMin(to, value);
    return;
  } else {
    union Bits {
      T value;
      Word word;
    } old, next;
    old.word = *(volatile Word*)to;
    while (true) {
      next.value = joined<HOW>(old.value, value);
      if (next.word == old.word) return;
      const Word found = atomicCAS((Word*)to, old.word, next.word);
      if (found == old.word) return;
      old.word = found;
    }
  }
}

// What the table holds at first: `before`, or its only element everywhere.
template <class T>
CD_FN void begin_table(T* out, const T* before, bool whole, i64 total) {
  const i64 first = (i64)blockIdx.x * kJoinBlock + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kJoinItems; ++j) {
    const i64 i = first + j * kJoinThreads;
    if (i < total) out[i] = before[whole ? i : 0];
  }
}

// What row k brings: its own elements, one for all rows, or a coordinate of its number.
struct Coordinate {
  i64 step, extent;
};
template <int WHOSE, class T>
CD_FN T join_value(const T* values, i64 i, i64 k, const Coordinate& number) {
  if constexpr (WHOSE == kJoinOwn) return values[i];
  else if constexpr (WHOSE == kJoinShared) return values[0];
  else return (T)(k / number.step % number.extent);
}

template <int HOW, int WHOSE, class T>
CD_FN void join_rows(T* out, const i64* places, const T* values, i64 rows, i64 columns, i64 total, Coordinate number) {
  const i64 first = (i64)blockIdx.x * kJoinBlock + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kJoinItems; ++j) {
    const i64 i = first + j * kJoinThreads;
    if (i >= total) return;
    const i64 k = columns == 1 ? i : total >> 32 ? i / columns : (i64)((u32)i / (u32)columns), place = places[k];
    if ((u64)place < (u64)rows) join_at<HOW>(out + place * columns + (i - k * columns), join_value<WHOSE>(values, i, k, number));
  }
}

// Each row brings the same integer to a table of few rows and one column: a block counts its rows in shared memory first.
template <class T>
CD_FN void count_rows(T* out, const i64* places, const T* value, i64 rows, i64 total) {
  __shared__ u32 counts[kJoinCounts];
  for (int r = threadIdx.x; r < (int)rows; r += kJoinThreads) counts[r] = 0;
  __syncthreads();
  const i64 step = (i64)gridDim.x * kJoinThreads;
  for (i64 i = (i64)blockIdx.x * kJoinThreads + threadIdx.x; i < total; i += step) {
    const i64 place = places[i];
    if ((u64)place < (u64)rows) atomicAdd(counts + place, 1u);
  }
  __syncthreads();
  for (int r = threadIdx.x; r < (int)rows; r += kJoinThreads) {
    if (counts[r]) join_at<kJoinSum>(out + r, mul((T)counts[r], value[0]));
  }
}

// Sums in order, of parts of PART rows of the matrix: blocks (part, COLUMNS columns) write the part's own table of `rows` rows. Row k names row `place` of the
// parts' tables one after the other, in that of its part, or none. The table is in shared memory. A warp adds a column, 32 rows at once, those that are for
// the same row of the table one after the other; with few columns GROUPS of warps have tables of their own, for a share of the part each.
// count: of the matrix's rows. turned: `values` lie by columns.
template <int PART, int COLUMNS, int GROUPS, bool TURNED, int WHOSE, class T>
CD_FN void sum_parts(T* out, const i64* places, const T* values, i64 rows, i64 columns, i64 count) {
  constexpr int kWarps = kJoinThreads / 32, kShare = PART / GROUPS, kTurn = kShare / 32 < 8 ? kShare / 32 : 8;
  static_assert(kShare % 32 == 0 && kShare / 32 % kTurn == 0 && COLUMNS * GROUPS <= (COLUMNS > kWarps ? COLUMNS : kWarps));
  __shared__ __align__(16) i32 names[PART];
  __shared__ u8 ranks[PART];  // how many before it, of the same 32, are for the same
  __shared__ T table[kPartBytes / sizeof(T)];
  const i64 first = (i64)blockIdx.x * PART, column = (i64)blockIdx.y * COLUMNS;
  const int n = (int)(count - first < PART ? count - first : PART), width = (int)(columns - column < COLUMNS ? columns - column : COLUMNS);
  const int lane = threadIdx.x % 32, size = (int)rows * COLUMNS;
  for (int i = threadIdx.x; i < PART; i += kJoinThreads) {
    const i64 name = i < n ? places[first + i] - (i64)blockIdx.x * rows : -1;
    names[i] = (u64)name < (u64)rows ? (i32)name : -1;
  }
  for (int i = threadIdx.x; i < size * GROUPS; i += kJoinThreads) table[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < PART; i += kJoinThreads) {
    const i32 own = names[i];
    int rank = 0;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      const int4 four = *(const int4*)(names + i / 32 * 32 + j);
      rank += (j < lane && four.x == own) + (j + 1 < lane && four.y == own) + (j + 2 < lane && four.z == own) + (j + 3 < lane && four.w == own);
    }
    ranks[i] = (u8)rank;
  }
  __syncthreads();
  for (int task = threadIdx.x / 32; task < COLUMNS * GROUPS; task += kWarps) {
    const int c = task % COLUMNS, group = task / COLUMNS;
    if (c >= width) continue;
    T* mine = table + group * size + c * (int)rows;
    for (int begin = group * kShare; begin < (group + 1) * kShare; begin += 32 * kTurn) {
      T turn[kTurn];  // all loads before the first sum
#pragma unroll
      for (int l = 0; l < kTurn; ++l) {
        const int i = begin + l * 32 + lane;
        if constexpr (WHOSE == kJoinShared) turn[l] = values[0];
        else turn[l] = i < n ? values[TURNED ? (column + c) * count + first + i : (first + i) * columns + column + c] : (T)0;
      }
#pragma unroll
      for (int l = 0; l < kTurn; ++l) {
        const i32 name = names[begin + l * 32 + lane];
        const int rank = name < 0 ? -1 : ranks[begin + l * 32 + lane];
        for (int now = 0; __ballot_sync(0xffffffffu, rank >= now); ++now) {
          if (rank == now) mine[name] += turn[l];
          __syncwarp();
        }
      }
    }
  }
  __syncthreads();
  T* to = out + (i64)blockIdx.x * rows * columns + column;
  for (int i = threadIdx.x; i < (int)rows * width; i += kJoinThreads) {
    const int r = i / width, c = i - r * width;
    T sum = table[c * (int)rows + r];
    for (int group = 1; group < GROUPS; ++group) sum += table[group * size + c * (int)rows + r];
    to[r * columns + c] = sum;
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_JOIN_ROWS_H_
