// What both hosts of a model, coil's runtime (src/runtime) and the AOTInductor adapter (aoti_*.cc), ask of its table alike. Checking inputs, sizes and
// places of outputs are functions of the table itself (model_abi.h); who owns memory, threads and errors is each host's own.
#ifndef COIL_DEVICE_MODEL_CALL_H_
#define COIL_DEVICE_MODEL_CALL_H_

#include "model_abi.h"

namespace cd {

// Bytes of the initial state that the constants hold; the others are zero.
inline uint64_t stored_state(const CoilModel& model) {
  const uint64_t rest = model.constants_bytes - model.state_offset;
  return rest < model.state_bytes ? rest : model.state_bytes;
}

// Whether only the data sizes output i.
inline bool is_late(const CoilModel& model, int32_t i) { return model.late_outputs && model.late_outputs[i]; }

// One of the trailers behind the weights is the model's: there is one for each program that the blob is for.
inline bool has_trailer(const CoilModel& model, const uint8_t* blob, uint64_t bytes) {
  CoilConstantsTrailer t;
  for (uint64_t end = bytes; end >= model.constants_bytes + sizeof t; end -= sizeof t) {
    __builtin_memcpy(&t, blob + end - sizeof t, sizeof t);
    if (__builtin_memcmp(t.magic, COIL_CONSTANTS_MAGIC, sizeof t.magic) != 0) return false;
    if (t.hash == model.constants_hash) return true;
  }
  return false;
}

}  // namespace cd

#endif  // COIL_DEVICE_MODEL_CALL_H_
