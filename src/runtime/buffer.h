// A growable block of a device's memory for scratch space, outputs and state: 64-byte aligned, contents undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/alignment.h"
#include "runtime/device.h"

namespace coil::runtime {

inline constexpr int64_t kAlignment = cd::kPlacedAlignment;

class Buffer {
 public:
  explicit Buffer(const Device& device = cpu_device()) : device_(&device) {}  // the device outlives the buffer
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : device_(other.device_), data_(other.data_), capacity_(other.capacity_), held_(other.held_), former_(std::move(other.former_)) {
    other.data_ = nullptr, other.capacity_ = 0, other.held_ = false;
    other.former_.clear();
  }
  Buffer& operator=(Buffer&&) = delete;

  // Makes room for `bytes` (at least one: data() is never null afterwards), dropping the contents when it has to grow.
  // False: no memory, and *error says what the device has; the buffer is then empty.
  bool reserve(int64_t bytes, CoilError* error) { return bytes <= capacity_ && data_ ? true : grow(bytes, error); }
  // The same, but keeps the old block until there is a new one; it is given up only where there is no room for both.
  bool replace(int64_t bytes, CoilError* error);
  // Keeps the block until the buffer is gone, also when there is a larger one: others know its address. False: no memory for a note of it.
  bool hold();
  bool holds(const void* address) const {
    return data_ && static_cast<const uint8_t*>(address) >= data_ && static_cast<const uint8_t*>(address) < data_ + capacity_;
  }

  uint8_t* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  bool grow(int64_t bytes, CoilError* error);
  void clear();

  const Device* device_;
  uint8_t* data_ = nullptr;
  int64_t capacity_ = 0;
  bool held_ = false;
  std::vector<uint8_t*> former_;  // held blocks; there is room for one more while held_ is set
};

}  // namespace coil::runtime
