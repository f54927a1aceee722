// Wrong calls: each is refused with its code and a text that names what is wrong, and the next right call is right. The single
// cases say what the texts are; the sweep makes over a hundred wrong calls of two models by changing right ones.
#include <gtest/gtest.h>

#include <functional>

#include "fixture.h"

namespace coil::runtime_test {
namespace {

class BadCall : public ::testing::Test {
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
    context_ = nullptr;
    model_ = nullptr;
  }
  void expect_right() {
    MaskedCall call(9);
    coil_tensor outputs[2] = {};
    ASSERT_EQ(coil_run(context_, call.views().data(), 3, outputs, 2), COIL_OK) << coil_last_error();
    EXPECT_EQ(call.compare(outputs), "");
  }
  // The fields say what the text says: "input 'b' (1): ..." is of input 1, other texts are of none in particular.
  void expect_error(const std::vector<coil_tensor>& inputs, coil_status code, const std::string& text, const std::vector<int64_t>& strides = {}) {
    coil_tensor outputs[2] = {};
    EXPECT_EQ(coil_run(context_, inputs.data(), static_cast<int32_t>(inputs.size()), outputs, coil_num_outputs(model_)), code) << text;
    EXPECT_EQ(std::string(coil_last_error()), "COIL-E" + std::to_string(code) + ": " + text);
    EXPECT_EQ(outputs[0].data, nullptr);
    coil_input_fault fault;
    ASSERT_EQ(coil_fault_of_run(context_, &fault), COIL_OK);
    EXPECT_EQ(fault.input, text.starts_with("input '") ? text[text.find('(') + 1] - '0' : -1) << text;
    EXPECT_EQ(std::vector<int64_t>(fault.strides, fault.strides + fault.rank), strides) << text;
  }

