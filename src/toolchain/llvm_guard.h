// The border between coil and LLVM, which knows no exceptions: where memory runs out in it, or where it gives up, its own way is to end the process.
// Here it is left by an exception instead. Its frames hold no handlers (it is built without exceptions, and so are those of our files that call it), so
// nothing of what it was doing is undone: that memory is lost, and what outlives a call must be put right by whoever made it (llvm_lld.cc).
#pragma once

#include <string>

namespace coil::toolchain {

enum class Ending { finished, no_memory, gave_up };

// Runs work(context). reason: what LLVM said when it gave up. Thread-safe.
Ending guarded(void (*work)(void*), void* context, std::string& reason);

template <class F>
Ending guarded(F& work, std::string& reason) {
  return guarded([](void* f) { (*static_cast<F*>(f))(); }, &work, reason);
}

// Handlers that leave LLVM, and contexts that lld can be left by; once in a process. guarded() does it too.
void prepare_guards();

}  // namespace coil::toolchain
