// Result, TRY, CHECK and the error table.
#include "base/result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace coil {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Error{ErrorCode::bad_json, "odd number", "file.json", "use an even one"};
  return x / 2;
}

Result<int> quarter(int x) {
  TRY(int h, half(x));
  TRY(int q, half(h));
  return q;
}

Status both(int x) {
  TRY_STATUS(half(x));
  return ok_status();
}

TEST(Result, TryPassesValuesAndErrors) {
  ASSERT_TRUE(quarter(8).ok());
  EXPECT_EQ(quarter(8).value(), 2);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().code, ErrorCode::bad_json);
  EXPECT_TRUE(both(2).ok());
  EXPECT_FALSE(both(3).ok());
}

TEST(Result, ErrorText) {
  Error error = half(3).error();
  EXPECT_EQ(error.to_string(), "COIL-E012: odd number\n  at file.json\n  hint: use an even one");
  EXPECT_EQ(std::move(error).with_context("reading").message, "reading: odd number");
  EXPECT_EQ(exit_code(ErrorCode::unsupported_op), 5);
}

TEST(Result, ErrorNumbersAreUnique) {
  std::vector<int> numbers = {
#define X(number, name, exit_code, text) number,
#include "base/error_codes.def"
#undef X
  };
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
}

TEST(Check, Throws) {
  EXPECT_NO_THROW(CHECK(1 == 1));
  try {
    CHECK(1 == 2, "one is not two");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("1 == 2: one is not two"), std::string::npos);
  }
}

}  // namespace
}  // namespace coil
