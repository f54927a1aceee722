// The levels of x86-64, and which of them this machine has. Included by machine_level.cc; device/aarch64/levels.h has the same names.
#ifndef COIL_DEVICE_X86_64_LEVELS_H_
#define COIL_DEVICE_X86_64_LEVELS_H_

#include <stddef.h>
#include <stdint.h>

namespace cd {
namespace {

// By a level's number; its short name ("v2") stands at kShortName.
constexpr char kIsaNames[][10] = {"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
enum : int32_t { kMostLevel = 4, kShortName = 7 };
constexpr const char* kLevelWords = "v2, v3, v4 or x86-64-v2, ...";

void cpuid(uint32_t leaf, uint32_t sub_leaf, uint32_t (&r)[4]) {
  __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(sub_leaf));
}

template <size_t N>
constexpr uint32_t bits(const int (&list)[N]) {
  uint32_t mask = 0;
  for (int bit : list) mask |= 1u << bit;
  return mask;
}
constexpr bool all(uint32_t value, uint32_t mask) { return (value & mask) == mask; }

// The N of x86-64-vN: what the processor has and the system saves on a context switch.
int32_t machine_level() {
  uint32_t r[4];
  cpuid(0, 0, r);
  if (r[0] < 7) return 1;
  uint32_t basic[4], extended[4], more[4];
  cpuid(1, 0, basic);
  cpuid(7, 0, extended);
  cpuid(0x80000001u, 0, more);
  const uint32_t osxsave = bits({27});
  if (!all(basic[2], bits({0, 9, 13, 19, 20, 23}))) return 1;                    // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  if (!all(basic[2], osxsave | bits({12, 22, 28, 29}))) return 2;                // FMA, MOVBE, AVX, F16C
  if (!all(extended[1], bits({3, 5, 8})) || !all(more[2], bits({5}))) return 2;  // BMI1, AVX2, BMI2; LZCNT
  uint32_t saved, high;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!all(saved, bits({1, 2}))) return 2;                      // xmm, ymm
  if (!all(extended[1], bits({16, 17, 28, 30, 31}))) return 3;  // AVX512 F, DQ, CD, BW, VL
  return all(saved, bits({5, 6, 7})) ? 4 : 3;                   // masks, zmm
}

}  // namespace
}  // namespace cd

#endif  // COIL_DEVICE_X86_64_LEVELS_H_
