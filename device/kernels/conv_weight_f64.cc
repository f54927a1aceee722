// conv_weight.cc for doubles.
#define COIL_DOUBLE 1
#include "conv_weight.cc"
