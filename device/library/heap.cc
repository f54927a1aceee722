// See heap.h; and what libstdc++'s headers call beside libc, so that library routines need libc alone.
#include "device/library/heap.h"

#include <sched.h>

#include <cstdlib>
#include <new>

namespace coil_heap {
namespace {

constexpr size_t kHead = 16;  // of a block: where the one before it is

// Threads within arenas: a thread's is at one of a few places. (A thread_local variable would ask for memory itself where it is first used, and end the
// process if there is none.)
constexpr size_t kPlaces = 256, kNear = 8;
struct alignas(64) Place {
  void* thread;
  Arena* arena;
};
Place places[kPlaces];

void* this_thread() {
  void* self;
#if defined(__x86_64__)
  asm("mov %%fs:0, %0" : "=r"(self));
#else
  self = __builtin_thread_pointer();
#endif
  return self;
}

Place& place(void* thread, size_t i) {
  const size_t first = static_cast<size_t>((reinterpret_cast<uintptr_t>(thread) >> 6) * 0x9E3779B97F4A7C15u >> 56);
  return places[(first + i) % kPlaces];
}

Arena* current() {
  void* const self = this_thread();
  for (size_t i = 0; i < kNear; ++i) {
    Place& p = place(self, i);
    if (__atomic_load_n(&p.thread, __ATOMIC_RELAXED) == self) return p.arena;
  }
  return nullptr;
}

}  // namespace

void* Arena::take(size_t bytes) {
  const size_t whole = kHead + (bytes + 15) / 16 * 16;
  if (static_cast<size_t>(end_ - next_) < whole) return nullptr;
  uint8_t* const block = next_ + kHead;
  *reinterpret_cast<void**>(next_) = last_;
  next_ += whole;
  return last_ = block;
}

void Arena::give(void* block) {
  if (!block || block != last_) return;
  next_ = static_cast<uint8_t*>(block) - kHead;
  last_ = *reinterpret_cast<void**>(next_);
}

Within::Within(Arena& arena) {
  void* const self = this_thread();
  for (;; sched_yield()) {
    for (size_t i = 0; i < kNear; ++i) {
      Place& p = place(self, i);
      void* nobody = nullptr;
      if (!__atomic_compare_exchange_n(&p.thread, &nobody, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
      p.arena = &arena;
      place_ = &p;
      return;
    }
  }
}

Within::~Within() { __atomic_store_n(&static_cast<Place*>(place_)->thread, nullptr, __ATOMIC_RELEASE); }

void* take(size_t bytes) {
  Arena* const arena = current();
  void* block = arena ? arena->take(bytes) : nullptr;
  if (!block && !arena) block = std::malloc(bytes == 0 ? 1 : bytes);
  if (!block) __builtin_trap();
  return block;
}

void give(void* block) {
  if (Arena* const arena = current()) arena->give(block);
  else std::free(block);
}

}  // namespace coil_heap

void* operator new(std::size_t bytes) { return coil_heap::take(bytes); }
void operator delete(void* p) noexcept { coil_heap::give(p); }
void operator delete(void* p, std::size_t) noexcept { coil_heap::give(p); }

namespace std {
void __throw_length_error(const char*) { __builtin_trap(); }
void __throw_bad_alloc() { __builtin_trap(); }
void __throw_bad_array_new_length() { __builtin_trap(); }
}  // namespace std
