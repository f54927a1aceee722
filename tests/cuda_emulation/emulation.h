// What runs a CUDA kernel on the CPU: the clusters of a grid one after another, the threads of their blocks as fibers of one
// thread, so that barriers and shuffles work. Found on the way, and reported as the launch's failure with the kernel, the block
// and the thread: accesses outside of an allocation or of shared memory, misaligned vector accesses, signed overflow, indices
// outside of local arrays, division by 0, barriers that not all threads reach, shuffles with lanes that have left, PTX that is
// not emulated, a kernel that may start before the one in front of it is done and does not wait for it.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulation {

struct Size3 {
  unsigned x, y, z;
};
struct Launch {
  const char* name;
  uint32_t grid[3], block[3], shared_bytes, cluster;  // cluster: blocks along x that run together
  void** params;                                      // as cuLaunchKernel gets them
  void (*thread)(void** params);                      // one thread of the kernel
  bool early = false;                                 // it has to wait for the kernel before it by itself
};

// 0, or the CUresult that a device would give; the details on stderr.
int32_t run(const Launch& launch);

// --- of the thread that runs now
extern Size3 thread_index, block_index, block_size, grid_size;

void wait_for_earlier_kernel();
void block_barrier();
void cluster_barrier();
uint32_t cluster_rank();
// Gives the bytes of `from` of lane `source` of this warp. All lanes of the warp take part.
void shuffle(void* to, const void* from, size_t bytes, int source);
void warp_barrier();
// Lets the others run: by who waits for what they write. Not for ever: a launch in which all wait fails.
void yield();
unsigned char* dynamic_shared();
// The block's memory of a static __shared__ variable, which `variable` stands for.
void* static_shared(const void* variable, size_t bytes);
// 32-bit addresses of shared memory: of this block, and the same place in another block of the cluster.
uint32_t shared_address(const void* p);
uint32_t shared_address_of(uint32_t address, uint32_t rank);
void* shared_pointer(uint32_t address);
[[noreturn]] void fail(const char* what);

}  // namespace emulation

// What the fake driver makes of a tensor map (CudaTensorMap): rows of `sizes[0]` elements, with TMA's 128-byte swizzle.
struct EmulatedTensorMap {
  static constexpr uint64_t kMagic = 0x70616d20656c6974;
  uint64_t magic;
  const unsigned char* base;
  uint64_t sizes[2], pitch;  // pitch: bytes from a row to the next
  uint32_t box[2], element_bytes;
};

// What a shared object of kernels exports: emulated_kernel(name), null when it has none of that name.
struct EmulatedKernel {
  const char* name;
  int32_t num_params;
  const uint32_t* param_bytes;
  int32_t (*run)(const emulation::Launch& launch);
};
using EmulatedKernelFn = const EmulatedKernel* (*)(const char* name);
