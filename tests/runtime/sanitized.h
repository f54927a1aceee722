// COIL_SANITIZED: 1 where AddressSanitizer or ThreadSanitizer is in this build. g++ has a macro for each, clang 19 a question.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COIL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COIL_SANITIZED 1
#endif
#endif
#ifndef COIL_SANITIZED
#define COIL_SANITIZED 0
#endif
