// Memory for code that has no way to say that there is none: it is taken before the code begins, and a thread that is within an Arena takes from that.
#ifndef COIL_DEVICE_LIBRARY_HEAP_H_
#define COIL_DEVICE_LIBRARY_HEAP_H_

#include <cstddef>
#include <cstdint>

namespace coil_heap {

// Blocks of one piece of memory. They are given back from the last on; one that is not the last stays until the arena ends.
class Arena {
 public:
  Arena(void* begin, size_t bytes) : next_(static_cast<uint8_t*>(begin)), end_(next_ + bytes) {}
  void* take(size_t bytes);
  void give(void* block);

 private:
  uint8_t *next_, *end_;
  void* last_ = nullptr;
};

// More than `blocks` blocks of so many bytes together take.
constexpr size_t arena_bytes(size_t bytes, size_t blocks) { return bytes + blocks * 128; }

// This thread takes from `arena`, as long as this lives. Not within another, and nobody is waited for meanwhile: there are places for so many threads.
class Within {
 public:
  explicit Within(Arena& arena);
  Within(const Within&) = delete;
  ~Within();

 private:
  void* place_;
};

// From the arena that this thread is within, else from the C heap; none left there: the process ends.
void* take(size_t bytes);
void give(void* block);

}  // namespace coil_heap

#endif  // COIL_DEVICE_LIBRARY_HEAP_H_
