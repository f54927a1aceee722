// What the options of the routine join_rows say: read by the compiler (src/loop/join_rows.h), by the routine (device/library/join_rows.cc) and by the kernels
// (join_rows.h).
#ifndef COIL_DEVICE_CUDA_JOIN_RULES_H_
#define COIL_DEVICE_CUDA_JOIN_RULES_H_

namespace cd {

// What the rows of one place become together; of the last one, which stays alone.
enum : int { kJoinSum, kJoinProduct, kJoinLargest, kJoinSmallest, kJoinLast };
// Which row of the values is the k-th: row k, the only one, one that a vector names, or (not on the CPU) a number made of k.
enum : int { kJoinOwn, kJoinShared, kJoinChosen, kJoinNumber };

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_JOIN_RULES_H_
