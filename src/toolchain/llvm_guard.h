// The border between coil and LLVM, whose own way is to end the process where memory runs out or where it gives up. Here it is left by longjmp instead.
// (An exception finds no way through it: LLVM is built without, and functions of it that are empty hide the unwind tables of those behind them.)
// Nothing of what it was doing is undone: that memory is lost, and what outlives a call must be put right by whoever made it (llvm_lld.cc).
#pragma once

#include <cstddef>
#include <string>

namespace coil::toolchain {

enum class Ending { finished, no_memory, gave_up };

// Runs work(context) on a thread of its own; no_memory if there is none to be had. Its stack stays if it is left: LLVM keeps lists through objects on it
// (groups of timers). Exceptions of coil's own pass. reason: what LLVM said when it gave up. Thread-safe.
Ending guarded(void (*work)(void*), void* context, std::string& reason);

// The same on this thread, for work that keeps no such lists but objects of a thread, which would be made again for each.
// reserve (bytes): kept apart, and let go when an allocation fails, which then has another try: for work that cannot be left in good order, because it has
// globals whose tables are not whole while they grow, and locks.
Ending guarded_here(void (*work)(void*), void* context, std::string& reason, size_t reserve);

template <class F>
Ending guarded(F& work, std::string& reason) {
  return guarded([](void* f) { (*static_cast<F*>(f))(); }, &work, reason);
}
template <class F>
Ending guarded_here(F& work, std::string& reason, size_t reserve) {
  return guarded_here([](void* f) { (*static_cast<F*>(f))(); }, &work, reason, reserve);
}

}  // namespace coil::toolchain
