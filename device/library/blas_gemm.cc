// Products of matrices: copied to panels, and multiplied by tiles of accumulators.
#include "device/library/blas.h"

namespace blas {
namespace {

constexpr int64_t kVectorBytes = 32;
template <class R>
using Vector __attribute__((vector_size(32), aligned(32))) = R;

// A tile is `kRows` by `kCols`; a complex one has two numbers for each element, so that it has half the rows.
template <class T>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(Real<T>));
template <class T>
inline constexpr int64_t kRows = kComplex<T> ? kLanes<T> : 2 * kLanes<T>;
constexpr int64_t kCols = 6;

// Copies of pieces of A and B lie on the stack, 48 KB and 144 KB: a routine of BLAS has no way to say that there is no memory.
template <class T>
inline constexpr int64_t kDepth = 768 / static_cast<int64_t>(sizeof(T));
constexpr int64_t kBlockRows = 64, kBlockCols = 192;
constexpr int64_t kFew = 512;  // multiplications that are not worth copies

// `vectors` lines of `width` elements for each k: real parts, then imaginary ones. What lies outside of the matrix is 0.
template <class T, class Element>
void pack(Real<T>* to, int64_t lines, int64_t depth, int64_t width, const Element& element) {
  for (int64_t first = 0; first < lines; first += width) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < width; ++i) {
        const T x = first + i < lines ? element(first + i, k) : number<T>(0);
        to[i] = linalg::real_part(x);
        if constexpr (kComplex<T>) to[width + i] = x.im;
      }
      to += kComplex<T> ? 2 * width : width;
    }
  }
}

// Whole panels of a matrix whose lines lie next to each other, without a question for each element.
template <class R>
void pack_lines(R* to, View<R> a, int64_t lines, int64_t depth) {
  constexpr int64_t width = kRows<R>;
  for (int64_t first = 0; first < lines; first += width) {
    const int64_t count = lines - first < width ? lines - first : width;
    for (int64_t k = 0; k < depth; ++k, to += width) {
      const R* from = a.data + first + k * a.cols;
      for (int64_t i = 0; i < count; ++i) to[i] = from[i];
      for (int64_t i = count; i < width; ++i) to[i] = 0;
    }
  }
}

// The tile's sums, [kCols][kRows]; of complex numbers the real parts of a column, then the imaginary ones.
template <class T>
void multiply_tile(int64_t depth, const Real<T>* a, const Real<T>* b, Real<T>* out) {
  using V = Vector<Real<T>>;
  constexpr int64_t lanes = kLanes<T>;
  V low[kCols] = {}, high[kCols] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const V a0 = *reinterpret_cast<const V*>(a), a1 = *reinterpret_cast<const V*>(a + lanes);
#pragma clang loop unroll(full)
    for (int64_t j = 0; j < kCols; ++j) {
      if constexpr (kComplex<T>) {
        low[j] += a0 * b[j];
        low[j] -= a1 * b[kCols + j];
        high[j] += a0 * b[kCols + j];
        high[j] += a1 * b[j];
      } else {
        low[j] += a0 * b[j];
        high[j] += a1 * b[j];
      }
    }
    a += 2 * lanes;
    b += kComplex<T> ? 2 * kCols : kCols;
  }
  for (int64_t j = 0; j < kCols; ++j) {
    *reinterpret_cast<V*>(out + j * 2 * lanes) = low[j];
    *reinterpret_cast<V*>(out + j * 2 * lanes + lanes) = high[j];
  }
}

template <class T>
void add_tile(const Real<T>* tile, int64_t rows, int64_t cols, T alpha, T* c, int64_t lead) {
  for (int64_t j = 0; j < cols; ++j) {
    const Real<T>* column = tile + j * 2 * kLanes<T>;
    T* to = c + j * lead;
    for (int64_t i = 0; i < rows; ++i) {
      if constexpr (kComplex<T>) to[i] = sum(to[i], linalg::product(alpha, T{column[i], column[kLanes<T> + i]}));
      else to[i] += alpha * column[i];
    }
  }
}

template <class T>
T row_by_column(const View<T>& a, const View<T>& b, int64_t i, int64_t j, int64_t k) {
#pragma clang fp reassociate(on)
  T total = number<T>(0);
  for (int64_t p = 0; p < k; ++p) total = sum(total, linalg::product(a.at(i, p), b.at(p, j)));
  return total;
}

