// Triangles: systems and products with them, and products whose results are symmetric, of which a triangle is computed. Each is divided in two
// until it is small, so that nearly all of the work is products of whole matrices.
#include "device/library/blas.h"

namespace blas {
namespace {

constexpr int64_t kSmall = 16;   // triangles that are gone through column by column
constexpr int64_t kMiddle = 48;  // of results: computed whole

// The larger part first: whole tiles of a product.
int64_t half(int64_t n) { return (n / 2 + kSmall - 1) / kSmall * kSmall; }

// A triangle from either side of B [m, n]. `lower` is of op(A).
template <class T>
struct Triangle {
  View<T> a;
  bool lower, left, unit;

  Triangle at(int64_t i) const { return {a.from(i, i), lower, left, unit}; }
  T diagonal(int64_t i) const { return unit ? number<T>(1) : a.at(i, i); }
};

template <class T>
T quotient(const T& x, const T& y) {
  if constexpr (kComplex<T>) {  // Smith's way
    if (__builtin_fabs(static_cast<double>(y.re)) >= __builtin_fabs(static_cast<double>(y.im))) {
      const Real<T> r = y.im / y.re, d = y.re + r * y.im;
      return {(x.re + x.im * r) / d, (x.im - x.re * r) / d};
    }
    const Real<T> r = y.re / y.im, d = y.im + r * y.re;
    return {(x.re * r + x.im) / d, (x.im * r - x.re) / d};
  } else {
    return x / y;
  }
}

// Columns of B one after the other: from the triangle's tip on, each element once it is known (or, of a product, before it changes).
template <class T>
void solve_small_left(const Triangle<T>& t, int64_t order, int64_t n, T* b, int64_t lead) {
  T column[kSmall];
  for (int64_t step = 0; step < order; ++step) {
    const int64_t k = t.lower ? step : order - 1 - step, first = t.lower ? k + 1 : 0, count = t.lower ? order - k - 1 : k;
    for (int64_t i = 0; i < count; ++i) column[i] = t.a.at(first + i, k);
    const T divisor = t.diagonal(k);
    for (int64_t j = 0; j < n; ++j) {
      T* x = b + j * lead;
      if (!t.unit) x[k] = quotient(x[k], divisor);
      add_multiple(x + first, column, negative(x[k]), count);
    }
  }
}
template <class T>
void solve_small_right(const Triangle<T>& t, int64_t order, int64_t m, T* b, int64_t lead) {
  for (int64_t step = 0; step < order; ++step) {
    const int64_t k = t.lower ? order - 1 - step : step, first = t.lower ? k + 1 : 0, last = t.lower ? order : k;
    T* x = b + k * lead;
    for (int64_t i = first; i < last; ++i) add_multiple(x, b + i * lead, negative(t.a.at(i, k)), m);
    if (t.unit) continue;
    const T divisor = t.diagonal(k);
    for (int64_t i = 0; i < m; ++i) x[i] = quotient(x[i], divisor);
  }
}
template <class T>
void multiply_small_left(const Triangle<T>& t, int64_t order, int64_t n, T* b, int64_t lead) {
  T column[kSmall];
  for (int64_t step = 0; step < order; ++step) {
    const int64_t k = t.lower ? order - 1 - step : step, first = t.lower ? k + 1 : 0, count = t.lower ? order - k - 1 : k;
    for (int64_t i = 0; i < count; ++i) column[i] = t.a.at(first + i, k);
    const T factor = t.diagonal(k);
    for (int64_t j = 0; j < n; ++j) {
      T* x = b + j * lead;
      add_multiple(x + first, column, x[k], count);
      x[k] = linalg::product(factor, x[k]);
    }
  }
}
template <class T>
void multiply_small_right(const Triangle<T>& t, int64_t order, int64_t m, T* b, int64_t lead) {
  for (int64_t step = 0; step < order; ++step) {
    const int64_t k = t.lower ? step : order - 1 - step, first = t.lower ? k + 1 : 0, last = t.lower ? order : k;
    T* x = b + k * lead;
    if (!t.unit) {
      const T factor = t.diagonal(k);
      for (int64_t i = 0; i < m; ++i) x[i] = linalg::product(factor, x[i]);
    }
    for (int64_t i = first; i < last; ++i) add_multiple(x, b + i * lead, t.a.at(i, k), m);
  }
}

// op(A) X = B or X op(A) = B; X takes B's place. `other`: the size of B that is not the triangle's.
template <class T>
void solve(const Triangle<T>& t, int64_t order, int64_t other, T* b, int64_t lead) {
  if (order <= kSmall) return t.left ? solve_small_left(t, order, other, b, lead) : solve_small_right(t, order, other, b, lead);
  const int64_t n1 = half(order), n2 = order - n1;
  T* b2 = b + (t.left ? n1 : n1 * lead);
  const View<T> one{b, 1, lead, false}, two{b2, 1, lead, false}, corner = t.lower ? t.a.from(n1, 0) : t.a.from(0, n1);
  const T minus = number<T>(-1);
  if (t.lower == t.left) {  // the first part is known first
    solve(t, n1, other, b, lead);
    if (t.left) add_product(n2, other, n1, minus, corner, one, b2, lead);
    else add_product(other, n2, n1, minus, one, corner, b2, lead);
    solve(t.at(n1), n2, other, b2, lead);
  } else {
    solve(t.at(n1), n2, other, b2, lead);
    if (t.left) add_product(n1, other, n2, minus, corner, two, b, lead);
    else add_product(other, n1, n2, minus, two, corner, b, lead);
    solve(t, n1, other, b, lead);
  }
}

// B := op(A) B or B op(A).
template <class T>
void multiply(const Triangle<T>& t, int64_t order, int64_t other, T* b, int64_t lead) {
  if (order <= kSmall) return t.left ? multiply_small_left(t, order, other, b, lead) : multiply_small_right(t, order, other, b, lead);
  const int64_t n1 = half(order), n2 = order - n1;
  T* b2 = b + (t.left ? n1 : n1 * lead);
  const View<T> one{b, 1, lead, false}, two{b2, 1, lead, false}, corner = t.lower ? t.a.from(n1, 0) : t.a.from(0, n1);
  const T plus = number<T>(1);
  if (t.lower == t.left) {  // the second part changes first: it reads the first one
    multiply(t.at(n1), n2, other, b2, lead);
    if (t.left) add_product(n2, other, n1, plus, corner, one, b2, lead);
    else add_product(other, n2, n1, plus, one, corner, b2, lead);
    multiply(t, n1, other, b, lead);
  } else {
    multiply(t, n1, other, b, lead);
    if (t.left) add_product(n1, other, n2, plus, corner, two, b, lead);
    else add_product(other, n1, n2, plus, two, corner, b, lead);
    multiply(t.at(n1), n2, other, b2, lead);
  }
}

template <class T>
Triangle<T> triangle(char side, char part, char op, char diagonal, const T* a, int lead) {
  const View<T> view = operand(a, lead, op);
  const bool lower = (part == 'L' || part == 'l') == (op == 'N' || op == 'n');
  return {view, lower, side == 'L' || side == 'l', diagonal == 'U' || diagonal == 'u'};
}

template <class T, bool kSolve>
void with_triangle(const Triangle<T>& t, int m, int n, T alpha, T* b, int lead) {
  if (m <= 0 || n <= 0) return;
  if (!is_one(alpha)) {
    for (int64_t j = 0; j < n; ++j) scale(b + j * lead, alpha, m);
  }
  if (linalg::is_zero(alpha)) return;
  const int64_t order = t.left ? m : n, other = t.left ? n : m;
  if constexpr (kSolve) solve(t, order, other, b, lead);
  else multiply(t, order, other, b, lead);
}

// ---- Results that are symmetric (or equal to their conjugate transposed: `hermitian`)

// alpha X Y + (two terms) alpha2 Y' X' added to a triangle of C, n by n.
template <class T>
struct Symmetric {
  View<T> x, y;    // [n, k], [k, n]
  View<T> x2, y2;  // of the second term
  int64_t k;
  T alpha, alpha2;
  bool two, lower, hermitian;

