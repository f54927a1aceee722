// Good calls through the C API: descriptions, results, ownership of outputs, layouts, sizes of zero, state.
#include <gtest/gtest.h>

#include <cstring>

#include "fixture.h"

namespace coil::runtime_test {
namespace {

class ModelTest : public ::testing::Test {
 protected:
  void open(const std::string& model, const coil_options* options = nullptr) {
    model_ = open_or_fail(write_file(model + ".pt2", package(model)), options);
    ASSERT_NE(model_, nullptr);
    ASSERT_EQ(coil_context_create(model_, &context_), COIL_OK);
  }
  void TearDown() override {
    coil_context_destroy(context_);
    coil_close(model_);
  }
  coil_status run(std::vector<coil_tensor> inputs, std::vector<coil_tensor>& outputs) {
    return coil_run(context_, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(), static_cast<int32_t>(outputs.size()));
  }

  coil_model* model_ = nullptr;
  coil_context* context_ = nullptr;
};

TEST_F(ModelTest, DescribesInputsAndOutputs) {
  open("MASKED");
  ASSERT_EQ(coil_num_inputs(model_), 3);
  ASSERT_EQ(coil_num_outputs(model_), 2);
  coil_tensor_info info;
  ASSERT_EQ(coil_input_info(model_, 2, &info), COIL_OK);
  EXPECT_STREQ(info.name, "mask");
  EXPECT_EQ(info.dtype, COIL_DTYPE_BOOL);
  ASSERT_EQ(info.rank, 2);
  EXPECT_STREQ(info.dims[0].symbol, "batch");
  EXPECT_EQ(info.dims[0].min, 1);
  EXPECT_EQ(info.dims[0].max, 64);
  EXPECT_EQ(info.dims[0].hint, 4);
  EXPECT_EQ(info.dims[1].symbol, nullptr);
  EXPECT_EQ(info.dims[1].min, 16);
  EXPECT_EQ(info.dims[1].max, 16);
  ASSERT_EQ(coil_output_info(model_, 1, &info), COIL_OK);
  EXPECT_STREQ(info.name, "rows");
  EXPECT_EQ(coil_input_info(model_, 3, &info), 208);
  EXPECT_EQ(coil_output_info(model_, -1, &info), 208);
  EXPECT_EQ(coil_find_input(model_, "b"), 1);
  EXPECT_EQ(coil_find_input(model_, "c"), -1);
  EXPECT_STREQ(coil_isa(model_), "x86-64");
}

TEST_F(ModelTest, DescribesExpressions) {
  open("LAYOUT");
  coil_tensor_info info;
  ASSERT_EQ(coil_input_info(model_, 0, &info), COIL_OK);
  EXPECT_STREQ(info.dims[3].symbol, "2*side");
  EXPECT_EQ(info.dims[3].min, 2);
  EXPECT_EQ(info.dims[3].max, 64);
  EXPECT_EQ(info.dims[3].hint, 8);
  ASSERT_EQ(coil_input_info(model_, 2, &info), COIL_OK);
  EXPECT_STREQ(info.dims[0].symbol, "side**2 + 1");
  EXPECT_EQ(info.dims[0].max, INT64_MAX);
  EXPECT_EQ(info.dims[0].hint, -1);
}

TEST_F(ModelTest, OnePackageServesEverySize) {
  open("MASKED");
  for (int64_t batch : {1, 64, 3, 17, 64, 1}) {
    MaskedCall call(batch, static_cast<float>(batch));
    std::vector<coil_tensor> outputs(2);
    ASSERT_EQ(run(call.views(), outputs), COIL_OK) << coil_last_error();
    EXPECT_EQ(call.compare(outputs.data()), "");
  }
}

TEST_F(ModelTest, OwnsOutputsUntilTheNextRun) {
  open("MASKED");
  MaskedCall large(64), small(2, 5);
  std::vector<coil_tensor> first(2), second(2);
  ASSERT_EQ(run(large.views(), first), COIL_OK);
  ASSERT_EQ(run(small.views(), second), COIL_OK);
  EXPECT_EQ(first[0].data, second[0].data);  // reused, not allocated again
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second[0].data) % 64, 0u);
  EXPECT_EQ(small.compare(second.data()), "");
  coil_memory memory;
  ASSERT_EQ(coil_memory_of_run(context_, &memory), COIL_OK);
  EXPECT_EQ(memory.arena_bytes, 2 * 64 + coil_num_threads(model_) * 64);
  EXPECT_EQ(memory.output_bytes, 2 * 16 * 4 + 2 * 4);
  EXPECT_EQ(memory.constant_bytes, 64);
}

