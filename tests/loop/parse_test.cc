// The text of loop programs, read back: every kind of definition, what programs say beside definitions, and text that is none.
#include <gtest/gtest.h>

#include <cstring>

#include "loop/interpret.h"
#include "loop/parse.h"

namespace coil {
namespace {

// Reads it, and writes it again: the same text.
std::string again(const std::string& text) {
  const auto program = parse_loops(text);
  return program.ok() ? to_string(program.value()) : program.error().to_string();
}

std::string problem(const std::string& text) {
  const auto program = parse_loops(text);
  return program.ok() ? "none" : program.error().message;
}

const char* const kEveryKind =
    "size batch = s77 in 1 to 64\n"
    "size n = u0 in 0 or more from data\n"
    "size step = i in 0 to 9 from data\n"
    "one batch//65 + 1\n"
    "input x: f32[batch, 8] strides [16, 1] exact strides whole storage named \"x in\"\n"
    "input size k: batch\n"
    "input images: f32[2, 8, 6, 6]\n"
    "input tokens: i64[4]\n"
    "input \"odd name\\x0a\": f32[batch//65 + 1]\n"
    "constant w: f32[2] = [1.5, -inf]\n"
    "constant q: i8[4, 4] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -16]\n"
    "constant scale: f32[1, 4] = [0.5, 0.25, 1, 2]\n"
    "constant table: f32[100, 8]\n"
    "constant weight: f32[8, 4, 3, 3]\n"
    "constant transposed: f32[3, 2] strides [1, 3] = [1, 2, 3, 4, 5, 6]\n"
    "state counter: i64[] = [3]\n"
    "require batch <= 64 and (batch != 3 or 2*batch < n + 5) else \"no \\\"three\\\"\" at \"model.py:7\"\n"
    "exp: f32[batch, 8] = [i0, i1] exp(load(x, i0, i1)) + load(\"odd name\\x0a\", 0)\n"
    "sum_2: f32[batch] = sum over [8] [i0 | i1] load(exp, i0, i1)\n"
    "best: i64[batch] = argmax over [8] [i0 | i1] load(exp, i0, i1); op argmax\n"
    "running: f32[batch, 8] = scan log_sum along i1 [i0, i1] load(exp, i0, i1)\n"
    "both: f32[batch, 11] = concat along i1\n"
    "  from 0 size 8: [i0, i1] load(exp, i0, i1)\n"
    "  from 8 size 3: [i0, i1] load(w, 1)\n"
    "order: f32[batch, 4]; places: i64[batch, 4] = sort descending below 9 along i1 of 8 [i0, i1] load(exp, i0, i1)\n"
    "count: i64[] = [] 2:i64\n"
    "size_n: i64[] = read n from count, at most batch; op read\n"
    "rows: f32[n] = [i0] to_f32(i0)\n"
    "looked_up: f32[4, 8] = [i0, i1] load(table, checked_index(load(tokens, i0), 100), i1); asserts \"index out of range\"\n"
    "product: f32[batch, 4] = gemm batch [] m [batch] n [4] k [8]: exp[i0, i2] * table[i1, i2]\n"
    "small: f32[batch, 4] = gemm batch [] m [batch] n [4] k [4]: order[i0, i2] * q[i1, i2] in groups of 4 with scale scale zero -\n"
    "features: f32[2, 8, 3, 3] = conv2d kernel 3x3 stride 2x2 padding 1x1 dilation 1x1 groups 2 images [2, 8, 6, 6]: images[i0, i1, i2, i3] * weight\n"
    "heads: f32[2, 8, 6, 6] = attention batch 2 heads 8 kv_heads 8 queries 6 keys 6 dim 6 v_dim 6 scale 0.125 causal masked rows NaN: "
    "q images[i0, i1, i2, i3] k images[i0, i1, i2, i3] v images[i0, i1, i2, i3]\n"
    "taken: i64[4] = compact blocks 1 of 4 where load(tokens, i1) > 0:i64 from 0:i64: to_i64(i1)\n"
    "spectrum: f32[batch, 8] = library fft_c2c c64 for fft.fft sizes [batch, 4] options [1, -2] scratch 8*batch worker scratch 64: exp\n"
    "condition: bool[] = [] load(counter) > 2:i64\n"
    "chosen: f32[4] = branch by condition; op cond\n"
    "  where it holds [t = tokens]\n"
    "    input t: i64[4]\n"
    "    yes: f32[4] = [i0] to_f32(load(t, i0))\n"
    "    output yes\n"
    "  otherwise [t = tokens]\n"
    "    input t: i64[4]\n"
    "    no: f32[4] = [i0] 0.0\n"
    "    output no\n"
    "total: f32[4]; trace: f32[9, 4] = loop step < 9 from [chosen]; op scan\n"
    "  step [carried = chosen]\n"
    "    input carried: f32[4]\n"
    "    next: f32[4] = [i0] load(carried, i0) * 2.0\n"
    "    row: f32[4] = [i0] load(carried, i0)\n"
    "    output next\n"
    "    output row\n"
    "more: i64[] = [] load(counter) + 1:i64\n"
    "output: f32[4] = [i0] load(total, i0)\n"
    "output product as [batch, 2, 2]\n"
    "output count number int named \"how many\"\n"
    "output rows\n"
    "output output\n"
    "output heads\n"
    "write counter = more\n"
    "write x = exp\n"
    "check looked_up\n"
    "none 3\n";

TEST(LoopText, EveryKindOfLineIsReadBack) { EXPECT_EQ(again(kEveryKind), kEveryKind); }

// Rows in groups, each with a matrix of numbers and scales of its own.
TEST(LoopText, QuantisedGroupsAreReadBackAndRun) {
  const std::string text =
      "input x: f32[3, 2]\n"
      "constant ends: i32[2] = [1, 2]\n"
      "constant q: i8[2, 2, 2] = [1, 2, 3, 4, 5, 6, 7, -8]\n"
      "constant scale: f32[2, 1, 2] = [0.5, 1, 2, 4]\n"
      "constant zero: f32[2, 1, 2] = [0, 1, 0, 2]\n"
      "y: f32[3, 2] = grouped_gemm by rows of 2 groups to ends m 3 n 2 k 2: x[i1, i3] * q[i0, i2, i3] in groups of 2 with scale scale zero zero\n"
      "output y\n";
  EXPECT_EQ(again(text), text);
  auto program = parse_loops(text);
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const TensorData x{nullptr, {reinterpret_cast<const uint8_t*>(values.data()), 24}, DType::f32, {3, 2}, {2, 1}, 0};
  const auto results = interpret(program.value(), std::vector<TensorData>{x});
  ASSERT_TRUE(results.ok()) << results.error().to_string();
  std::vector<float> found(6);
  std::memcpy(found.data(), results.value()[0].bytes.data(), 24);
  EXPECT_EQ(found, (std::vector<float>{2.5f, 8, 78, -100, 0, 0}));  // {(1 + 2 * 2) / 2, 2 + 2 * 3}, {2 * (3 * 5 + 4 * 6), 4 * (3 * 5 - 4 * 10)}
}

TEST(LoopText, WhatIsReadRuns) {
  auto program = parse_loops(
      "size n = s0 in 1 or more\n"
      "input x: f32[n, 2]\n"
      "constant w: f32[2] = [2, -1]\n"
      "scaled: f32[n, 2] = [i0, i1] load(x, i0, i1) * load(w, i1)\n"
      "sum: f32[n] = sum over [2] [i0 | i1] load(scaled, i0, i1)\n"
      "output sum\n");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const TensorData x{nullptr, {reinterpret_cast<const uint8_t*>(values.data()), 24}, DType::f32, {3, 2}, {2, 1}, 0};
  const auto results = interpret(program.value(), std::vector<TensorData>{x});
  ASSERT_TRUE(results.ok()) << results.error().to_string();
  float found[3];
  ASSERT_EQ(results.value()[0].bytes.size(), sizeof found);
  std::memcpy(found, results.value()[0].bytes.data(), sizeof found);
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(found[1], 2);
  EXPECT_EQ(found[2], 4);
}

TEST(LoopText, ContentsThatAreNotShownFollowFromTheName) {
  const std::string text = "constant a: f32[50]\nconstant b: f32[50]\nsum: f32[50] = [i0] load(a, i0) + load(b, i0)\noutput sum\n";
  const auto one = parse_loops(text), other = parse_loops(text);
  ASSERT_TRUE(one.ok() && other.ok());
  const auto bytes = [](const Result<LoopProgram>& p, size_t b) {
    return std::vector(p.value().buffers[b].data.bytes.begin(), p.value().buffers[b].data.bytes.end());
  };
  EXPECT_EQ(bytes(one, 0), bytes(other, 0));
  EXPECT_NE(bytes(one, 0), bytes(one, 1));
}

TEST(LoopText, ProblemsNameTheLineAndWhatWasExpected) {
  const std::string x = "input x: f32[4]\n";
  EXPECT_EQ(problem(x + "y: f32[4] = [i0] load(z, i0)\n"), "line 2, column 17: expression, column 8: unknown buffer 'z'");
  EXPECT_EQ(problem(x + "y: f33[4] = [i0] load(x, i0)\n"), "line 2, column 7: 'f33' is no type of elements");
  EXPECT_EQ(problem(x + "y: f32[4] = [i0] load(x, i0) nonsense\n"), "line 2, column 30: unexpected text");
  EXPECT_EQ(problem(x + "y: f32[4] = twice x\n"), "line 2, column 13: expected a definition");
  EXPECT_EQ(problem(x + "output y\n"), "line 2, column 9: there is no buffer 'y' before this line");
  EXPECT_EQ(problem(x + x), "line 2, column 16: two buffers are named 'x'");
  EXPECT_EQ(problem("size i0 = s0 in 1 to 2\n"), "line 1, column 23: 'i0' cannot be the name of a size here: expressions read it as something else");
  EXPECT_EQ(problem("size n = s0 in 3 to 2\n"), "line 1, column 22: the range is empty");
  EXPECT_EQ(problem("constant c: f32[1000000, 1000000]\n"), "line 1, column 34: the constants take more than 4294967296 bytes");
  EXPECT_EQ(problem("constant c: f32[1000000] strides [1000000000]\n"), "line 1, column 46: the constants take more than 4294967296 bytes");
  EXPECT_EQ(problem("constant c: f32[1000000, 1000000] strides [0, 0]\n"), "line 1, column 49: the constants take more than 4294967296 bytes");
  EXPECT_EQ(problem("constant c: f32[2] strides [-1]\n"), "line 1, column 32: what is stored has sizes and strides that are numbers of 0 or more");
  EXPECT_EQ(problem("constant c: f32[2] = [1]\n"), "line 1, column 24: expected ','");
  EXPECT_EQ(problem(x + "y: f32[4] = [i0] load(x, i0)\n  from 0 size 4: [i0] load(x, i0)\n"),
            "line 2, column 29: an indented line follows, which belongs to nothing");
  EXPECT_EQ(problem(x + "y: f32[4] = concat along i0\n  from 0 size 4 [i0] load(x, i0)\n"), "line 3, column 17: expected ':'");
  // What can be read, and makes no program.
  EXPECT_EQ(problem(x + "y: f32[4] = [i0] load(x, i1)\n"), "loop program: the body of 'y' mentions i1 of 1 variables");
  EXPECT_EQ(problem(x + "y: i64[4] = [i0] load(x, i0)\n"), "loop program: the body of 'y' is f32, the buffer i64");
}

}  // namespace
}  // namespace coil
