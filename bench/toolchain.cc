// What the compiler back end costs: one kernel, the device headers, many kernels, one link. Times are of one thread.
#include <benchmark/benchmark.h>

#include "toolchain/compile.h"
#include "toolchain/link.h"

namespace coil::toolchain {
namespace {

std::string plain_kernel(int i) {
  return "typedef float v16 __attribute__((ext_vector_type(16), aligned(4)));\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) void k" +
         std::to_string(i) +
         "(const float* __restrict a, const float* __restrict b, float* __restrict o, long n) {\n"
         "  for (long i = 0; i + 16 <= n; i += 16) *(v16*)(o + i) = *(const v16*)(a + i) * *(const v16*)(b + i);\n}\n";
}

void compile(benchmark::State& state, const CompileRequest& request) {
  for (auto _ : state) {
    const Result<Bytes> object = compile_cpp(request);
    if (!object.ok()) state.SkipWithError(object.error().message.c_str());
  }
}

const char* cpu(const benchmark::State& state) { return state.range(0) == 4 ? "x86-64-v4" : "x86-64-v3"; }

void BM_PlainKernel(benchmark::State& state) { compile(state, {.source = plain_kernel(0), .cpu = cpu(state)}); }
BENCHMARK(BM_PlainKernel)->Arg(3)->Arg(4)->Unit(benchmark::kMillisecond);

void BM_Nothing(benchmark::State& state) { compile(state, {.source = "", .cpu = cpu(state)}); }
BENCHMARK(BM_Nothing)->Arg(3)->Arg(4)->Unit(benchmark::kMillisecond);

void BM_IncludeSimd(benchmark::State& state) { compile(state, {.source = "#include \"device/simd.h\"\n", .cpu = cpu(state)}); }
BENCHMARK(BM_IncludeSimd)->Arg(3)->Arg(4)->Unit(benchmark::kMillisecond);

void BM_IncludeMath(benchmark::State& state) { compile(state, {.source = "#include \"device/math_all.h\"\n", .cpu = cpu(state)}); }
BENCHMARK(BM_IncludeMath)->Arg(3)->Arg(4)->Unit(benchmark::kMillisecond);

void BM_ExpKernel(benchmark::State& state) {
  compile(state, {.source = "#include \"device/simd.h\"\n#include \"device/math_exp.h\"\n"
                            "extern \"C\" void k(const float* a, float* o, long n) {\n  long i = 0;\n"
                            "  for (; i + cd::kLanes <= n; i += cd::kLanes) cd::store(o + i, cd::exp(cd::load(a + i)));\n"
                            "  cd::store_tail(o + i, cd::exp(cd::load_tail(a + i, n - i)), n - i);\n}\n",
                  .cpu = cpu(state),
                  .opt_level = static_cast<int>(state.range(1))});
}
BENCHMARK(BM_ExpKernel)->Args({3, 3})->Args({4, 3})->Args({4, 2})->Args({4, 1})->Unit(benchmark::kMillisecond);

void BM_HundredKernels(benchmark::State& state) {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 100; ++i) requests.push_back({.source = plain_kernel(i), .cpu = "x86-64-v3"});
  for (auto _ : state) {
    if (!compile_all(requests, 1).ok()) state.SkipWithError("does not compile");
  }
}
BENCHMARK(BM_HundredKernels)->Unit(benchmark::kMillisecond);

void BM_Link(benchmark::State& state) {
  const Result<Bytes> object = compile_cpp({.source = plain_kernel(0)});
  if (!object.ok()) return state.SkipWithError("does not compile");
  size_t bytes = 0;
  for (auto _ : state) {
    const auto library = link_shared({.inputs = {{"k", object.value()}}, .soname = "m.so", .exports = {"k0"}, .needed = {"libm.so.6", "libc.so.6"}});
    if (!library.ok()) return state.SkipWithError(library.error().message.c_str());
    bytes = library.value().size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_Link)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace coil::toolchain

BENCHMARK_MAIN();
