// Products that a template serves badly, in other forms. It computes tiles of tens of rows and columns, each by a few units of the target:
// - all sizes are a few (a batch of small matrices): a sum for each element;
// - two of the three sizes are a few (heads that are mixed with heads, a gradient of such a matrix): a sum in a loop;
// - few tiles and a long sum (a weight's gradient over all pixels): products of parts of the sum, as a batch, and the sum of these. Which parts there are
//   depends on sizes and the target only.
#include <algorithm>
#include <optional>

#include "schedule/schedule.h"

namespace coil {
namespace {

class SmallProducts {
 public:
  SmallProducts(LoopProgram program, const TargetTraits& target) : program_(std::move(program)), target_(target) {}

  LoopProgram run() {
    std::vector<Loop> loops = std::move(program_.loops);
    program_.loops.clear();
    for (Loop& loop : loops) {
      if (const auto* gemm = std::get_if<Gemm>(&loop.def); gemm && !gemm->quantised && is_float(dtype(gemm->a.buffer))) {
        if (is_small(*gemm)) loop.def = as_sum(*gemm);
        else if (const std::optional<Cut> cut = cut_of(*gemm)) add_parts(loop, *gemm, *cut);
      }
      program_.loops.push_back(std::move(loop));
    }
    return std::move(program_);
  }

 private:
  static constexpr int64_t kLongSum = 1 << 16;     // of few results: a loop cuts it into as many parts as it likes
  static constexpr int64_t kManyRows = 1 << 10;    // that a small matrix is multiplied with
  static constexpr int64_t kSmall = 16;            // rows, columns and length of which a tile would be mostly empty
  static constexpr int64_t kSideOfFew = 4;         // and of a target for which few is little: so many times that
  static constexpr int64_t kAlignedElements = 16;  // parts of rows begin at multiples of a template's accesses

  ExprPool& pool() { return *program_.pool; }
  DType dtype(BufferId id) const { return program_.buffer(id).dtype; }
  int64_t size(const std::vector<Expr>& sizes) { return typical(product(pool(), sizes)); }
  static bool is_known(const std::vector<Expr>& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](Expr e) { return e->is_constant(); });
  }

  // As the template adds up.
  static DType sum_type(DType type) { return type == DType::f64 ? type : DType::f32; }

  bool is_small(const Gemm& g) {
    const int64_t few = target_.small_product;
    if (few == 0) return false;
    const auto are_few = [&](const std::vector<Expr>& x, const std::vector<Expr>& y) { return is_known(x) && is_known(y) && size(x) * size(y) <= few; };
    const int64_t batch = size(g.batch), m = size(g.m), n = size(g.n), k = size(g.k);
    const int64_t side = std::min(kSmall, kSideOfFew * few);
    const auto all_small = [&] { return is_known(g.m) && is_known(g.n) && is_known(g.k) && std::max({m, n, k}) <= side; };
    if (all_small()) return batch * m * n >= kManyRows;
    if (are_few(g.n, g.k)) return batch * m >= kManyRows;
    if (are_few(g.m, g.k)) return batch * n >= kManyRows;
    return are_few(g.m, g.n) && batch * m * n <= few && k >= kLongSum;
  }

  Reduction as_sum(const Gemm& g) {
    const DType wide = sum_type(dtype(g.a.buffer));
    const auto value = [&](const Operand& o) { return pool().cast(pool().load(o.buffer, dtype(o.buffer), o.coordinates), wide); };
    return {ReduceOp::sum, g.k, pool().op(ScalarOp::mul, {value(g.a), value(g.b)})};
  }

  struct Cut {
    size_t dimension;  // of k
    int64_t parts;
  };
  std::optional<Cut> cut_of(const Gemm& g) {
    if (!target_.product_units || target_.parallel_points == 0 || !is_known(g.k)) return std::nullopt;
    const TargetTraits::ProductUnits units = target_.product_units(size(g.batch), size(g.m), size(g.n));
    const int64_t wanted = std::min(target_.parallel_points / std::max<int64_t>(units.busy, 1), size(g.k) / units.shortest_part);
    if (wanted < 2) return std::nullopt;
    std::optional<Cut> best;
    int64_t inner = 1;
    for (size_t d = g.k.size(); d-- > 0; inner *= g.k[d]->as_int()) {
      const int64_t length = g.k[d]->as_int();
      for (int64_t parts = std::min(wanted, length); parts > (best ? best->parts : 1); --parts) {
        if (length % parts == 0 && length / parts * inner % kAlignedElements == 0) best = Cut{d, parts};
      }
    }
    return best && best->parts * 2 >= wanted ? best : std::nullopt;
  }

  // Turns `loop` into the sum of the parts' products, which are defined before it.
  void add_parts(Loop& loop, const Gemm& whole, const Cut& cut) {
    const BufferInfo out = program_.buffer(loop.outputs[0]);
    const size_t batch = whole.batch.size(), kept = out.sizes.size();
    Gemm g = whole;
    g.batch.push_back(pool().index(cut.parts));
    g.k[cut.dimension] = pool().index(g.k[cut.dimension]->as_int() / cut.parts);
    std::vector<Expr> vars;  // the whole product's, over those of the parts: the part's number comes behind the batch
    for (size_t v = 0; v < kept + g.k.size(); ++v) vars.push_back(pool().var(static_cast<int32_t>(v < batch ? v : v + 1)));
    Expr& at = vars[kept + cut.dimension];
    at = pool().var(static_cast<int32_t>(batch)) * g.k[cut.dimension] + at;
    for (Operand* operand : {&g.a, &g.b}) {
      for (Expr& c : operand->coordinates) c = substitute_vars(c, vars);
    }

    BufferInfo parts;
    parts.name = out.name + "_parts";
    parts.dtype = sum_type(out.dtype);  // parts are not rounded
    parts.sizes = out.sizes;
    parts.sizes.insert(parts.sizes.begin() + static_cast<long>(batch), pool().index(cut.parts));
    parts.strides = contiguous_strides(pool(), parts.sizes);
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(parts);
    Loop step;
    step.def = std::move(g);
    step.outputs = {id};
    step.op = loop.op + ".parts";
    step.origins = loop.origins;
    program_.loops.push_back(std::move(step));

    std::vector<Expr> point;
    for (size_t v = 0; v < kept; ++v) point.push_back(pool().var(static_cast<int32_t>(v)));
    point.insert(point.begin() + static_cast<long>(batch), pool().var(static_cast<int32_t>(kept)));
    loop.def = Reduction{ReduceOp::sum, {pool().index(cut.parts)}, pool().load(id, parts.dtype, point)};
  }

  LoopProgram program_;
  const TargetTraits& target_;
};

}  // namespace

LoopProgram change_small_products(LoopProgram program, const TargetTraits& target) { return SmallProducts(std::move(program), target).run(); }

}  // namespace coil
