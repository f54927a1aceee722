// few_outputs.cc for doubles.
#define COIL_DOUBLE 1
#include "few_outputs.cc"
