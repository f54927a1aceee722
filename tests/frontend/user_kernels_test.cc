// Registrations in C++ and as JSON; nodes of a user's operator. (tests/python/test_user_kernels.py has all that can be wrong.)
#include "frontend/user_kernels.h"

#include <gtest/gtest.h>

namespace coil {
namespace {

UserKernel good() {
  UserKernel k;
  k.name = "mine::scale";
  k.schema = "(Tensor x, Tensor? bias, Tensor(a!) count, SymInt n, float by=2.0, bool b=False, int[] list=[1]) -> (Tensor, Tensor)";
  k.cpu.emplace();
  k.cpu->source = "void scale() {}";
  k.cpu->file = "scale.cc";
  k.cpu->range = "cdiv(out0.numel(), BLOCK) + n";
  k.configs = {{{"BLOCK", 64}}, {{"BLOCK", 128}}};
  return k;
}

TEST(UserKernels, SignatureIsRead) {
  using Kind = UserKernelArg::Kind;
  const auto made = make_user_kernel(good());
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  const UserKernel& k = *made.value();
  EXPECT_EQ(k.target, "mine.scale.default");
  EXPECT_EQ(k.cpu->entry, "scale");
  EXPECT_EQ(k.returns, 2);
  EXPECT_EQ(k.result_name(1), "out1");
  EXPECT_EQ(k.num_written(), 1);
  const std::vector<Kind> kinds = {Kind::tensor, Kind::tensor, Kind::tensor, Kind::integer, Kind::number, Kind::boolean, Kind::integers};
  ASSERT_EQ(k.args.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(k.args[i].kind, kinds[i]) << i;
  EXPECT_TRUE(k.args[1].optional && !k.args[0].optional);
  EXPECT_TRUE(k.args[2].written && !k.args[0].written);
}

TEST(UserKernels, WithoutConfigurationsThereIsOne) {
  UserKernel k = good();
  k.configs.clear();
  k.cpu->range = "n";
  const auto made = make_user_kernel(k);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value()->configs.size(), 1u);
  EXPECT_EQ(config_text(made.value()->configs[0]), "no constants");
  EXPECT_EQ(config_text({{"A", 1}, {"B", -2}}), "A=1 B=-2");
}

TEST(UserKernels, JsonNamesFiles) {
  const auto read = [](const std::string& file) -> Result<std::string> { return "// " + file; };
  const auto found = parse_user_kernels(R"json([{"name": "a::b", "signature": "(Tensor x) -> Tensor", "configs": [{"UP": true}],
    "cpu": {"source": "b.cc", "headers": ["c.h"], "range": 3}, "cuda": {"text": "t", "grid": [1, "out.numel()"], "block": 128, "shared": "UP * 4"}}])json",
                                        "place", read);
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  const UserKernel& k = *found.value()[0];
  EXPECT_EQ(k.cpu->source, "// b.cc");
  EXPECT_EQ(k.cpu->file, "b.cc");
  EXPECT_EQ(k.cpu->headers, (std::vector<std::pair<std::string, std::string>>{{"c.h", "// c.h"}}));
  EXPECT_EQ(k.cpu->range, "3");
  EXPECT_EQ(k.cuda->grid, (std::vector<std::string>{"1", "out.numel()"}));
  EXPECT_EQ(k.configs[0].at("UP"), 1);
}

TEST(UserKernels, NamesAreDistinct) {
  const auto made = make_user_kernel(good());
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(check_names({made.value()}).ok());
  const Status twice = check_names({made.value(), made.value()});
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, ErrorCode::user_kernel);
}

TEST(UserKernels, JsonOfAnyForm) {
  const auto read = [](const std::string&) -> Result<std::string> { return std::string(); };
  for (const char* text : {"", "{", "3", "[3]", "{}", "[[]]", R"({"name": 3})", R"json({"name": "a::b", "signature": []})json",
                           R"json({"name": "a::b", "signature": "(Tensor x) -> Tensor", "cpu": 3})json",
                           R"json({"name": "a::b", "signature": "(Tensor x) -> Tensor", "configs": {"A": 1}, "cpu": {"text": "t", "range": "1"}})json",
                           R"json({"name": "a::b", "signature": "(Tensor x) -> Tensor", "cpu": {"text": "t", "range": "1", "headers": 3}})json",
                           R"json({"name": "a::b", "signature": "(Tensor x) -> Tensor", "cuda": {"text": "t", "grid": {}, "block": 1}})json"}) {
    EXPECT_FALSE(parse_user_kernels(text, "place", read).ok()) << text;
  }
}

}  // namespace
}  // namespace coil
