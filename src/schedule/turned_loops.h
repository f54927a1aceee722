// Loops that store along another axis than they read along: turned images, transposed matrices.
#pragma once

#include "loop/loop.h"

namespace coil {

// Whether a pointwise loop reads every element of much memory along one axis and stores its results along another. Where a wave of threads
// accesses memory in whole lines, such a loop is done in tiles (codegen/cuda/transpose.cc), which a kernel of other loops cannot.
bool stores_turned(const LoopProgram& program, const Loop& loop);

}  // namespace coil
