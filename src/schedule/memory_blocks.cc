#include "schedule/memory_blocks.h"

#include <algorithm>
#include <numeric>

namespace coil {

int64_t place_memory_blocks(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<const MemoryBlock*> placed;  // by their offsets
  int64_t end = 0;
  for (const size_t row : order) {
    MemoryBlock& block = blocks[row];
    int64_t free = 0, best = -1, smallest = INT64_MAX;  // free: behind all that were looked at
    for (const MemoryBlock* other : placed) {
      if (other->last < block.first || block.last < other->first || other->bytes == 0) continue;
      if (const int64_t gap = other->offset - free; gap >= block.bytes && gap < smallest) best = free, smallest = gap;
      free = std::max(free, other->offset + other->bytes);
    }
    block.offset = best >= 0 ? best : free;
    end = std::max(end, block.offset + block.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &block, [](const MemoryBlock* a, const MemoryBlock* b) { return a->offset < b->offset; }),
                  &block);
  }
  return end;
}

}  // namespace coil
