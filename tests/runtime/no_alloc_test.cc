// A call with sizes seen before allocates nothing, from the C API down to the threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COIL_COUNTS_ALLOCATIONS 0
#else
#define COIL_COUNTS_ALLOCATIONS 1
#endif

#if COIL_COUNTS_ALLOCATIONS
// The C library calls these instead of its own: they are part of the executable.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
static std::atomic<long> allocations{0};
extern "C" {
void* malloc(size_t bytes) { return ++allocations, __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return ++allocations, __libc_calloc(count, bytes); }
void* realloc(void* old, size_t bytes) { return ++allocations, __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) { return ++allocations, __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return ++allocations, __libc_memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  ++allocations;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : 12;
}
}

namespace coil::runtime_test {
namespace {

TEST(NoAllocation, SteadyState) {
  coil_model* model = open_or_fail(write_file("steady.pt2", package("MASKED")));
  coil_context* context;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
  MaskedCall large(64), small(3);
  const std::vector<coil_tensor> inputs[] = {large.views(), small.views()};
  coil_tensor outputs[2] = {};
  for (const auto& warm_up : inputs) ASSERT_EQ(coil_run(context, warm_up.data(), 3, outputs, 2), COIL_OK);
  const long before = allocations;
  int failures = 0;
  for (int i = 0; i < 2000; i++) {
    coil_tensor own[2] = {};
    failures += coil_run(context, inputs[i % 2].data(), 3, own, 2) != COIL_OK;
    failures += coil_infer(context, inputs[i % 2].data(), 3, own, 2) != COIL_OK;
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(failures, 0);
  // The counter works: growing allocates.
  const long counted = allocations;
  free(malloc(100));
  EXPECT_EQ(allocations - counted, 1);
  coil_context_destroy(context);
  coil_close(model);
}

}  // namespace
}  // namespace coil::runtime_test
#endif
