// Products and convolutions by oneDNN, where the machine has it: found at the first use, never needed. Linked into the CPU
// packages whose tuning chose it (src/codegen/cpu/choices.h).
//
// oneDNN computes a block of rows (of a convolution: one image, or a strip of one where images are few and large) on one thread, and the fused loops follow
// while the block is in the cache; blocks are handed to the call's threads. How a problem is cut depends on its sizes alone, so the threads do not change a
// bit. What is made for a problem (a primitive; a copy of each constant weight in the layout that the library wants) is kept until the package is unloaded; at
// most kMostPlans problems. COIL_ONEDNN names another library file; a name that does not exist means none. COIL_ONEDNN_TRACE=1 prints a line to stderr for each
// problem.
#ifndef COIL_DEVICE_ONEDNN_H_
#define COIL_DEVICE_ONEDNN_H_

#include "kernels.h"

namespace cd {

inline constexpr int32_t kMostPlans = 1024;

enum OneDnnResult : int32_t {
  kOneDnnNotTaken = 0,  // nothing was written: no library, or a problem that it does not take; the caller computes it itself
  kOneDnnDone = 1,
  kOneDnnFailed = -1,  // in the middle of the call; parts of the results are written
};

// weight: where a packed b or w begins among the constants, which is the name under which its copy is kept; negative: it is not
// packed.
int32_t onednn_gemm(const CoilGemm* t, int64_t weight, const CoilHost* host);
int32_t onednn_conv2d(const CoilConv2d* t, int64_t weight, const CoilHost* host);

}  // namespace cd

#endif  // COIL_DEVICE_ONEDNN_H_
