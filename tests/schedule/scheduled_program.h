// A loop program that a test records for the scheduler.
#pragma once

#include <gtest/gtest.h>

#include "loop/recorder.h"

namespace coil {

class ScheduledProgram : public testing::Test {
 protected:
  void output(const View& v) {
    const BufferId id(v.body->id);
    rec.program().buffer(id).strides = contiguous_strides(pool, v.sizes);
    LoopOutput out;
    out.source = id;
    out.name = "out";
    rec.program().outputs.push_back(out);
  }

  std::shared_ptr<ExprPool> shared = std::make_shared<ExprPool>();
  ExprPool& pool = *shared;
  Recorder rec{shared};
};

}  // namespace coil
