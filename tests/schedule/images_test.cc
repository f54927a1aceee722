// Neighbouring convolutions image by image: where one image's values fit into the cache and those of all do not.
#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class ImagesTest : public ScheduledProgram {
 protected:
  // Three 3x3 convolutions of 8x8 pixels; between the first two `between` of the images.
  KernelPlan convolutions(Expr images, int64_t kept_bytes, const std::function<View(const View&)>& between) {
    View x = input("x", {images, pool.index(8), pool.index(8), pool.index(8)});
    for (int i = 0; i < 3; ++i) {
      Conv2d c;
      c.x = {BufferId(x.body->id), {pool.var(0), pool.var(1), pool.var(2), pool.var(3)}};
      c.x_sizes = x.sizes;
      c.weight = BufferId(constant("w", {8, 8, 1, 1}).body->id);
      c.kernel = c.stride = c.dilation = {1, 1};
      x = rec.define("conv", DType::f32, x.sizes, c);
      if (i == 0) x = between(x);
    }
    output(x);
    TargetTraits traits;
    traits.kept_bytes = kept_bytes;
    auto r = schedule(rec.take(), traits);
    EXPECT_TRUE(r.ok());
    return std::move(r).value();
  }
};

std::string marks(const KernelPlan& p) {
  std::string text;
  for (const Kernel& k : p.kernels) {
    const auto* mark = std::get_if<ControlMark>(&k.def);
    text += !mark ? k.name + " " : mark->kind == ControlMark::Kind::images ? "[ " : "] ";
  }
  return text;
}

TEST_F(ImagesTest, LargeConvolutionsRunImageByImage) {
  const auto same = [](const View& x) { return x; };
  const KernelPlan p = convolutions(pool.index(16), 16 * 1024, same);
  // The values of one image for each worker, at most of all images; the whole input and the whole result are read and written by rows.
  EXPECT_EQ(marks(p), "[ copy conv conv conv ] ") << to_string(p);
  const auto arena = [&](int64_t workers) { return evaluate_index(p.arena_bytes, [&](SymbolId id) { return id == p.workers ? workers : 0; }); };
  EXPECT_EQ(arena(3) - arena(2), 2 * 2048) << to_string(p);
  EXPECT_EQ(arena(100), arena(16));
}

TEST_F(ImagesTest, SmallImagesRunTogether) {
  EXPECT_EQ(marks(convolutions(pool.index(16), 1 << 20, [](const View& x) { return x; })), "copy conv conv conv ");
}

TEST_F(ImagesTest, OneImageIsNoLoop) {
  EXPECT_EQ(marks(convolutions(pool.index(1), 1024, [](const View& x) { return x; })), "copy conv conv conv ");
}

TEST_F(ImagesTest, DynamicImagesRunImageByImage) {
  const KernelPlan p = convolutions(batch, 16 * 1024, [](const View& x) { return x; });
  EXPECT_EQ(marks(p), "[ copy conv conv conv ] ") << to_string(p);
  EXPECT_TRUE(std::get<ControlMark>(p.kernels[0].def).steps == batch) << to_string(p);
}

TEST_F(ImagesTest, ImagesThatMeetRunTogether) {
  const auto turned = [&](const View& x) {
    return rec.pointwise("turned", DType::f32, x.sizes, [&](Coordinates i) {
      const Expr other = rec.at(x, std::vector<Expr>{x.sizes[0] - i[0] - 1, i[1], i[2], i[3]});
      return pool.op(ScalarOp::add, {rec.at(x, i), other});
    });
  };
  const std::string text = marks(convolutions(pool.index(16), 4 * 1024, turned));
  EXPECT_EQ(text, "[ copy conv ] turned [ conv conv ] ");
}

}  // namespace
}  // namespace coil
