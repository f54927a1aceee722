// Products of bfloat16 and of bytes by AMX, by AVX-512 (BF16, VNNI) and, of bfloat16, by oneDNN, taking turns: for machines with AMX, built by amx_bundle.sh so
// that it runs where nothing is installed. The same kernels are linked in twice, once without AMX.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "bench_host.cc"
#ifdef COIL_BENCH_ONEDNN
#include "device/onednn.h"
#endif

extern "C" void coil_gemm_noamx(const CoilGemm* args, const CoilHost* host);

namespace {

using Way = std::function<void(const CoilGemm&, const CoilHost*)>;

struct Problem {
  int64_t m, n, k;
};
constexpr Problem kProblems[] = {{16, 1280, 3420},   {32, 1280, 3420},   {64, 1280, 3420},   {128, 768, 768},    {128, 3072, 768},  {560, 1280, 3420},
                                 {1024, 1280, 3420}, {2048, 1280, 3420}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}};

uint16_t to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
float from_bf16(uint16_t bits) {
  const uint32_t u = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

std::vector<uint16_t> random_bf16(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<uint16_t> out(static_cast<size_t>(count));
  for (uint16_t& v : out) v = to_bf16(values(random));
  return out;
}

// The median of some turns, microseconds.
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2] * 1e6;
}

// The product of bytes next to that of bfloat16: exact, or this says so.
void compare_bytes(const Problem& p, int threads, const std::vector<std::pair<std::string, Way>>& ways) {
  Pool pool(threads);
  const int64_t panels = (p.n + COIL_PANEL - 1) / COIL_PANEL;
  const std::vector<uint16_t> a = random_bf16(p.m * p.k, 1), b = random_bf16(panels * COIL_INTEGER_PANEL_BYTES(p.k), 2);
  std::vector<int32_t> c(static_cast<size_t>(p.m * p.n)), first;
  CoilGemm g = {};
  g.batch = 1, g.m = p.m, g.n = p.n, g.k = p.k;
  g.a = a.data(), g.a_row = p.k, g.a_col = 1, g.b = b.data(), g.b_packed = 1;
  g.c = c.data(), g.c_row = p.n, g.dtype = COIL_UINT8;
  std::printf("bytes    %5ld x %4ld x %4ld, %2d threads:", static_cast<long>(p.m), static_cast<long>(p.n), static_cast<long>(p.k), threads);
  for (const auto& [name, way] : ways) {
    way(g, pool.host());
    if (first.empty()) first = c;
    std::vector<double> times;
    const double end = now() + 0.2;
    for (int turn = 0; turn < 200 && (turn < 5 || now() < end); ++turn) {
      const double begin = now();
      way(g, pool.host());
      times.push_back(now() - begin);
    }
    const double us = median(times);
    std::printf("  %s %.1f us (%.0f GOP/s)%s", name.c_str(), us, 2e-3 * static_cast<double>(p.m * p.n * p.k) / us, c == first ? "" : " WRONG");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void compare(const Problem& p, int threads, const std::vector<std::pair<std::string, Way>>& ways) {
  Pool pool(threads);
  const int64_t panels = (p.n + COIL_PANEL - 1) / COIL_PANEL;
  const std::vector<uint16_t> a = random_bf16(p.m * p.k, 1), b = random_bf16(panels * p.k * COIL_PANEL, 2);
  std::vector<uint16_t> c(static_cast<size_t>(p.m * p.n)), first;
  std::vector<char> scratch(static_cast<size_t>(threads) * COIL_GEMM_WORKER_BYTES + 64);
  CoilGemm g = {};
  g.batch = 1, g.m = p.m, g.n = p.n, g.k = p.k;
  g.a = a.data(), g.a_row = p.k, g.a_col = 1, g.b = b.data(), g.b_packed = 1;
  g.c = c.data(), g.c_row = p.n, g.dtype = COIL_BFLOAT16;
  g.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  std::vector<std::vector<double>> times(ways.size());
  std::printf("bfloat16 %5ld x %4ld x %4ld, %2d threads:", static_cast<long>(p.m), static_cast<long>(p.n), static_cast<long>(p.k), threads);
  double worst = 0;
  for (size_t w = 0; w < ways.size(); ++w) {
    ways[w].second(g, pool.host());
    if (first.empty()) first = c;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      largest = std::max<double>(largest, std::fabs(from_bf16(first[i])));
      difference = std::max<double>(difference, std::fabs(from_bf16(first[i]) - from_bf16(c[i])));
    }
    worst = std::max(worst, difference / largest);
  }
  const double end = now() + 0.4;
  for (int turn = 0; turn < 200 && (turn < 5 || now() < end); ++turn) {
    for (size_t w = 0; w < ways.size(); ++w) {
      const double begin = now();
      ways[w].second(g, pool.host());
      times[w].push_back(now() - begin);
    }
  }
  for (size_t w = 0; w < ways.size(); ++w) {
    const double us = median(times[w]);
    std::printf("  %s %.1f us (%.0f GF/s)", ways[w].first.c_str(), us, 2e-3 * static_cast<double>(p.m * p.n * p.k) / us);
  }
  std::printf("  largest difference %.1e\n", worst);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::pair<std::string, Way>> ways = {{"AVX-512", [](const CoilGemm& g, const CoilHost* h) { coil_gemm_noamx(&g, h); }},
                                                   {"AMX", [](const CoilGemm& g, const CoilHost* h) { coil_gemm_v4(&g, h); }}};
  const auto own = ways;
#ifdef COIL_BENCH_ONEDNN
  // Its copy of the weight is kept under a number; each problem has its own.
  ways.push_back({"oneDNN", [](const CoilGemm& g, const CoilHost* h) {
                    if (cd::onednn_gemm(&g, (g.n << 32) + g.k, h) != cd::kOneDnnDone) std::printf(" (not taken)");
                  }});
#endif
  for (int i = 1; i < std::max(count, 2); ++i) {
    const int threads = i < count ? std::atoi(arguments[i]) : 1;
    for (const Problem& p : kProblems) compare(p, threads, ways);
    for (const Problem& p : kProblems) compare_bytes(p, threads, own);
  }
}
