// coil's own routines of BLAS beside sums of products in double precision: every letter, sizes around those of tiles and panels, leads and increments.
#include <gtest/gtest.h>

#include <complex>
#include <random>
#include <vector>

#include "device/library/blas_gemm.cc"
#include "device/library/blas_triangles.cc"
#include "device/library/blas_vectors.cc"

namespace {

using Wide = std::complex<double>;
using linalg::c128;
using linalg::c64;

template <class T>
Wide wide(const T& x) {
  if constexpr (blas::kComplex<T>) return {x.re, x.im};
  else return x;
}
template <class T>
T narrow(Wide x) {
  if constexpr (blas::kComplex<T>) return {static_cast<blas::Real<T>>(x.real()), static_cast<blas::Real<T>>(x.imag())};
  else return static_cast<T>(x.real());
}

std::mt19937 source(7);

template <class T>
Wide random_number() {
  std::uniform_real_distribution<double> d(-1, 1);
  const double re = d(source), im = blas::kComplex<T> ? d(source) : 0;
  return wide(narrow<T>({re, im}));
}

// A column-major matrix with more rows than it uses.
template <class T>
struct Matrix {
  int rows, cols, lead;
  std::vector<T> data;

  Matrix(int r, int c) : rows(r), cols(c), lead(r + 2), data(static_cast<size_t>((r + 2) * c)) {
    for (T& x : data) x = narrow<T>(random_number<T>());
  }
  Wide at(int i, int j) const { return wide(data[static_cast<size_t>(i + j * lead)]); }
  Wide at(int i, int j, char op) const { return op == 'N' ? at(i, j) : op == 'T' ? at(j, i) : std::conj(at(j, i)); }
};

template <class T>
constexpr double kClose = sizeof(blas::Real<T>) == 4 ? 2e-6 : 1e-14;

// `wanted(i, j)` of all elements, those between columns included, which stay as they were.
template <class T, class F>
void expect_near(const Matrix<T>& found, const Matrix<T>& before, double terms, const F& wanted, const std::string& what) {
  for (int j = 0; j < found.cols; ++j) {
    for (int i = 0; i < found.lead; ++i) {
      const Wide x = found.at(i, j), y = i < found.rows ? wanted(i, j) : before.at(i, j);
      ASSERT_LE(std::abs(x - y), kClose<T> * (terms + 4)) << what << ": " << i << ", " << j;
    }
  }
}

template <class T>
struct Routines;
#define COIL_ROUTINES(T, letter, symmetric, rank2)                    \
  template <>                                                         \
  struct Routines<T> {                                                \
    static constexpr auto gemm = letter##gemm_;                       \
    static constexpr auto trsm = letter##trsm_, trmm = letter##trmm_; \
    static constexpr auto rank1 = letter##symmetric##k_;              \
    static constexpr auto rank2k = letter##rank2##k_;                 \
    static constexpr auto gemv = letter##gemv_;                       \
  }
COIL_ROUTINES(float, s, syr, syr2);
COIL_ROUTINES(double, d, syr, syr2);
COIL_ROUTINES(c64, c, her, her2);
COIL_ROUTINES(c128, z, her, her2);

template <class T>
class Blas : public ::testing::Test {};
using Types = ::testing::Types<float, double, c64, c128>;
TYPED_TEST_SUITE(Blas, Types);

TYPED_TEST(Blas, Products) {
  using T = TypeParam;
  const int sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 1, 40}, {33, 7, 250}, {65, 193, 20}, {5, 50, 31}, {130, 6, 97}, {1, 70, 80}};
  for (const auto& [m, n, k] : sizes) {
    for (const char a_op : {'N', 'T', 'C'}) {
      for (const char b_op : {'N', 'T', 'C'}) {
        const Matrix<T> a(a_op == 'N' ? m : k, a_op == 'N' ? k : m), b(b_op == 'N' ? k : n, b_op == 'N' ? n : k), before(m, n);
        for (const double beta : {0.0, 1.0, 0.5}) {
          Matrix<T> c = before;
          const T alpha = narrow<T>({-0.5, 0.25}), by = narrow<T>(beta);
          Routines<T>::gemm(&a_op, &b_op, &m, &n, &k, &alpha, a.data.data(), &a.lead, b.data.data(), &b.lead, &by, c.data.data(), &c.lead, 1, 1);
          expect_near(
              c, before, k,
              [&, k = k](int i, int j) {
                Wide total = 0;
                for (int p = 0; p < k; ++p) total += a.at(i, p, a_op) * b.at(p, j, b_op);
                return wide(alpha) * total + beta * before.at(i, j);
              },
              std::string{a_op, b_op});
        }
      }
    }
  }
}

