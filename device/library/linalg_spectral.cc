// Singular values, eigenvalues, and their vectors.
#include "device/library/linalg_jacobi.h"

using linalg::Char;
using linalg::Int;
#define COIL_REAL_COMPLEX(name, real_args, complex_args) \
  extern "C" void s##name##_ real_args, d##name##_ real_args, c##name##_ complex_args, z##name##_ complex_args;
COIL_REAL_COMPLEX(gesdd, (Char, Int, Int, void*, Int, void*, void*, Int, void*, Int, void*, Int, int*, int*, size_t),
                  (Char, Int, Int, void*, Int, void*, void*, Int, void*, Int, void*, Int, void*, int*, int*, size_t))
COIL_REAL_COMPLEX(geev, (Char, Char, Int, void*, Int, void*, void*, void*, Int, void*, Int, void*, Int, int*, size_t, size_t),
                  (Char, Char, Int, void*, Int, void*, void*, Int, void*, Int, void*, Int, void*, int*, size_t, size_t))
extern "C" void ssyevd_(Char, Char, Int, void*, Int, void*, void*, Int, int*, Int, int*, size_t, size_t),
    dsyevd_(Char, Char, Int, void*, Int, void*, void*, Int, int*, Int, int*, size_t, size_t),
    cheevd_(Char, Char, Int, void*, Int, void*, void*, Int, void*, Int, int*, Int, int*, size_t, size_t),
    zheevd_(Char, Char, Int, void*, Int, void*, void*, Int, void*, Int, int*, Int, int*, size_t, size_t);

namespace linalg {
namespace {

template <class T>
struct Svd {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1], m = call->sizes[2], k = m < n ? m : n;
    const int64_t mode = call->options[0];  // 0: values, 1: k vectors, 2: all vectors
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], m, n) && (mode < 2 || m == n)) return small(call, m, n, mode);
    }
    return for_batch(call, call->sizes[0], 10 * m * n * k, [=](int64_t b) { return one(call, b, m, n, mode); });
  }

  // Of a matrix with more columns than rows the transposed one.
  static int32_t small(const CoilLibraryCall* call, int64_t m, int64_t n, int64_t mode) {
    const int64_t k = m < n ? m : n, l = m < n ? n : m;
    return for_lanes<T>(call, call->sizes[0], 30 * l * k * k, [=](int64_t first, int64_t count) {
      Lanes<T> given[kSmall * kSmall], values[kSmall];
      gather(given, input<T>(call, 0, first, m * n), m * n, count, m * n);
      Choice<T> left = out_of_range<T>(given, m * n);
      with_size(k, [&](auto size) {
        const int64_t few = size, many = l == k ? few : l;
        Lanes<T> a[kSmall * kSmall], v[kSmall * kSmall], rows[kSmall * kSmall];
        for (int64_t j = 0; j < few; ++j) {
          for (int64_t i = 0; i < many; ++i) a[j * many + i] = given[m < n ? i * few + j : j * many + i];
        }
        left |= svd_lanes<T>(a, v, values, many, few);
        if (mode == 0) return;
        const Lanes<T>* right = m < n ? a : v;  // its columns are the rows of Vh
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t i = 0; i < few; ++i) rows[j * few + i] = right[i * n + j];
        }
        scatter(output<T>(call, 2, first, m * k), m < n ? v : a, m * k, count, m * k);
        scatter(output<T>(call, 3, first, k * n), rows, k * n, count, k * n);
      });
      scatter(output<T>(call, 0, first, k), values, k, count, k);
      for (int64_t lane = 0; lane < count; ++lane) {
        *output<int>(call, 1, first + lane, 1) = 0;
        if (left[lane] != 0 && !one(call, first + lane, m, n, mode)) return false;
      }
      return true;
    });
  }

  static bool one(const CoilLibraryCall* call, int64_t b, int64_t m, int64_t n, int64_t mode) {
    const int64_t k = m < n ? m : n, u_cols = mode == 0 ? 0 : mode == 1 ? k : m, v_rows = mode == 0 ? 0 : mode == 1 ? k : n;
    const Workspace copy(static_cast<int64_t>(sizeof(T)) * m * n + 64), numbers(8 * k * static_cast<int64_t>(sizeof(int)) + 64);
    if (copy.missing() || numbers.missing()) return false;
    T* a = copied(copy.as<T>(), input<T>(call, 0, b, m * n), m * n);
    Real<T>* s = output<Real<T>>(call, 0, b, k);
    int& info = *output<int>(call, 1, b, 1);
    T *u = mode ? output<T>(call, 2, b, m * u_cols) : nullptr, *v = mode ? output<T>(call, 3, b, v_rows * n) : nullptr;
    info = 0;
    if (k == 0) return identity(u, m, u_cols), identity(v, v_rows, n), true;
    const int rows = static_cast<int>(m), cols = static_cast<int>(n), lead_v = v_rows > 1 ? static_cast<int>(v_rows) : 1;
    const char* job = mode == 0 ? "N" : mode == 1 ? "S" : "A";
    T wanted = number<T>(0), nothing = number<T>(0);
    if (!u) u = v = &nothing;
    const int ask = -1;
    if constexpr (kComplex<T>) {
      const int64_t l = m > n ? m : n, reals = mode ? k * (5 * k + 7 > 2 * l + 2 * k + 1 ? 5 * k + 7 : 2 * l + 2 * k + 1) : 7 * k;
      const Workspace real(reals * static_cast<int64_t>(sizeof(Real<T>)) + 64);
      if (real.missing()) return false;
      auto f = sizeof(T) == 8 ? cgesdd_ : zgesdd_;
      f(job, &rows, &cols, a, &rows, s, u, &rows, v, &lead_v, &wanted, &ask, real.as<void>(), numbers.as<int>(), &info, 1);
      const int length = static_cast<int>(wanted.re) + 1;
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      if (work.missing()) return false;
      f(job, &rows, &cols, a, &rows, s, u, &rows, v, &lead_v, work.as<void>(), &length, real.as<void>(), numbers.as<int>(), &info, 1);
    } else {
      auto f = sizeof(T) == 4 ? sgesdd_ : dgesdd_;
      f(job, &rows, &cols, a, &rows, s, u, &rows, v, &lead_v, &wanted, &ask, numbers.as<int>(), &info, 1);
      const int length = static_cast<int>(static_cast<double>(wanted) * 1.000001) + 1;
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      if (work.missing()) return false;
      f(job, &rows, &cols, a, &rows, s, u, &rows, v, &lead_v, work.as<void>(), &length, numbers.as<int>(), &info, 1);
    }
    if (info != 0) fill_nan(s, k);
    return true;
  }

  static void identity(T* a, int64_t rows, int64_t cols) {
    for (int64_t i = 0; a && i < rows * cols; ++i) a[i] = number<T>(i % rows == i / rows ? 1 : 0);
  }
  static void fill_nan(Real<T>* s, int64_t k) {
    for (int64_t i = 0; i < k; ++i) s[i] = static_cast<Real<T>>(__builtin_nan(""));
  }
};

