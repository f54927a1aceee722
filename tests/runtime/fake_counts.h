// What the fake driver has counted, and that a test left nothing behind.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "fake_cuda.h"

namespace coil::runtime_test {

inline FakeCounts counts() {
  static const auto get = reinterpret_cast<FakeCountsFn>(dlsym(RTLD_DEFAULT, "fake_cuda_counts"));
  FakeCounts c;
  get(&c);
  return c;
}

inline void expect_nothing_left(const FakeCounts& before) {
  const FakeCounts after = counts();
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.modules, before.modules);
  EXPECT_EQ(after.contexts, before.contexts);
  EXPECT_EQ(after.graphs, before.graphs);
  EXPECT_EQ(after.executables, before.executables);
}

}  // namespace coil::runtime_test
