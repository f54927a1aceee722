// Small real matrices, as many at a time as a vector has lanes: each lane computes one of them, by the steps that LAPACK takes for one.
//
// LAPACK's calls for a matrix of 4 rows cost more than what they compute; a batch of thousands is what graphics, filters and physics have. Where a
// choice differs between matrices (pivots, an exchange of columns), both ways are computed and each lane keeps its own. What a matrix gives does
// not depend on its neighbours.
#ifndef COIL_DEVICE_LIBRARY_LINALG_LANES_H_
#define COIL_DEVICE_LIBRARY_LINALG_LANES_H_

#include "device/library/linalg.h"

namespace linalg {

inline constexpr int64_t kSmall = 24;      // rows and columns of the largest such matrix
inline constexpr int64_t kSmallAlone = 8;  // and of one that has the other lanes for nothing

template <class R>
inline constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(R));
template <class R>
using Lanes __attribute__((vector_size(32))) = R;
// All bits set where a comparison holds; also whole numbers of as many bits.
template <class R>
using Choice = decltype(Lanes<R>{} < Lanes<R>{});

template <class R>
Choice<R> number_of_all(int64_t x) {
  return Choice<R>{} + static_cast<decltype(Choice<R>{}[0] + 0)>(x);
}
template <class R>
Lanes<R> magnitude(Lanes<R> x) {
  return __builtin_elementwise_abs(x);
}
template <class R>
Lanes<R> root(Lanes<R> x) {
  for (int64_t lane = 0; lane < kLanes<R>; ++lane)
    x[lane] = static_cast<R>(sizeof(R) == 4 ? __builtin_sqrtf(static_cast<float>(x[lane])) : __builtin_sqrt(x[lane]));
  return x;
}
template <class V>
bool any(V choice) {
  bool found = false;
  for (size_t lane = 0; lane < sizeof(V) / sizeof(choice[0]); ++lane) found |= choice[lane] != 0;
  return found;
}
template <class R>
void exchange(Choice<R> where, Lanes<R>& x, Lanes<R>& y) {
  const Lanes<R> old = x;
  x = where ? y : x;
  y = where ? old : y;
}

inline bool is_small(int64_t batch, int64_t rows, int64_t cols) {
  const int64_t most = batch < 4 ? kSmallAlone : kSmall;
  return rows >= 1 && cols >= 1 && rows <= most && cols <= most;
}

// `elements` numbers of each matrix, one matrix in each lane; `step` numbers on the next one has its own. Behind the `count`th the first one once more.
template <class R>
void gather(Lanes<R>* to, const R* from, int64_t elements, int64_t count, int64_t step) {
  R* number = reinterpret_cast<R*>(to);
  for (int64_t e = 0; e < elements; ++e) {
    for (int64_t lane = 0; lane < kLanes<R>; ++lane) *number++ = from[(lane < count ? lane : 0) * step + e];
  }
}
template <class R>
void scatter(R* to, const Lanes<R>* from, int64_t elements, int64_t count, int64_t step) {
  const R* number = reinterpret_cast<const R*>(from);
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t e = 0; e < elements; ++e) to[lane * step + e] = number[e * kLanes<R> + lane];
  }
}
// Whole numbers of the lanes, as LAPACK has them.
template <class R>
void scatter_numbers(int* to, const Choice<R>* from, int64_t elements, int64_t count) {
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t e = 0; e < elements; ++e) to[lane * elements + e] = static_cast<int>(from[e][lane]);
  }
}
template <class R>
void gather_numbers(Choice<R>* to, const int* from, int64_t elements, int64_t count) {
  for (int64_t e = 0; e < elements; ++e) {
    for (int64_t lane = 0; lane < kLanes<R>; ++lane) to[e][lane] = from[(lane < count ? lane : 0) * elements + e];
  }
}

// f(first matrix, how many) for groups of lanes.
template <class R, class F>
int32_t for_lanes(const CoilLibraryCall* call, int64_t batch, int64_t work, const F& f) {
  const int64_t groups = (batch + kLanes<R> - 1) / kLanes<R>;
  return for_batch(call, groups, work, [=](int64_t g) {
    const int64_t first = g * kLanes<R>, left = batch - first;
    return f(first, left < kLanes<R> ? left : kLanes<R>);
  });
}