TEST_F(ModelTest, WritesIntoTheCallersOutputs) {
  open("MASKED");
  MaskedCall call(5);
  Array y = Array::floats({5, 16}, -1, 0), rows = Array::floats({5}, -1, 0);
  std::vector<coil_tensor> outputs = {y.view(), rows.view()};
  ASSERT_EQ(run(call.views(), outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].data, y.bytes.data());
  EXPECT_EQ(call.compare(outputs.data()), "");
  // One of the two may be the caller's.
  outputs = {coil_tensor{}, rows.view()};
  ASSERT_EQ(run(call.views(), outputs), COIL_OK);
  EXPECT_EQ(outputs[1].data, rows.bytes.data());
  EXPECT_EQ(call.compare(outputs.data()), "");
}

TEST_F(ModelTest, RefusesOutputsOfAnotherShape) {
  open("MASKED");
  MaskedCall call(5);
  Array rows = Array::floats({5}, 0, 0);
  auto refused = [&](Array y) {
    std::vector<coil_tensor> outputs = {y.view(), rows.view()};
    EXPECT_EQ(run(call.views(), outputs), 209);
    EXPECT_NE(std::string(coil_last_error()).find("COIL-E209: output 'y' (0)"), std::string::npos) << coil_last_error();
  };
  refused(Array::floats({4, 16}, 0, 0));
  refused(Array::floats({80}, 0, 0));
  refused(Array::bools({5, 16}));
  Array transposed = Array::floats({5, 16}, 0, 0);
  transposed.strides = {1, 5};
  refused(transposed);
  std::vector<coil_tensor> too_few(1);
  EXPECT_EQ(run(call.views(), too_few), 209);
}

TEST_F(ModelTest, InfersShapesWithoutComputing) {
  open("LAYOUT");
  Array x = Array::floats({2, 3, 4, 8}, 0, 1), step = Array::int64(3), tail = Array::floats({17}, 0, 1);
  x.strides = {96, 1, 24, 3};
  std::vector<coil_tensor> inputs = {x.view(), step.view(), tail.view()}, outputs(1);
  ASSERT_EQ(coil_infer(context_, inputs.data(), 3, outputs.data(), 1), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].data, nullptr);
  ASSERT_EQ(outputs[0].rank, 2);
  EXPECT_EQ(outputs[0].sizes[0], 8);
  EXPECT_EQ(outputs[0].strides[1], 8);
}

TEST_F(ModelTest, KeepsLayouts) {
  open("LAYOUT");
  Array x = Array::floats({2, 3, 4, 8}, 1, 1), step = Array::int64(3), tail = Array::floats({17}, 100, 1);
  x.strides = {96, 1, 24, 3};
  std::vector<coil_tensor> outputs(1);
  ASSERT_EQ(run({x.view(), step.view(), tail.view()}, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].strides[0], 1);
  EXPECT_EQ(outputs[0].strides[1], 8);
  for (int64_t n = 0; n < 2; n++) {
    for (int64_t w = 0; w < 8; w++) EXPECT_EQ(static_cast<float*>(outputs[0].data)[n * 8 + w], x.f32()[n * 96 + w * 3] * 3 + 100);
  }
  Array mine = Array::floats({8, 2}, 0, 0);  // contiguous: not the result's layout
  outputs = {mine.view()};
  EXPECT_EQ(run({x.view(), step.view(), tail.view()}, outputs), 209);
  mine.strides = {1, 8};
  outputs = {mine.view()};
  EXPECT_EQ(run({x.view(), step.view(), tail.view()}, outputs), COIL_OK) << coil_last_error();
}

TEST_F(ModelTest, StridesOfOneElementDoNotMatter) {
  open("LAYOUT");
  Array x = Array::floats({1, 3, 1, 2}, 1, 1), step = Array::int64(1), tail = Array::floats({2}, 0, 1);
  x.strides = {777, 1, -5, 3};  // batch and side are 1
  std::vector<coil_tensor> outputs(1);
  EXPECT_EQ(run({x.view(), step.view(), tail.view()}, outputs), COIL_OK) << coil_last_error();
}

TEST_F(ModelTest, SizesOfZero) {
  open("LAYOUT");
  Array x = Array::floats({0, 3, 4, 8}, 1, 1), step = Array::int64(1), tail = Array::floats({17}, 0, 1);
  coil_tensor empty = x.view();
  empty.data = nullptr;
  std::vector<coil_tensor> outputs(1);
  ASSERT_EQ(run({empty, step.view(), tail.view()}, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].sizes[0], 8);
  EXPECT_EQ(outputs[0].sizes[1], 0);
}

TEST_F(ModelTest, StateBelongsToTheModel) {
  open("COUNTER");
  coil_context* other;
  ASSERT_EQ(coil_context_create(model_, &other), COIL_OK);
  Array x = Array::floats({4}, 1, 0);
  coil_tensor input = x.view();
  for (float expected : {11.0f, 12.0f, 13.0f}) {
    coil_tensor output = {};
    ASSERT_EQ(coil_run(expected == 12 ? other : context_, &input, 1, &output, 1), COIL_OK) << coil_last_error();
    EXPECT_EQ(static_cast<float*>(output.data)[3], expected);
  }
  ASSERT_EQ(coil_reset_state(model_), COIL_OK);
  coil_tensor output = {};
  ASSERT_EQ(coil_run(context_, &input, 1, &output, 1), COIL_OK);
  EXPECT_EQ(static_cast<float*>(output.data)[0], 11.0f);
  coil_context_destroy(other);
}

