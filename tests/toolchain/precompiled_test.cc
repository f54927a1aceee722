// Headers that the build has parsed: they are what this code would make, serve only the texts that they fit, and change no byte.
#include "toolchain/precompiled.h"

#include <gtest/gtest.h>

#include <thread>

#include "toolchain/embedded.h"

namespace coil::toolchain {
namespace {

// A kernel as the compiler writes it: `include` beside kernel_args.h, and one operation.
std::string kernel(const std::string& include, const std::string& operation) {
  return "#include \"kernel_args.h\"\n" + (include.empty() ? std::string() : "#include \"" + include + "\"\n") +
         "extern \"C\" COIL_KERNEL void COIL_NAME(k)(void* context, long begin, long end, int worker) {\n"
         "  const coil_args& a = *(const coil_args*)context;\n"
         "  const float* __restrict p0 = (const float*)a.p[0];\n  float* __restrict p1 = (float*)a.p[1];\n  long i = begin;\n"
         "  for (; i + COIL_LANES <= end; i += COIL_LANES) cd::store(p1 + i, " +
         operation +
         "(cd::load(p0 + i)));\n"
         "  if (i < end) {\n    const int n = (int)(end - i);\n    cd::store_tail(p1 + i, " +
         operation +
         "(cd::load_tail(p0 + i, n)), n);\n  }\n"
         "  for (i = begin; i < end; i += 64) cd::store1(p1 + i, " +
         operation + "(cd::load1(p0 + i)));\n}\n";
}

std::vector<CompileRequest> kernels() {
  std::vector<CompileRequest> requests;
  const std::pair<const char*, const char*> operations[] = {{"", "cd::relu"},           {"math_exp.h", "cd::exp"},    {"math_erf.h", "cd::gelu"},
                                                            {"math_trig.h", "cd::sin"}, {"math_hyper.h", "cd::cosh"}, {"math_all.h", "cd::erf"}};
  for (const auto& [include, operation] : operations) {
    for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) requests.push_back({.source = kernel(include, operation), .cpu = cpu});
  }
  requests.push_back({.source = kernel("math_exp.h", "cd::tanh"), .cpu = "x86-64-v3", .opt_level = 1});
  requests.push_back({.source = kernel("math_pow.h", "cd::sqrt"), .cpu = "x86-64-v4", .opt_level = 2});
  return requests;
}

TEST(Precompiled, TheBuildEmbeddedEachSet) {
  ASSERT_EQ(embedded_headers().size(), header_sets().size());
  for (size_t i = 0; i < header_sets().size(); ++i) {
    const HeaderSet& set = header_sets()[i];
    EXPECT_EQ(embedded_headers()[i].name, set.name);
    EXPECT_TRUE(set.text.starts_with(set.begin));
    const Result<Bytes> now = precompile(set);
    ASSERT_TRUE(now.ok()) << now.error().to_string();
    const std::string_view then(embedded_headers()[i].data, embedded_headers()[i].size);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(now.value().data()), now.value().size()), then) << set.name;
  }
}

TEST(Precompiled, ChangesNoByte) {
  for (CompileRequest request : kernels()) {
    ASSERT_NE(header_set_for(request), nullptr) << request.source;
    const Result<Bytes> with = compile_cpp(request);
    const Result<std::string> with_text = compile_to_assembly(request);
    request.precompiled = false;
    ASSERT_EQ(header_set_for(request), nullptr);
    const Result<Bytes> without = compile_cpp(request);
    const Result<std::string> without_text = compile_to_assembly(request);
    ASSERT_TRUE(with.ok()) << with.error().to_string();
    ASSERT_TRUE(without.ok() && with_text.ok() && without_text.ok());
    EXPECT_EQ(with_text.value(), without_text.value());
    EXPECT_EQ(with.value(), without.value()) << request.cpu << "\n" << request.source;
  }
}

TEST(Precompiled, ServesOnlyWhatItFits) {
  const std::string text = kernel("", "cd::relu");
  EXPECT_NE(header_set_for({.source = text, .cpu = "x86-64-v4"}), nullptr);
  EXPECT_EQ(header_set_for({.source = text, .cpu = "x86-64-v2"}), nullptr);
  EXPECT_EQ(header_set_for({.source = "// a remark\n" + text, .cpu = "x86-64-v4"}), nullptr);
  EXPECT_EQ(header_set_for({.source = text, .cpu = "x86-64-v4", .opt_level = 0}), nullptr);
  EXPECT_EQ(header_set_for({.source = text, .cpu = "x86-64-v4", .defines = {"X=1"}}), nullptr);
  EXPECT_EQ(header_set_for({.source = text, .cpu = "x86-64-v4", .headers = {{"simd.h", ""}}}), nullptr);
  EXPECT_EQ(header_set_for({.source = text, .cpu = "x86-64-v4", .flags = {"-Wall"}}), nullptr);
}

TEST(Precompiled, AHeaderOfTheRequestIsTheOneThatCounts) {
  const CompileRequest request{.source = "#include \"kernel_args.h\"\nstatic_assert(kMine == 3);\n",
                               .headers = {{"kernel_args.h", "constexpr int kMine = 3;\n"}}};
  const Result<Bytes> object = compile_cpp(request);
  EXPECT_TRUE(object.ok()) << object.error().to_string();
}

TEST(Precompiled, ErrorsAreTheSame) {
  CompileRequest request{.name = "bad.cc", .source = kernel("math_exp.h", "cd::no_such_function"), .cpu = "x86-64-v3"};
  const Result<Bytes> with = compile_cpp(request);
  request.precompiled = false;
  const Result<Bytes> without = compile_cpp(request);
  ASSERT_FALSE(with.ok());
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(with.error().message, without.error().message);
  EXPECT_NE(with.error().message.find("bad.cc:8:"), std::string::npos) << with.error().message;
}

// An error inside of a header's template shows the header's line and the kernel's.
TEST(Precompiled, ErrorsInHeadersAreTheSame) {
  CompileRequest request{.name = "bad.cc",
                         .source = "#include \"kernel_args.h\"\nint f() { return cd::floor_div((const char*)nullptr, (const char*)nullptr); }\n",
                         .cpu = "x86-64-v3"};
  const Result<Bytes> with = compile_cpp(request);
  request.precompiled = false;
  const Result<Bytes> without = compile_cpp(request);
  ASSERT_FALSE(with.ok());
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(with.error().message, without.error().message);
}

TEST(Precompiled, ManyThreadsAtOnce) {
  std::vector<CompileRequest> requests = kernels();
  requests.resize(4);
  std::vector<Bytes> alone;
  for (const CompileRequest& request : requests) {
    const Result<Bytes> object = compile_cpp(request);
    ASSERT_TRUE(object.ok());
    alone.push_back(object.value());
  }
  std::vector<std::vector<Bytes>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<Bytes>& mine : found) {
    threads.emplace_back([&] {
      for (const CompileRequest& request : requests) {
        const Result<Bytes> object = compile_cpp(request);
        mine.push_back(object.ok() ? object.value() : Bytes());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Bytes>& mine : found) EXPECT_EQ(mine, alone);
}

}  // namespace
}  // namespace coil::toolchain
