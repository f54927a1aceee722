// See buffer.h.
#include "runtime/buffer.h"

#include <algorithm>

namespace coil::runtime {

void Buffer::clear() {
  if (data_) device_->free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

bool Buffer::grow(int64_t bytes, CoilError* error) {
  clear();
  data_ = static_cast<uint8_t*>(device_->allocate(bytes, error));
  if (!data_) return false;
  capacity_ = std::max<int64_t>(bytes, 1);
  return true;
}

bool Buffer::replace(int64_t bytes, CoilError* error) {
  if (data_ && bytes <= capacity_) return true;
  void* fresh = device_->allocate(bytes, error);
  if (!fresh) return data_ && grow(bytes, error);
  clear();
  data_ = static_cast<uint8_t*>(fresh);
  capacity_ = std::max<int64_t>(bytes, 1);
  return true;
}

}  // namespace coil::runtime
