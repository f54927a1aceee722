// Threads for compilation: a loop whose iterations are independent and coarse (milliseconds each). The runtime has its own pool.
#pragma once

#include <cstddef>

#include "base/function_ref.h"

namespace coil {

// CPUs that this process may use (affinity), at least 1. How many threads they are worth: base/cpu_limits.h.
int usable_cpus();

// Calls work(i) once for each i in [0, count), on up to `threads` threads including the caller's, in order of i as threads
// become free. Threads that cannot be started are done without. Returns when all are done. The first exception is rethrown here after that; the rest of the
// work is left out.
void parallel_each(size_t count, int threads, FunctionRef<void(size_t)> work);

}  // namespace coil
