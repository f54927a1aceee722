// Memory of a CPU's state whose pages forks have in common: copy on write, by the system's page tables. The common contents lie in a file without a name,
// of which each state has a private mapping; a page that one writes to is its own from then on.
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
  // A file of `bytes` bytes with those of `parts` (rising, whole pages but for the end) of `data`, zeros elsewhere. `count`: of such files; there are no more
  // than the process has descriptors to spare. Null: the system has no such file now, and contents have to be copied.
  static std::shared_ptr<const SharedPages> make(const uint8_t* data, int64_t bytes, std::span<const SavedRun> parts, std::shared_ptr<std::atomic<int>> count);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  // A private mapping of it: at `where`, in place of what is there, or anywhere (null). Null: it failed, and what was there is there.
  uint8_t* map(void* where) const;
  // What is not zero.
  std::span<const SavedRun> parts() const { return parts_; }

 private:
  SharedPages(int file, int64_t bytes, std::vector<SavedRun> parts, std::shared_ptr<std::atomic<int>> count)
      : file_(file), bytes_(bytes), parts_(std::move(parts)), count_(std::move(count)) {}
  int file_;
  int64_t bytes_;
  std::vector<SavedRun> parts_;
  std::shared_ptr<std::atomic<int>> count_;
};

// Pages of a private mapping that are its own: that have been written to since it was made (all, where the system does not tell).
std::vector<SavedRun> own_pages(const uint8_t* data, int64_t bytes);

// What is in either of two rising lists of runs of pages.
std::vector<SavedRun> either(std::span<const SavedRun> a, std::span<const SavedRun> b, int64_t bytes);

}  // namespace coil::runtime
