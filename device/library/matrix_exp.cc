// The exponential of a matrix: scaling and squaring with a Pade approximant of degree 13 (N. Higham 2005).
#include <math.h>

#include "device/library/linalg.h"

using linalg::Char;
using linalg::Int;
COIL_FORTRAN(gemm, Char, Char, Int, Int, Int, const void*, const void*, Int, const void*, Int, const void*, void*, Int, size_t, size_t)
COIL_FORTRAN(gesv, Int, Int, void*, Int, int*, void*, Int, int*)

namespace linalg {
namespace {

constexpr double kPade[] = {64764752532480000.,
                            32382376266240000.,
                            7771770303897600.,
                            1187353796428800.,
                            129060195264000.,
                            10559470521600.,
                            670442572800.,
                            33522128640.,
                            1323241920.,
                            40840800.,
                            960960.,
                            16380.,
                            182.,
                            1.};
constexpr double kReach = 4.25;  // norms up to which degree 13 is exact in single precision; 5.37 in double

template <class T>
void add_scaled(T* to, const T* from, double by, int64_t count) {
  const auto f = static_cast<Real<T>>(by);
  auto* t = reinterpret_cast<Real<T>*>(to);
  const auto* s = reinterpret_cast<const Real<T>*>(from);
  for (int64_t i = 0; i < count * (kComplex<T> ? 2 : 1); ++i) t[i] += f * s[i];
}

template <class T>
double one_norm(const T* a, int64_t n) {
  double norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kComplex<T>) sum += hypot(static_cast<double>(a[j * n + i].re), static_cast<double>(a[j * n + i].im));
      else sum += fabs(static_cast<double>(a[j * n + i]));
    }
    if (!(sum <= norm)) norm = sum;
  }
  return norm;
}

template <class T>
struct Exponential {
  static void multiply(T* to, const T* a, const T* b, int order) {
    const T one = number<T>(1), zero = number<T>(0);
    COIL_PICK(T, gemm)("N", "N", &order, &order, &order, &one, a, &order, b, &order, &zero, to, &order, 1, 1);
  }

  // sum of kPade[first + 2 i] * powers[i], with powers[0] the identity
  static void combine(T* to, T* const* powers, int first, int count, int64_t n, int64_t total) {
    memset(static_cast<void*>(to), 0, static_cast<size_t>(total) * sizeof(T));
    const T one = number<T>(1);
    for (int64_t i = 0; i < n; ++i) add_scaled(to + i * n + i, &one, kPade[first], 1);
    for (int i = 1; i < count; ++i) add_scaled(to, powers[i], kPade[first + 2 * i], total);
  }

  static bool exponential(T* x, int64_t n) {
    const int order = static_cast<int>(n);
    const int64_t total = n * n;
    const Workspace work(static_cast<int64_t>(sizeof(T)) * total * 7), pivots(4 * n);
    if (work.missing() || pivots.missing()) return false;
    const double norm = one_norm(x, n);
    int squarings = 0;
    if (norm > kReach && norm < 1e300) squarings = static_cast<int>(ceil(log2(norm / kReach)));
    if (!(norm < 1e300)) return fill(x, total), true;
    T* m[7];
    for (int i = 0; i < 7; ++i) m[i] = work.as<T>() + i * total;
    T *a = m[0], *u = m[4], *v = m[5], *t = m[6];
    memset(static_cast<void*>(a), 0, static_cast<size_t>(total) * sizeof(T));
    add_scaled(a, x, ldexp(1.0, -squarings), total);
    T* powers[4] = {nullptr, m[1], m[2], m[3]};  // the 2nd, 4th and 6th
    multiply(powers[1], a, a, order);
    multiply(powers[2], powers[1], powers[1], order);
    multiply(powers[3], powers[1], powers[2], order);
    // Odd part: a (p6 (b13 p6 + b11 p4 + b9 p2) + b7 p6 + b5 p4 + b3 p2 + b1); the even one likewise without a.
    for (int odd = 1; odd >= 0; --odd) {
      T* to = odd ? u : v;
      memset(static_cast<void*>(t), 0, static_cast<size_t>(total) * sizeof(T));
      for (int i = 1; i < 4; ++i) add_scaled(t, powers[i], kPade[6 + odd + 2 * i], total);
      multiply(x, powers[3], t, order);
      combine(t, powers, odd, 4, n, total);
      add_scaled(t, x, 1, total);
      if (odd) multiply(to, a, t, order);
      else copied(to, t, total);
    }
    copied(x, v, total);  // (v - u) x = v + u
    add_scaled(x, u, 1, total);
    add_scaled(v, u, -1, total);
    int info = 0;
    COIL_PICK(T, gesv)(&order, &order, v, &order, pivots.as<int>(), x, &order, &info);
    for (int s = 0; s < squarings; ++s) {
      multiply(t, x, x, order);
      copied(x, t, total);
    }
    return true;
  }

  static void fill(T* x, int64_t total) {
    for (int64_t i = 0; i < total; ++i) x[i] = number<T>(__builtin_nan(""));
  }

  static int32_t run(const CoilLibraryCall* call) {
    const int64_t n = call->sizes[1];
    return for_batch(call, call->sizes[0], 20 * n * n * n, [=](int64_t b) {
      T* x = copied(output<T>(call, 0, b, n * n), input<T>(call, 0, b, n * n), n * n);
      return n == 0 || exponential(x, n);
    });
  }
};

}  // namespace
}  // namespace linalg

// [b, n, n] -> [b, n, n]. sizes: b, n.
COIL_LIBRARY_ROUTINE(linalg_matrix_exp) { return linalg::dispatch<linalg::Exponential>(call); }
