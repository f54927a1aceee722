// See buffer.h.
#include "runtime/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace coil::runtime {
namespace {

// From here on huge pages save more page faults than their last page wastes.
constexpr int64_t kHugeFrom = int64_t{4} << 20;
constexpr int64_t kHugePage = int64_t{2} << 20;
// No machine has more; keeps the rounding below from overflowing.
constexpr int64_t kMost = int64_t{1} << 47;

}  // namespace

Buffer::~Buffer() { clear(); }

void Buffer::clear() {
  std::free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

bool Buffer::grow(int64_t bytes) {
  clear();
  if (bytes < 0 || bytes > kMost) return false;
  const int64_t unit = bytes >= kHugeFrom ? kHugePage : kAlignment;
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + unit - 1) / unit * unit;
  void* data = std::aligned_alloc(static_cast<size_t>(unit), static_cast<size_t>(rounded));
  if (!data) return false;
  if (unit == kHugePage) madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);  // a wish: failure changes nothing
  data_ = static_cast<uint8_t*>(data);
  capacity_ = rounded;
  return true;
}

}  // namespace coil::runtime
