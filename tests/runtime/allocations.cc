// See allocations.h. The C library calls these instead of its own, its loader and the C++ library included: they are part of the executable.
#include "tests/runtime/allocations.h"

#if COIL_COUNTS_ALLOCATIONS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace coil::runtime_test {
namespace {

std::atomic<long> allocations{0}, left{0}, failures{0};
std::atomic<Fault> kind{Fault::none};
std::atomic<bool> onwards_too{false};

bool fails(Fault asked) {
  if (kind.load() != asked) return false;
  const long n = left.fetch_sub(1);
  if (n > 1 || (n < 1 && !onwards_too)) return false;
  ++failures;
  return true;
}
bool no_memory() { return ++allocations, fails(Fault::allocation); }

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

long count_allocations() { return allocations; }
long count_failures() { return failures; }
void fail(Fault asked, long n, bool onwards) {
  kind = Fault::none;
  left = n, onwards_too = onwards, failures = 0;
  kind = asked;
}

}  // namespace coil::runtime_test

using coil::runtime_test::fails;
using coil::runtime_test::Fault;
using coil::runtime_test::next;
using coil::runtime_test::no_memory;

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) { return no_memory() ? (errno = ENOMEM, nullptr) : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return no_memory() ? (errno = ENOMEM, nullptr) : __libc_calloc(count, bytes); }
void* realloc(void* old, size_t bytes) { return no_memory() ? (errno = ENOMEM, nullptr) : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) { return no_memory() ? nullptr : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return no_memory() ? nullptr : __libc_memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (no_memory()) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  static const auto real = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return fails(Fault::thread) ? EAGAIN : real(thread, attributes, start, argument);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  static const auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  if (fails(Fault::mapping)) return errno = ENOMEM, MAP_FAILED;
  return real(at, bytes, protection, flags, file, offset);
}
int memfd_create(const char* name, unsigned flags) {
  static const auto real = next<int (*)(const char*, unsigned)>("memfd_create");
  if (fails(Fault::file)) return errno = EMFILE, -1;
  return real(name, flags);
}
int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, mode_t)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (fails(Fault::file)) return errno = EMFILE, -1;
  return real(path, flags, mode);
}
}
#else
namespace coil::runtime_test {
long count_allocations() { return 0; }
long count_failures() { return 0; }
void fail(Fault, long, bool) {}
}  // namespace coil::runtime_test
#endif
