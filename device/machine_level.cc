// Which of a package's instruction sets this machine runs; see select_isa in host_support.h.
#include "input_errors.h"

extern "C" {
char* getenv(const char* name);
int strcmp(const char* a, const char* b);
}

namespace cd {
namespace {

enum : int32_t { kWrongMachine = 303, kBadVariable = 402 };

constexpr char kIsaNames[][10] = {"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};  // "v2" is name + 7

#if defined(__x86_64__)
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
  if (!all(basic[2], bits({0, 9, 13, 19, 20, 23}))) return 1;      // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  if (!all(basic[2], osxsave | bits({12, 22, 28, 29}))) return 2;  // FMA, MOVBE, AVX, F16C
  if (!all(extended[1], bits({3, 5, 8})) || !all(more[2], bits({5}))) return 2;  // BMI1, AVX2, BMI2; LZCNT
  uint32_t saved, high;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!all(saved, bits({1, 2}))) return 2;                      // xmm, ymm
  if (!all(extended[1], bits({16, 17, 28, 30, 31}))) return 3;  // AVX512 F, DQ, CD, BW, VL
  return all(saved, bits({5, 6, 7})) ? 4 : 3;                   // masks, zmm
}
#else
int32_t machine_level() { return 0; }
#endif

}  // namespace

int32_t select_isa(const int32_t* levels, int32_t count, const char** isa_name, CoilError* error) {
  int32_t limit = machine_level();
  const char* wish = getenv("COIL_ISA");
  if (wish && *wish) {
    int32_t level = 4;
    while (level > 0 && strcmp(wish, kIsaNames[level]) != 0 && strcmp(wish, kIsaNames[level] + 7) != 0) level--;
    if (!level) return fail(error, kBadVariable, "COIL_ISA=%s is not one of v2, v3, v4 or x86-64-v2, ...", wish), -1;
    if (level < limit) limit = level;
  }
  int32_t best = -1;
  for (int32_t i = 0; i < count; i++) {
    if (levels[i] <= limit && (best < 0 || levels[i] >= levels[best])) best = i;
  }
  if (best >= 0) {
    *isa_name = kIsaNames[levels[best]];
    return best;
  }
  error->code = kWrongMachine;
  Text text(error);
  text.add("the package holds code for");
  for (int32_t i = 0; i < count; i++) text.add("%s %s", i ? "," : "", kIsaNames[levels[i]]);
  text.add("; this machine runs %s%s; compile for it with --target", limit ? kIsaNames[limit] : "another architecture",
           wish && *wish ? " (limited by COIL_ISA)" : "");
  return -1;
}

}  // namespace cd
