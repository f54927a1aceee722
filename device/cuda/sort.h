// A stable sort of a row of (value, index) pairs by one block: merges of doubling length, every element finding its place by binary
// search. The order is that of device/sort.h: NaN is the largest value, -0.0 equals 0.0, false before true.
#ifndef COIL_DEVICE_CUDA_SORT_H_
#define COIL_DEVICE_CUDA_SORT_H_

#include "cuda/base.h"

namespace cd {

template <class T>
CD_FN bool sorts_before(T a, T b, bool descending) {
  const auto x = unpack(descending ? b : a), y = unpack(descending ? a : b);
  if constexpr (kIsFloat<reg_t<T>>) return x < y || (y != y && x == x);
  else return x < y;
}

// Elements of v[begin, end), sorted, that stand before x; or, with `equal`, that do not stand after it.
template <class T>
CD_FN i64 rank_in(const T* v, i64 begin, i64 end, T x, bool equal, bool descending) {
  i64 low = begin, high = end;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    const bool before = equal ? !sorts_before(x, v[middle], descending) : sorts_before(v[middle], x, descending);
    if (before) low = middle + 1;
    else high = middle;
  }
  return low - begin;
}

// Sorts values and indices of length n; v2 and o2 are as long. Whether the result is in v2 and o2 is the return value. Block-uniform.
template <class T>
CD_FN bool block_sort(T* v, i64* o, T* v2, i64* o2, i64 n, bool descending) {
  bool swapped = false;
  for (i64 width = 1; width < n; width *= 2) {
    __syncthreads();
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
      const i64 base = i / (2 * width) * (2 * width), middle = base + width < n ? base + width : n, end = base + 2 * width < n ? base + 2 * width : n;
      const T x = v[i];
      const i64 to = i < middle ? i + rank_in(v, middle, end, x, false, descending) : i - middle + base + rank_in(v, base, middle, x, true, descending);
      v2[to] = x;
      o2[to] = o[i];
    }
    T* const tv = v;
    i64* const to = o;
    v = v2, o = o2, v2 = tv, o2 = to;
    swapped = !swapped;
  }
  __syncthreads();
  return swapped;
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_SORT_H_