  coil_model* model_ = nullptr;
  coil_context* context_ = nullptr;
};

TEST_F(BadCall, Texts) {
  MaskedCall call(4);
  Array wide = Array::floats({65, 16}, 0, 1), other = Array::floats({3, 16}, 0, 1), flat = Array::floats({64}, 0, 1);
  Array wrong_mask = Array::bools({4, 15}), float_mask = Array::floats({4, 16}, 0, 1), transposed = Array::floats({4, 16}, 0, 1);
  transposed.strides = {1, 4};
  const std::vector<coil_tensor> good = call.views();
  expect_error({good[0], good[1]}, 201, "expected 3 inputs ('a', 'b', 'mask'), got 2; pass one tensor for each, in this order");
  expect_error({good[0], good[1], float_mask.view()}, 202,
               "input 'mask' (2): expected bool[batch, 16] with batch in 1..64, got float32[4, 16]: convert it to bool");
  expect_error({flat.view(), good[1], good[2]}, 203,
               "input 'a' (0): expected float32[batch, 16] with batch in 1..64, got float32[64]: it has 1 dimension instead of "
               "2; reshape it");
  expect_error({wide.view(), good[1], good[2]}, 204,
               "input 'a' (0): expected float32[batch, 16] with batch in 1..64, got float32[65, 16]: size 65 of dimension 0 "
               "('batch') is "
               "outside 1..64; export the program with a wider range of 'batch' if you need it");
  expect_error({good[0], other.view(), good[2]}, 204,
               "input 'b' (1): expected float32[batch, 16] with batch in 1..64, got float32[3, 16]: size 3 of dimension 0 "
               "('batch') must be 4, "
               "because 'batch' is 4 by dimension 0 of input 'a'");
  expect_error({good[0], good[1], wrong_mask.view()}, 204,
               "input 'mask' (2): expected bool[batch, 16] with batch in 1..64, got bool[4, 15]: size 15 of dimension 1 must "
               "be 16, which the "
               "export fixed");
  expect_error({good[0], transposed.view(), good[2]}, 205,
               "input 'b' (1): expected float32[batch, 16] with batch in 1..64, got float32[4, 16]: expected strides [16, 1] "
               "(contiguous), got "
               "[1, 4]; make it contiguous",
               {16, 1});
  coil_tensor on_gpu = good[0], no_data = good[1];
  on_gpu.device_type = COIL_DEVICE_CUDA;
  no_data.data = nullptr;
  expect_error({on_gpu, good[1], good[2]}, 206,
               "input 'a' (0): expected float32[batch, 16] with batch in 1..64, got float32[4, 16]: it is on cuda:0, the "
               "program takes it on the CPU; move it there");
  expect_error({good[0], no_data, good[2]}, 207,
               "input 'b' (1): expected float32[batch, 16] with batch in 1..64, got float32[4, 16]: its data pointer is null");
  expect_right();
}

TEST_F(BadCall, TextsOfDerivedSizes) {
  open("LAYOUT");
  Array x = Array::floats({2, 3, 4, 8}, 0, 1), odd = Array::floats({2, 3, 4, 7}, 0, 1), step = Array::int64(3), negative = Array::int64(-1);
  Array tail = Array::floats({17}, 0, 1), short_tail = Array::floats({16}, 0, 1), one = Array::floats({1, 3, 4, 8}, 0, 1);
  x.strides = odd.strides = one.strides = {96, 1, 24, 3};
  expect_error({odd.view(), step.view(), tail.view()}, 204,
               "input 'x' (0): expected float32[batch, 3, side, 2*side] with batch in 0..8, side in 1..32, got float32[2, 3, "
               "4, 7]: size 7 of "
               "dimension 3 ('2*side') must be 8, because 'side' is 4 by dimension 2 of input 'x'");
  expect_error({x.view(), step.view(), short_tail.view()}, 204,
               "input 'tail' (2): expected float32[side**2 + 1], got float32[16]: size 16 of dimension 0 must be side**2 + 1 = 17");
  expect_error({one.view(), step.view(), tail.view()}, 204,
               "the sizes of the inputs must satisfy (batch + side) % 2 == 0, which the export assumed "
               "(here batch is 1, side is 4, step is 3)");
  expect_error({x.view(), negative.view(), tail.view()}, 210,
               "input 'step' (1): value -1 is outside 0 or more; export the program with a wider range if you need it");
  x.strides.clear();
  expect_error({x.view(), step.view(), tail.view()}, 205,
               "input 'x' (0): expected float32[batch, 3, side, 2*side] with batch in 0..8, side in 1..32, got float32[2, 3, "
               "4, 8]: expected "
               "strides [96, 1, 24, 3], got contiguous ones; copy it into a tensor with these strides, or export with an input "
               "laid out like "
               "this one",
               {96, 1, 24, 3});
}

// Every field of every input, changed in every way: named, refused, and followed by a right call.
TEST_F(BadCall, Sweep) {
  static const int64_t kHuge[] = {INT64_MAX, INT64_MAX}, kNegative[] = {-1, 16}, kLowest[] = {INT64_MIN, 16}, kZero[] = {0, 16};
  static const int64_t kPower[] = {int64_t{1} << 62, 16}, kFive[] = {5, 16}, kFifteen[] = {4, 15}, kSeventeen[] = {4, 17};
  static const int64_t kReversed[] = {-16, -1}, kBroadcast[] = {0, 1}, kTransposed[] = {1, 4}, kPadded[] = {17, 1}, kLast[] = {16, 2};
  using Change = std::pair<const char*, std::function<void(coil_tensor&)>>;
  auto sizes = [](const int64_t* values) { return [values](coil_tensor& t) { t.sizes = values; }; };
  auto strides = [](const int64_t* values) { return [values](coil_tensor& t) { t.strides = values; }; };
  std::vector<std::pair<coil_status, Change>> changes = {{203, {"rank 0", [](coil_tensor& t) { t.rank = 0; }}},
                                                         {203, {"rank 1", [](coil_tensor& t) { t.rank = 1; }}},
                                                         {203, {"rank 3", [](coil_tensor& t) { t.rank = 3; }}},
                                                         {203, {"rank -1", [](coil_tensor& t) { t.rank = -1; }}},
                                                         {203, {"rank huge", [](coil_tensor& t) { t.rank = 1 << 30; }}},
                                                         {204, {"sizes null", sizes(nullptr)}},
                                                         {204, {"sizes huge", sizes(kHuge)}},
                                                         {204, {"size -1", sizes(kNegative)}},
                                                         {204, {"size lowest", sizes(kLowest)}},
                                                         {204, {"size 0", sizes(kZero)}},
                                                         {204, {"size 2**62", sizes(kPower)}},
                                                         {204, {"size 5 of another batch", sizes(kFive)}},
                                                         {204, {"size 15", sizes(kFifteen)}},
                                                         {204, {"size 17", sizes(kSeventeen)}},
                                                         {205, {"strides reversed", strides(kReversed)}},
                                                         {205, {"strides 0", strides(kBroadcast)}},
                                                         {205, {"strides transposed", strides(kTransposed)}},
                                                         {205, {"strides padded", strides(kPadded)}},
                                                         {205, {"every other element", strides(kLast)}},
                                                         {206, {"on CUDA", [](coil_tensor& t) { t.device_type = COIL_DEVICE_CUDA; }}},
                                                         {206, {"on device 77", [](coil_tensor& t) { t.device_type = 77; }}},
                                                         {207, {"data null", [](coil_tensor& t) { t.data = nullptr; }}}};
  for (int32_t dtype : {0, 1, 2, 3, 4, 5, 7, 9, 15, 16, 99, -1, INT32_MIN})
    changes.push_back({202, {"another dtype", [dtype](coil_tensor& t) { t.dtype = dtype; }}});
  static const char* const kNames[] = {"'a' (0)", "'b' (1)", "'mask' (2)"};
  int wrong = 0;
  for (size_t i = 0; i < 3; i++) {
    for (const auto& [code, change] : changes) {
      MaskedCall call(4);
      std::vector<coil_tensor> inputs = call.views();
      change.second(inputs[i]);
      if (std::string(change.first) == "size 5 of another batch") {
        // Another batch in the first input contradicts the second, which is then the one named.
        coil_tensor outputs[2] = {};
        EXPECT_EQ(coil_run(context_, inputs.data(), 3, outputs, 2), 204) << i;
        wrong++;
        continue;
      }
      coil_tensor outputs[2] = {};
      EXPECT_EQ(coil_run(context_, inputs.data(), 3, outputs, 2), code) << change.first << " of input " << i << ": " << coil_last_error();
      EXPECT_NE(std::string(coil_last_error()).find(std::string("input ") + kNames[i]), std::string::npos) << coil_last_error();
      coil_input_fault fault;
      EXPECT_EQ(coil_fault_of_run(context_, &fault), COIL_OK);
      EXPECT_EQ(fault.input, static_cast<int32_t>(i)) << change.first;
      EXPECT_EQ(fault.rank, code == 205 ? 2 : 0) << change.first;
      EXPECT_EQ(outputs[0].data, nullptr);
      wrong++;
      expect_right();
    }
  }
  for (int32_t count : {-1, 0, 1, 2, 4, 1 << 30}) {
    MaskedCall call(4);
    std::vector<coil_tensor> inputs = call.views();
    coil_tensor outputs[2] = {};
    EXPECT_EQ(coil_run(context_, inputs.data(), count, outputs, 2), 201) << count;
    wrong++;
    expect_right();
  }
  EXPECT_GE(wrong, 100);
}

TEST_F(BadCall, MisalignedData) {
  MaskedCall call(4);
  call.a.bytes.resize(call.a.bytes.size() + 8);
  std::vector<coil_tensor> inputs = call.views();
  for (int shift : {1, 2, 3}) {
    inputs[0].data = call.a.bytes.data() + shift;
    coil_tensor outputs[2] = {};
    EXPECT_EQ(coil_run(context_, inputs.data(), 3, outputs, 2), 207);
    EXPECT_NE(std::string(coil_last_error()).find("not aligned to its elements of 4 bytes"), std::string::npos);
  }
  inputs[0].data = call.a.bytes.data() + 4;  // elements, not vectors, have to be aligned
  coil_tensor outputs[2] = {};
  EXPECT_EQ(coil_run(context_, inputs.data(), 3, outputs, 2), COIL_OK);
}

TEST_F(BadCall, OutputsThatOverlap) {
  MaskedCall call(4);
  const std::vector<coil_tensor> inputs = call.views();
  const int64_t y_sizes[] = {4, 16}, row_sizes[] = {4};
  std::vector<float> memory(4 * 16 + 4);
  const auto run = [&](void* y, void* rows) {
    coil_tensor outputs[2] = {{y, y_sizes, nullptr, 2, COIL_DTYPE_FLOAT32}, {rows, row_sizes, nullptr, 1, COIL_DTYPE_FLOAT32}};
    return coil_run(context_, inputs.data(), 3, outputs, 2);
  };
  EXPECT_EQ(run(memory.data(), memory.data() + 64), COIL_OK) << coil_last_error();
  EXPECT_EQ(run(memory.data() + 4, memory.data()), COIL_OK) << coil_last_error();
  EXPECT_EQ(run(memory.data(), memory.data() + 63), 209);
  EXPECT_NE(std::string(coil_last_error()).find("output 'rows' (1): its memory overlaps that of output 'y'"), std::string::npos);
  EXPECT_EQ(run(inputs[1].data, memory.data()), 209);
  EXPECT_NE(std::string(coil_last_error()).find("output 'y' (0): its memory overlaps that of input 'b'"), std::string::npos);
  expect_right();
}

TEST_F(BadCall, NullArguments) {
  coil_tensor tensors[3] = {};
  coil_model* model = nullptr;
  EXPECT_EQ(coil_run(nullptr, tensors, 3, tensors, 2), 402);
  EXPECT_EQ(coil_run(context_, nullptr, 3, tensors, 2), 207);
  MaskedCall call(4);
  EXPECT_EQ(coil_run(context_, call.views().data(), 3, nullptr, 2), 207);
  EXPECT_EQ(coil_open(nullptr, nullptr, &model), 402);
  EXPECT_EQ(coil_open("x", nullptr, nullptr), 402);
  EXPECT_EQ(coil_open_memory(nullptr, 0, nullptr, &model), 402);
  EXPECT_EQ(coil_context_create(nullptr, &context_), 402);
  EXPECT_EQ(coil_reset_state(nullptr), 402);
  coil_input_fault fault;
  EXPECT_EQ(coil_fault_of_run(nullptr, &fault), 402);
  EXPECT_EQ(coil_fault_of_run(context_, nullptr), 402);
  coil_close(nullptr);
  coil_context_destroy(nullptr);
  expect_right();
}

}  // namespace
}  // namespace coil::runtime_test
