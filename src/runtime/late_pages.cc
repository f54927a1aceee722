// See late_pages.h.
#include "runtime/late_pages.h"

#include <sys/mman.h>

#include <cstring>

namespace coil::runtime {

LatePages::~LatePages() {
  if (adopted_) munmap(data_, adopted_);
}

void LatePages::copy(std::span<const SavedRun> own, uint64_t copied) {
  std::lock_guard lock(mutex_);
  std::vector<SavedRun> runs(own.begin(), own.end());
  size_t size = 0;
  for (const SavedRun& run : runs) size += run.bytes;
  std::vector<uint8_t> copies;
  copies.reserve(size);
  for (const SavedRun& run : runs) copies.insert(copies.end(), data_ + run.begin, data_ + run.begin + run.bytes);
  runs_ = std::move(runs), copies_ = std::move(copies), copied_ = copied;
  data_ = nullptr;
}

void LatePages::leave_in(std::shared_ptr<SharedPages> pages) {
  std::lock_guard lock(mutex_);
  pages_ = std::move(pages), copied_ = 0;
  data_ = nullptr;
}

void LatePages::adopt(size_t mapped_bytes) {
  std::lock_guard lock(mutex_);
  adopted_ = mapped_bytes;
}

Result<std::shared_ptr<SharedPages>> LatePages::bring(uint8_t* to, uint64_t* copied) {
  std::lock_guard lock(mutex_);
  if (pages_) {
    if (!pages_->map(to, false)) return Error{ErrorCode::out_of_memory, "no memory to map the pages of the state that was forked", "", ""};
    *copied = 0;
    return pages_;
  }
  if (data_) {
    uint64_t count = 0;
    for (const SavedRun& run : own_pages(data_, bytes_)) {
      std::memcpy(to + run.begin, data_ + run.begin, run.bytes);
      count += run.bytes;
    }
    *copied = copied_ + count;
    return std::shared_ptr<SharedPages>();
  }
  const uint8_t* from = copies_.data();
  for (const SavedRun& run : runs_) {
    std::memcpy(to + run.begin, from, run.bytes);
    from += run.bytes;
  }
  *copied = copied_;
  return std::shared_ptr<SharedPages>();
}

}  // namespace coil::runtime
