// The text of a thread's last error. Made so that it works when there is no memory left: nothing here throws, and a thread whose
// text cannot be kept has one of fixed words. No thread_local variable: in a shared library its first use in a thread allocates,
// and the C library ends the process when that fails.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace coil::runtime {

// Keeps "COIL-E204: ..."; what is longer than 4 KiB is cut. Both return the code's number.
int32_t keep_error(ErrorCode code, const char* message) noexcept;
int32_t keep_error(const Error& error) noexcept;
// Of this thread, or "". Valid until its next keep_error.
const char* last_error() noexcept;

}  // namespace coil::runtime
