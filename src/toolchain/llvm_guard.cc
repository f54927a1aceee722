// See llvm_guard.h. The only file of those that know LLVM that is built with exceptions.
#include "toolchain/llvm_guard.h"

#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/PrettyStackTrace.h>

#include <signal.h>

#include <mutex>
#include <new>

namespace coil::toolchain {
namespace {

struct GaveUp {
  std::string reason;
};

void leave_without_memory(void*, const char*, bool) { throw std::bad_alloc(); }
void leave(void*, const char* reason, bool) { throw GaveUp{reason}; }

// Contexts like that of run_lld work from now on. LLVM wants to hear of the process's faults for them, which are the host's.
void enable_contexts() {
  constexpr int kSignals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
  struct sigaction hosts[std::size(kSignals)];
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &hosts[i]);
  llvm::CrashRecoveryContext::Enable();
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &hosts[i], nullptr);
}

}  // namespace

void prepare_guards() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_bad_alloc_error_handler(leave_without_memory);
    llvm::install_fatal_error_handler(leave);
    enable_contexts();
  });
}

Ending guarded(void (*work)(void*), void* context, std::string& reason) {
  prepare_guards();
  const void* const trace = llvm::SavePrettyStackState();  // a list through the frames, which are gone if they are left
  try {
    work(context);
    return Ending::finished;
  } catch (const std::bad_alloc&) {
    llvm::RestorePrettyStackState(trace);
    return Ending::no_memory;
  } catch (GaveUp& problem) {
    llvm::RestorePrettyStackState(trace);
    reason.swap(problem.reason);
    return Ending::gave_up;
  }
}

}  // namespace coil::toolchain
