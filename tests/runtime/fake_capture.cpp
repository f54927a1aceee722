// A driver in front of the fake one (which it is linked with) that says of every stream what a test wants: whether it is being
// captured.
#include <stdint.h>

static int32_t answer, result;

extern "C" __attribute__((visibility("default"))) void fake_capture(int32_t status, int32_t code) { answer = status, result = code; }
extern "C" __attribute__((visibility("default"))) int32_t cuStreamIsCapturing(void*, int32_t* status) { return *status = answer, result; }
