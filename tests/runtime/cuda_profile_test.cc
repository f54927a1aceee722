// Profiles of models on CUDA, on the fake driver, where a block takes a nanosecond: kernels one by one, captured calls left out, graphs
// of other calls untouched, packages of an older coil.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "coil/coil.hpp"
#include "fake_cuda.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

using Json = nlohmann::json;

FakeCounts counts() {
  static const auto get = reinterpret_cast<FakeCountsFn>(dlsym(RTLD_DEFAULT, "fake_cuda_counts"));
  FakeCounts c;
  get(&c);
  return c;
}

class CudaProfile : public testing::Test {
 protected:
  static void SetUpTestSuite() { fake_driver(); }
  void SetUp() override {
    reinterpret_cast<FakeConfigureFn>(dlsym(RTLD_DEFAULT, "fake_cuda_configure"))(2, 90, int64_t{1} << 30);
    before_ = counts();
  }
  static Json table_of(const Profile& profile) { return Json::parse(profile.table())["models"][0]; }
  void TearDown() override {
    EXPECT_EQ(counts().events, before_.events);
    EXPECT_EQ(counts().device_bytes, before_.device_bytes);
  }
  static std::string path(const std::string& flags = "") {
    return write_file("profiled" + std::to_string(std::hash<std::string>()(flags)) + ".pt2", package("CUDA", flags));
  }
  FakeCounts before_;
};

struct Call {
  Call(const Model& m, Context& c, int64_t rows) : model(m), batch(rows), x(m, static_cast<size_t>(rows) * 16), ids(m, static_cast<size_t>(rows) * 8) {
    const std::vector<float> ones(static_cast<size_t>(rows) * 4, 1);
    const std::vector<int64_t> zeros(static_cast<size_t>(rows), 0);
    c.copy_to_device(x.data(), ones.data(), ones.size() * 4);
    c.copy_to_device(ids.data(), zeros.data(), zeros.size() * 8);
  }
  std::vector<Tensor> tensors() {
    return {Tensor(x.data(), COIL_DTYPE_FLOAT32, {batch, 4}).on(model), Tensor(ids.data(), COIL_DTYPE_INT64, {batch}).on(model), Tensor(&n, {})};
  }
  std::vector<float> run(Context& c, void* stream = nullptr) {
    const std::vector<Tensor> y = c.run(tensors(), stream);
    std::vector<float> values(static_cast<size_t>(batch) * 4);
    c.copy_from_device(values.data(), y[0].data(), values.size() * 4);
    return values;
  }
  Model model;
  int64_t batch, n = 2;
  DeviceMemory x, ids;
};

TEST_F(CudaProfile, KernelsHaveTheTimesOfTheDevice) {
  const Model model(path());
  Context context(model);
  Call call(model, context, 700);
  const std::vector<float> want = call.run(context);
  Profile profile(model);
  EXPECT_EQ(call.run(context), want);
  profile.end();
  EXPECT_EQ(call.run(context), want);
  const Json table = Json::parse(profile.table());
  ASSERT_EQ(table["models"].size(), 1);
  const Json& m = table["models"][0];
  EXPECT_EQ(m["device"], "cuda:0");
  EXPECT_EQ(m["calls"], 1);
  ASSERT_EQ(m["kernels"].size(), 2);
  EXPECT_EQ(m["kernels"][0]["kernel"], 1);  // a block a row: 700 ns
  EXPECT_NEAR(m["kernels"][0]["us"].get<double>(), 0.7, 0.1);
  EXPECT_LT(m["kernels"][1]["us"].get<double>(), 0.1);
}

TEST_F(CudaProfile, TracesNameTheStream) {
  const Model model(path());
  Context context(model);
  Call call(model, context, 5);
  Profile profile(model);
  call.run(context);
  const std::string file = temp_folder() + "/stream.json";
  profile.write(file);
  std::string text;
  FILE* in = fopen(file.c_str(), "rb");
  ASSERT_NE(in, nullptr);
  for (int c; (c = fgetc(in)) != EOF;) text += static_cast<char>(c);
  fclose(in);
  const Json trace = Json::parse(text);
  int kernels = 0;
  bool stream = false, enqueue = false;
  for (const Json& e : trace["traceEvents"]) {
    kernels += e.value("cat", "") == "kernel";
    enqueue |= e["name"] == "enqueue kernels";
    stream |= e["name"] == "thread_name" && e["args"]["name"] == "CUDA default stream";
  }
  EXPECT_EQ(kernels, 2);
  EXPECT_TRUE(stream && enqueue);
}

TEST_F(CudaProfile, ProfiledCallsAreNoGraphsAndOthersStayThem) {
  const Model model(path("-DGRAPH"));
  Context context(model);
  Call call(model, context, 9);
  const std::vector<float> want = call.run(context);
  for (int i = 0; i < 20; i++) ASSERT_EQ(call.run(context), want);
  {
    const int64_t launches = counts().launches;
    const Profile profile(model);
    for (int i = 0; i < 3; i++) ASSERT_EQ(call.run(context), want);
    EXPECT_EQ(counts().launches - launches, 6);
    EXPECT_EQ(profile.calls(), 3);
  }
  for (int i = 0; i < 5; i++) ASSERT_EQ(call.run(context), want);
}

