// Stable sorts of rows of (value, index) pairs. A block sorts a tile, each thread kSortItems neighbours of its own, which are then merged in shared memory.
// A longer row's sorted tiles are merged in pairs, a block for each tile of the result: its share of both runs begins and ends where the "merge path"
// (Odeh, Green, Mwassi, Shmueli, Birk: "Merge Path - Parallel Merging Made Simple", 2012) crosses two diagonals, found by bisection.
// The order is that of device/sort.h: NaN is the largest value, -0.0 equals 0.0, false before true.
#ifndef COIL_DEVICE_CUDA_SORT_H_
#define COIL_DEVICE_CUDA_SORT_H_

#include "cuda/base.h"
#include "cuda/shared_memory.h"

namespace cd {

template <bool DESCENDING, class T>
CD_FN bool sorts_before(T a, T b) {
  const auto x = unpack(DESCENDING ? b : a), y = unpack(DESCENDING ? a : b);
  if constexpr (kIsFloat<reg_t<T>>) return x < y || (y != y && x == x);
  else return x < y;
}

// How many of the first `diagonal` elements of x[0, nx) and y[0, ny), merged, are x's.
template <bool DESCENDING, class T>
CD_FN int merge_path(const T* x, int nx, const T* y, int ny, int diagonal) {
  int low = diagonal > ny ? diagonal - ny : 0, high = diagonal < nx ? diagonal : nx;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (!sorts_before<DESCENDING>(y[diagonal - 1 - middle], x[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The same by a warp, whose lanes look at 32 places at once. All lanes of it get the result.
template <bool DESCENDING, class T>
CD_FN i64 merge_path_by_warp(const T* x, i64 nx, const T* y, i64 ny, i64 diagonal) {
  i64 low = diagonal > ny ? diagonal - ny : 0, high = diagonal < nx ? diagonal : nx;
  while (low < high) {
    const i64 step = (high - low + 31) / 32, i = low + threadIdx.x % 32 * step;
    const u32 others = ~__ballot_sync(~0u, i < high && !sorts_before<DESCENDING>(y[diagonal - 1 - i], x[i]));
    const int passed = others ? __ffs((int)others) - 1 : 32;
    if (passed == 0) return low;
    const i64 bound = low + passed * step;
    low = bound - step + 1;
    if (bound < high) high = bound;
  }
  return low;
}

// What a thread has in registers.
template <class T>
struct SortItems {
  T v[kSortItems];
  u32 o[kSortItems];

  // The elements from `first` on, as far as there are `count`; the last ones are copies of the largest.
  template <bool DESCENDING>
  CD_METHOD void load(const T* from_v, const u32* from_o, int first, int count) {
    const int own = count - first;
    if (own <= 0) return;
    T largest = from_v[first];
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      v[i] = largest, o[i] = 0;
      if (i >= own) continue;
      v[i] = from_v[first + i], o[i] = from_o[first + i];
      if (sorts_before<DESCENDING>(largest, v[i])) largest = v[i];
    }
  }
  CD_METHOD void store(T* to_v, u32* to_o, int first, int count) const {
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      if (first + i < count) to_v[first + i] = v[i], to_o[first + i] = o[i];
    }
  }
  // By exchanges of neighbours.
  template <bool DESCENDING>
  CD_METHOD void sort() {
#pragma unroll
    for (int round = 0; round < kSortItems; ++round) {
#pragma unroll
      for (int i = round % 2; i + 1 < kSortItems; i += 2) {
        if (!sorts_before<DESCENDING>(v[i + 1], v[i])) continue;
        const T tv = v[i];
        const u32 to = o[i];
        v[i] = v[i + 1], o[i] = o[i + 1];
        v[i + 1] = tv, o[i + 1] = to;
      }
    }
  }
  // The next elements of two sorted runs, [a, a_end) and [b, b_end), of which the first comes first among equals.
  template <bool DESCENDING>
  CD_METHOD void merge(const T* from_v, const u32* from_o, int a, int a_end, int b, int b_end) {
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      if (a >= a_end && b >= b_end) return;
      const bool second = b < b_end && (a >= a_end || sorts_before<DESCENDING>(from_v[b], from_v[a]));
      const int at = second ? b : a;
      v[i] = from_v[at], o[i] = from_o[at];
      a += !second, b += second;
    }
  }
};

// Sorts rows of n elements in shared memory, one for each TEAM threads of the block, TEAM * kSortItems elements apart. A thread's row has `count` of them, n
// or none. Of each the first `kept` are right afterwards. All threads have written v and o before a barrier, and may read them afterwards.
template <bool DESCENDING, int TEAM, class T>
CD_FN void sort_rows(T* v, u32* o, int n, int count, i64 kept) {
  constexpr int kRow = TEAM * kSortItems;
  v += threadIdx.x / TEAM * kRow, o += threadIdx.x / TEAM * kRow;
  const int first = threadIdx.x % TEAM * kSortItems;
  SortItems<T> items;
  items.template load<DESCENDING>(v, o, first, count);
  if (first < count) items.template sort<DESCENDING>();
  for (int width = kSortItems; width < kRow && width < n; width *= 2) {
    __syncthreads();
    items.store(v, o, first, count);
    __syncthreads();
    const int begin = first / (2 * width) * (2 * width), middle = begin + width, run = kept < width ? (int)kept : width;
    const int nx = minimum(run, count - begin), ny = minimum(run, count - middle), d = first - begin;
    if (first >= count || ny <= 0 || d >= nx + ny || d >= kept) continue;
    const int a = merge_path<DESCENDING>(v + begin, nx, v + middle, ny, d);
    items.template merge<DESCENDING>(v, o, begin + a, begin + nx, middle + d - a, middle + ny);
  }
  __syncthreads();
  items.store(v, o, first, count);
  __syncthreads();
}

// A pass over a row of n elements, of which the first `kept` are wanted: sorted runs of kSortTile << pass elements become half as many.
struct MergePass {
  i64 width, pairs, tiles;  // of a run; of runs; of kSortTile elements of what a pair becomes
  CD_METHOD MergePass(i64 n, i64 kept, i64 pass) {
    width = (i64)kSortTile << pass;
    pairs = (n + 2 * width - 1) / (2 * width);
    tiles = ((kept < 2 * width ? kept : 2 * width) + kSortTile - 1) / kSortTile;
  }
};

// Elements [at, at + count) of what two sorted runs become, count <= kSortTile, in shared memory. By the whole block.
template <bool DESCENDING, class T>
CD_FN void merge_tile(T* v, u32* o, const T* x, const u32* xo, i64 nx, const T* y, const u32* yo, i64 ny, i64 at, int count) {
  __shared__ i64 cut[2];
  if (threadIdx.x < 64) {
    const int end = threadIdx.x / 32;
    const i64 a = merge_path_by_warp<DESCENDING>(x, nx, y, ny, at + (end ? count : 0));
    if (threadIdx.x % 32 == 0) cut[end] = a;
  }
  __syncthreads();
  const i64 a = cut[0], b = at - a;
  const int first_run = (int)(cut[1] - a);
  for (int e = threadIdx.x; e < count; e += kSortThreads) {
    v[e] = e < first_run ? x[a + e] : y[b + e - first_run];
    o[e] = e < first_run ? xo[a + e] : yo[b + e - first_run];
  }
  __syncthreads();
  const int first = threadIdx.x * kSortItems;
  SortItems<T> items;
  if (first < count) {
    const int from = merge_path<DESCENDING>(v, first_run, v + first_run, count - first_run, first);
    items.template merge<DESCENDING>(v, o, from, first_run, first_run + first - from, count);
  }
  __syncthreads();
  items.store(v, o, first, count);
  __syncthreads();
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_SORT_H_
