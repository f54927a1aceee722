#include "ops/stored_bytes.h"

#include <algorithm>

namespace coil {

bool ByteSource::told(const std::string& question, FunctionRef<bool()> find) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = answers_.find(question); found != answers_.end()) return found->second;
  }
  const bool answer = find();
  const std::lock_guard lock(mutex_);
  return answers_[question] = answer;
}

std::span<const uint8_t> ByteSource::whole() const {
  const std::lock_guard lock(mutex_);
  if (!whole_) {
    std::vector<uint8_t> bytes(size());
    read(0, bytes);
    whole_ = std::move(bytes);
  }
  return *whole_;
}

bool StoredBytes::each_piece(FunctionRef<bool(std::span<const uint8_t>)> use) const {
  if (!source_) return use(memory_);
  constexpr uint64_t kPiece = 1 << 18;  // stays in a core's cache
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size(); at += kPiece) {
    piece.resize(std::min<uint64_t>(kPiece, size() - at));
    source_->read(at, piece);
    if (!use(piece)) return false;
  }
  return true;
}

bool is_all_zeros(const StoredBytes& bytes) {
  return bytes.told("zeros", [&] {
    return bytes.each_piece([](std::span<const uint8_t> piece) { return std::all_of(piece.begin(), piece.end(), [](uint8_t b) { return b == 0; }); });
  });
}

}  // namespace coil
