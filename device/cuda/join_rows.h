// Rows joined at the rows of a table that they name, by atomic operations, in any order. Most come to the same in each: sums and products of integers, which
// wrap around, and largest and smallest elements, where a NaN stays and 0.0 is larger than -0.0. Sums and products of floating-point numbers may differ in
// the last digits.
// device/library/join_rows.cc says what the operands are.
#ifndef COIL_DEVICE_CUDA_JOIN_ROWS_H_
#define COIL_DEVICE_CUDA_JOIN_ROWS_H_

#include "cuda/base.h"
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

// Sums in order, of parts of PART rows of the matrix: blocks (part, COLUMNS columns, 256 rows of the table) write the part's own table of `rows` rows. Row k names row `place` of the
// parts' tables one after the other, in that of its part, or none. A thread owns a row of the table and looks at what all of the part's rows are for.
// count: of the matrix's rows. turned: `values` lie by columns.
template <int PART, int COLUMNS, bool TURNED, int WHOSE, class T>
CD_FN void sum_parts(T* out, const i64* places, const T* values, i64 rows, i64 columns, i64 count) {
  __shared__ __align__(16) i32 names[PART];
  __shared__ T held[WHOSE == kJoinShared ? 1 : (PART + 1) * COLUMNS];
  const i64 first = (i64)blockIdx.x * PART, column = (i64)blockIdx.y * COLUMNS;
  const int n = (int)(count - first < PART ? count - first : PART), width = (int)(columns - column < COLUMNS ? columns - column : COLUMNS);
  for (int i = threadIdx.x; i < PART; i += kJoinThreads) {
    const i64 name = i < n ? places[first + i] - (i64)blockIdx.x * rows : -1;
    names[i] = (u64)name < (u64)rows ? (i32)name : -1;
  }
  if constexpr (WHOSE != kJoinShared) {
#pragma unroll 8
    for (int j = threadIdx.x; j < PART * COLUMNS; j += kJoinThreads) {
      const int i = TURNED ? j % PART : j / COLUMNS, c = TURNED ? j / PART : j % COLUMNS;
      if (i < n) held[c * (PART + 1) + i] = c >= width ? (T)0 : values[TURNED ? (column + c) * count + first + i : (first + i) * columns + column + c];
    }
  }
  __syncthreads();
  const i64 r = (i64)blockIdx.z * kJoinThreads + threadIdx.x;
  if (r >= rows) return;
  T sums[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) sums[c] = 0;
#pragma unroll 1
  for (int i = 0; i < PART; i += 32) {  // first which of 32 rows are for this one, without waiting between
    u32 own = 0;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
      const int4 four = *(const int4*)(names + i + j);
      own |= ((u32)(four.x == (i32)r) | (u32)(four.y == (i32)r) << 1 | (u32)(four.z == (i32)r) << 2 | (u32)(four.w == (i32)r) << 3) << j;
    }
    for (; own; own &= own - 1) {
      const int at = i + __ffs((int)own) - 1;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) sums[c] += WHOSE == kJoinShared ? values[0] : held[WHOSE == kJoinShared ? 0 : c * (PART + 1) + at];
    }
  }
  T* to = out + ((i64)blockIdx.x * rows + r) * columns + column;
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    if (c < width) to[c] = sums[c];
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_JOIN_ROWS_H_