TEST_F(ModelTest, OpensFromMemoryOfAnyAlignment) {
  const std::string bytes = package("MASKED");
  std::vector<char> memory(bytes.size() + 128);
  for (size_t shift : {0, 1, 8, 33}) {
    char* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) + shift;
    std::memcpy(at, bytes.data(), bytes.size());
    coil_model* model = nullptr;
    coil_context* context = nullptr;
    ASSERT_EQ(coil_open_memory(at, bytes.size(), nullptr, &model), COIL_OK) << coil_last_error();
    ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
    MaskedCall call(7);
    coil_tensor outputs[2] = {};
    ASSERT_EQ(coil_run(context, call.views().data(), 3, outputs, 2), COIL_OK);
    EXPECT_EQ(call.compare(outputs), "");
    coil_context_destroy(context);
    coil_close(model);
  }
}

// A byte of the weights that is another one is found where the caller asks for it, and by itself where there are few.
TEST_F(ModelTest, FlippedWeights) {
  const std::vector<Entry> good = entries_of("MASKED");
  std::string bytes = pack(good);
  const size_t at = bytes.rfind("COILWTS1");  // the code holds the word, too
  ASSERT_NE(at, bytes.npos);
  bytes[at - 10] = static_cast<char>(bytes[at - 10] ^ 1);
  const auto open_with = [&](int32_t verify) {
    const coil_options options = {.struct_bytes = sizeof options, .verify = verify};
    coil_model* model = nullptr;
    const coil_status status = coil_open_memory(bytes.data(), bytes.size(), &options, &model);
    coil_close(model);
    return status;
  };
  EXPECT_EQ(open_with(COIL_VERIFY_SMALL), 10);
  EXPECT_NE(std::string(coil_last_error()).find("m.wrapper.constants' is wrong: the file is damaged"), std::string::npos) << coil_last_error();
  EXPECT_EQ(open_with(COIL_VERIFY_ALL), 10);
  EXPECT_EQ(open_with(COIL_VERIFY_NONE), COIL_OK);
  EXPECT_EQ(open_with(3), 402);
}

TEST_F(ModelTest, ManyModelsAtOnce) {
  // Each has its own code and constants: the loader must not take one for another.
  const std::string counter = write_file("counter.pt2", package("COUNTER")), masked = write_file("masked.pt2", package("MASKED"));
  for (int round = 0; round < 3; round++) {
    std::vector<coil_model*> models;
    std::vector<coil_context*> contexts;
    for (int i = 0; i < 6; i++) {
      models.push_back(open_or_fail(i % 2 ? counter : masked));
      contexts.emplace_back();
      ASSERT_EQ(coil_context_create(models.back(), &contexts.back()), COIL_OK);
      coil_close(models.back());  // a context keeps its model
    }
    for (int i = 0; i < 6; i++) {
      Array x = Array::floats({4}, 0, 0);
      coil_tensor input = x.view(), outputs[2] = {};
      MaskedCall call(3);
      if (i % 2) {
        ASSERT_EQ(coil_run(contexts[static_cast<size_t>(i)], &input, 1, outputs, 1), COIL_OK) << coil_last_error();
        EXPECT_EQ(static_cast<float*>(outputs[0].data)[0], 10.0f);  // states are apart
      } else {
        ASSERT_EQ(coil_run(contexts[static_cast<size_t>(i)], call.views().data(), 3, outputs, 2), COIL_OK);
        EXPECT_EQ(call.compare(outputs), "");
      }
    }
    for (coil_context* context : contexts) coil_context_destroy(context);
  }
}

TEST_F(ModelTest, FailuresOfTheProgramAreReported) {
  coil_model* model = open_or_fail(write_file("fails.pt2", package("ADD_ONE", "-DFAILS")));
  coil_context* context;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
  Array x = Array::floats({10}, 0, 1);
  coil_tensor input = x.view(), output = {};
  EXPECT_EQ(coil_run(context, &input, 1, &output, 1), 211);
  EXPECT_STREQ(coil_last_error(), "COIL-E211: assertion 'x[0] > 0' failed (model.py:7)");
  EXPECT_EQ(output.data, nullptr);
  coil_context_destroy(context);
  coil_close(model);
}

TEST(Dtypes, NamesAndSizes) {
  EXPECT_STREQ(coil_dtype_name(COIL_DTYPE_BFLOAT16), "bfloat16");
  EXPECT_STREQ(coil_dtype_name(99), "unknown");
  EXPECT_EQ(coil_dtype_bytes(COIL_DTYPE_FLOAT64), 8u);
  EXPECT_EQ(coil_dtype_bytes(99), 0u);
}

}  // namespace
}  // namespace coil::runtime_test
