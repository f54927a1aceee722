// Memory of a CPU's states that forks have in common: copy on write, by the system's page tables. A state's pages lie in a file without a name from the
// start. Until the first fork the state writes to the file; from then on nobody does: each state has a private mapping of it, and a page that one writes to is
// its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/saved_state.h"

namespace coil::runtime {

class SharedPages {
 public:
  // A file of `bytes` bytes that are zero. `count`: of such files; there are no more than the process has descriptors to spare. Null: the system has no such
  // file now.
  static std::shared_ptr<SharedPages> make(int64_t bytes, std::shared_ptr<std::atomic<int>> count);
  // The same with what is not zero in `parts` (rising, whole pages but for the end) of `data`.
  static std::shared_ptr<SharedPages> copy(const uint8_t* data, std::span<const SavedRun> parts, int64_t file_bytes, std::shared_ptr<std::atomic<int>> count);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  // A mapping of it, whose writes go to the file (`common`) or stay with the mapping: at `where`, in place of what is there, or anywhere (null). Null: it
  // failed, and what was there is there.
  uint8_t* map(void* where, bool common) const;
  // What may be other than zero: what has memory.
  std::vector<SavedRun> parts() const;
  int64_t bytes_with_memory() const;

 private:
  SharedPages(int file, int64_t bytes, std::shared_ptr<std::atomic<int>> count) : file_(file), bytes_(bytes), count_(std::move(count)) {}
  int file_;
  int64_t bytes_;
  std::shared_ptr<std::atomic<int>> count_;
};

// Pages of a private mapping that are its own: that have been written to since it was made (all, where the system does not tell).
std::vector<SavedRun> own_pages(const uint8_t* data, int64_t bytes);

// What is in either of two rising lists of runs of pages.
std::vector<SavedRun> either(std::span<const SavedRun> a, std::span<const SavedRun> b, int64_t bytes);

}  // namespace coil::runtime
