// What a fork of a CPU's state lacks: pages that the state wrote to since the file was made that both map. They are brought when one of the two is used next,
// so that a fork copies nothing, and one that is never used never does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/saved_state.h"
#include "runtime/shared_pages.h"

namespace coil::runtime {

class LatePages {
 public:
  // They are those of the mapping `data` of `bytes` bytes until one of the functions below is called; nobody writes there before. copied: by forks of this
  // state.
  LatePages(uint8_t* data, int64_t bytes, uint64_t copied) : data_(data), bytes_(bytes), copied_(copied) {}
  ~LatePages();
  LatePages(const LatePages&) = delete;
  LatePages& operator=(const LatePages&) = delete;

  // The mapping is about to change: they are copied (`own`: which), or lie in a file now, or the mapping of so many bytes, which nobody else needs any more,
  // becomes this one's.
  void copy(std::span<const SavedRun> own, uint64_t copied);
  void leave_in(std::shared_ptr<SharedPages> pages);
  void adopt(size_t mapped_bytes);

  // Brings them to a fork's mapping of the file, which nobody has used. A file in which all lies: maps it, and is returned; null: there is none.
  // `copied`: by forks of this one from now on.
  Result<std::shared_ptr<SharedPages>> bring(uint8_t* to, uint64_t* copied);

 private:
  std::mutex mutex_;
  uint8_t* data_;  // null: they were copied, or lie in a file
  int64_t bytes_;
  uint64_t copied_;
  size_t adopted_ = 0;  // bytes of the mapping
  std::vector<SavedRun> runs_;
  std::vector<uint8_t> copies_;
  std::shared_ptr<SharedPages> pages_;
};

}  // namespace coil::runtime