// Solutions are multiplied again.
TYPED_TEST(Blas, Triangles) {
  using T = TypeParam;
  const int sizes[][2] = {{1, 1}, {5, 3}, {16, 17}, {17, 16}, {40, 9}, {9, 40}, {70, 66}};
  for (const auto& [m, n] : sizes) {
    for (int letters = 0; letters < 24; ++letters) {
      const char side = letters & 1 ? 'L' : 'R', part = letters & 2 ? 'U' : 'L', unit = letters & 4 ? 'U' : 'N', op = "NTC"[letters / 8];
      const int order = side == 'L' ? m : n;
      Matrix<T> a(order, order);
      for (T& x : a.data) x = narrow<T>(wide(x) / (2.0 * order));
      for (int i = 0; i < order; ++i) a.data[static_cast<size_t>(i + i * a.lead)] = narrow<T>({1.5, 0.25});
      const auto triangle = [&](int i, int j) -> Wide {  // of op(A)
        if (i == j) return unit == 'U' ? Wide(1) : a.at(i, i, op);
        const bool stored_below = op == 'N' ? i > j : j > i;
        return stored_below == (part == 'L') ? a.at(i, j, op) : Wide(0);
      };
      const auto product = [&, m = m, n = n](const Matrix<T>& x, int i, int j) {
        Wide total = 0;
        for (int p = 0; p < (side == 'L' ? m : n); ++p) total += side == 'L' ? triangle(i, p) * x.at(p, j) : x.at(i, p) * triangle(p, j);
        return total;
      };
      const Matrix<T> before(m, n);
      const T alpha = narrow<T>(0.5);
      const std::string what{side, part, op, unit};
      Matrix<T> x = before;
      Routines<T>::trmm(&side, &part, &op, &unit, &m, &n, &alpha, a.data.data(), &a.lead, x.data.data(), &x.lead, 1, 1, 1, 1);
      expect_near(x, before, order, [&](int i, int j) { return 0.5 * product(before, i, j); }, "trmm " + what);
      x = before;
      Routines<T>::trsm(&side, &part, &op, &unit, &m, &n, &alpha, a.data.data(), &a.lead, x.data.data(), &x.lead, 1, 1, 1, 1);
      Matrix<T> again = before;
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) again.data[static_cast<size_t>(i + j * again.lead)] = narrow<T>(product(x, i, j));
      }
      expect_near(again, before, order, [&](int i, int j) { return 0.5 * before.at(i, j); }, "trsm " + what);
    }
  }
}

TYPED_TEST(Blas, SymmetricResults) {
  using T = TypeParam;
  using R = blas::Real<T>;
  const char adjoint = blas::kComplex<T> ? 'C' : 'T';
  const int sizes[][2] = {{1, 1}, {5, 3}, {48, 16}, {49, 70}, {130, 33}};
  for (const auto& [n, k] : sizes) {
    for (int letters = 0; letters < 8; ++letters) {
      const char part = letters & 1 ? 'U' : 'L', op = letters & 2 ? adjoint : 'N';
      const bool two = letters & 4;
      const Matrix<T> a(op == 'N' ? n : k, op == 'N' ? k : n), b(op == 'N' ? n : k, op == 'N' ? k : n), before(n, n);
      for (const double beta : {0.0, 1.0, 0.5}) {
        Matrix<T> c = before;
        const Wide alpha = two && blas::kComplex<T> ? Wide(0.75, 0.25) : Wide(0.75);
        const T by = narrow<T>(alpha);
        const R real = 0.75, real_beta = static_cast<R>(beta);
        if (two) Routines<T>::rank2k(&part, &op, &n, &k, &by, a.data.data(), &a.lead, b.data.data(), &b.lead, &real_beta, c.data.data(), &c.lead, 1, 1);
        else Routines<T>::rank1(&part, &op, &n, &k, &real, a.data.data(), &a.lead, &real_beta, c.data.data(), &c.lead, 1, 1);
        const auto rows = [&](const Matrix<T>& x, int i, int p) { return op == 'N' ? x.at(i, p) : std::conj(x.at(p, i)); };
        expect_near(
            c, before, 2 * k,
            [&, k = k](int i, int j) -> Wide {
              if (part == 'L' ? i < j : i > j) return before.at(i, j);
              Wide total = 0;
              for (int p = 0; p < k; ++p) {
                total += two ? alpha * rows(a, i, p) * std::conj(rows(b, j, p)) + std::conj(alpha) * rows(b, i, p) * std::conj(rows(a, j, p))
                             : alpha * rows(a, i, p) * std::conj(rows(a, j, p));
              }
              const Wide old = i == j ? Wide(before.at(i, j).real()) : before.at(i, j);
              return total + beta * old;
            },
            std::string{part, op, two ? '2' : '1'});
      }
    }
  }
}

// Element i of a Fortran vector of n.
template <class T>
Wide element(const std::vector<T>& x, int i, int n, int step) {
  return wide(x[static_cast<size_t>(step > 0 ? i * step : (i - n + 1) * step)]);
}
template <class T>
std::vector<T> vector_of(int n, int step) {
  std::vector<T> x(static_cast<size_t>(n * std::abs(step)));
  for (T& v : x) v = narrow<T>(random_number<T>());
  return x;
}

