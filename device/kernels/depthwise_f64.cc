// depthwise.cc for doubles.
#define COIL_DOUBLE 1
#include "depthwise.cc"
