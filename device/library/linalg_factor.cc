// Factorisations: Cholesky, LU, LDL, QR. `info` is LAPACK's, one int32 for each matrix.
#include "device/library/linalg_lanes.h"

using linalg::Char;
using linalg::Int;
COIL_FORTRAN(potrf, Char, Int, void*, Int, int*, size_t)
COIL_FORTRAN(getrf, Int, Int, void*, Int, int*, int*)
COIL_FORTRAN(geqrf, Int, Int, void*, Int, void*, void*, Int, int*)
COIL_FORTRAN(sytrf, Char, Int, void*, Int, int*, void*, Int, int*, size_t)
extern "C" void chetrf_(Char, Int, void*, Int, int*, void*, Int, int*, size_t), zhetrf_(Char, Int, void*, Int, int*, void*, Int, int*, size_t);
extern "C" void sorgqr_(Int, Int, Int, void*, Int, const void*, void*, Int, int*), dorgqr_(Int, Int, Int, void*, Int, const void*, void*, Int, int*),
    cungqr_(Int, Int, Int, void*, Int, const void*, void*, Int, int*), zungqr_(Int, Int, Int, void*, Int, const void*, void*, Int, int*);
extern "C" void sormqr_(Char, Char, Int, Int, Int, const void*, Int, const void*, void*, Int, void*, Int, int*, size_t, size_t),
    dormqr_(Char, Char, Int, Int, Int, const void*, Int, const void*, void*, Int, void*, Int, int*, size_t, size_t),
    cunmqr_(Char, Char, Int, Int, Int, const void*, Int, const void*, void*, Int, void*, Int, int*, size_t, size_t),
    zunmqr_(Char, Char, Int, Int, Int, const void*, Int, const void*, void*, Int, void*, Int, int*, size_t, size_t);

namespace linalg {
namespace {

int at_least_one(int64_t n) { return n > 1 ? static_cast<int>(n) : 1; }

template <class T>
struct Cholesky {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    const bool upper = call->options[0] != 0;
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], n, n)) return small(call, n, upper);
    }
    return for_batch(call, call->sizes[0], n * n * n, [=](int64_t b) {
      one(call, b, n, upper);
      return true;
    });
  }

  static void one(const CoilLibraryCall* call, int64_t b, int64_t n, bool upper) {
    T* a = copied(output<T>(call, 0, b, n * n), input<T>(call, 0, b, n * n), n * n);
    int* info = output<int>(call, 1, b, 1);
    const int order = static_cast<int>(n), lead = at_least_one(n);
    *info = 0;
    if (n > 0) COIL_PICK(T, potrf)(upper ? "U" : "L", &order, a, &lead, info, 1);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = upper ? j + 1 : 0; i < (upper ? n : j); ++i) a[j * n + i] = number<T>(0);
    }
  }

  // What is left of a matrix that is not positive is as LAPACK leaves it.
  static int32_t small(const CoilLibraryCall* call, int64_t order, bool upper) {
    return for_lanes<T>(call, call->sizes[0], order * order * order, [=](int64_t first, int64_t count) {
      Lanes<T> a[kSmall * kSmall];
      Choice<T> info;
      with_size(order, [&](auto size) {
        const int64_t n = size;
        gather(a, input<T>(call, 0, first, n * n), n * n, count, n * n);
        cholesky_lanes<T>(a, n, upper, info);
        scatter<T>(output<T>(call, 0, first, n * n), a, n * n, count, n * n);
      });
      scatter_numbers<T>(output<int>(call, 1, first, 1), &info, 1, count);
      for (int64_t lane = 0; lane < count; ++lane) {
        if (info[lane] != 0) one(call, first + lane, order, upper);
      }
      return true;
    });
  }
};

template <class T>
struct Lu {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1], m = call->sizes[2], k = m < n ? m : n;
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], m, n)) return small(call, m, n);
    }
    return for_batch(call, call->sizes[0], m * n * k, [=](int64_t b) {
      T* a = copied(output<T>(call, 0, b, m * n), input<T>(call, 0, b, m * n), m * n);
      int *pivots = output<int>(call, 1, b, k), *info = output<int>(call, 2, b, 1);
      const int rows = static_cast<int>(m), cols = static_cast<int>(n), lead = at_least_one(m);
      *info = 0;
      if (k > 0) COIL_PICK(T, getrf)(&rows, &cols, a, &lead, pivots, info);
      return true;
    });
  }

  static int32_t small(const CoilLibraryCall* call, int64_t rows, int64_t cols) {
    return for_lanes<T>(call, call->sizes[0], rows * cols * cols, [=](int64_t first, int64_t count) {
      Lanes<T> a[kSmall * kSmall];
      Choice<T> pivots[kSmall], info;
      gather(a, input<T>(call, 0, first, rows * cols), rows * cols, count, rows * cols);
      if (rows == cols) with_size(rows, [&](auto n) { lu_lanes<T>(a, n, n, pivots, info); });
      else lu_lanes<T>(a, rows, cols, pivots, info);
      const int64_t steps = rows < cols ? rows : cols;
      scatter<T>(output<T>(call, 0, first, rows * cols), a, rows * cols, count, rows * cols);
      scatter_numbers<T>(output<int>(call, 1, first, steps), pivots, steps, count);
      scatter_numbers<T>(output<int>(call, 2, first, 1), &info, 1, count);
      return true;
    });
  }
};