  Symmetric at(int64_t i) const { return {x.from(i, 0), y.from(0, i), x2.from(i, 0), y2.from(0, i), k, alpha, alpha2, two, lower, hermitian}; }

  void add_part(int64_t row, int64_t col, int64_t m, int64_t n, T* c, int64_t lead) const {
    add_product(m, n, k, alpha, x.from(row, 0), y.from(0, col), c, lead);
    if (two) add_product(m, n, k, alpha2, x2.from(row, 0), y2.from(0, col), c, lead);
  }

  void add(int64_t n, T* c, int64_t lead) const {
    if (n > kMiddle) {
      const int64_t n1 = half(n), n2 = n - n1;
      add(n1, c, lead);
      at(n1).add(n2, c + n1 + n1 * lead, lead);
      if (lower) add_part(n1, 0, n2, n1, c + n1, lead);
      else add_part(0, n1, n1, n2, c + n1 * lead, lead);
      return;
    }
    T whole[kMiddle * kMiddle];
    for (int64_t i = 0; i < n * n; ++i) whole[i] = number<T>(0);
    add_part(0, 0, n, n, whole, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = lower ? j : 0; i < (lower ? n : j + 1); ++i) c[i + j * lead] = sum(c[i + j * lead], whole[i + j * n]);
      if constexpr (kComplex<T>) {
        if (hermitian) c[j + j * lead].im = 0;
      }
    }
  }
};

template <class T>
void scale_triangle(bool lower, bool hermitian, int64_t n, T beta, T* c, int64_t lead) {
  for (int64_t j = 0; j < n; ++j) {
    T* first = c + j * lead + (lower ? j : 0);
    scale(first, beta, lower ? n - j : j + 1);
    if constexpr (kComplex<T>) {
      if (hermitian) c[j + j * lead].im = 0;
    }
  }
}

// A A' or A' A, with B: A B' + B A'; alpha's conjugate is of the second term of a hermitian one.
template <class T>
void symmetric(char part, char op, int n, int k, T alpha, const T* a, int lead_a, const T* b, int lead_b, T beta, T* c, int lead, bool hermitian) {
  if (n <= 0) return;
  const bool lower = part == 'L' || part == 'l', transposed = op != 'N' && op != 'n';
  if (!is_one(beta)) scale_triangle(lower, hermitian, n, beta, c, lead);
  if (k <= 0 || linalg::is_zero(alpha)) return;
  const auto rows = [&](const T* p, int l) -> View<T> { return {p, transposed ? l : 1, transposed ? 1 : l, hermitian && transposed}; };
  const auto cols = [&](const T* p, int l) -> View<T> { return {p, transposed ? 1 : l, transposed ? l : 1, hermitian && !transposed}; };
  T alpha2 = alpha;
  if constexpr (kComplex<T>) alpha2.im = hermitian ? -alpha.im : alpha.im;
  const T* other = b ? b : a;
  const int lead_other = b ? lead_b : lead_a;
  Symmetric<T>{rows(a, lead_a), cols(other, lead_other), rows(other, lead_other), cols(a, lead_a), k, alpha, alpha2, b != nullptr, lower, hermitian}.add(n, c,
                                                                                                                                                         lead);
}

}  // namespace
}  // namespace blas

