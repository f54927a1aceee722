// See llvm_guard.h.
#include "toolchain/llvm_guard.h"

#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>

#include "base/without_memory.h"

namespace coil::toolchain {
namespace {

constexpr int kNoMemory = 1, kGaveUp = 2;
constexpr size_t kStackBytes = size_t{8} << 20, kPage = 4096;

// A call into LLVM.
struct Guard {
  void (*work)(void*);
  void* context;
  void* reserve = nullptr;
  volatile int left = 0;
  std::exception_ptr thrown = nullptr;
  // Variables of functions that are being made, and locks that are held: whoever comes to one later would wait for it for ever. (More at once are not looked
  // after.)
  static constexpr int kMost = 16;
  struct Held {
    void* what;
    void (*let_go)(void*);
  };
  Held held[kMost];
  volatile int num_held = 0;
  jmp_buf back;
  char reason[1024];
};
thread_local Guard* current = nullptr;

// LLVM makes much in its first run that stays, some of it under locks: that one has memory kept apart.
constexpr size_t kFirstReserve = size_t{4} << 20;
std::atomic<bool> has_run{false};

// True: there is more memory than there was.
bool let_go() {
  if (!current || !current->reserve) return false;
  std::free(current->reserve);
  current->reserve = nullptr;
  return true;
}

bool new_failed() {
  if (!let_go()) longjmp(current->back, kNoMemory);
  return true;  // `new` tries again
}

// What an allocation of the C library gives in the end.
template <class Allocate>
void* allocated(size_t bytes, Allocate allocate) {
  void* data = allocate();
  if (data || !bytes || !current) return data;
  if (let_go()) data = allocate();
  if (!data) longjmp(current->back, kNoMemory);
  return data;
}

void malloc_failed(void*, const char*, bool) {
  if (current) longjmp(current->back, kNoMemory);
  throw std::bad_alloc();
}

void give_up(void*, const char* reason, bool) {
  if (!current) return;
  std::snprintf(current->reason, sizeof current->reason, "%s", reason);
  longjmp(current->back, kGaveUp);
}

// Contexts like that of run_lld work from now on. LLVM wants to hear of the process's faults for them, which are the host's.
void enable_contexts() {
  constexpr int kSignals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
  struct sigaction hosts[std::size(kSignals)];
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &hosts[i]);
  llvm::CrashRecoveryContext::Enable();
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &hosts[i], nullptr);
}

void prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_bad_alloc_error_handler(malloc_failed);
    llvm::install_fatal_error_handler(give_up);
    enable_contexts();
  });
  prepare_for_no_memory();
}

// The call has taken this, and would not give it back if it were left now.
void take(void* what, void (*let_go)(void*)) {
  if (!current || current->num_held == Guard::kMost) return;
  current->held[current->num_held] = {what, let_go};
  current->num_held = current->num_held + 1;
}

// It gives it back itself: mostly what it took last.
void give_back(void* what) {
  if (!current) return;
  int i = current->num_held - 1;
  while (i >= 0 && current->held[i].what != what) --i;
  if (i < 0) return;  // taken before the call
  for (; i + 1 < current->num_held; ++i) current->held[i] = current->held[i + 1];
  current->num_held = current->num_held - 1;
}

extern "C" void __cxa_guard_abort(void*);

void* run(void* argument) {
  Guard* const guard = static_cast<Guard*>(argument);
  guard->left = _setjmp(guard->back);
  current = guard->left == 0 ? guard : nullptr;
  while (guard->left != 0 && guard->num_held > 0) {
    guard->num_held = guard->num_held - 1;
    const Guard::Held& held = guard->held[guard->num_held];
    held.let_go(held.what);
  }
  if (guard->left == 0) {
    no_memory_hook = new_failed;
    try {
      guard->work(guard->context);
    } catch (...) {
      guard->thrown = std::current_exception();
    }
  }
  current = nullptr;
  no_memory_hook = nullptr;
  return nullptr;
}

// Runs it on a thread with this stack. False: there is none.
bool run_on(void* stack, Guard& guard) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  const bool started =
      pthread_attr_setstack(&attributes, static_cast<char*>(stack) + kPage, kStackBytes - kPage) == 0 && pthread_create(&thread, &attributes, run, &guard) == 0;
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}

