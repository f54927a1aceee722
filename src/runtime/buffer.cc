// See buffer.h.
#include "runtime/buffer.h"

#include <algorithm>
#include <new>

namespace coil::runtime {

Buffer::~Buffer() {
  clear();
  for (uint8_t* block : former_) device_->free(block);
}

void Buffer::clear() {
  if (data_ && held_) former_.push_back(data_);
  else if (data_) device_->free(data_);
  data_ = nullptr;
  capacity_ = 0;
  held_ = false;
}

bool Buffer::hold() {
  if (held_ || !data_) return true;
  try {
    former_.reserve(former_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  held_ = true;
  return true;
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
