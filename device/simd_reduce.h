// Reductions of one vector to a scalar, in a fixed tree: lane i with lane i + n/2, then n/4, ... Included by simd.h.
#ifndef COIL_DEVICE_SIMD_REDUCE_H_
#define COIL_DEVICE_SIMD_REDUCE_H_

namespace cd {

// Lane i of the result is lane i + n of x, for the n first lanes; the others are of no use.
template <int n, class V>
CD_FN V upper(V x) {
#if COIL_LANES == 16
  if constexpr (n == 8) return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1);
  if constexpr (n == 4) return __builtin_shufflevector(x, x, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if constexpr (n == 2) return __builtin_shufflevector(x, x, 2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if constexpr (n == 1) return __builtin_shufflevector(x, x, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
#else
  if constexpr (n == 4) return __builtin_shufflevector(x, x, 4, 5, 6, 7, -1, -1, -1, -1);
  if constexpr (n == 2) return __builtin_shufflevector(x, x, 2, 3, -1, -1, -1, -1, -1, -1);
  if constexpr (n == 1) return __builtin_shufflevector(x, x, 1, -1, -1, -1, -1, -1, -1, -1);
#endif
}

#if COIL_LANES == 16
#define CD_FOLD_FIRST(f, x) x = f(x, upper<8>(x));
#else
#define CD_FOLD_FIRST(f, x)
#endif
#define CD_REDUCTION(name, f) \
  template <class E>          \
  CD_FN E name(Vec<E> x) {    \
    CD_FOLD_FIRST(f, x)       \
    x = f(x, upper<4>(x));    \
    x = f(x, upper<2>(x));    \
    x = f(x, upper<1>(x));    \
    return x[0];              \
  }
CD_REDUCTION(hsum, add)
CD_REDUCTION(hprod, mul)
CD_REDUCTION(hmax, maximum)  // a NaN wins
CD_REDUCTION(hmin, minimum)
#undef CD_REDUCTION
#undef CD_FOLD_FIRST

CD_FN bool hany(maskv m) { return __builtin_reduce_or(m) != 0; }
CD_FN bool hall(maskv m) { return __builtin_reduce_and(m) != 0; }
// Of booleans, which are masks in vectors: a bool, not a lane of all ones.
CD_FN bool hmax(maskv m) { return hany(m); }
CD_FN bool hmin(maskv m) { return hall(m); }
CD_FN bool hany(bool m) { return m; }
CD_FN bool hall(bool m) { return m; }

// Does (b, ib) beat (a, ia) as maximum or minimum? NaN is the best of all; of equals the lower index. Indices: i64 or i64v.
template <class T, class I>
CD_FN auto argmax_better(T a, I ia, T b, I ib) {
  if constexpr (kIsFloat<T>) {
    auto better = logical_or(gt(b, a), logical_and(isnan(b), logical_not(isnan(a))));
    auto equal = logical_or(eq(a, b), logical_and(isnan(a), isnan(b)));
    return logical_or(better, logical_and(equal, lt(ib, ia)));
  } else {
    return logical_or(gt(b, a), logical_and(eq(a, b), lt(ib, ia)));
  }
}
template <class T, class I>
CD_FN auto argmin_better(T a, I ia, T b, I ib) {
  if constexpr (kIsFloat<T>) {
    auto better = logical_or(lt(b, a), logical_and(isnan(b), logical_not(isnan(a))));
    auto equal = logical_or(eq(a, b), logical_and(isnan(a), isnan(b)));
    return logical_or(better, logical_and(equal, lt(ib, ia)));
  } else {
    return logical_or(lt(b, a), logical_and(eq(a, b), lt(ib, ia)));
  }
}

// The index of the best lane.
template <class E>
CD_FN i64 hargmax(Vec<E> x, i64v index) {
  E best = x[0];
  i64 at = index[0];
  for (int i = 1; i < kLanes; ++i) {
    bool better = argmax_better(best, at, (E)x[i], (i64)index[i]);
    best = better ? (E)x[i] : best;
    at = better ? (i64)index[i] : at;
  }
  return at;
}
template <class E>
CD_FN i64 hargmin(Vec<E> x, i64v index) {
  E best = x[0];
  i64 at = index[0];
  for (int i = 1; i < kLanes; ++i) {
    bool better = argmin_better(best, at, (E)x[i], (i64)index[i]);
    best = better ? (E)x[i] : best;
    at = better ? (i64)index[i] : at;
  }
  return at;
}

}  // namespace cd

#endif  // COIL_DEVICE_SIMD_REDUCE_H_
