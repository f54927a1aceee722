// What every device takes of a launch, and what a package's host and its compiler agree on: read by the host (device/cuda_host.cc), by the compiler and by the
// kernels.
#ifndef COIL_DEVICE_CUDA_LIMITS_H_
#define COIL_DEVICE_CUDA_LIMITS_H_

namespace cd {

// Bytes of shared memory that a block has without asking for more.
enum : int { kSharedWithoutAsking = 48 << 10 };
// Blocks of a grid in its first direction, and in each of the others.
enum : int { kMostGridX = 0x7fffffff, kMostGridYZ = 65535 };
// Parameters of kernels that another compiler made (coil's own have two), with those that the host adds.
enum : int { kMaxCudaParams = 48, kAddedCudaParams = 2 };
// Products of the same rows that a kernel joins: how many, the most rows, and numbers of a row that shared memory has room for.
enum : int { kJoinedProducts = 6, kJoinedRows = 8, kJoinedDepth = 16384 };
// Bytes of CudaJoined and CudaJoinedBytes (params.h), at most: a kernel that joins products takes one of them beside its pointers.
enum : int { kJoinedParamsBytes = 768 };

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_LIMITS_H_
