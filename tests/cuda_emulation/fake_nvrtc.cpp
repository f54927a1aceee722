// An NVRTC that compiles nothing: the images of emulated packages are not looked at, and compiling them is half of a test's
// time.
#include <stddef.h>
#include <string.h>

#define API extern "C" __attribute__((visibility("default"))) int

static constexpr char kImage[16] = "no code";

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) { return "a fake error"; }
API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0; }
API nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  return *program = const_cast<char*>(kImage), 0;
}
API nvrtcDestroyProgram(void**) { return 0; }
API nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
API nvrtcGetProgramLogSize(void*, size_t* bytes) { return *bytes = 0, 0; }
API nvrtcGetProgramLog(void*, char*) { return 0; }
API nvrtcGetCUBINSize(void*, size_t* bytes) { return *bytes = sizeof kImage, 0; }
API nvrtcGetCUBIN(void*, char* image) { return memcpy(image, kImage, sizeof kImage), 0; }
API nvrtcGetPTXSize(void*, size_t* bytes) { return *bytes = 0, 0; }
API nvrtcGetPTX(void*, char*) { return 0; }