Ending ending_of(Guard& guard, std::string& reason) {
  if (guard.thrown) std::rethrow_exception(guard.thrown);
  if (guard.left == 0) return Ending::finished;
  if (guard.left != kGaveUp) return Ending::no_memory;
  reason = guard.reason;
  return Ending::gave_up;
}

}  // namespace

Ending guarded(void (*work)(void*), void* context, std::string& reason) {
  prepare();
  Guard guard = {work, context};
  if (!has_run && !(guard.reserve = std::malloc(kFirstReserve))) return Ending::no_memory;
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  const bool ran = stack != MAP_FAILED && mprotect(stack, kPage, PROT_NONE) == 0 && run_on(stack, guard);
  std::free(guard.reserve);
  if (stack != MAP_FAILED && guard.left == 0) munmap(stack, kStackBytes);
  if (ran && guard.left == 0) has_run = true;
  return ran ? ending_of(guard, reason) : Ending::no_memory;
}

Ending guarded_here(void (*work)(void*), void* context, std::string& reason, size_t reserve) {
  prepare();
  Guard guard = {work, context, std::malloc(reserve)};
  if (!guard.reserve) return Ending::no_memory;
  run(&guard);
  std::free(guard.reserve);
  return ending_of(guard, reason);
}

}  // namespace coil::toolchain

// Variables of functions as they are made, locks as they are taken, and the C library's allocations, as all of our code and LLVM's call them (cmake/llvm.cmake,
// --wrap): with the reserve there is another try, and without it the call into LLVM ends as where `new` fails. LLVM does not look at the result everywhere
// (clang's ScratchBuffer does not). It allocates under locks: while it asks its list of passes, for one.
extern "C" {
int __real___cxa_guard_acquire(void* variable);
void __real___cxa_guard_release(void* variable);
void* __real_malloc(size_t bytes);
void* __real_calloc(size_t count, size_t bytes);
void* __real_realloc(void* old, size_t bytes);
int __real_pthread_rwlock_rdlock(pthread_rwlock_t* lock);
int __real_pthread_rwlock_wrlock(pthread_rwlock_t* lock);
int __real_pthread_rwlock_unlock(pthread_rwlock_t* lock);
int __real_pthread_mutex_lock(pthread_mutex_t* lock);
int __real_pthread_mutex_unlock(pthread_mutex_t* lock);

int __wrap___cxa_guard_acquire(void* variable) {
  const int make = __real___cxa_guard_acquire(variable);
  if (make) coil::toolchain::take(variable, coil::toolchain::__cxa_guard_abort);
  return make;
}
void __wrap___cxa_guard_release(void* variable) {
  coil::toolchain::give_back(variable);
  __real___cxa_guard_release(variable);
}
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  const int error = __real_pthread_rwlock_rdlock(lock);
  if (!error) coil::toolchain::take(lock, [](void* l) { __real_pthread_rwlock_unlock(static_cast<pthread_rwlock_t*>(l)); });
  return error;
}
int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  const int error = __real_pthread_rwlock_wrlock(lock);
  if (!error) coil::toolchain::take(lock, [](void* l) { __real_pthread_rwlock_unlock(static_cast<pthread_rwlock_t*>(l)); });
  return error;
}
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  coil::toolchain::give_back(lock);
  return __real_pthread_rwlock_unlock(lock);
}
int __wrap_pthread_mutex_lock(pthread_mutex_t* lock) {
  const int error = __real_pthread_mutex_lock(lock);
  if (!error) coil::toolchain::take(lock, [](void* l) { __real_pthread_mutex_unlock(static_cast<pthread_mutex_t*>(l)); });
  return error;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* lock) {
  coil::toolchain::give_back(lock);
  return __real_pthread_mutex_unlock(lock);
}
void* __wrap_malloc(size_t bytes) {
  return coil::toolchain::allocated(bytes, [&] { return __real_malloc(bytes); });
}
void* __wrap_calloc(size_t count, size_t bytes) {
  return coil::toolchain::allocated(count && bytes, [&] { return __real_calloc(count, bytes); });
}
void* __wrap_realloc(void* old, size_t bytes) {
  return coil::toolchain::allocated(bytes, [&] { return __real_realloc(old, bytes); });
}
}
