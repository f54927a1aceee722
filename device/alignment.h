// Where memory begins that coil places: read by the plan (src/schedule), by the code that relies on it (src/codegen) and by whoever allocates (src/runtime,
// aoti_adapter.h).
#ifndef COIL_DEVICE_ALIGNMENT_H_
#define COIL_DEVICE_ALIGNMENT_H_

namespace cd {

// Bytes: a cache line, and the widest vector. Of buffers in the arena and in the state, of constants in their blob, of the arena itself, of results and states.
constexpr long long kPlacedAlignment = 64;

}  // namespace cd

#endif  // COIL_DEVICE_ALIGNMENT_H_
