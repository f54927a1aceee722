// Places of blocks of memory of which some are used at the same time.
#pragma once

#include <cstdint>
#include <vector>

namespace coil {

struct MemoryBlock {
  int64_t bytes = 0;        // at least 0; a multiple of the alignment, which offsets then are too
  int first = 0, last = 0;  // steps between which it is used, both included
  int64_t offset = 0;       // is set
};

// Places the blocks so that no two that are used at the same step overlap; gives the end of the last one. Large ones first, each in the smallest gap
// between those placed before that are used while it is (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020: greedy by
// size). Small ones that live long are then no obstacles between large ones. Time: placement_work(), and for each block the number of those that are used
// within some hundred steps of it.
int64_t place_memory_blocks(std::vector<MemoryBlock>& blocks);

// Comparisons with blocks that live long: each of these is compared with all others.
int64_t placement_work(const std::vector<MemoryBlock>& blocks);

}  // namespace coil