TYPED_TEST(Blas, Vectors) {
  using T = TypeParam;
  const int sizes[][2] = {{1, 1}, {3, 7}, {600, 9}, {9, 600}, {513, 3}}, steps[][2] = {{1, 1}, {2, 3}, {-1, 1}, {1, -2}};
  for (const auto& [m, n] : sizes) {
    for (const auto& [step_x, step_y] : steps) {
      for (const char op : {'N', 'T', 'C'}) {
        const Matrix<T> a(m, n);
        const int count_x = op == 'N' ? n : m, count_y = op == 'N' ? m : n;
        const std::vector<T> x = vector_of<T>(count_x, step_x), before = vector_of<T>(count_y, step_y);
        std::vector<T> y = before;
        const T alpha = narrow<T>({0.75, -0.25}), beta = narrow<T>(0.5);
        Routines<T>::gemv(&op, &m, &n, &alpha, a.data.data(), &a.lead, x.data(), &step_x, &beta, y.data(), &step_y, 1);
        for (int i = 0; i < count_y; ++i) {
          Wide total = 0;
          for (int p = 0; p < count_x; ++p) total += a.at(i, p, op) * element(x, p, count_x, step_x);
          const Wide wanted = wide(alpha) * total + 0.5 * element(before, i, count_y, step_y);
          ASSERT_LE(std::abs(element(y, i, count_y, step_y) - wanted), kClose<T> * (count_x + 4)) << op << " " << i;
        }
      }
    }
  }
}

template <class T, class Ger, class Symv>
void check_vectors(Ger* ger, Ger* conjugating, Symv* symv) {
  for (const int n : {1, 2, 7, 64, 515}) {
    for (const auto& [step_x, step_y] : {std::pair(1, 1), std::pair(2, 3), std::pair(-1, 2)}) {
      const Matrix<T> before(n, 5);
      const int cols = 5;
      const std::vector<T> x = vector_of<T>(n, step_x), y = vector_of<T>(n < 5 ? 5 : n, step_y);
      const T alpha = narrow<T>({0.5, 0.25}), beta = narrow<T>(0.5);
      for (Ger* routine : {ger, conjugating}) {
        Matrix<T> a = before;
        routine(&n, &cols, &alpha, x.data(), &step_x, y.data(), &step_y, a.data.data(), &a.lead);
        expect_near(
            a, before, 1,
            [&](int i, int j) {
              const Wide right = element(y, j, cols, step_y);
              return before.at(i, j) + wide(alpha) * element(x, i, n, step_x) * (routine == ger ? right : std::conj(right));
            },
            "ger");
      }
      for (const char part : {'U', 'L'}) {
        const Matrix<T> a(n, n);
        std::vector<T> out = vector_of<T>(n, step_y), old = out;
        symv(&part, &n, &alpha, a.data.data(), &a.lead, x.data(), &step_x, &beta, out.data(), &step_y, 1);
        for (int i = 0; i < n; ++i) {
          Wide total = 0;
          for (int j = 0; j < n; ++j) {
            const bool stored = part == 'L' ? i > j : i < j;
            total += (i == j ? Wide(a.at(i, i).real()) : stored ? a.at(i, j) : std::conj(a.at(j, i))) * element(x, j, n, step_x);
          }
          const Wide wanted = wide(alpha) * total + 0.5 * element(old, i, n, step_y);
          ASSERT_LE(std::abs(element(out, i, n, step_y) - wanted), kClose<T> * (n + 4)) << part << " " << i;
        }
      }
    }
  }
}

TEST(BlasVectors, ProductsAndSymmetricMatrices) {
  check_vectors<float>(sger_, sger_, ssymv_);
  check_vectors<double>(dger_, dger_, dsymv_);
  check_vectors<c64>(cgeru_, cgerc_, chemv_);
  check_vectors<c128>(zgeru_, zgerc_, zhemv_);
}

// A factor of 0 writes over what is no number, as the reference says.
TEST(BlasProducts, NothingIsReadForAFactorOfZero) {
  const char op = 'N';
  const int n = 20;
  const float one = 1, zero = 0;
  const Matrix<float> a(n, n), b(n, n);
  Matrix<float> c(n, n);
  for (float& x : c.data) x = __builtin_nanf("");
  sgemm_(&op, &op, &n, &n, &n, &one, a.data.data(), &a.lead, b.data.data(), &b.lead, &zero, c.data.data(), &c.lead, 1, 1);
  for (int i = 0; i < n * c.lead; ++i) ASSERT_EQ(c.data[static_cast<size_t>(i)] != c.data[static_cast<size_t>(i)], i % c.lead >= n);
}

}  // namespace
