// Allocations, threads and mappings of this test process: counted, and made to fail one by one. Not under a sanitizer, which has an
// allocator of its own: COIL_COUNTS_ALLOCATIONS is 0 there.
#pragma once

#include "tests/runtime/sanitized.h"

#if COIL_SANITIZED
#define COIL_COUNTS_ALLOCATIONS 0
#else
#define COIL_COUNTS_ALLOCATIONS 1
#endif

namespace coil::runtime_test {

enum class Fault { none, allocation, thread, mapping, file };

long count_allocations();
// From now on the n-th (from 1) call of this kind fails, or, when `onwards`, that one and all later ones; Fault::none: nothing fails.
void fail(Fault kind, long n, bool onwards);
// How many failed since.
long count_failures();

}  // namespace coil::runtime_test
