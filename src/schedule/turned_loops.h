// Loops that store along another axis than they read along: turned images, transposed matrices.
#pragma once

#include <set>

#include "loop/loop.h"

namespace coil {

// Whether a pointwise loop reads every element of much memory along one axis and stores its results along another. Where a wave of threads
// accesses memory in whole lines, such a loop is done in tiles (codegen/cuda/transpose.cc), which a kernel of other loops cannot.
bool stores_turned(const LoopProgram& program, const Loop& loop);

// Rows of LoopProgram::loops that do nothing but that, of whatever size, for loops that add up rows of their result that data names: there neighbours of a row
// lie side by side, and are read as vectors; in what these loops read each would be looked up.
std::set<int> turned_for_rows(const LoopProgram& program);

}  // namespace coil
