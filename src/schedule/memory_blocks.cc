#include "schedule/memory_blocks.h"

#include <algorithm>
#include <numeric>

namespace coil {
namespace {

// Steps are looked at in groups: a block is listed in each group that it lives in, or once for all where these are many.
constexpr int kGroup = 32, kMostGroups = 8;

bool lives_long(const MemoryBlock& block) { return block.last / kGroup - block.first / kGroup >= kMostGroups; }

class Placed {
 public:
  explicit Placed(int steps) : groups_(static_cast<size_t>(steps / kGroup + 1)) {}

  void add(const MemoryBlock& block) {
    if (lives_long(block)) return long_.push_back(&block);
    for (int g = block.first / kGroup; g <= block.last / kGroup; ++g) groups_[static_cast<size_t>(g)].push_back(&block);
  }

  // Those that are used while the block is, by their offsets.
  const std::vector<const MemoryBlock*>& beside(const MemoryBlock& block) {
    found_.clear();
    const auto meets = [&](const MemoryBlock* other) { return other->first <= block.last && block.first <= other->last; };
    std::copy_if(long_.begin(), long_.end(), std::back_inserter(found_), meets);
    for (int g = block.first / kGroup; g <= block.last / kGroup; ++g) {
      for (const MemoryBlock* other : groups_[static_cast<size_t>(g)]) {
        if (meets(other) && std::max(other->first, block.first) / kGroup == g) found_.push_back(other);  // once, where they meet first
      }
    }
    std::sort(found_.begin(), found_.end(), [](const MemoryBlock* a, const MemoryBlock* b) { return a->offset < b->offset; });
    return found_;
  }

 private:
  std::vector<std::vector<const MemoryBlock*>> groups_;
  std::vector<const MemoryBlock*> long_, found_;
};

}  // namespace

int64_t placement_work(const std::vector<MemoryBlock>& blocks) {
  return std::count_if(blocks.begin(), blocks.end(), lives_long) * static_cast<int64_t>(blocks.size());
}

int64_t place_memory_blocks(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  int steps = 0;
  for (const MemoryBlock& block : blocks) steps = std::max(steps, block.last);
  Placed placed(steps);
  int64_t end = 0;
  for (const size_t row : order) {
    MemoryBlock& block = blocks[row];
    if (block.bytes == 0) continue;
    int64_t free = 0, best = -1, smallest = INT64_MAX;  // free: behind all that were looked at
    for (const MemoryBlock* other : placed.beside(block)) {
      if (const int64_t gap = other->offset - free; gap >= block.bytes && gap < smallest) best = free, smallest = gap;
      free = std::max(free, other->offset + other->bytes);
    }
    block.offset = best >= 0 ? best : free;
    end = std::max(end, block.offset + block.bytes);
    placed.add(block);
  }
  return end;
}

}  // namespace coil
