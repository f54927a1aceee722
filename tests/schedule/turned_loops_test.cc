// Loops that store along another axis than they read along have kernels of their own on targets that turn them in tiles.
#include "schedule/turned_loops.h"

#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class TurnedLoopsTest : public ScheduledProgram {
 protected:
  View input(int64_t rows, int64_t columns) {
    const std::vector<Expr> sizes = {pool.index(rows), pool.index(columns)};
    return rec.input("x", DType::f32, sizes, contiguous_strides(pool, sizes));
  }
  View row_sums(const View& x) {
    return rec.reduce("sum", ReduceOp::sum, DType::f32, {x.sizes[0]}, {x.sizes[1]},
                      [&](Coordinates c, Coordinates k) { return rec.at(x, std::vector<Expr>{c[0], k[0]}); });
  }
  View minus(const View& x, const View& sums) {
    return rec.pointwise("minus", DType::f32, x.sizes,
                         [&](Coordinates c) { return pool.op(ScalarOp::sub, {rec.at(x, c), rec.at(sums, std::vector<Expr>{c[0]})}); });
  }
  View turned(const View& x) {
    return rec.pointwise("turned", DType::f32, {x.sizes[1], x.sizes[0]}, [&](Coordinates c) { return rec.at(x, std::vector<Expr>{c[1], c[0]}); });
  }
  // x - sums of rows, and turned as well.
  size_t kernels(int64_t rows, int64_t columns, bool in_tiles) {
    const View x = input(rows, columns), y = minus(x, row_sums(x));
    output(y), output(turned(y));
    TargetTraits traits;
    traits.turns_in_tiles = in_tiles;
    auto plan = schedule(rec.take(), traits);
    EXPECT_TRUE(plan.ok());
    return plan.value().kernels.size();
  }
};

TEST_F(TurnedLoopsTest, AreKernelsOfTheirOwnInTiles) { EXPECT_EQ(kernels(512, 300, true), 2u); }
TEST_F(TurnedLoopsTest, ShareAKernelWithoutTiles) { EXPECT_EQ(kernels(512, 300, false), 1u); }
TEST_F(TurnedLoopsTest, ShareAKernelWhereThereIsLittle) { EXPECT_EQ(kernels(64, 30, true), 1u); }
TEST_F(TurnedLoopsTest, ShareAKernelWhereASideIsShort) { EXPECT_EQ(kernels(100000, 3, true), 1u); }

// Sums of `taps` rows of a copy that turns x, from a first one on that data (or the result's row) names.
class RowsByData : public TurnedLoopsTest {
 protected:
  View rows_of(const View& lines, int64_t taps, bool by_data) {
    const View first = rec.input("first", DType::i64, {pool.index(20)}, {pool.index(1)});
    return rec.reduce("rows", ReduceOp::sum, DType::f32, {pool.index(20), lines.sizes[1]}, {pool.index(taps)}, [&](Coordinates c, Coordinates k) {
      const Expr named = pool.op(ScalarOp::add, {rec.at(first, std::vector<Expr>{c[0]}), pool.cast(k[0], DType::i64)});
      const Expr row = by_data ? pool.checked_index(named, lines.sizes[0]) : c[0] + k[0];
      return rec.at(lines, std::vector<Expr>{row, c[1]});
    });
  }
  std::string kernels() {
    auto plan = schedule(rec.take(), TargetTraits());
    EXPECT_TRUE(plan.ok());
    std::string names;
    for (const Kernel& k : plan.value().kernels) names += k.name + " ";
    return names;
  }
};

TEST_F(RowsByData, AreReadWholeInACopy) {
  output(rows_of(turned(input(512, 300)), 11, true));
  EXPECT_EQ(kernels(), "turned rows ");
}
TEST_F(RowsByData, ShortSumsToo) {
  output(rows_of(turned(input(512, 300)), 3, true));
  EXPECT_EQ(kernels(), "turned rows ");
}
TEST_F(RowsByData, RowsThatTheLoopNamesNeedNoCopy) {
  output(rows_of(turned(input(512, 300)), 11, false));
  EXPECT_EQ(kernels(), "turned_rows ");
}
TEST_F(RowsByData, SumsAreComputedBeforeTheyAreTurned) {
  const View sums = rows_of(turned(input(512, 300)), 11, true);
  const View half =
      rec.pointwise("half", DType::f32, sums.sizes, [&](Coordinates c) { return pool.op(ScalarOp::mul, {rec.at(sums, c), pool.constant(0.5, DType::f32)}); });
  const View again =
      rec.pointwise("again", DType::f32, {sums.sizes[1], sums.sizes[0]}, [&](Coordinates c) { return rec.at(half, std::vector<Expr>{c[1], c[0]}); });
  output(rows_of(again, 7, true));
  EXPECT_EQ(kernels(), "turned rows_half again rows ");
}

TEST_F(TurnedLoopsTest, ByStrides) {
  const std::vector<Expr> sizes = {pool.index(300), pool.index(400)};
  const View across = rec.input("a", DType::f32, sizes, {pool.index(1), pool.index(300)});  // columns lie side by side
  const View along = rec.input("b", DType::f32, sizes, contiguous_strides(pool, sizes));
  const View vector = rec.input("v", DType::f32, {pool.index(300)}, {pool.index(1)});
  const auto sum_with = [&](const View& x) {
    return rec.pointwise("sum", DType::f32, sizes,
                         [&](Coordinates c) { return pool.op(ScalarOp::add, {rec.at(x, c), rec.at(vector, std::vector<Expr>{c[0]})}); });
  };
  sum_with(across), sum_with(along);
  const LoopProgram program = rec.take();
  EXPECT_TRUE(stores_turned(program, program.loops[0]));
  EXPECT_FALSE(stores_turned(program, program.loops[1]));
}

TEST_F(TurnedLoopsTest, OfAPieceOfWhatLiesSideBySide) {
  const std::vector<Expr> halves = {pool.index(300), pool.index(800)}, sizes = {pool.index(400), pool.index(300)};
  const View x = rec.input("x", DType::f32, halves, contiguous_strides(pool, halves));
  rec.pointwise("turned", DType::f32, sizes, [&](Coordinates c) { return rec.at(x, std::vector<Expr>{c[1], c[0] + 400}); });
  rec.pointwise("every_other", DType::f32, sizes, [&](Coordinates c) { return rec.at(x, std::vector<Expr>{c[1], c[0] * 2}); });
  const LoopProgram program = rec.take();
  EXPECT_TRUE(stores_turned(program, program.loops[0]));
  EXPECT_FALSE(stores_turned(program, program.loops[1]));
}

}  // namespace
}  // namespace coil