#define COIL_WITH_TRIANGLE(name, T, solves)                                                                                                              \
  extern "C" void name(const char* side, const char* part, const char* op, const char* diagonal, const int* m, const int* n, const T* alpha, const T* a, \
                       const int* lead_a, T* b, const int* lead_b, size_t, size_t, size_t, size_t) {                                                     \
    blas::with_triangle<T, solves>(blas::triangle(*side, *part, *op, *diagonal, a, *lead_a), *m, *n, *alpha, b, *lead_b);                                \
  }
COIL_WITH_TRIANGLE(strsm_, float, true)
COIL_WITH_TRIANGLE(dtrsm_, double, true)
COIL_WITH_TRIANGLE(ctrsm_, linalg::c64, true)
COIL_WITH_TRIANGLE(ztrsm_, linalg::c128, true)
COIL_WITH_TRIANGLE(strmm_, float, false)
COIL_WITH_TRIANGLE(dtrmm_, double, false)
COIL_WITH_TRIANGLE(ctrmm_, linalg::c64, false)
COIL_WITH_TRIANGLE(ztrmm_, linalg::c128, false)

// `Scalar` is the type of alpha, `Beta` of beta: of hermitian results they are real.
#define COIL_SYMMETRIC(name, T, Scalar, hermitian)                                                                                                           \
  extern "C" void name(const char* part, const char* op, const int* n, const int* k, const Scalar* alpha, const T* a, const int* lead_a, const Scalar* beta, \
                       T* c, const int* lead, size_t, size_t) {                                                                                              \
    blas::symmetric<T>(*part, *op, *n, *k, blas::number<T>(*alpha), a, *lead_a, nullptr, 0, blas::number<T>(*beta), c, *lead, hermitian);                    \
  }
#define COIL_SYMMETRIC_OF_TWO(name, T, Beta, hermitian)                                                                                         \
  extern "C" void name(const char* part, const char* op, const int* n, const int* k, const T* alpha, const T* a, const int* lead_a, const T* b, \
                       const int* lead_b, const Beta* beta, T* c, const int* lead, size_t, size_t) {                                            \
    blas::symmetric<T>(*part, *op, *n, *k, *alpha, a, *lead_a, b, *lead_b, blas::number<T>(*beta), c, *lead, hermitian);                        \
  }
COIL_SYMMETRIC(ssyrk_, float, float, false)
COIL_SYMMETRIC(dsyrk_, double, double, false)
COIL_SYMMETRIC(cherk_, linalg::c64, float, true)
COIL_SYMMETRIC(zherk_, linalg::c128, double, true)
COIL_SYMMETRIC_OF_TWO(ssyr2k_, float, float, false)
COIL_SYMMETRIC_OF_TWO(dsyr2k_, double, double, false)
COIL_SYMMETRIC_OF_TWO(cher2k_, linalg::c64, float, true)
COIL_SYMMETRIC_OF_TWO(zher2k_, linalg::c128, double, true)