template <class T>
struct Eigh {
  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    const bool vectors = call->options[0] != 0, upper = call->options[1] != 0;
    if constexpr (!kComplex<T>) {
      if (is_small(call->sizes[0], n, n)) return small(call, n, vectors, upper);
    }
    return for_batch(call, call->sizes[0], 10 * n * n * n, [=](int64_t b) { return one(call, b, n, vectors, upper); });
  }

  static int32_t small(const CoilLibraryCall* call, int64_t order, bool vectors, bool upper) {
    return for_lanes<T>(call, call->sizes[0], 30 * order * order * order, [=](int64_t first, int64_t count) {
      Choice<T> left;
      with_size(order, [&](auto size) {
        const int64_t n = size;
        Lanes<T> a[kSmall * kSmall], v[kSmall * kSmall], values[kSmall];
        gather(a, input<T>(call, 0, first, n * n), n * n, count, n * n);
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t i = 0; i < j; ++i) (upper ? a[i * n + j] : a[j * n + i]) = upper ? a[j * n + i] : a[i * n + j];
        }
        left = out_of_range<T>(a, n * n);
        left |= eigh_lanes<T>(a, v, values, n);
        scatter(output<T>(call, 0, first, n), values, n, count, n);
        scatter(output<T>(call, 2, first, n * n), v, n * n, count, n * n);
      });
      for (int64_t lane = 0; lane < count; ++lane) {
        *output<int>(call, 1, first + lane, 1) = 0;
        if (left[lane] != 0 && !one(call, first + lane, order, vectors, upper)) return false;
      }
      return true;
    });
  }

  static bool one(const CoilLibraryCall* call, int64_t b, int64_t n, bool vectors, bool upper) {
    T* a = copied(output<T>(call, 2, b, n * n), input<T>(call, 0, b, n * n), n * n);
    Real<T>* w = output<Real<T>>(call, 0, b, n);
    int& info = *output<int>(call, 1, b, 1);
    info = 0;
    if (n == 0) return true;
    const int order = static_cast<int>(n), integers = static_cast<int>(vectors ? 5 * n + 3 : 1);
    const Workspace numbers(integers * static_cast<int64_t>(sizeof(int)));
    const char *job = vectors ? "V" : "N", *triangle = upper ? "U" : "L";
    if (numbers.missing()) return false;
    if constexpr (kComplex<T>) {
      const int length = static_cast<int>(vectors ? n * n + 2 * n + 64 * n : 65 * n + 1), reals = static_cast<int>(vectors ? 2 * n * n + 5 * n + 1 : n + 1);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length), real(static_cast<int64_t>(sizeof(Real<T>)) * reals);
      if (work.missing() || real.missing()) return false;
      (sizeof(T) == 8 ? cheevd_ : zheevd_)(job, triangle, &order, a, &order, w, work.as<void>(), &length, real.as<void>(), &reals, numbers.as<int>(), &integers,
                                           &info, 1, 1);
    } else {
      const int length = static_cast<int>(vectors ? 2 * n * n + 6 * n + 1 + 64 * n : 66 * n + 1);
      const Workspace work(static_cast<int64_t>(sizeof(T)) * length);
      if (work.missing()) return false;
      (sizeof(T) == 4 ? ssyevd_ : dsyevd_)(job, triangle, &order, a, &order, w, work.as<void>(), &length, numbers.as<int>(), &integers, &info, 1, 1);
    }
    return true;
  }
};

