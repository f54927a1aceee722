// The outputs of a call: whose memory they are, what the caller's words about it are compared with, and what becomes of a struct that
// is passed again. Every case that once wrote beyond the caller's memory has a guard behind that memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "fixture.h"

namespace coil::runtime_test {
namespace {

// Memory of the caller's with a guard behind it.
struct Guarded {
  explicit Guarded(size_t bytes) : size(bytes), memory(bytes + 65536, uint8_t{0xa5}) {}
  float* data() { return reinterpret_cast<float*>(memory.data()); }
  bool guard_is_whole() const {
    for (size_t i = size; i < memory.size(); i++) {
      if (memory[i] != 0xa5) return false;
    }
    return true;
  }
  size_t size;
  std::vector<uint8_t> memory;
};

class Outputs : public ::testing::Test {
 protected:
  void SetUp() override { open("MASKED"); }
  void open(const std::string& model) {
    TearDown();
    model_ = open_or_fail(write_file(model + ".pt2", package(model)));
    ASSERT_EQ(coil_context_create(model_, &context_), COIL_OK);
  }
  void TearDown() override {
    coil_context_destroy(context_);
    coil_close(model_);
    context_ = nullptr, model_ = nullptr;
  }
  coil_status run(MaskedCall& call, coil_tensor* outputs) { return coil_run(context_, call.views().data(), 3, outputs, 2); }
  coil_status infer(MaskedCall& call, coil_tensor* outputs) { return coil_infer(context_, call.views().data(), 3, outputs, 2); }
  void expect_refused(coil_status status, const char* text) {
    EXPECT_EQ(status, 209);
    EXPECT_NE(std::string(coil_last_error()).find(text), std::string::npos) << coil_last_error();
  }

