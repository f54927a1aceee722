// The levels of AArch64, and which of them this machine has. Included by machine_level.cc; device/x86_64/levels.h has the same names.
#ifndef COIL_DEVICE_AARCH64_LEVELS_H_
#define COIL_DEVICE_AARCH64_LEVELS_H_

#include <stddef.h>
#include <stdint.h>

extern "C" unsigned long getauxval(unsigned long kind);

namespace cd {
namespace {

// By a level's number; its short name ("i8mm") stands at kShortName.
constexpr char kIsaNames[][13] = {"", "aarch64-neon", "aarch64-i8mm"};
enum : int32_t { kMostLevel = 2, kShortName = 8 };
constexpr const char* kLevelWords = "neon, i8mm or aarch64-neon, ...";

// i8mm: Armv8.6's products of bytes and of bfloat16, which later processors all have. The system says what it lets processes use.
int32_t machine_level() {
  enum : unsigned long { kHwcap2 = 26, kI8mm = 1ul << 13, kBf16 = 1ul << 14 };
  const unsigned long has = getauxval(kHwcap2);
  return (has & kI8mm) && (has & kBf16) ? 2 : 1;
}

}  // namespace
}  // namespace cd

#endif  // COIL_DEVICE_AARCH64_LEVELS_H_
