// Solutions with factors that are there: triangles, Cholesky, LU, LDL; determinants; and what to say when a factorisation failed.
#include <math.h>

#include "device/library/linalg_lanes.h"

using linalg::Char;
using linalg::Int;
COIL_FORTRAN(trsm, Char, Char, Char, Char, Int, Int, const void*, const void*, Int, void*, Int, size_t, size_t, size_t, size_t)
COIL_FORTRAN(potrs, Char, Int, Int, const void*, Int, void*, Int, int*, size_t)
COIL_FORTRAN(potri, Char, Int, void*, Int, int*, size_t)
COIL_FORTRAN(getrs, Char, Int, Int, const void*, Int, Int, void*, Int, int*, size_t)
COIL_FORTRAN(sytrs, Char, Int, Int, const void*, Int, Int, void*, Int, int*, size_t)
extern "C" void chetrs_(Char, Int, Int, const void*, Int, Int, void*, Int, int*, size_t),
    zhetrs_(Char, Int, Int, const void*, Int, Int, void*, Int, int*, size_t);

namespace linalg {
namespace {

const char* transposition(int64_t option) { return option == 0 ? "N" : option == 1 ? "T" : "C"; }

// Those that solve for X [b, k, n] in place of B: f(matrix, b, order, right sides, X) with lead dimension = order.
template <class T, class F>
int32_t solve(const CoilLibraryCall* call, int right_side, const F& f) {
  const int64_t n = call->sizes[1], k = call->sizes[2];
  return for_batch(call, call->sizes[0], n * n * (k + 1), [=](int64_t b) {
    T* x = copied(output<T>(call, 0, b, n * k), input<T>(call, right_side, b, n * k), n * k);
    const int order = static_cast<int>(n), sides = static_cast<int>(k);
    int info = 0;
    if (n > 0 && k > 0) f(input<T>(call, 0, b, n * n), b, &order, &sides, x, &info);
    return true;
  });
}

// Likewise for small real matrices: f(matrices, pivots, right side, order) solves for one right side of each in place. `pivots`: the input that has them; -1:
// none.
template <class T, class F>
int32_t solve_small(const CoilLibraryCall* call, int right_side, int pivots, const F& f) {
  const int64_t order = call->sizes[1], k = call->sizes[2];
  return for_lanes<T>(call, call->sizes[0], order * order * (k + 1), [=](int64_t first, int64_t count) {
    with_size(order, [&](auto size) {
      const int64_t n = size;
      Lanes<T> a[kSmall * kSmall], x[kSmall];
      Choice<T> rows[kSmall];
      gather(a, input<T>(call, 0, first, n * n), n * n, count, n * n);
      if (pivots >= 0) gather_numbers<T>(rows, input<int>(call, pivots, first, n), n, count);
      for (int64_t j = 0; j < k; ++j) {
        gather(x, input<T>(call, right_side, first, n * k) + j * n, n, count, n * k);
        f(a, rows, x, n);
        scatter(output<T>(call, 0, first, n * k) + j * n, x, n, count, n * k);
      }
    });
    return true;
  });
}

template <class T>
struct Triangular {
  static int32_t run(const CoilLibraryCall* call) {
    const char *side = "L", *triangle = call->options[0] ? "U" : "L", *t = transposition(call->options[1]), *diagonal = call->options[2] ? "U" : "N";
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], call->sizes[1], 1)) {
        const bool lower = !call->options[0], transposed = call->options[1] != 0, unit = call->options[2] != 0;
        return solve_small<T>(call, 1, -1,
                              [=](const Lanes<T>* a, const Choice<T>*, Lanes<T>* x, int64_t n) { triangle_lanes<T>(a, x, n, lower, transposed, unit); });
      }
    }
    return solve<T>(call, 1, [=](const T* a, int64_t, Int n, Int k, T* x, int*) {
      const T one = number<T>(1);
      COIL_PICK(T, trsm)(side, triangle, t, diagonal, n, k, &one, a, n, x, n, 1, 1, 1, 1);
    });
  }
};

template <class T>
struct CholeskySolve {
  static int32_t run(const CoilLibraryCall* call) {
    const char* triangle = call->options[0] ? "U" : "L";
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], call->sizes[1], 1)) {
        const bool lower = !call->options[0];
        return solve_small<T>(call, 1, -1, [=](const Lanes<T>* a, const Choice<T>*, Lanes<T>* x, int64_t n) {
          triangle_lanes<T>(a, x, n, lower, !lower, false);
          triangle_lanes<T>(a, x, n, lower, lower, false);
        });
      }
    }
    return solve<T>(call, 1, [=](const T* a, int64_t, Int n, Int k, T* x, int* info) { COIL_PICK(T, potrs)(triangle, n, k, a, n, x, n, info, 1); });
  }
};

// LAPACK follows pivots wherever they lead. They are data.
constexpr int32_t kBadIndex = 210;