template <class T>
struct Eig {
  using R = Real<T>;
  using C = Complex<R>;

  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    const bool vectors = call->options[0] != 0;
    return for_batch(call, call->sizes[0], 25 * n * n * n, [=](int64_t b) {
      C* w = output<C>(call, 0, b, n);
      int& info = *output<int>(call, 1, b, 1);
      C* v = vectors ? output<C>(call, 2, b, n * n) : nullptr;
      info = 0;
      return n == 0 || one(n, input<T>(call, 0, b, n * n), w, v, info);
    });
  }

  static bool one(int64_t n, const T* from, C* w, C* v, int& info) {
    const int order = static_cast<int>(n), length = static_cast<int>(68 * n);
    const Workspace copy(static_cast<int64_t>(sizeof(T)) * n * n), work(static_cast<int64_t>(sizeof(T)) * length),
        real(static_cast<int64_t>(sizeof(R)) * 2 * n), found(static_cast<int64_t>(sizeof(T)) * n * n);
    if (copy.missing() || work.missing() || real.missing() || found.missing()) return false;
    T *a = copied(copy.as<T>(), from, n * n), *right = found.as<T>();
    const char* job = v ? "V" : "N";
    if constexpr (kComplex<T>) {
      (sizeof(T) == 8 ? cgeev_ : zgeev_)("N", job, &order, a, &order, w, nullptr, &order, right, &order, work.as<void>(), &length, real.as<void>(), &info, 1,
                                         1);
      if (v) copied(v, right, n * n);
    } else {
      R *re = real.as<R>(), *im = re + n;
      (sizeof(T) == 4 ? sgeev_ : dgeev_)("N", job, &order, a, &order, re, im, nullptr, &order, right, &order, work.as<void>(), &length, &info, 1, 1);
      for (int64_t j = 0; j < n; ++j) w[j] = {re[j], im[j]};
      // A pair of conjugate eigenvalues has its vectors' real and imaginary parts in two columns.
      for (int64_t j = 0; v && j < n; ++j) {
        const bool pair = im[j] != 0 && j + 1 < n;
        for (int64_t i = 0; i < n; ++i) {
          const R x = right[j * n + i], y = pair ? right[(j + 1) * n + i] : R(0);
          v[j * n + i] = {x, y};
          if (pair) v[(j + 1) * n + i] = {x, -y};
        }
        j += pair;
      }
    }
    return true;
  }
};

}  // namespace
}  // namespace linalg

// [b, n, m] -> S [b, k] (real), info [b], and with vectors U [b, k or m, m], Vh [b, n, k or n]. sizes: b, n, m. options: 0 values alone,
// 1 k vectors, 2 all vectors.
COIL_LIBRARY_ROUTINE(linalg_svd) { return linalg::dispatch<linalg::Svd>(call); }
// [b, n, n] -> values [b, n] (real), info [b], vectors [b, n, n] (work space without). sizes: b, n. options: vectors, upper.
COIL_LIBRARY_ROUTINE(linalg_eigh) { return linalg::dispatch<linalg::Eigh>(call); }
// [b, n, n] -> values [b, n] (complex), info [b], vectors [b, n, n] (complex; only if asked for). sizes: b, n. options: vectors.
COIL_LIBRARY_ROUTINE(linalg_eig) { return linalg::dispatch<linalg::Eig>(call); }
