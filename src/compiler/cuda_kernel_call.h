// The call of one kernel for CUDA as a program of its own makes it (kernel_programs.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/watch.h"

namespace coil {

// call.h: kName, kSizes and what data_files wrote, `check`, and `call`, which launches the kernel as the host program does. launches: of kernel k, one after
// the other, all with the same buffers.
std::string cuda_call_text(const WatchedBuild& build, const std::vector<const cuda::CudaLaunch*>& launches, size_t k, const std::vector<int64_t>& symbols,
                           const std::string& files);

}  // namespace coil
