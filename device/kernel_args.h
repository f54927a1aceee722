// What a generated kernel receives, and the helpers that only generated kernels use.
#ifndef COIL_DEVICE_KERNEL_ARGS_H_
#define COIL_DEVICE_KERNEL_ARGS_H_

#include "simd.h"

#define COIL_KERNEL __attribute__((visibility("hidden")))
// The same function for each instruction set: name_v3, name_v4.
#define COIL_NAME_JOIN(name, isa) name##_##isa
#define COIL_NAME_EXPAND(name, isa) COIL_NAME_JOIN(name, isa)
#define COIL_NAME(name) COIL_NAME_EXPAND(name, COIL_ISA)

// The context of a kernel or an epilogue: the buffers in the order in which the kernel names them (p0, p1, ...), the values of the
// dynamic sizes, and a flag that a kernel raises when data that serves as an index is out of range.
struct coil_args {
  void* const* p;
  const long* s;
  int* flag;
};

namespace cd {

// What lanes that do not count load from an empty buffer.
alignas(64) static constexpr unsigned char nothing[64] = {};

// An index from data, or 0 and a raised flag when it is outside [0, bound).
CD_FN i64 checked_index(i64 value, i64 bound, int* flag) {
  if (__builtin_expect((unsigned long)value >= (unsigned long)bound, 0)) {
    *flag = 1;
    return 0;
  }
  return value;
}
CD_FN i64v checked_index(i64v value, i64 bound, int* flag) {
  const auto bad = (value < 0) | (value >= bound);
  bool any = false;
  for (int i = 0; i < kLanes; ++i) any |= bad[i] != 0;
  if (__builtin_expect(any, 0)) *flag = 1;
  return bad ? (i64v)0 : value;
}

// The same where some lanes count only: no other raises the flag, and they get 0.
CD_FN bool any_lane(maskv m) { return __builtin_reduce_or(m) != 0; }
CD_FN i64 checked_index(i64 value, i64 bound, int* flag, maskv counted) { return any_lane(counted) ? checked_index(value, bound, flag) : 0; }
CD_FN i64v checked_index(i64v value, i64 bound, int* flag, maskv counted) {
  const auto counts = widen<i64>(counted), bad = ((value < 0) | (value >= bound)) & counts;
  bool any = false;
  for (int i = 0; i < kLanes; ++i) any |= bad[i] != 0;
  if (__builtin_expect(any, 0)) *flag = 1;
  return bad | ~counts ? (i64v)0 : value;
}

}  // namespace cd
#endif  // COIL_DEVICE_KERNEL_ARGS_H_
