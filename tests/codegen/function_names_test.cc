// Names of a program's functions where the digits of texts are equal.
#include <gtest/gtest.h>

#include <unordered_map>

#include "base/hash.h"
#include "codegen/kernel_text.h"

namespace coil {
namespace {

// Two texts whose hashes end in the same eight digits: among so many there are some.
std::pair<std::string, std::string> colliding() {
  std::unordered_map<uint32_t, int> seen;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto [it, fresh] = seen.try_emplace(static_cast<uint32_t>(hash64(std::string_view("text " + std::to_string(i)))), i);
    if (!fresh) return {"text " + std::to_string(it->second), "text " + std::to_string(i)};
  }
  return {};
}

TEST(FunctionNames, EqualDigits) {
  const auto [a, b] = colliding();
  ASSERT_NE(a, b);
  FunctionNames names;
  const std::string first = names.add("stack", a);
  EXPECT_EQ(first, "stack_" + hex(hash64(std::string_view(a))).substr(8));
  const std::string second = names.add("stack", b);
  EXPECT_EQ(second, "stack_" + hex(hash64(std::string_view(b))));
  EXPECT_NE(names.add("stack", b), second);  // as if all sixteen were equal
  EXPECT_EQ(names.add("cat", b), "cat_" + first.substr(6));
}

}  // namespace
}  // namespace coil