template <int64_t n>
struct Size {
  constexpr operator int64_t() const { return n; }
};
// f(n) with n as a constant where it is 2, 3 or 4: short loops over what registers hold.
template <class F>
void with_size(int64_t n, const F& f) {
  switch (n) {
    case 2: return f(Size<2>());
    case 3: return f(Size<3>());
    case 4: return f(Size<4>());
    default: return f(n);
  }
}

// ---- A = P L U in place, with the pivots of each column (from 1 on) and the first that is 0.
template <class R>
inline __attribute__((always_inline)) void lu_lanes(Lanes<R>* a, int64_t m, int64_t n, Choice<R>* pivots, Choice<R>& info) {
  info = Choice<R>{};
  for (int64_t j = 0; j < (m < n ? m : n); ++j) {
    Lanes<R> best = magnitude<R>(a[j * m + j]);
    Choice<R> at = number_of_all<R>(j);
    for (int64_t i = j + 1; i < m; ++i) {
      const Lanes<R> size = magnitude<R>(a[j * m + i]);
      const Choice<R> more = size > best;
      best = more ? size : best;
      at = more ? number_of_all<R>(i) : at;
    }
    pivots[j] = at + 1;
    for (int64_t i = j + 1; i < m; ++i) {
      for (int64_t c = 0; c < n; ++c) exchange<R>(at == number_of_all<R>(i), a[c * m + j], a[c * m + i]);
    }
    const Lanes<R> pivot = a[j * m + j];
    const Choice<R> zero = pivot == 0;
    info = (zero & (info == 0)) ? number_of_all<R>(j + 1) : info;
    const Lanes<R> divisor = zero ? Lanes<R>{} + 1 : pivot;
    for (int64_t i = j + 1; i < m; ++i) {
      const Lanes<R> factor = a[j * m + i] / divisor;
      a[j * m + i] = factor;
      for (int64_t c = j + 1; c < n; ++c) a[c * m + i] -= factor * a[c * m + j];
    }
  }
}

// op(A) x = b in place of b. `lower`: which triangle A has; op: transposed or not; `unit`: ones in the diagonal.
template <class R>
inline __attribute__((always_inline)) void triangle_lanes(const Lanes<R>* a, Lanes<R>* x, int64_t n, bool lower, bool transposed, bool unit) {
  const int64_t row = transposed ? n : 1, col = transposed ? 1 : n;
  const bool forward = lower != transposed;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t j = forward ? step : n - 1 - step;
    if (!unit) x[j] /= a[j * n + j];
    for (int64_t i = forward ? j + 1 : 0; i < (forward ? n : j); ++i) x[i] -= a[i * row + j * col] * x[j];
  }
}

template <class R>
inline __attribute__((always_inline)) void exchange_rows(Lanes<R>* x, const Choice<R>* pivots, int64_t n, bool backwards) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t j = backwards ? n - 1 - step : step;
    for (int64_t i = 0; i < n; ++i) {
      if (i != j) exchange<R>(pivots[j] == number_of_all<R>(i + 1), x[j], x[i]);
    }
  }
}

template <class R>
inline __attribute__((always_inline)) void lu_solve_lanes(const Lanes<R>* lu, const Choice<R>* pivots, Lanes<R>* x, int64_t n, bool transposed) {
  if (!transposed) exchange_rows<R>(x, pivots, n, false);
  triangle_lanes<R>(lu, x, n, !transposed, transposed, !transposed);
  triangle_lanes<R>(lu, x, n, transposed, transposed, transposed);
  if (transposed) exchange_rows<R>(x, pivots, n, true);
}

// The Cholesky factor in place of the triangle that is read, zeros in the other; the order of the first minor that is not positive.
template <class R>
inline __attribute__((always_inline)) void cholesky_lanes(Lanes<R>* a, int64_t n, bool upper, Choice<R>& info) {
  const int64_t row = upper ? n : 1, col = upper ? 1 : n;
  info = Choice<R>{};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      Lanes<R> sum = a[i * row + j * col];
      for (int64_t k = 0; k < j; ++k) sum -= a[i * row + k * col] * a[j * row + k * col];
      if (i == j) {
        info = (~(sum > 0) & (info == 0)) ? number_of_all<R>(j + 1) : info;
        sum = root<R>(sum);
      } else {
        sum /= a[j * n + j];
      }
      a[i * row + j * col] = sum;
    }
    for (int64_t i = 0; i < j; ++i) a[i * row + j * col] = Lanes<R>{};
  }
}

}  // namespace linalg
#endif  // COIL_DEVICE_LIBRARY_LINALG_LANES_H_