TEST_F(CudaProfile, NobodyWaitsForARecordedCallUnlessAllAreAskedFor) {
  const Model model(path());
  Context context(model);
  Call call(model, context, 700);
  call.run(context);
  for (const bool all : {false, true}) {
    Profile profile(model, 0, false, all);
    if (!all) call.run(context);  // the clocks of host and device are compared once
    (void)context.run(call.tensors());
    EXPECT_EQ(counts().pending == 0, all) << "a recorded call waits for the device";
    profile.end();
    const Json m = table_of(profile);
    EXPECT_EQ(counts().pending, 0) << "the table is made before its kernels are done";
    EXPECT_EQ(m["clock"], "CUDA events");
    EXPECT_EQ(m["calls"], all ? 1 : 2);
    ASSERT_EQ(m["kernels"].size(), 2);
    EXPECT_NEAR(m["kernels"][0]["us"].get<double>(), 0.7, 0.1);
  }
}

TEST_F(CudaProfile, CallsThatTheDeviceHasYetToDoAreLeftOutWhereTheyAreTooMany) {
  const Model model(path());
  Context context(model);
  Call call(model, context, 700);
  const std::vector<float> want = call.run(context);
  Profile profile(model);
  // How many are recorded follows their cost (call_sampling.h), and so the time that a busy machine took from one: more are made until four were.
  constexpr int kCalls = 40, kRounds = 1000;
  for (int i = 0; i < kCalls; i++) (void)context.run(call.tensors());
  EXPECT_GT(counts().pending, 0);
  EXPECT_LE(counts().events - before_.events, 6 + 4 * 5) << "marks of calls under way are without bound";
  int made = kCalls;
  for (int round = 0; round < kRounds && (round == 0 || table_of(profile)["calls"].get<int>() < 4); round++) {
    for (int i = 0; i < kCalls; i++) EXPECT_EQ(call.run(context), want);
    made += kCalls;
  }
  profile.end();
  const Json m = table_of(profile);
  EXPECT_GE(m["calls"].get<int>(), 4);
  EXPECT_LE(m["calls"].get<int>() + m["left_out_calls"].get<int>(), made);
  for (const Json& kernel : m["kernels"]) EXPECT_EQ(kernel["launches"], 1);
  EXPECT_NEAR(m["kernels"][0]["least_us"].get<double>(), 0.7, 0.1);
  EXPECT_NEAR(m["kernels"][0]["us"].get<double>(), 0.7, 0.1);
}

TEST_F(CudaProfile, AProfileOutlivesTheContextAndTheModelThatItWatched) {
  std::optional<Profile> profile;
  {
    const Model model(path());
    Context context(model);
    Call call(model, context, 700);
    profile.emplace(model);
    (void)context.run(call.tensors());
    (void)context.run(call.tensors());
  }
  EXPECT_EQ(counts().events, before_.events);
  const Json m = table_of(*profile);
  EXPECT_EQ(m["calls"], 2);
  EXPECT_EQ(m["clock"], "CUDA events");
  EXPECT_NEAR(m["kernels"][0]["us"].get<double>(), 0.7, 0.1);
}

// The launch of a kernel takes 20 us here, that of a graph 1: a call that is recorded takes far longer than the others.
TEST_F(CudaProfile, ManyShortCallsCostLittle) {
  const auto costs = reinterpret_cast<FakeCostsFn>(dlsym(RTLD_DEFAULT, "fake_cuda_costs"));
  const Model model(path("-DGRAPH"));
  Context context(model);
  Call call(model, context, 9);
  for (int i = 0; i < 20; i++) call.run(context);
  costs(20'000, 1'000, 0);
  const Profile profile(model);
  // A call that a busy machine kept waiting is followed by many that are left out, which are told with the next recorded one: until then more are made.
  constexpr int kCalls = 3000, kRounds = 100;
  int made = 0, told = 0;
  Json m;
  const auto shown = [&] { return told > made / 4 && m["calls"] >= 4 && m["calls"] < made / 10; };
  for (int round = 0; round < kRounds && !shown(); round++) {
    for (int i = 0; i < kCalls; i++) call.run(context);
    made += kCalls;
    m = table_of(profile);
    told = m["calls"].get<int>() + m["left_out_calls"].get<int>();
  }
  costs(0, 0, 0);
  EXPECT_GE(m["calls"], 4);
  EXPECT_LT(m["calls"], made / 10);
  EXPECT_GT(told, made / 4);
}

TEST_F(CudaProfile, ACallThatFailsIsToldAsSuch) {
  const Model model(path());
  Context context(model);
  Call call(model, context, 5);
  Profile profile(model);
  call.n = 99;
  EXPECT_THROW(call.run(context), Exception);
  call.n = 2;
  call.run(context);
  const Json table = Json::parse(profile.table());
  EXPECT_EQ(table["models"][0]["failed_calls"], 1);
  EXPECT_EQ(table["models"][0]["calls"], 1);
}

TEST_F(CudaProfile, AnOlderPackageTellsOfItsCallsOnly) {
  const Model model(path("-DOLDER"));
  Context context(model);
  Call call(model, context, 5);
  Profile profile(model);
  call.run(context);
  const Json table = Json::parse(profile.table());
  EXPECT_EQ(table["models"][0]["calls"], 1);
  EXPECT_TRUE(table["models"][0]["kernels"].empty());
}

}  // namespace
}  // namespace coil::runtime_test