int32_t check_lu_pivots(const CoilLibraryCall* call, int32_t input, int64_t per_matrix, int64_t rows) {
  const int* pivots = static_cast<const int*>(call->in[input]);
  for (int64_t i = 0; i < call->sizes[0] * per_matrix; ++i) {
    if (pivots[i] >= 1 && pivots[i] <= rows) continue;
    return cd::fail(call->error, kBadIndex, "%s: a pivot is %d, outside of 1 to %lld; was the result of lu_factor passed?", call->subject, pivots[i],
                    static_cast<long long>(rows));
  }
  return 0;
}

// Rows are exchanged one by one (a positive number), or as a block of two, of which both numbers are negative.
int32_t check_ldl_pivots(const CoilLibraryCall* call, int32_t input, int64_t n) {
  const auto outside = [n](int64_t row) { return row < 1 || row > n; };
  for (int64_t b = 0; b < call->sizes[0]; ++b) {
    const int* pivots = static_cast<const int*>(call->in[input]) + b * n;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t first = pivots[i], second = first < 0 && i + 1 < n ? pivots[i + 1] : -1;
      const bool alone = first < 0 && (i + 1 == n || second >= 0);
      if (alone || outside(first < 0 ? -first : first) || (first < 0 && outside(-second))) {
        return cd::fail(call->error, kBadIndex,
                        "%s: the pivots are not those of a factorisation (number %lld of a matrix is %lld); was the result of ldl_factor passed?",
                        call->subject, static_cast<long long>(i + 1), static_cast<long long>(first));
      }
      i += first < 0;
    }
  }
  return 0;
}

template <class T>
struct LuSolve {
  static int32_t run(const CoilLibraryCall* call) {
    const char* t = transposition(call->options[0]);
    const int64_t n = call->sizes[1];
    if (check_lu_pivots(call, 1, n, n)) return 1;
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], n, 1)) {
        const bool transposed = call->options[0] != 0;
        return solve_small<T>(
            call, 2, 1, [=](const Lanes<T>* a, const Choice<T>* pivots, Lanes<T>* x, int64_t order) { lu_solve_lanes<T>(a, pivots, x, order, transposed); });
      }
    }
    return solve<T>(call, 2, [=](const T* a, int64_t b, Int order, Int k, T* x, int* info) {
      COIL_PICK(T, getrs)(t, order, k, a, order, input<int>(call, 1, b, n), x, order, info, 1);
    });
  }
};

template <class T>
struct LdlSolve {
  static int32_t run(const CoilLibraryCall* call) {
    const bool hermitian = call->options[0] != 0;
    const int64_t n = call->sizes[1];
    if (check_ldl_pivots(call, 1, n)) return 1;
    return solve<T>(call, 2, [=](const T* a, int64_t b, Int order, Int k, T* x, int* info) {
      auto f = COIL_PICK(T, sytrs);
      if constexpr (kComplex<T>) f = hermitian ? (sizeof(T) == 8 ? chetrs_ : zhetrs_) : f;
      f("L", order, k, a, order, input<int>(call, 1, b, n), x, order, info, 1);
    });
  }
};

template <class T>
struct CholeskyInverse {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    const bool upper = call->options[0] != 0;
    return for_batch(call, call->sizes[0], n * n * n, [=](int64_t b) {
      T* a = copied(output<T>(call, 0, b, n * n), input<T>(call, 0, b, n * n), n * n);
      const int order = static_cast<int>(n);
      int info = 0;
      if (n > 0) COIL_PICK(T, potri)(upper ? "U" : "L", &order, a, &order, &info, 1);
      for (int64_t j = 0; j < n; ++j) {  // LAPACK fills one triangle
        for (int64_t i = 0; i < j; ++i) {
          T& high = a[j * n + i];  // row i, column j
          T& low = a[i * n + j];
          T& to = upper ? low : high;
          to = upper ? high : low;
          if constexpr (kComplex<T>) to.im = -to.im;
        }
      }
      return true;
    });
  }
};

// The determinant as a number of size 1 and the logarithm of its size, and as a plain product.
template <class T>
struct Determinant {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    return for_batch(call, call->sizes[0], n, [=](int64_t b) {
      const T* lu = input<T>(call, 0, b, n * n);
      const int* pivots = input<int>(call, 1, b, n);
      T det = number<T>(1), sign = number<T>(1);
      double log_size = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T d = lu[i * n + i];
        det = product(det, d);
        double size;
        if constexpr (kComplex<T>) {
          size = hypot(static_cast<double>(d.re), static_cast<double>(d.im));
          const auto r = static_cast<Real<T>>(size);
          sign = product(sign, size == 0 ? d : T{d.re / r, d.im / r});
        } else {
          size = fabs(static_cast<double>(d));
          sign = sign * (d > 0 ? T(1) : d < 0 ? T(-1) : d);
        }
        log_size += log(size);
        if (pivots[i] != i + 1) {
          det = product(det, number<T>(-1));
          sign = product(sign, number<T>(-1));
        }
      }
      *output<T>(call, 0, b, 1) = det;
      *output<T>(call, 1, b, 1) = sign;
      *output<Real<T>>(call, 2, b, 1) = static_cast<Real<T>>(log_size);
      return true;
    });
  }
};