template <class T>
struct Ldl {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    const bool hermitian = call->options[0] != 0;
    return for_batch(call, call->sizes[0], n * n * n, [=](int64_t b) {
      T* a = copied(output<T>(call, 0, b, n * n), input<T>(call, 0, b, n * n), n * n);
      int *pivots = output<int>(call, 1, b, n), *info = output<int>(call, 2, b, 1);
      const int order = static_cast<int>(n), lead = at_least_one(n);
      const int length = static_cast<int>(n * 64);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      *info = 0;
      if (work.missing()) return false;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < j; ++i) a[j * n + i] = number<T>(0);  // the upper triangle is no part of the result
      }
      if (n == 0) return true;
      auto f = COIL_PICK(T, sytrf);
      if constexpr (kComplex<T>) f = hermitian ? (sizeof(T) == 8 ? chetrf_ : zhetrf_) : f;
      f("L", &order, a, &lead, pivots, work.as<void>(), &length, info, 1);
      return true;
    });
  }
};

template <class T>
struct Geqrf {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1], m = call->sizes[2], k = m < n ? m : n;
    return for_batch(call, call->sizes[0], m * n * k, [=](int64_t b) {
      T* a = copied(output<T>(call, 0, b, m * n), input<T>(call, 0, b, m * n), m * n);
      const int rows = static_cast<int>(m), cols = static_cast<int>(n), lead = at_least_one(m), length = static_cast<int>(n * 32 + 1);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      int info = 0;
      if (work.missing()) return false;
      if (k > 0) COIL_PICK(T, geqrf)(&rows, &cols, a, &lead, output<T>(call, 1, b, k), work.as<void>(), &length, &info);
      return true;
    });
  }
};

template <class T>
struct Orgqr {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1], m = call->sizes[2], k = call->sizes[3];
    return for_batch(call, call->sizes[0], m * n * k, [=](int64_t b) {
      T* a = copied(output<T>(call, 0, b, m * n), input<T>(call, 0, b, m * n), m * n);
      const int rows = static_cast<int>(m), cols = static_cast<int>(n), vectors = static_cast<int>(k), lead = at_least_one(m),
                length = static_cast<int>(n * 32 + 1);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      int info = 0;
      if (work.missing()) return false;
      if (n > 0) pick<T>(sorgqr_, dorgqr_, cungqr_, zungqr_)(&rows, &cols, &vectors, a, &lead, input<T>(call, 1, b, k), work.as<void>(), &length, &info);
      return true;
    });
  }
};

template <class T>
struct Ormqr {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1], m = call->sizes[2], k = call->sizes[3];
    const bool left = call->options[0] != 0, transposed = call->options[1] != 0;
    const int64_t r = left ? m : n;  // rows of the reflectors
    return for_batch(call, call->sizes[0], m * n * k, [=](int64_t b) {
      T* c = copied(output<T>(call, 0, b, m * n), input<T>(call, 2, b, m * n), m * n);
      const int rows = static_cast<int>(m), cols = static_cast<int>(n), vectors = static_cast<int>(k), lead_a = at_least_one(r), lead_c = at_least_one(m),
                length = static_cast<int>((left ? n : m) * 64 + 65 * 64);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      int info = 0;
      if (work.missing()) return false;
      const char* t = !transposed ? "N" : kComplex<T> ? "C" : "T";
      if (m > 0 && n > 0 && k > 0) {
        pick<T>(sormqr_, dormqr_, cunmqr_, zunmqr_)(left ? "L" : "R", t, &rows, &cols, &vectors, input<T>(call, 0, b, r * k), &lead_a, input<T>(call, 1, b, k),
                                                    c, &lead_c, work.as<void>(), &length, &info, 1, 1);
      }
      return true;
    });
  }
};

}  // namespace
}  // namespace linalg

// [b, n, n] -> factor [b, n, n], info [b]. sizes: b, n. options: upper.
COIL_LIBRARY_ROUTINE(linalg_cholesky) { return linalg::dispatch<linalg::Cholesky>(call); }
// [b, n, m] -> L and U [b, n, m], pivots [b, min(m, n)], info [b]. sizes: b, n, m.
COIL_LIBRARY_ROUTINE(linalg_lu) { return linalg::dispatch<linalg::Lu>(call); }
// [b, n, n] -> L and D [b, n, n], pivots [b, n], info [b]. sizes: b, n. options: hermitian.
COIL_LIBRARY_ROUTINE(linalg_ldl) { return linalg::dispatch<linalg::Ldl>(call); }
// [b, n, m] -> R and reflectors [b, n, m], tau [b, min(m, n)]. sizes: b, n, m.
COIL_LIBRARY_ROUTINE(linalg_geqrf) { return linalg::dispatch<linalg::Geqrf>(call); }
// reflectors [b, n, m], tau [b, k] -> Q [b, n, m]. sizes: b, n, m, k.
COIL_LIBRARY_ROUTINE(linalg_orgqr) { return linalg::dispatch<linalg::Orgqr>(call); }
// reflectors [b, k, m or n], tau [b, k], C [b, n, m] -> Q C or C Q [b, n, m]. sizes: b, n, m, k. options: left, (conjugate) transposed.
COIL_LIBRARY_ROUTINE(linalg_ormqr) { return linalg::dispatch<linalg::Ormqr>(call); }
