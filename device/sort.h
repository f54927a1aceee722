// Stable sort of (value, index) pairs for generated code: sort, argsort, median, unique; the first of them alone: topk, kthvalue. Rows of
// hundreds go digit by digit (radix), shorter ones by merging.
//
// Order: NaN is the largest value, all NaNs are equal; -0.0 equals 0.0; false before true. `descending` reverses the order of
// unequal values and keeps that of equal ones (ATen's stable sort). Deterministic, no recursion, no allocation; needs simd.h's
// types only. Values are in memory types: cd::bf16 and cd::f16 as they are stored.
#ifndef COIL_DEVICE_SORT_H_
#define COIL_DEVICE_SORT_H_

#include "simd.h"

namespace cd {
namespace sorting {

// A key that compares as the order above, in plain < of integers or floats. NaN needs care only for float and double.
CD_FN f32 key(bf16 x) { return to_f32(x); }
CD_FN f32 key(f16 x) { return to_f32(x); }
template <class T>
CD_FN T key(T x) {
  return x;
}

template <class T>
CD_FN bool less(T a, T b) {
  const auto x = key(a), y = key(b);
  using K = __remove_const(decltype(x));
  if constexpr (__is_same(K, f32) || __is_same(K, f64)) return x < y || (y != y && x == x);
  else return x < y;
}

// Whether b must stand before a, where a came first.
template <class T>
CD_FN bool out_of_order(T a, T b, bool descending) {
  return descending ? less(a, b) : less(b, a);
}

inline constexpr i64 kRun = 16;  // rows of this length are sorted by insertion: quicker than merging

template <class T>
CD_FN void insertion_sort(T* v, i64* o, i64 n, bool descending) {
  for (i64 i = 1; i < n; ++i) {
    const T x = v[i];
    const i64 ox = o[i];
    i64 j = i;
    for (; j > 0 && out_of_order(v[j - 1], x, descending); --j) {
      v[j] = v[j - 1];
      o[j] = o[j - 1];
    }
    v[j] = x;
    o[j] = ox;
  }
}

// [0, middle) and [middle, n) of `v`, both sorted, merged into `to`.
template <class T>
CD_FN void merge(const T* v, const i64* o, T* to_v, i64* to_o, i64 middle, i64 n, bool descending) {
  i64 a = 0, b = middle;
  for (i64 k = 0; k < n; ++k) {
    const bool second = a == middle || (b < n && out_of_order(v[a], v[b], descending));
    const i64 from = second ? b++ : a++;
    to_v[k] = v[from];
    to_o[k] = o[from];
  }
}

// Where pairs are, and where a pass writes them.
template <class T>
struct Passes {
  T* v;
  i64* o;
  T* to_v;
  i64* to_o;
};

template <class T>
CD_FN void next_pass(Passes<T>& at) {
  at = {at.to_v, at.to_o, at.v, at.o};
}
template <class T>
CD_FN void copy_to(T* values, i64* indices, const Passes<T>& at, i64 n) {
  if (at.v == values) return;
  for (i64 i = 0; i < n; ++i) {
    values[i] = at.v[i];
    indices[i] = at.o[i];
  }
}

// A number whose plain order is that of the values: equal ones (zeros, NaNs) have the same.
template <class T>
CD_FN auto ordinal(T x, bool descending) {
  using U = __make_unsigned(Int<T>);
  constexpr U sign = static_cast<U>(U{1} << (8 * sizeof(T) - 1)), all = static_cast<U>(~U{0});
  U bits;
  if constexpr (__is_same(T, bool)) {
    bits = x;
  } else if constexpr (__is_same(T, f32) || __is_same(T, f64) || __is_same(T, bf16) || __is_same(T, f16)) {
    __builtin_memcpy(&bits, &x, sizeof(T));
    constexpr U infinity = static_cast<U>(__is_same(T, f64)    ? 0x7ff0000000000000ul
                                          : __is_same(T, f32)  ? 0x7f800000ul
                                          : __is_same(T, bf16) ? 0x7f80ul
                                                               : 0x7c00ul);
    const U size = static_cast<U>(bits & ~sign);
    const U negative = static_cast<U>(bits >> (8 * sizeof(T) - 1) & static_cast<U>(size != 0));  // signs are as good as random: no branch
    bits = size > infinity ? all : static_cast<U>((size | sign) ^ static_cast<U>(U{0} - negative));
  } else {
    bits = static_cast<U>(static_cast<U>(x) ^ (static_cast<T>(-1) < T{0} ? sign : U{0}));
  }
  return static_cast<U>(descending ? ~bits : bits);
}

// By one byte of the ordinals after the other, the lowest first; a byte that all have in common takes no pass. n < 2^32.
template <class T>
static inline void radix_sort(T* values, i64* indices, T* tmp_v, i64* tmp_i, i64 n, bool descending) {
  u32 counts[sizeof(T)][256] = {};
  for (i64 i = 0; i < n; ++i) {
    const auto bits = ordinal(values[i], descending);
    for (unsigned d = 0; d < sizeof(T); ++d) ++counts[d][bits >> (8 * d) & 255];
  }
  Passes<T> at{values, indices, tmp_v, tmp_i};
  for (unsigned d = 0; d < sizeof(T); ++d) {
    u32* const place = counts[d];
    if (place[ordinal(values[0], descending) >> (8 * d) & 255] == n) continue;
    u32 before = 0;
    for (int b = 0; b < 256; ++b) {
      const u32 count = place[b];
      place[b] = before;
      before += count;
    }
    for (i64 i = 0; i < n; ++i) {
      const T x = at.v[i];
      const u32 to = place[ordinal(x, descending) >> (8 * d) & 255]++;
      at.to_v[to] = x;
      at.to_o[to] = at.o[i];
    }
    next_pass(at);
  }
  copy_to(values, indices, at, n);
}

// Rows from this length on are radix sorted: the more bytes, the more passes.
template <class T>
inline constexpr i64 kRadix = 24 * static_cast<i64>(sizeof(T));

}  // namespace sorting

// Sorts values[0, n) and carries indices[0, n) along (the caller numbers them). tmp_v and tmp_i are scratch of n elements each;
// contents undefined afterwards. T: any memory type.
template <class T>
static inline void stable_sort(T* values, i64* indices, T* tmp_v, i64* tmp_i, i64 n, bool descending) {
  if (n >= sorting::kRadix<T> && n >> 32 == 0) return sorting::radix_sort(values, indices, tmp_v, tmp_i, n, descending);
  for (i64 begin = 0; begin < n; begin += sorting::kRun) {
    const i64 length = n - begin < sorting::kRun ? n - begin : sorting::kRun;
    sorting::insertion_sort(values + begin, indices + begin, length, descending);
  }
  sorting::Passes<T> at{values, indices, tmp_v, tmp_i};
  for (i64 width = sorting::kRun; width < n; width *= 2) {
    for (i64 begin = 0; begin < n; begin += 2 * width) {
      const i64 length = n - begin < 2 * width ? n - begin : 2 * width, middle = length < width ? length : width;
      sorting::merge(at.v + begin, at.o + begin, at.to_v + begin, at.to_o + begin, middle, length, descending);
    }
    sorting::next_pass(at);
  }
  sorting::copy_to(values, indices, at, n);
}

namespace sorting {

// Whether any of v[0, kRun) must stand before `last`.
template <class T>
CD_FN bool any_before(const T* v, T last, bool descending) {
  int found = 0;
  for (i64 i = 0; i < kRun; ++i) found |= out_of_order(last, v[i], descending);
  return found != 0;
}

}  // namespace sorting

namespace sorting {

inline constexpr i64 kKeptInOrder = 32;  // as many are held in order while a row is looked through: a candidate moves half of them at most

// Fills tmp with the first `kept` of all.
template <class T>
static inline void keep_first(const T* values, const i64* indices, T* tmp_v, i64* tmp_i, i64 n, i64 kept, bool descending) {
  i64 count = 0;
  const auto take = [&](i64 i) {
    const T x = values[i];
    if (count == kept && !out_of_order(tmp_v[kept - 1], x, descending)) return;
    i64 j = count < kept ? count++ : kept - 1;
    for (; j > 0 && out_of_order(tmp_v[j - 1], x, descending); --j) {
      tmp_v[j] = tmp_v[j - 1];
      tmp_i[j] = tmp_i[j - 1];
    }
    tmp_v[j] = x;
    tmp_i[j] = indices[i];
  };
  i64 i = 0;
  for (; i + kRun <= n; i += kRun) {
    if (count == kept && !any_before(values + i, tmp_v[kept - 1], descending)) continue;
    for (i64 k = 0; k < kRun; ++k) take(i + k);
  }
  for (; i < n; ++i) take(i);
}

}  // namespace sorting

// stable_sort of which only the first `kept` of n are wanted; the other elements' contents are undefined. Few of many are found in one pass:
// candidates gather in tmp, and each time that twice as many are there the first `kept` of them stay, the last of which others have to beat.
template <class T>
static inline void sort_first(T* values, i64* indices, T* tmp_v, i64* tmp_i, i64 n, i64 kept, bool descending) {
  const i64 room = 2 * kept > 4 * sorting::kRun ? 2 * kept : 4 * sorting::kRun;
  if (kept >= 1 && kept <= sorting::kKeptInOrder && kept <= n / 4) {
    sorting::keep_first(values, indices, tmp_v, tmp_i, n, kept, descending);
    for (i64 k = 0; k < kept; ++k) {
      values[k] = tmp_v[k];
      indices[k] = tmp_i[k];
    }
    return;
  }
  if (kept < 1 || room > n / 4) return stable_sort(values, indices, tmp_v, tmp_i, n, descending);
  i64 count = 0;
  bool full = false;  // tmp[kept - 1] is to be beaten
  const auto take = [&](i64 i) {
    if (full && !sorting::out_of_order(tmp_v[kept - 1], values[i], descending)) return;
    tmp_v[count] = values[i];
    tmp_i[count++] = indices[i];
    if (count < room) return;
    stable_sort(tmp_v, tmp_i, values, indices, count, descending);  // over what was read already
    count = kept;
    full = true;
  };
  i64 i = 0;
  for (; i + sorting::kRun <= n; i += sorting::kRun) {
    if (full && !sorting::any_before(values + i, tmp_v[kept - 1], descending)) continue;
    for (i64 k = 0; k < sorting::kRun; ++k) take(i + k);
  }
  for (; i < n; ++i) take(i);
  stable_sort(tmp_v, tmp_i, values, indices, count, descending);
  for (i64 k = 0; k < kept; ++k) {
    values[k] = tmp_v[k];
    indices[k] = tmp_i[k];
  }
}

}  // namespace cd
#endif  // COIL_DEVICE_SORT_H_
