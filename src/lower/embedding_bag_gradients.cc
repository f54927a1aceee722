// Gradients of embedding_bag: of the table, and of the samples' weights.
#include "lower/embedding_bag.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

// The bag of each index: eager's number of it, or where that has no elements what the offsets say.
View given_bags(Op& op, const View& indices, Expr bags) {
  const View given = op.tensor("offset2bag");
  if (given.sizes == indices.sizes || !op.node.find("offsets")) return given;
  return bags_of(op, op.tensor("offsets"), bags, indices.sizes.at(0));
}

// One call: which bag an index is in, and numbers of the bag there.
struct BagGradient {
  Op& op;
  View grad, indices, bags;
  DType type;
  Val padding;  // i64; -1: none

  Expr bag(Expr k) const {
    return op.pool.checked_index(max(Val(as(op.rec.at(bags, std::vector<Expr>{k}), DType::i64)), 0.0).e, index_max(grad.sizes[0], op.pool.index(1)));
  }
  Val row(Expr k) const { return as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64); }
  Val grad_at(Expr bag, Expr column) const { return as(op.rec.at(grad, std::vector<Expr>{bag, column}), type); }
};

BagGradient bag_gradient(Op& op) {
  const View grad = op.tensor("grad"), indices = op.tensor("indices");
  const Val padding = op.pool.cast(op.index("padding_idx"), DType::i64);
  return {op, grad, indices, given_bags(op, indices, grad.sizes.at(0)), accumulate_type(grad.dtype), padding};
}

// The rows with the largest numbers of a bag that is not empty get its gradient, number by number.
Views of_largest(const BagGradient& g) {
  Op& op = g.op;
  ExprPool& p = op.pool;
  const View largest = op.tensor("maximum_indices"), sizes = op.tensor("bag_size");
  const TensorType& out = op.out();
  const Expr columns = out.sizes.at(1), numbers = out.sizes.at(0) * columns;
  RowSums sums{op.name + ".numbers", g.type, numbers, p.index(1), g.grad.sizes, {}, {}};
  sums.row = [&](Coordinates k) {
    const Val used = as(op.rec.at(sizes, k.first(1)), DType::i64);
    const Val number = Val(as(op.rec.at(largest, k), DType::i64)) * Val(p.cast(columns, DType::i64)) + Val(p.cast(k[1], DType::i64));
    return select(used > 0.0, number, Val(p.cast(numbers, DType::i64))).e;
  };
  sums.value = [&](Coordinates k, Expr) { return g.grad_at(k[0], k[1]).e; };
  return {converted(op, reshaped(op, summed_rows(op, sums), out.sizes), out.dtype)};
}

// Each row that an index names gets the gradient of the index's bag.
Views embedding_bag_backward(Op& op) {
  if (op.node.find("sparse") && op.flag("sparse")) fail(ErrorCode::unsupported_feature, op.node.target + " with a sparse gradient");
  const BagGradient g = bag_gradient(op);
  const int64_t mode = op.integer("mode");
  if (mode == kLargestOfBag) return of_largest(g);
  const std::optional<View> weights = op.maybe_tensor("per_sample_weights");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const Expr rows = out.sizes.at(0), n = g.indices.sizes.at(0);
  const auto row = [&](Coordinates k) {
    const Val index = g.row(k[0]);
    return select(equal(index, g.padding), Val(p.cast(rows, DType::i64)), Val(p.cast(checked_position(op, index.e, rows), DType::i64))).e;
  };
  const View sizes = mode == kMeanOfBag ? op.tensor("bag_size") : View{};
  const auto value = [&](Coordinates k, Expr column) {
    const Expr bag = g.bag(k[0]);
    Val found = g.grad_at(bag, column);
    if (weights) found = found * Val(as(op.rec.at(*weights, k), g.type));
    if (mode == kMeanOfBag) found = found / max(Val(as(op.rec.at(sizes, std::vector<Expr>{bag}), g.type)), 1.0);
    return found.e;
  };
  const View sum = summed_rows(op, {op.name + ".rows", g.type, rows, out.sizes.at(1), {n}, row, value});
  if (!op.flag("scale_grad_by_freq")) return {converted(op, sum, out.dtype)};
  const Expr one = p.constant_int(1, DType::i64);
  const View met = summed_rows(op, {op.name + ".count", DType::i64, rows, p.index(1), {n}, row, [&](Coordinates, Expr) { return one; }});
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    return (Val(op.rec.at(sum, c)) / max(Val(as(op.rec.at(met, std::vector<Expr>{c[0], p.index(0)}), g.type)), 1.0)).e;
  })};
}

// The product of the row that an index names and the gradient of its bag.
Views per_sample_weights_backward(Op& op) {
  const BagGradient g = bag_gradient(op);
  const View table = op.tensor("weight");
  const TensorType& out = op.out();
  const View products = op.rec.reduce(op.name + ".product", ReduceOp::sum, g.type, out.sizes, {table.sizes.at(1)}, [&](Coordinates c, Coordinates k) {
    const Expr row = checked_position(op, g.row(c[0]).e, table.sizes[0]);
    return (g.grad_at(g.bag(c[0]), k[0]) * Val(as(op.rec.at(table, std::vector<Expr>{row, k[0]}), g.type))).e;
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes,
                           [&](Coordinates c) { return select(equal(g.row(c[0]), g.padding), 0.0, Val(op.rec.at(products, c))).e; })};
}

}  // namespace

void add_embedding_bag_gradients(Table& table) {
  for (const char* target : {"aten._embedding_bag_backward.default", "aten._embedding_bag_dense_backward.default"}) table[target] = embedding_bag_backward;
  table["aten._embedding_bag_per_sample_weights_backward.default"] = per_sample_weights_backward;
}

}  // namespace coil::lowering
