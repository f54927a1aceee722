// What compiles that run at the same time share.
#include "toolchain/made_once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "toolchain/compile.h"

namespace coil::toolchain {
namespace {

TEST(MadeOnce, ManyThreadsMakeEachKeyOnce) {
  MadeOnce once;
  std::atomic<int> made = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (uint8_t key = 0; key < 20; ++key) {
        const auto bytes = once.get(std::string(1, static_cast<char>('a' + key)), [&]() -> Result<Bytes> {
          ++made;
          std::this_thread::yield();
          return Bytes{key};
        });
        wrong += !bytes.ok() || bytes.value() != Bytes{key};
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 20);
  EXPECT_EQ(wrong, 0);
}

TEST(MadeOnce, AnErrorAndAnExceptionReachAllThatAsk) {
  MadeOnce once;
  int made = 0;
  for (int i = 0; i < 2; ++i) {
    const auto failed = once.get("error", [&]() -> Result<Bytes> { return ++made, Error{ErrorCode::internal, "no", "", ""}; });
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().message, "no");
    EXPECT_THROW((void)once.get("exception",
                                [&]() -> Result<Bytes> {
                                  ++made;
                                  throw std::runtime_error("stop");
                                }),
                 std::runtime_error);
  }
  EXPECT_EQ(made, 2);
}

TEST(MadeOnce, ProgramsThatDifferInNamesPlacesAndCommentsShareTheirUnits) {
  MadeOnce once;
  const CompileRequest first{.name = "kernels_0.cc", .source = "// conv1 of a.py:12\nint f(int x) { return x + 1; }\n"};
  const CompileRequest second{.name = "kernels_3.cc", .source = "  // conv2 of b.py:7\n// and more\nint f(int x) { return x + 1; }\n"};
  const CompileRequest other{.name = "kernels_0.cc", .source = "// conv1 of a.py:12\nint f(int x) { return x + 2; }\n"};
  EXPECT_EQ(compile_key(first), compile_key(second));
  EXPECT_NE(compile_key(first), compile_key(other));
  const Known known{nullptr, &once};
  const auto a = compile_all(std::vector{first}, 1, {}, known), b = compile_all(std::vector{second}, 1, {}, known), c = compile_all(std::vector{second}, 1);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a.value(), b.value());
  EXPECT_EQ(b.value(), c.value());  // comments do not change the code
  EXPECT_EQ(without_comments("a // b\n\n  // c\n\t//d\n/ /e"), "a // b\n\n/ /e\n");
  CompileRequest with_lines = first;
  with_lines.flags = {"-debug-info-kind=line-tables-only"};
  CompileRequest moved = second;
  moved.flags = with_lines.flags;
  EXPECT_NE(compile_key(with_lines), compile_key(moved));  // line tables name lines
}

}  // namespace
}  // namespace coil::toolchain