// What to say of LAPACK's info; the kinds are numbered in src/lower/linalg_checks.cc.
int32_t complain(const CoilLibraryCall* call, const char* of, int info) {
  constexpr int32_t kCode = 212;
  const char* who = call->subject;
  CoilError* error = call->error;
  if (info < 0 && call->options[0] != 3) return cd::fail(error, kCode, "%s: %sArgument %d has an illegal value.", who, of, -info);
  switch (call->options[0]) {
    case 0:
      return cd::fail(error, kCode, "%s: %sThe diagonal element %d is zero, the inversion could not be completed because the input matrix is singular.", who,
                      of, info);
    case 1: return cd::fail(error, kCode, "%s: %sThe solver failed because the input matrix is singular.", who, of);
    case 2:
      return cd::fail(error, kCode,
                      "%s: %sThe factorization could not be completed because the input is not positive-definite (the leading minor "
                      "of order %d is not positive-definite).",
                      who, of, info);
    case 3:
      if (info == -4) return cd::fail(error, kCode, "%s: %sThe algorithm failed to converge because the input matrix contained non-finite values.", who, of);
      return cd::fail(error, kCode,
                      "%s: %sThe algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
                      "singular values (error code: %d).",
                      who, of, info);
    case 4:
      return cd::fail(error, kCode,
                      "%s: %sThe algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
                      "eigenvalues (error code: %d).",
                      who, of, info);
    case 5:
      return cd::fail(error, kCode,
                      "%s: %sU[%d,%d] is zero and using it on lu_solve would result in a division by zero. If you still want to perform "
                      "the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
                      who, of, info, info);
    default: return cd::fail(error, kCode, "%s: %sThe factorization failed (error code: %d).", who, of, info);
  }
}

}  // namespace
}  // namespace linalg

// A [b, n, n], B [b, k, n] -> X. sizes: b, n, k. options: upper, transposition (0, 1, 2: conjugate), unit diagonal.
COIL_LIBRARY_ROUTINE(linalg_triangular) { return linalg::dispatch<linalg::Triangular>(call); }
// factor [b, n, n], B [b, k, n] -> X. sizes: b, n, k. options: upper.
COIL_LIBRARY_ROUTINE(linalg_cholesky_solve) { return linalg::dispatch<linalg::CholeskySolve>(call); }
// LU [b, n, n], pivots [b, n], B [b, k, n] -> X. sizes: b, n, k. options: transposition.
COIL_LIBRARY_ROUTINE(linalg_lu_solve) { return linalg::dispatch<linalg::LuSolve>(call); }
// LD [b, n, n], pivots [b, n], B [b, k, n] -> X. sizes: b, n, k. options: hermitian.
COIL_LIBRARY_ROUTINE(linalg_ldl_solve) { return linalg::dispatch<linalg::LdlSolve>(call); }
// factor [b, n, n] -> inverse [b, n, n]. sizes: b, n. options: upper.
COIL_LIBRARY_ROUTINE(linalg_cholesky_inverse) { return linalg::dispatch<linalg::CholeskyInverse>(call); }
// LU [b, n, n], pivots [b, n] -> determinant [b], sign [b], logarithm of the size [b] (real). sizes: b, n.
COIL_LIBRARY_ROUTINE(linalg_determinant) { return linalg::dispatch<linalg::Determinant>(call); }

// info [b] -> nothing of interest [1]: fails where an info is not 0. sizes: b. options: kind, single (no batch).
COIL_LIBRARY_ROUTINE(linalg_check) {
  *static_cast<int*>(call->out[0]) = 0;
  for (int64_t b = 0; b < call->sizes[0]; ++b) {
    const int info = static_cast<const int*>(call->in[0])[b];
    if (info == 0) continue;
    char of[48] = "";
    if (!call->options[1]) {
      const char text[] = "(Batch element ";
      char digits[20];
      int n = 0, at = sizeof text - 1;
      memcpy(of, text, sizeof text - 1);
      int64_t rest = b;
      do digits[n++] = static_cast<char>('0' + rest % 10);
      while (rest /= 10);
      while (n > 0) of[at++] = digits[--n];
      memcpy(of + at, "): ", 4);
    }
    return linalg::complain(call, of, info);
  }
  return 0;
}

// pivots [b, k] -> perm [b, m] (int32): row i of the factors is row perm[i] of the matrix. sizes: b, k, m.
COIL_LIBRARY_ROUTINE(linalg_permutation) {
  const int64_t k = call->sizes[1], m = call->sizes[2];
  if (linalg::check_lu_pivots(call, 0, k, m)) return 1;
  for (int64_t b = 0; b < call->sizes[0]; ++b) {
    const int* pivots = linalg::input<int>(call, 0, b, k);
    int* perm = linalg::output<int>(call, 0, b, m);
    for (int64_t i = 0; i < m; ++i) perm[i] = static_cast<int>(i);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t other = pivots[i] - 1;
      const int row = perm[i];
      perm[i] = perm[other];
      perm[other] = row;
    }
  }
  return 0;
}
