// Where the outside calls coil: memory that runs out below is an error like others.
#pragma once

#include <new>

#include "base/result.h"

namespace coil {

// Its text fits into a string without memory of its own.
inline Error no_memory() { return {ErrorCode::out_of_memory, "no memory", "", ""}; }

// f(), a Result, or no_memory().
template <class F>
auto or_no_memory(const F& f) -> decltype(f()) try {
  return f();
} catch (const std::bad_alloc&) {
  return no_memory();
}

}  // namespace coil
