// A growable block of memory for scratch space and outputs: 64-byte aligned, contents undefined, huge pages when it is large.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coil::runtime {

inline constexpr int64_t kAlignment = 64;

class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(other.data_), capacity_(other.capacity_) {
    other.data_ = nullptr, other.capacity_ = 0;
  }
  Buffer& operator=(Buffer&&) = delete;

  // Makes room for `bytes` (at least one: data() is never null afterwards), dropping the contents when it has to grow.
  // False: no memory; the buffer is then empty.
  bool reserve(int64_t bytes) { return bytes <= capacity_ && data_ ? true : grow(bytes); }

  uint8_t* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  bool grow(int64_t bytes);
  void clear();

  uint8_t* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace coil::runtime
