// Huge pages for large memory on the CPU: a page fault for each 4 KB of a fresh result of 100 MB takes longer than a kernel that writes it. A wish, which a
// system may ignore, and which changes nothing of what a program sees. Linked into packages and into the runtime.
#ifndef COIL_DEVICE_HUGE_PAGES_H_
#define COIL_DEVICE_HUGE_PAGES_H_

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace cd {

constexpr int64_t kHugeFrom = int64_t{4} << 20;  // bytes from which on it pays
constexpr int64_t kHugePage = int64_t{2} << 20;

// For memory that is about to be written for the first time. Only whole pages inside of it are asked for, so that it does not take more than `bytes`. Any
// address; any thread.
inline void ask_huge_pages(void* data, int64_t bytes) {
  if (bytes < kHugeFrom) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// Memory for free(), in huge pages where it is large, else at a multiple of `alignment`, a power of two; null where there is none.
inline void* allocate_pages(int64_t bytes, int64_t alignment) {
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(bytes >= kHugeFrom ? kHugePage : alignment), static_cast<size_t>(bytes))) return nullptr;
  ask_huge_pages(data, bytes);
  return data;
}

}  // namespace cd

#endif  // COIL_DEVICE_HUGE_PAGES_H_
