// COIL_SANITIZED: 1 where AddressSanitizer or ThreadSanitizer is in this build. g++ has a macro for each, clang 19 a question.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define COIL_FINDS_LEAKS 1
#elif defined(__SANITIZE_THREAD__)
#define COIL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COIL_FINDS_LEAKS 1
#elif __has_feature(thread_sanitizer)
#define COIL_SANITIZED 1
#endif
#endif
#ifdef COIL_FINDS_LEAKS
#define COIL_SANITIZED 1
#include <sanitizer/lsan_interface.h>
#endif
#ifndef COIL_SANITIZED
#define COIL_SANITIZED 0
#endif

namespace coil::runtime_test {

// While it lives, what this thread allocates is not looked for at the end: for calls of which it is known that they lose memory, and why.
class LossIsKnown {
 public:
#ifdef COIL_FINDS_LEAKS
  LossIsKnown() { __lsan_disable(); }
  ~LossIsKnown() { __lsan_enable(); }
#else
  LossIsKnown() {}
  ~LossIsKnown() {}
#endif
  LossIsKnown(const LossIsKnown&) = delete;
  LossIsKnown& operator=(const LossIsKnown&) = delete;
};

}  // namespace coil::runtime_test
