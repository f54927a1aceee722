// The bytes of a tensor's storage: in memory, or in a form that is taken apart when they are read (a file's blocks of small numbers).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/hash.h"

namespace coil {

// Bytes that nobody has whole: of a large model they would take several times the memory of its file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Writes the bytes from `begin` on to out, from several threads at once.
  virtual void read(uint64_t begin, std::span<uint8_t> out) const = 0;
  // Of what the bytes are made of: equal ones are of equal bytes.
  virtual Hash128 hash() const = 0;
  // Whether the bytes are whole numbers from -8 to 7, where the form of the file says so.
  virtual bool has_4_bits() const { return false; }
  // The same float32s as float16, where the form of the file says that each is one; null: it does not.
  virtual std::shared_ptr<const ByteSource> in_halves() const { return nullptr; }

  // What is asked of all the bytes, found once.
  bool told(const std::string& question, FunctionRef<bool()> find) const;
  // All of them in memory, from the first call on: for who knows no other way.
  std::span<const uint8_t> whole() const;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, bool> answers_;
  mutable std::optional<std::vector<uint8_t>> whole_;
};

// Stands where a span of bytes is wanted; who asks for ranges of source() instead needs no memory for all of them.
class StoredBytes {
 public:
  StoredBytes() = default;
  StoredBytes(std::span<const uint8_t> memory) : memory_(memory) {}     // NOLINT: a span is what most of them are
  StoredBytes(const std::vector<uint8_t>& memory) : memory_(memory) {}  // NOLINT
  StoredBytes(const uint8_t* data, size_t size) : memory_(data, size) {}
  StoredBytes(std::shared_ptr<const ByteSource> source) : source_(std::move(source)) {}  // NOLINT

  const ByteSource* source() const { return source_.get(); }  // null: they are in memory
  size_t size() const { return source_ ? source_->size() : memory_.size(); }
  bool empty() const { return size() == 0; }
  // Where they are, or what they are read from: the same for the same bytes. Not for reading.
  const uint8_t* identity() const { return source_ ? reinterpret_cast<const uint8_t*>(source_.get()) : memory_.data(); }

  std::span<const uint8_t> memory() const { return source_ ? source_->whole() : memory_; }
  operator std::span<const uint8_t>() const { return memory(); }  // NOLINT
  const uint8_t* data() const { return memory().data(); }
  auto begin() const { return memory().begin(); }
  auto end() const { return memory().end(); }
  uint8_t operator[](size_t i) const { return memory()[i]; }
  std::span<const uint8_t> subspan(size_t begin, size_t count = std::dynamic_extent) const { return memory().subspan(begin, count); }

  // Calls use with all bytes in order, in pieces of whole elements of any type; false ends it, and is the result.
  bool each_piece(FunctionRef<bool(std::span<const uint8_t>)> use) const;
  // What is asked of them, kept where they are read from a file.
  bool told(const std::string& question, FunctionRef<bool()> find) const { return source_ ? source_->told(question, find) : find(); }

 private:
  std::span<const uint8_t> memory_;
  std::shared_ptr<const ByteSource> source_;
};

bool is_all_zeros(const StoredBytes& bytes);

}  // namespace coil
