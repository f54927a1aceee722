// Whether this process is a fork(2) of the one in which something was made.
#pragma once

#include <cstdint>

namespace coil {

// Counts the forks that lead to this process, from 1, since its first call. The only way to notice a fork without a system call.
uint64_t fork_generation();

}  // namespace coil
