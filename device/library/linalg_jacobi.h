// Eigenvalues and singular values of small real matrices by Jacobi's rotations, a matrix in each lane (linalg_lanes.h).
//
// Rotations of two rows or columns at a time make all pairs orthogonal; a few sweeps over the pairs are enough, and what comes of it is at least as
// exact as by LAPACK's way. Matrices whose squares would overflow or vanish, that hold what is no finite number, or that have no full set of
// singular vectors to divide by are left to LAPACK: `left` says which.
#ifndef COIL_DEVICE_LIBRARY_LINALG_JACOBI_H_
#define COIL_DEVICE_LIBRARY_LINALG_JACOBI_H_

#include "device/library/linalg_lanes.h"

namespace linalg {

inline constexpr int kSweeps = 16;  // five or six are usual

template <class R>
inline constexpr R kEpsilon = sizeof(R) == 4 ? R(6e-8) : R(1.1e-16);
// Numbers between whose squares' products are numbers too.
template <class R>
inline constexpr R kLargest = sizeof(R) == 4 ? R(1e8) : R(1e70);
template <class R>
inline constexpr R kLeast = sizeof(R) == 4 ? R(1e-8) : R(1e-70);

// Which matrices are to be left alone: their largest element is out of range, or none is a number.
template <class R>
Choice<R> out_of_range(const Lanes<R>* a, int64_t elements) {
  Lanes<R> most{}, sum{};
  for (int64_t e = 0; e < elements; ++e) {
    const Lanes<R> size = magnitude<R>(a[e]);
    most = size > most ? size : most;
    sum += a[e] - a[e];  // NaN of what is not finite
  }
  return ~(sum == 0) | (most > kLargest<R>) | ((most < kLeast<R>)&(most > 0));
}

// cosine and sine of the rotation that makes [[p, g], [g, q]] diagonal; none where `skip`.
template <class R>
struct Rotation {
  Lanes<R> c, s, t;
  Rotation(Lanes<R> p, Lanes<R> q, Lanes<R> g, Choice<R> skip) {
    const Lanes<R> one = Lanes<R>{} + 1, zero{};
    const Lanes<R> ratio = (q - p) / (skip ? one : 2 * g), size = magnitude<R>(ratio);
    const Lanes<R> tangent = one / (size + root<R>(size * size + 1));
    t = skip ? zero : (ratio < 0 ? -tangent : tangent);
    c = one / root<R>(t * t + 1);
    s = t * c;
  }
  void turn(Lanes<R>& x, Lanes<R>& y) const {
    const Lanes<R> old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  }
};

// Orders columns by `values`: ascending, or descending. Column j of a matrix of `rows` rows begins at a + j * rows.
template <class R>
inline __attribute__((always_inline)) void sort_columns(Lanes<R>* values, int64_t n, bool descending, Lanes<R>* a, int64_t rows, Lanes<R>* b,
                                                        int64_t more_rows) {
  for (int64_t round = 0; round < n; ++round) {
    for (int64_t j = round & 1; j + 1 < n; j += 2) {
      const Choice<R> wrong = descending ? values[j] < values[j + 1] : values[j] > values[j + 1];
      exchange<R>(wrong, values[j], values[j + 1]);
      for (int64_t i = 0; a && i < rows; ++i) exchange<R>(wrong, a[j * rows + i], a[(j + 1) * rows + i]);
      for (int64_t i = 0; b && i < more_rows; ++i) exchange<R>(wrong, b[j * more_rows + i], b[(j + 1) * more_rows + i]);
    }
  }
}

// The symmetric matrix `a` (both triangles filled) becomes diagonal; `values` ascend, `v` has the vectors in its columns. Gives the matrices that did not
// come to rest.
template <class R>
inline __attribute__((always_inline)) Choice<R> eigh_lanes(Lanes<R>* a, Lanes<R>* v, Lanes<R>* values, int64_t n) {
  for (int64_t e = 0; e < n * n; ++e) v[e] = Lanes<R>{} + static_cast<R>(e % n == e / n);
  Choice<R> moving = number_of_all<R>(-1);
  for (int sweep = 0; sweep < kSweeps && any(moving); ++sweep) {
    moving = Choice<R>{};
    for (int64_t p = 0; p + 1 < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const Lanes<R> x = a[p * n + p], y = a[q * n + q], g = a[q * n + p];
        // Beside both of its diagonal elements it is nothing; those of a singular matrix are nothing themselves, so it is compared with their sum.
        const Choice<R> skip = magnitude<R>(g) <= (magnitude<R>(x) + magnitude<R>(y)) * (kEpsilon<R> / 8);
        moving |= ~skip;
        const Rotation<R> r(x, y, g, skip);
        a[p * n + p] = x - r.t * g;
        a[q * n + q] = y + r.t * g;
        a[q * n + p] = a[p * n + q] = Lanes<R>{};
        for (int64_t i = 0; i < n; ++i) {
          r.turn(v[p * n + i], v[q * n + i]);
          if (i == p || i == q) continue;
          r.turn(a[p * n + i], a[q * n + i]);
          a[i * n + p] = a[p * n + i];
          a[i * n + q] = a[q * n + i];
        }
      }
    }
  }
  for (int64_t j = 0; j < n; ++j) values[j] = a[j * n + j];
  sort_columns<R>(values, n, false, v, n, nullptr, 0);
  return moving;
}

// A [m >= n columns of] = U S V^T: `a` becomes U, `v` V, `values` S, descending. Gives the matrices that did not come to rest, or whose columns are not
// independent.
template <class R>
inline __attribute__((always_inline)) Choice<R> svd_lanes(Lanes<R>* a, Lanes<R>* v, Lanes<R>* values, int64_t m, int64_t n) {
  for (int64_t e = 0; e < n * n; ++e) v[e] = Lanes<R>{} + static_cast<R>(e % n == e / n);
  const auto dot = [=](const Lanes<R>* x, const Lanes<R>* y) {
    Lanes<R> sum{};
    for (int64_t i = 0; i < m; ++i) sum += x[i] * y[i];
    return sum;
  };
  Choice<R> moving = number_of_all<R>(-1);
  for (int sweep = 0; sweep < kSweeps && any(moving); ++sweep) {
    moving = Choice<R>{};
    for (int64_t p = 0; p + 1 < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        Lanes<R>*x = a + p * m, *y = a + q * m;
        const Lanes<R> xx = dot(x, x), yy = dot(y, y), xy = dot(x, y);
        const Choice<R> skip = magnitude<R>(xy) <= root<R>(xx) * root<R>(yy) * (2 * kEpsilon<R>);
        moving |= ~skip;
        const Rotation<R> r(xx, yy, xy, skip);
        for (int64_t i = 0; i < m; ++i) r.turn(x[i], y[i]);
        for (int64_t i = 0; i < n; ++i) r.turn(v[p * n + i], v[q * n + i]);
      }
    }
  }
  for (int64_t j = 0; j < n; ++j) values[j] = root<R>(dot(a + j * m, a + j * m));
  sort_columns<R>(values, n, true, a, m, v, n);
  const Choice<R> dependent = ~(values[n - 1] > values[0] * (8 * kEpsilon<R>));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) a[j * m + i] /= values[j];
  }
  return moving | dependent;
}

}  // namespace linalg
#endif  // COIL_DEVICE_LIBRARY_LINALG_JACOBI_H_