template <class T>
void add_few(int64_t m, int64_t n, int64_t k, T alpha, View<T> a, View<T> b, T* c, int64_t lead) {
  for (int64_t j = 0; j < n; ++j) {
    T* to = c + j * lead;
    if (a.rows == 1 && !a.conj) {
      for (int64_t p = 0; p < k; ++p) add_multiple(to, a.data + p * a.cols, linalg::product(alpha, b.at(p, j)), m);
    } else {
      for (int64_t i = 0; i < m; ++i) to[i] = sum(to[i], linalg::product(alpha, row_by_column(a, b, i, j, k)));
    }
  }
}

}  // namespace

template <class T>
void add_product(int64_t m, int64_t n, int64_t k, T alpha, View<T> a, View<T> b, T* c, int64_t lead) {
  if (m * n * k <= kFew || n == 1) return add_few(m, n, k, alpha, a, b, c, lead);
  constexpr int64_t parts = kComplex<T> ? 2 : 1, rows = kRows<T>, depth_most = kDepth<T>;
  alignas(64) Real<T> packed_a[kBlockRows * depth_most * parts];
  alignas(64) Real<T> packed_b[kBlockCols * depth_most * parts];
  alignas(64) Real<T> tile[2 * kLanes<T> * kCols];
  for (int64_t p = 0; p < k; p += depth_most) {
    const int64_t depth = k - p < depth_most ? k - p : depth_most;
    for (int64_t j = 0; j < n; j += kBlockCols) {
      const int64_t cols = n - j < kBlockCols ? n - j : kBlockCols;
      const View<T> right = b.from(p, j);
      pack<T>(packed_b, cols, depth, kCols, [&](int64_t line, int64_t q) { return right.at(q, line); });
      for (int64_t i = 0; i < m; i += kBlockRows) {
        const int64_t count = m - i < kBlockRows ? m - i : kBlockRows;
        const View<T> left = a.from(i, p);
        bool copied = false;
        if constexpr (!kComplex<T>) {
          copied = left.rows == 1;
          if (copied) pack_lines(packed_a, left, count, depth);
        }
        if (!copied) pack<T>(packed_a, count, depth, rows, [&](int64_t line, int64_t q) { return left.at(line, q); });
        for (int64_t y = 0; y < cols; y += kCols) {
          for (int64_t x = 0; x < count; x += rows) {
            multiply_tile<T>(depth, packed_a + x * depth * parts, packed_b + y * depth * parts, tile);
            add_tile<T>(tile, count - x < rows ? count - x : rows, cols - y < kCols ? cols - y : kCols, alpha, c + i + x + (j + y) * lead, lead);
          }
        }
      }
    }
  }
}
template void add_product(int64_t, int64_t, int64_t, float, View<float>, View<float>, float*, int64_t);
template void add_product(int64_t, int64_t, int64_t, double, View<double>, View<double>, double*, int64_t);
template void add_product(int64_t, int64_t, int64_t, linalg::c64, View<linalg::c64>, View<linalg::c64>, linalg::c64*, int64_t);
template void add_product(int64_t, int64_t, int64_t, linalg::c128, View<linalg::c128>, View<linalg::c128>, linalg::c128*, int64_t);

namespace {

template <class T>
void gemm(char op_a, char op_b, int m, int n, int k, T alpha, const T* a, int lead_a, const T* b, int lead_b, T beta, T* c, int lead_c) {
  if (!is_one(beta)) {
    for (int j = 0; j < n; ++j) scale(c + static_cast<int64_t>(j) * lead_c, beta, m);
  }
  if (m <= 0 || n <= 0 || k <= 0 || linalg::is_zero(alpha)) return;
  add_product<T>(m, n, k, alpha, operand(a, lead_a, op_a), operand(b, lead_b, op_b), c, lead_c);
}

}  // namespace
}  // namespace blas

#define COIL_GEMM(name, T)                                                                                                                          \
  extern "C" void name(const char* op_a, const char* op_b, const int* m, const int* n, const int* k, const T* alpha, const T* a, const int* lead_a, \
                       const T* b, const int* lead_b, const T* beta, T* c, const int* lead_c, size_t, size_t) {                                     \
    blas::gemm<T>(*op_a, *op_b, *m, *n, *k, *alpha, a, *lead_a, b, *lead_b, *beta, c, *lead_c);                                                     \
  }
COIL_GEMM(sgemm_, float)
COIL_GEMM(dgemm_, double)
COIL_GEMM(cgemm_, linalg::c64)
COIL_GEMM(zgemm_, linalg::c128)
