// Long reductions and scans in parts, where the target has units to fill: the same values, and parts that are even.
#include <algorithm>
#include <cstring>

#include "loop/interpret.h"
#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class SplitLoopsTest : public ScheduledProgram {};

void add_output(Recorder& r, const View& out, const std::vector<Expr>& strides) {
  r.program().buffer(BufferId(out.body->id)).strides = strides;
  LoopOutput o;
  o.source = BufferId(out.body->id);
  o.name = "out";
  r.program().outputs.push_back(o);
}

// That both verify and give the same bytes for a matrix of numbers whose sums are exact in any order.
void expect_same(const LoopProgram& whole, const LoopProgram& split, const std::vector<int64_t>& sizes) {
  ASSERT_TRUE(verify(split).ok());
  TensorData data;
  const int64_t count = sizes[0] * sizes[1];
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count) * 4);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>((i * 37) % 101 - 50);
    std::memcpy(bytes->data() + i * 4, &value, 4);
  }
  data.owner = bytes, data.bytes = *bytes, data.sizes = sizes, data.strides = {sizes[1], 1};
  const auto a = interpret(whole, std::span(&data, 1)), b = interpret(split, std::span(&data, 1));
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_TRUE(b.ok()) << b.error().message;
  ASSERT_EQ(a.value().size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::ranges::equal(a.value()[i].bytes, b.value()[i].bytes)) << sizes[0] << " x " << sizes[1] << " output " << i;
}

// Two steps give what one gives, for lengths that divide into parts and for such that do not, and only where units would idle.
TEST_F(SplitLoopsTest, LongReductionsAreSplit) {
  TargetTraits target;
  target.parallel_points = 264;
  target.split_points = 1024;
  for (const int64_t n : {4096, 5003, 100}) {
    Recorder r(shared);
    const View x = r.input("x", DType::f32, sizes({2, n}), contiguous_strides(pool, sizes({2, n})));
    const auto body = [&](Coordinates i, Coordinates k) { return r.at(x, std::vector<Expr>{i[0], k[0]}); };
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      const View out = r.reduce("r", op, DType::f32, sizes({2}), sizes({n}), body);
      add_output(r, out, {pool.index(1)});
    }
    const LoopProgram whole = r.take();
    const LoopProgram split = split_reductions(whole, target);
    EXPECT_EQ(split.loops.size(), n == 100 ? 3u : 6u);
    expect_same(whole, split, {2, n});
  }
}

// Gradients of a layer norm's weights, over images and tokens: parts that nothing is left over of, if there are enough of them for the machine, and none that
// has nothing to do.
TEST_F(SplitLoopsTest, PartsOfReductionsAreEven) {
  TargetTraits target;
  target.parallel_points = 264;
  target.split_points = 1024;
  target.columns_of_a_unit = 32;
  const auto parts = [&](std::vector<int64_t> domain, int64_t columns) {
    Recorder r(shared);
    std::vector<Expr> shape;
    for (const int64_t d : domain) shape.push_back(pool.index(d));
    shape.push_back(pool.index(columns));
    const View x = r.input("x", DType::f32, shape, contiguous_strides(pool, shape));
    const View out =
        r.reduce("r", ReduceOp::sum, DType::f32, sizes({columns}), std::vector<Expr>(shape.begin(), shape.end() - 1), [&](Coordinates i, Coordinates k) {
          std::vector<Expr> at(k.begin(), k.end());
          at.push_back(i[0]);
          return r.at(x, at);
        });
    add_output(r, out, {pool.index(1)});
    const LoopProgram split = split_reductions(r.take(), target);
    EXPECT_TRUE(verify(split).ok());
    const auto& first = std::get<Reduction>(split.loops[0].def);
    const bool masked = any_of(first.body, [](Expr e) { return e->is_op(ScalarOp::masked); });
    const std::vector<Expr>& made = split.buffer(split.loops[0].outputs[0]).sizes;
    return std::pair(made.size() == 2 ? made[1]->as_int() : 0, masked);
  };
  EXPECT_EQ(parts({32, 197}, 768), std::pair(int64_t{32}, false));  // 197 is prime, the images are not
  EXPECT_EQ(parts({6304}, 384), std::pair(int64_t{32}, false));     // few, but enough with twelve units
  EXPECT_EQ(parts({32, 196}, 384), std::pair(int64_t{49}, false));
  EXPECT_EQ(parts({7, 197}, 384), std::pair(int64_t{66}, true));  // 66 of three, not 88, of which 22 would have nothing
  EXPECT_EQ(parts({65537}, 32), std::pair(int64_t{256}, true));
}

// Parts give what the whole gives, for lengths that divide into parts and such that do not, along either dimension.
TEST_F(SplitLoopsTest, LongScansAreSplit) {
  TargetTraits target;
  target.parallel_points = 264;
  target.scan_part = 64;
  for (const int dim : {0, 1}) {
    for (const int64_t n : {512, 701, 100}) {
      Recorder r(shared);
      const std::vector<Expr> both = dim == 1 ? sizes({2, n}) : sizes({n, 2});
      const View x = r.input("x", DType::f32, both, contiguous_strides(pool, both));
      for (const ScanOp op : {ScanOp::sum, ScanOp::max, ScanOp::min}) {
        const View out = r.scan("s", op, DType::f32, both, dim, [&](Coordinates i) { return r.at(x, i); });
        add_output(r, out, contiguous_strides(pool, both));
      }
      const LoopProgram whole = r.take();
      const LoopProgram split = split_scans(whole, target);
      EXPECT_EQ(split.loops.size(), n == 100 ? 3u : 12u);
      expect_same(whole, split, dim == 1 ? std::vector<int64_t>{2, n} : std::vector<int64_t>{n, 2});
    }
  }
}

}  // namespace
}  // namespace coil
