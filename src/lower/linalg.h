// What the linear algebra lowerings share: matrices of a batch in LAPACK's order, and calls of its routines.
#pragma once

#include <string>
#include <vector>

#include "lower/complex_math.h"
#include "lower/joint_sizes.h"
#include "lower/lowering.h"

namespace coil::lowering {

// Leading dimensions and the last two of a view.
struct Shape {
  Sizes batch;
  Expr rows, cols;
};
Shape matrix_shape(const Op& op, const View& a);

View transposed(Op& op, const View& a);  // of the last two dimensions
View conjugated(Op& op, const View& a);  // itself if real
inline View adjoint(Op& op, const View& a) { return conjugated(op, transposed(op, a)); }
View with_batch(Op& op, const View& a, const Sizes& batch);  // [..., m, n] broadcast to that batch
View identity_matrix(Op& op, DType dtype, Expr n);

// [batch..., m, n] as the library's [b, n, m], and back. Vectors: [batch..., n] as [b, n].
View to_columns(Op& op, const View& a);
View from_columns(Op& op, const View& columns, const Sizes& batch);
View flat_batch(Op& op, const View& a, size_t kept);
View with_dims(Op& op, const View& a, const Sizes& batch);

// A call of linalg_<routine> over elements of `type`.
Views call_linalg(Op& op, const char* routine, DType type, Sizes sizes, std::vector<int64_t> options, const Views& inputs,
                  const std::vector<Recorder::Result>& results);

// Whether the node asks for a failure (an argument of some operators).
inline bool wants_errors(const Op& op) { return op.node.find("check_errors") && op.flag("check_errors"); }
// Fails the call where info (int32, any shape) is not 0. The kinds are those of device/library/linalg_solve.cc.
enum class Failure : int64_t { inverse, solve, cholesky, svd, eig, lu_factor, other };
void check_info(Op& op, const View& info, Failure kind, const std::string& subject);

// --- factorisations; columns are the library's tensors, info and values have the batch's shape
struct LuFactors {
  Shape shape;
  View columns, pivots, info;  // [b, n, m], [b, k], [b]
};
LuFactors lu_factors(Op& op, const View& a);
// The X of A X = B (or transposed, adjoint) from factors of a square A; b: [batch..., n, k], the same batch.
View lu_solution(Op& op, const LuFactors& lu, const View& b, int64_t transposition);

struct Svd {
  View u, s, vh, info;  // u and vh: empty bodies without vectors
};
Svd svd_of(Op& op, const View& a, bool vectors, bool full);
struct Eigh {
  View values, vectors, info;
};
Eigh eigh_of(Op& op, const View& a, bool vectors, bool upper);

View inverse_of(Op& op, const View& a, View* info);
// a times b over the last two dimensions, of the same batch
View product_of(Op& op, const View& a, const View& b);
// |x|, real
Expr size_of(const View& v, Expr value);

// The families that add_linalg adds.
void add_linalg_factors(Table& table);
void add_linalg_solvers(Table& table);
void add_linalg_spectra(Table& table);
void add_linalg_norms(Table& table);
void add_linalg_products(Table& table);

}  // namespace coil::lowering
