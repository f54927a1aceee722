// Where the outside calls coil: memory that runs out below is an error like others.
#pragma once

#include <new>

#include "base/result.h"

namespace coil {

// Its text fits into a string without memory of its own.
inline Error no_memory() { return {ErrorCode::out_of_memory, "no memory", "", ""}; }

// While one lives, a `new` that fails has another try with what was kept apart; and where that is not enough, some more is let go before the exception is
// thrown, for destructors that need memory and would end the process.
class MemoryReserve {
 public:
  MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  ~MemoryReserve();
};

// Has `new` call this process's handler of coil's, with the one that was there behind it. Others may have set theirs since: again before each use.
void prepare_for_no_memory();
// What a thread does about it first: returning is another try.
using NoMemoryHook = bool (*)();  // true: there is more memory than there was
extern thread_local NoMemoryHook no_memory_hook;

// f(), a Result, or no_memory().
template <class F>
auto or_no_memory(const F& f) -> decltype(f()) try {
  const MemoryReserve reserve;
  return f();
} catch (const std::bad_alloc&) {
  return no_memory();
}

}  // namespace coil
