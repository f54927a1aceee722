// A call with sizes seen before allocates nothing, from the C API down to the threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "allocations.h"
#include "fixture.h"

#if COIL_COUNTS_ALLOCATIONS
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
  const long before = count_allocations();
  int failures = 0;
  for (int i = 0; i < 2000; i++) {
    coil_tensor own[2] = {};
    failures += coil_run(context, inputs[i % 2].data(), 3, own, 2) != COIL_OK;
    failures += coil_infer(context, inputs[i % 2].data(), 3, own, 2) != COIL_OK;
  }
  EXPECT_EQ(count_allocations() - before, 0);
  EXPECT_EQ(failures, 0);
  // The counter works: growing allocates.
  const long counted = count_allocations();
  void* volatile something = malloc(100);
  free(something);
  EXPECT_EQ(count_allocations() - counted, 1);
  coil_context_destroy(context);
  coil_close(model);
}

}  // namespace
}  // namespace coil::runtime_test
#endif
