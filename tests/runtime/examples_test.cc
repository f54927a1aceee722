// examples/c and examples/cpp: compiled as a user would, with the public headers and the shared library, and run.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "fixture.h"
#include "tests/paths.h"
#include "tests/runtime/sanitized.h"

#if !COIL_SANITIZED  // the library would want the sanitizer in the example, too
namespace coil::runtime_test {
namespace {

// The command's exit code and what it printed to stdout and stderr.
std::pair<int, std::string> run_example(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

std::string build(const std::string& compiler, const std::string& source) {
  EXPECT_TRUE(std::filesystem::exists(COIL_BINARY_DIR "/libcoil_runtime.so")) << "build the target coil_runtime first";
  const std::string program = temp_folder() + "/" + std::filesystem::path(source).filename().string() + ".out";
  const auto [code, text] = run_example(compiler + " -Wall -Wextra -Werror -I" COIL_SOURCE_DIR "/include " COIL_SOURCE_DIR "/examples/" + source + " -o " +
                                        program + " -L" COIL_BINARY_DIR " -lcoil_runtime -Wl,-rpath," COIL_BINARY_DIR);
  EXPECT_EQ(code, 0) << text;
  return program;
}

TEST(Examples, C) {
  const std::string program = build("cc -std=c11", "c/run.c");
  const auto [code, text] = run_example(program + " " + write_file("example.pt2", package("MASKED")));
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text,
            "input a: float32 [batch, 16]\ninput b: float32 [batch, 16]\ninput mask: bool [batch, 16]\n"
            "output 0: float32 [1, 16]\noutput 1: float32 [1]\n");
}

TEST(Examples, Cpp) {
  const std::string program = build("c++ -std=c++17", "cpp/run.cc");
  const auto [code, text] = run_example(program + " " + write_file("example.pt2", package("MASKED")));
  EXPECT_EQ(code, 0);
  EXPECT_NE(text.find("output: float32, sizes 1 16\noutput: float32, sizes 1\n"), text.npos) << text;
  const auto [bad_code, bad_text] = run_example(program + " " + write_file("nothing.pt2", "nothing"));
  EXPECT_EQ(bad_code, 1);
  EXPECT_EQ(bad_text.substr(0, 9), "COIL-E010");
}

// The library needs nothing but the C and C++ libraries, and is small.
TEST(Examples, LibraryStandsAlone) {
  const auto [code, text] = run_example("readelf -d " COIL_BINARY_DIR "/libcoil_runtime.so | sed -n 's/.*NEEDED.*\\[\\(.*\\)\\].*/\\1/p'");
  EXPECT_EQ(code, 0);
  std::string left = text;
  for (const char* allowed : {"libstdc++.so.6\n", "libm.so.6\n", "libgcc_s.so.1\n", "libc.so.6\n", "ld-linux-x86-64.so.2\n"}) {
    if (const size_t at = left.find(allowed); at != left.npos) left.erase(at, std::string(allowed).size());
  }
  EXPECT_EQ(left, "");
  EXPECT_LT(std::filesystem::file_size(COIL_BINARY_DIR "/libcoil_runtime.so"), size_t{4} << 20);
}

}  // namespace
}  // namespace coil::runtime_test
#endif