  coil_model* model_ = nullptr;
  coil_context* context_ = nullptr;
};

TEST_F(Outputs, OneStructServesGrowingBatches) {
  coil_tensor outputs[2] = {};
  for (int64_t batch : {1, 2, 64, 3, 40, 64, 1}) {
    MaskedCall call(batch, static_cast<float>(batch));
    ASSERT_EQ(run(call, outputs), COIL_OK) << coil_last_error();
    EXPECT_EQ(call.compare(outputs), "");
  }
}

TEST_F(Outputs, SizesOfInferAreComparedWithTheCallsOwn) {
  MaskedCall small(1), large(64);
  coil_tensor outputs[2] = {};
  ASSERT_EQ(infer(small, outputs), COIL_OK);
  Guarded y(64), rows(4);
  outputs[0].data = y.data(), outputs[1].data = rows.data();
  expect_refused(run(large, outputs), "the result has dtype number 6, sizes [64, 16]");
  EXPECT_TRUE(y.guard_is_whole() && rows.guard_is_whole());
  ASSERT_EQ(run(small, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].data, y.data());
  EXPECT_EQ(small.compare(outputs), "");
  // As it was left, once more, and at other sizes.
  ASSERT_EQ(run(small, outputs), COIL_OK) << coil_last_error();
  expect_refused(run(large, outputs), "the caller's tensor has dtype number 6, rank 2, sizes [1, 16]");
  EXPECT_TRUE(y.guard_is_whole() && rows.guard_is_whole());
}

// Other calls of the context do not change what a struct says that was filled before.
TEST_F(Outputs, WhatWasToldStaysTrue) {
  MaskedCall small(1), large(64);
  coil_tensor told[2] = {}, others[2] = {};
  ASSERT_EQ(infer(small, told), COIL_OK);
  Guarded y(64), rows(4);
  told[0].data = y.data(), told[1].data = rows.data();
  ASSERT_EQ(run(large, others), COIL_OK);
  expect_refused(run(large, told), "sizes [1, 16]");
  ASSERT_EQ(infer(large, others), COIL_OK);
  expect_refused(run(large, told), "sizes [1, 16]");
  for (int64_t batch = 1; batch <= 40; batch++) {
    MaskedCall call(batch);
    ASSERT_EQ(infer(call, others), COIL_OK);
  }
  EXPECT_EQ(told[0].sizes[0], 1);
  EXPECT_TRUE(y.guard_is_whole() && rows.guard_is_whole());
  EXPECT_EQ(run(small, told), COIL_OK);
}

// Two structs that take turns: the memory of the first is gone when the second has grown.
TEST_F(Outputs, MemoryThatIsGoneIsNotWritten) {
  MaskedCall small(1), large(64);
  coil_tensor first[2] = {}, second[2] = {};
  ASSERT_EQ(run(small, first), COIL_OK);
  const void* const old = first[0].data;
  ASSERT_EQ(run(large, second), COIL_OK);
  ASSERT_NE(second[0].data, old);  // it grew
  for (MaskedCall* call : {&small, &large}) {
    coil_tensor again[2] = {first[0], first[1]};
    const coil_status status = run(*call, again);
    if (status == COIL_OK) {
      EXPECT_EQ(call->compare(again), "");
    } else {
      EXPECT_EQ(status, 209) << coil_last_error();
    }
  }
  Guarded y(64);
  coil_tensor own[2] = {first[0], {}};
  own[0].data = y.data();  // sizes that described memory of the context
  expect_refused(run(small, own), "memory that this context owned");
  EXPECT_TRUE(y.guard_is_whole());
}

TEST_F(Outputs, StructsThatChangePlaces) {
  MaskedCall small(2), large(50);
  coil_tensor outputs[2] = {};
  ASSERT_EQ(run(small, outputs), COIL_OK);
  std::swap(outputs[0], outputs[1]);
  ASSERT_EQ(run(large, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(large.compare(outputs), "");
  outputs[1].data = outputs[0].data;  // both in one
  ASSERT_EQ(run(small, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(small.compare(outputs), "");
  outputs[0].data = static_cast<float*>(outputs[0].data) + 3;  // in the middle of it
  ASSERT_EQ(run(large, outputs), COIL_OK) << coil_last_error();
  EXPECT_EQ(large.compare(outputs), "");
}

// y of one run is a of the next, whatever is reused, and grows.
TEST_F(Outputs, AreInputsOfTheNextRun) {
  MaskedCall call(7);
  coil_tensor outputs[2] = {};
  ASSERT_EQ(run(call, outputs), COIL_OK);
  for (int round = 0; round < 5; round++) {
    std::memcpy(call.a.bytes.data(), outputs[0].data, call.a.bytes.size());  // for the reference
    for (float& value : std::span(call.a.f32(), 7 * 16)) value = std::min(value, 100.0f);
    std::memcpy(outputs[0].data, call.a.bytes.data(), call.a.bytes.size());
    std::vector<coil_tensor> inputs = call.views();
    inputs[0] = outputs[0];
    coil_tensor fresh[2] = {};
    coil_tensor* const out = round % 2 ? outputs : fresh;
    ASSERT_EQ(coil_run(context_, inputs.data(), 3, out, 2), COIL_OK) << coil_last_error();
    EXPECT_EQ(call.compare(out), "") << round;
    outputs[0] = out[0], outputs[1] = out[1];
  }
  // Inputs in the results of the last two runs leave no block free.
  coil_tensor older[2] = {}, newer[2] = {};
  std::vector<coil_tensor> inputs = call.views();
  ASSERT_EQ(run(call, older), COIL_OK);
  inputs[0] = older[0];
  ASSERT_EQ(coil_run(context_, inputs.data(), 3, newer, 2), COIL_OK);
  inputs[1] = newer[0];
  coil_tensor none[2] = {};
  expect_refused(coil_run(context_, inputs.data(), 3, none, 2), "inputs of this call lie in its results of the last two runs");
}

TEST_F(Outputs, LateOnesAreComparedWhenTheirSizeIsKnown) {
  open("LATE");
  std::vector<float> x = {1, -1, 2, 3};
  int64_t n = 4, three = 3, two = 2;
  coil_tensor input = {x.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
  coil_tensor outputs[2] = {};
  ASSERT_EQ(coil_infer(context_, &input, 1, outputs, 2), COIL_OK);
  EXPECT_EQ(outputs[0].sizes[0], -1);
  Guarded kept(12), doubled(16);
  outputs[0].data = kept.data();
  expect_refused(coil_run(context_, &input, 1, outputs, 2), "output 'kept' (0): the result has dtype number 6, sizes [3]");
  outputs[0] = {kept.data(), &two, nullptr, 1, COIL_DTYPE_FLOAT32};
  outputs[1].data = nullptr;
  expect_refused(coil_run(context_, &input, 1, outputs, 2), "sizes [2]");
  EXPECT_TRUE(kept.guard_is_whole());
  outputs[0].sizes = &three;
  ASSERT_EQ(coil_run(context_, &input, 1, outputs, 2), COIL_OK) << coil_last_error();
  EXPECT_EQ(outputs[0].data, kept.data());
  EXPECT_EQ(kept.data()[2], 3);
  // As it was left, with data that keeps more elements.
  x[1] = 5;
  expect_refused(coil_run(context_, &input, 1, outputs, 2), "sizes [4]");
  EXPECT_TRUE(kept.guard_is_whole());
}

TEST_F(Outputs, LateOnesMustNotOverlap) {
  open("LATE");
  std::vector<float> x = {1, -1, 2, 3};
  int64_t n = 4, three = 3;
  const coil_tensor input = {x.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
  const std::vector<float> before = x;
  coil_tensor outputs[2] = {{x.data(), &three, nullptr, 1, COIL_DTYPE_FLOAT32}, {}};
  expect_refused(coil_run(context_, &input, 1, outputs, 2), "output 'kept' (0): its memory overlaps that of input 'x'");
  EXPECT_EQ(x, before);
  std::vector<float> memory(8);
  outputs[0].data = memory.data() + 3, outputs[1] = {memory.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
  expect_refused(coil_run(context_, &input, 1, outputs, 2), "output 'kept' (0): its memory overlaps that of output 'doubled'");
  outputs[0].data = memory.data() + 4;
  EXPECT_EQ(coil_run(context_, &input, 1, outputs, 2), COIL_OK) << coil_last_error();
  EXPECT_EQ(memory[6], 3);
  // Without data: any number, one struct for all.
  coil_tensor reused[2] = {};
  for (size_t size : {4, 1000, 2, 4096, 0}) {
    x.assign(size, 2.0f);
    n = static_cast<int64_t>(size);
    const coil_tensor all = {x.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
    ASSERT_EQ(coil_run(context_, &all, 1, reused, 2), COIL_OK) << coil_last_error();
    ASSERT_EQ(reused[0].sizes[0], n);
    for (size_t i = 0; i < size; i++) ASSERT_EQ(static_cast<float*>(reused[0].data)[i], 2);
  }
}

// The struct of one output passed for a late one: its memory is given up for more before the late one's size is known.
TEST_F(Outputs, LateOnesInMemoryThatGrows) {
  open("LATE");
  coil_tensor outputs[2] = {};
  for (int64_t n : {4, 4000, 8, 4096}) {
    std::vector<float> x(static_cast<size_t>(n), 3.0f);
    const coil_tensor input = {x.data(), &n, nullptr, 1, COIL_DTYPE_FLOAT32};
    ASSERT_EQ(coil_run(context_, &input, 1, outputs, 2), COIL_OK) << coil_last_error();
    EXPECT_EQ(static_cast<float*>(outputs[0].data)[n - 1], 3);
    EXPECT_EQ(static_cast<float*>(outputs[1].data)[n - 1], 6);
    outputs[0] = outputs[1];
  }
}

TEST_F(Outputs, NullHandles) {
  coil_tensor_info info;
  EXPECT_EQ(coil_num_inputs(nullptr), 0);
  EXPECT_EQ(coil_num_outputs(nullptr), 0);
  EXPECT_EQ(coil_output_position(nullptr, 0), -1);
  EXPECT_EQ(coil_input_info(nullptr, 0, &info), 402);
  EXPECT_EQ(coil_output_info(model_, 0, nullptr), 402);
  EXPECT_EQ(coil_find_input(nullptr, "a"), -1);
  EXPECT_EQ(coil_find_input(model_, nullptr), -1);
  EXPECT_STREQ(coil_isa(nullptr), "");
  EXPECT_EQ(coil_num_threads(nullptr), 0);
  EXPECT_EQ(coil_model_device_type(nullptr), -1);
  EXPECT_EQ(coil_model_device_index(nullptr), -1);
  EXPECT_EQ(coil_synchronize(nullptr), 402);
  EXPECT_EQ(coil_memory_of_run(context_, nullptr), 402);
  EXPECT_EQ(coil_infer(nullptr, nullptr, 0, nullptr, 0), 402);
}

}  // namespace
}  // namespace coil::runtime_test
