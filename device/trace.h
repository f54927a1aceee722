// A call that somebody may watch (CoilTrace in model_abi.h), and what stands around each kernel in the generated host programs:
//   COIL_BEGIN(12, 0); ... COIL_END(12, 0);
// One branch that is always predicted while nobody watches. What is called otherwise is kept out of line, for the size of the code, and
// the words are short, for that of the sources in the package.
#ifndef COIL_DEVICE_TRACE_H_
#define COIL_DEVICE_TRACE_H_

#include "model_abi.h"

namespace cd {

struct TracedCall : CoilCall {
  const CoilTrace* trace;  // null: nobody watches
};

__attribute__((noinline, cold, unused)) static void trace_begin(const TracedCall* call, int32_t kernel, int32_t worker, const int64_t* symbols) {
  call->trace->begin(call->trace, kernel, worker, symbols);
}
__attribute__((noinline, cold, unused)) static void trace_end(const TracedCall* call, int32_t kernel, int32_t worker) {
  call->trace->end(call->trace, kernel, worker);
}

}  // namespace cd

#define COIL_BEGIN(kernel, worker) \
  if (call->trace) cd::trace_begin(call, kernel, worker, s)
#define COIL_END(kernel, worker) \
  if (call->trace) cd::trace_end(call, kernel, worker)

#endif  // COIL_DEVICE_TRACE_H_
