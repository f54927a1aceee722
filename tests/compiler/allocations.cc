// This test process's allocations can be made to fail, too.
#include "tests/runtime/allocations.cc"
