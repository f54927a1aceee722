// What the routines of BLAS share that are here instead of Debian's: those that LAPACK spends its time in. Debian's reference build goes element by element.
//
// They compute what the reference says they do, in another order. Where it leaves out products with an element that is 0 (and so what is infinite beside
// it), these do not, as the BLAS that PyTorch calls does not.
#ifndef COIL_DEVICE_LIBRARY_BLAS_H_
#define COIL_DEVICE_LIBRARY_BLAS_H_

#include "device/library/linalg.h"

namespace blas {

using linalg::kComplex;
using linalg::number;
using linalg::Real;

// A matrix that is read: element (i, j) at data[i * rows + j * cols], conjugated or not.
template <class T>
struct View {
  const T* data;
  int64_t rows, cols;  // strides
  bool conj;

  View from(int64_t i, int64_t j) const { return {data + i * rows + j * cols, rows, cols, conj}; }
  T at(int64_t i, int64_t j) const {
    T x = data[i * rows + j * cols];
    if constexpr (kComplex<T>) x.im = conj ? -x.im : x.im;
    return x;
  }
};

// op(A), by the letter that Fortran has for it.
template <class T>
View<T> operand(const T* a, int64_t lead, char op) {
  const bool transposed = op != 'N' && op != 'n';
  return {a, transposed ? lead : 1, transposed ? 1 : lead, kComplex<T> && (op == 'C' || op == 'c')};
}

template <class T>
T sum(const T& a, const T& b) {
  if constexpr (kComplex<T>) return {a.re + b.re, a.im + b.im};
  else return a + b;
}
template <class T>
T negative(const T& a) {
  if constexpr (kComplex<T>) return {-a.re, -a.im};
  else return -a;
}
template <class T>
bool is_one(const T& x) {
  if constexpr (kComplex<T>) return x.re == 1 && x.im == 0;
  else return x == 1;
}
// to[i] += by * from[i]
template <class T>
void add_multiple(T* __restrict to, const T* __restrict from, T by, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = sum(to[i], linalg::product(by, from[i]));
}
template <class T>
void scale(T* x, T by, int64_t count) {
  if (linalg::is_zero(by)) {
    for (int64_t i = 0; i < count; ++i) x[i] = number<T>(0);  // what is no number included
    return;
  }
  for (int64_t i = 0; i < count; ++i) x[i] = linalg::product(by, x[i]);
}

// C += alpha A B. C [m, n] is column-major with `lead`.
template <class T>
void add_product(int64_t m, int64_t n, int64_t k, T alpha, View<T> a, View<T> b, T* c, int64_t lead);

}  // namespace blas
#endif  // COIL_DEVICE_LIBRARY_BLAS_H_
