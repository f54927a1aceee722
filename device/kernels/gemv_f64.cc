// gemv.cc for doubles.
#define COIL_DOUBLE 1
#include "gemv.cc"
