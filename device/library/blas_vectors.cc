// A matrix and vectors: what the reductions to fewer diagonals and the columns of factorisations spend their time in. Rows are gone through in chunks;
// the chunk of a vector whose elements lie apart is copied.
#include "device/library/blas.h"

namespace blas {
namespace {

constexpr int64_t kChunk = 512;

// The elements of a Fortran vector, of which a negative increment begins at the end.
template <class T>
T* first_of(T* x, int64_t n, int64_t increment) {
  return increment < 0 ? x - (n - 1) * increment : x;
}

template <class T>
T conjugated(T x, bool yes) {
  if constexpr (kComplex<T>) x.im = yes ? -x.im : x.im;
  return x;
}

template <class T>
T dot(const T* __restrict a, const T* __restrict b, int64_t count, bool conj_a) {
#pragma clang fp reassociate(on)
  if constexpr (kComplex<T>) {
    const Real<T> sign = conj_a ? -1 : 1;
    Real<T> re = 0, im = 0;
    for (int64_t i = 0; i < count; ++i) {
      re += a[i].re * b[i].re - sign * a[i].im * b[i].im;
      im += a[i].re * b[i].im + sign * a[i].im * b[i].re;
    }
    return {re, im};
  } else {
    T total = 0;
    for (int64_t i = 0; i < count; ++i) total += a[i] * b[i];
    return total;
  }
}

// y := alpha op(A) x + beta y, A [m, n].
template <class T>
void gemv(char op, int64_t m, int64_t n, T alpha, const T* a, int64_t lead, const T* x, int64_t step_x, T beta, T* y, int64_t step_y) {
  const bool transposed = op != 'N' && op != 'n', conj = op == 'C' || op == 'c';
  const int64_t count_x = transposed ? m : n, count_y = transposed ? n : m;
  if (m <= 0 || n <= 0) return;
  x = first_of(x, count_x, step_x);
  y = first_of(y, count_y, step_y);
  if (!is_one(beta)) {
    for (int64_t i = 0; i < count_y; ++i) scale(y + i * step_y, beta, 1);
  }
  if (linalg::is_zero(alpha)) return;
  T part[kChunk];
  for (int64_t row = 0; row < m; row += kChunk) {
    const int64_t rows = m - row < kChunk ? m - row : kChunk;
    if (transposed) {
      for (int64_t i = 0; i < rows; ++i) part[i] = x[(row + i) * step_x];
      for (int64_t j = 0; j < n; ++j) y[j * step_y] = sum(y[j * step_y], linalg::product(alpha, dot(a + row + j * lead, part, rows, conj)));
    } else {
      for (int64_t i = 0; i < rows; ++i) part[i] = number<T>(0);
      for (int64_t j = 0; j < n; ++j) add_multiple(part, a + row + j * lead, x[j * step_x], rows);
      for (int64_t i = 0; i < rows; ++i) y[(row + i) * step_y] = sum(y[(row + i) * step_y], linalg::product(alpha, part[i]));
    }
  }
}

// A += alpha x y'
template <class T>
void ger(int64_t m, int64_t n, T alpha, const T* x, int64_t step_x, const T* y, int64_t step_y, T* a, int64_t lead, bool conj) {
  if (m <= 0 || n <= 0 || linalg::is_zero(alpha)) return;
  x = first_of(x, m, step_x);
  y = first_of(y, n, step_y);
  T part[kChunk];
  for (int64_t row = 0; row < m; row += kChunk) {
    const int64_t rows = m - row < kChunk ? m - row : kChunk;
    for (int64_t i = 0; i < rows; ++i) part[i] = x[(row + i) * step_x];
    for (int64_t j = 0; j < n; ++j) add_multiple(a + row + j * lead, part, linalg::product(alpha, conjugated(y[j * step_y], conj)), rows);
  }
}

// The part of a column below or above the diagonal, both ways: to += by * column, and what the column is times x.
template <class T>
T both_ways(T* __restrict to, const T* __restrict column, const T* __restrict x, T by, int64_t count) {
#pragma clang fp reassociate(on)
  T total = number<T>(0);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = sum(to[i], linalg::product(by, column[i]));
    total = sum(total, linalg::product(conjugated(column[i], true), x[i]));
  }
  return total;
}

// y := alpha A x + beta y of a symmetric or hermitian A whose one triangle is there.
template <class T>
void symv(char part, int64_t n, T alpha, const T* a, int64_t lead, const T* x, int64_t step_x, T beta, T* y, int64_t step_y) {
  if (n <= 0) return;
  const bool lower = part == 'L' || part == 'l', dense = step_x == 1 && step_y == 1;
  x = first_of(x, n, step_x);
  y = first_of(y, n, step_y);
  if (!is_one(beta)) {
    for (int64_t i = 0; i < n; ++i) scale(y + i * step_y, beta, 1);
  }
  if (linalg::is_zero(alpha)) return;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = lower ? j + 1 : 0, count = lower ? n - j - 1 : j;
    const T *column = a + j * lead + first, by = linalg::product(alpha, x[j * step_x]);
    T total = number<T>(0);
    if (dense) {
      total = both_ways(y + first, column, x + first, by, count);
    } else {
      for (int64_t i = 0; i < count; ++i) total = sum(total, both_ways(y + (first + i) * step_y, column + i, x + (first + i) * step_x, by, 1));
    }
    T diagonal = a[j * lead + j];
    if constexpr (kComplex<T>) diagonal.im = 0;
    y[j * step_y] = sum(y[j * step_y], sum(linalg::product(by, diagonal), linalg::product(alpha, total)));
  }
}

}  // namespace
}  // namespace blas

#define COIL_GEMV(name, T)                                                                                                                                    \
  extern "C" void name(const char* op, const int* m, const int* n, const T* alpha, const T* a, const int* lead, const T* x, const int* step_x, const T* beta, \
                       T* y, const int* step_y, size_t) {                                                                                                     \
    blas::gemv<T>(*op, *m, *n, *alpha, a, *lead, x, *step_x, *beta, y, *step_y);                                                                              \
  }
COIL_GEMV(sgemv_, float)
COIL_GEMV(dgemv_, double)
COIL_GEMV(cgemv_, linalg::c64)
COIL_GEMV(zgemv_, linalg::c128)

#define COIL_GER(name, T, conj)                                                                                                                           \
  extern "C" void name(const int* m, const int* n, const T* alpha, const T* x, const int* step_x, const T* y, const int* step_y, T* a, const int* lead) { \
    blas::ger<T>(*m, *n, *alpha, x, *step_x, y, *step_y, a, *lead, conj);                                                                                 \
  }
COIL_GER(sger_, float, false)
COIL_GER(dger_, double, false)
COIL_GER(cgeru_, linalg::c64, false)
COIL_GER(cgerc_, linalg::c64, true)
COIL_GER(zgeru_, linalg::c128, false)
COIL_GER(zgerc_, linalg::c128, true)

#define COIL_SYMV(name, T)                                                                                                                              \
  extern "C" void name(const char* part, const int* n, const T* alpha, const T* a, const int* lead, const T* x, const int* step_x, const T* beta, T* y, \
                       const int* step_y, size_t) {                                                                                                     \
    blas::symv<T>(*part, *n, *alpha, a, *lead, x, *step_x, *beta, y, *step_y);                                                                          \
  }
COIL_SYMV(ssymv_, float)
COIL_SYMV(dsymv_, double)
COIL_SYMV(chemv_, linalg::c64)
COIL_SYMV(zhemv_, linalg::c128)
