// Constant sizes beyond any machine are an error that says which; what a machine could do passes.
#include "loop/amounts.h"

#include <gtest/gtest.h>

#include "loop/recorder.h"

namespace coil {
namespace {

class AmountsTest : public ::testing::Test {
 protected:
  std::shared_ptr<ExprPool> pool = std::make_shared<ExprPool>();
  Recorder recorder{pool};

  Expr n(int64_t v) { return pool->index(v); }
  Expr one() { return pool->constant(1, DType::f32); }
  std::string check() {
    recorder.set_origins({});
    const Status s = check_amounts(recorder.program());
    return s.ok() ? "" : s.error().to_string();
  }
};

TEST_F(AmountsTest, LargeButPossible) {
  recorder.pointwise("fill", DType::f32, {n(int64_t{1} << 40), n(512)}, [&](Coordinates) { return one(); });
  recorder.reduce("sum", ReduceOp::sum, DType::f32, {}, {n(int64_t{1} << 50)}, [&](Coordinates, Coordinates) { return one(); });
  const Expr batch = pool->symbol(pool->add_symbol({"s0", "batch", 1, INT64_MAX}));
  recorder.pointwise("dynamic", DType::f32, {batch, batch, batch, batch, n(1 << 20)}, [&](Coordinates) { return one(); });
  EXPECT_EQ(check(), "");
}

TEST_F(AmountsTest, Buffers) {
  recorder.pointwise("fill", DType::f64, {n(int64_t{1} << 30), n(int64_t{1} << 30)}, [&](Coordinates) { return one(); });
  const std::string text = check();
  EXPECT_TRUE(text.starts_with("COIL-E105")) << text;
  EXPECT_NE(text.find("'fill' runs over [1073741824, 1073741824], 1.15e+18 in all"), std::string::npos) << text;
}

TEST_F(AmountsTest, ProductsThatOverflow) {
  const Expr batch = pool->symbol(pool->add_symbol({"s0", "batch", 1, 64}));
  recorder.pointwise("fill", DType::f32, {n(int64_t{1} << 47), batch * (int64_t{1} << 47), n(2)}, [&](Coordinates) { return one(); });
  EXPECT_NE(check().find("more than any machine can hold"), std::string::npos);
}

TEST_F(AmountsTest, Domains) {
  recorder.reduce("sum", ReduceOp::sum, DType::f32, {n(1 << 20)}, {n(int64_t{1} << 40)}, [&](Coordinates, Coordinates) { return one(); });
  EXPECT_NE(check().find("'sum' runs over [1048576, 1099511627776]"), std::string::npos) << check();
}

}  // namespace
}  // namespace coil
