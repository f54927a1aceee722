// The same bytes under another type.
#include <cstring>

#include "device/library.h"

// sizes: how many.
COIL_LIBRARY_ROUTINE(copy_bytes) {
  std::memcpy(call->out[0], call->in[0], static_cast<size_t>(call->sizes[0]));
  return 0;
}
