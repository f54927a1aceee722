// Loops that do nothing but move or compute, in the widest vectors that the processor has.
#pragma once

#include <cstdint>

namespace coil::report {

void triad(float* a, const float* b, const float* c, int64_t count);  // a = b + 3 * c; count: a multiple of 64
float multiply_adds(int64_t vectors);                                 // so many multiply-adds of whole vectors, in registers
int vector_floats();                                                  // numbers in a vector

}  // namespace coil::report
