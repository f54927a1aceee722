#include "schedule/memory_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace coil {
namespace {

bool overlap(const MemoryBlock& a, const MemoryBlock& b) {
  const bool in_time = a.first <= b.last && b.first <= a.last, in_place = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return in_time && in_place && a.bytes > 0 && b.bytes > 0;
}

// Bytes in use at the worst step: no plan needs less.
int64_t most_in_use(const std::vector<MemoryBlock>& blocks, int steps) {
  int64_t most = 0;
  for (int step = 0; step < steps; ++step) {
    int64_t used = 0;
    for (const MemoryBlock& b : blocks) used += b.first <= step && step <= b.last ? b.bytes : 0;
    most = std::max(most, used);
  }
  return most;
}

TEST(MemoryBlocks, NothingTakesNothing) {
  std::vector<MemoryBlock> blocks;
  EXPECT_EQ(place_memory_blocks(blocks), 0);
  blocks = {{0, 0, 5}, {0, 2, 3}};
  EXPECT_EQ(place_memory_blocks(blocks), 0);
}

// A network's statistics live until the end; each layer's images live until the next one's are there.
TEST(MemoryBlocks, SmallOnesThatLiveLongAreNoObstacles) {
  constexpr int kLayers = 60;
  constexpr int64_t kImages = 3 << 20, kStatistics = 512;
  std::vector<MemoryBlock> blocks;
  for (int i = 0; i < kLayers; ++i) {
    blocks.push_back({kImages - i * 1024, i, i + 1});
    blocks.push_back({kStatistics, i, kLayers});
  }
  const int64_t end = place_memory_blocks(blocks);
  EXPECT_LE(end, 2 * kImages + kLayers * kStatistics);
}

TEST(MemoryBlocks, NoTwoThatAreUsedAtOnceOverlap) {
  std::mt19937 draw(7);
  double worst = 1;
  for (int round = 0; round < 300; ++round) {
    const int steps = 1 + static_cast<int>(draw() % 40), count = 1 + static_cast<int>(draw() % 80);
    std::vector<MemoryBlock> blocks;
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(draw() % static_cast<unsigned>(steps)), length = draw() % 4 ? static_cast<int>(draw() % 4) : steps;
      blocks.push_back({64 * static_cast<int64_t>(draw() % 3 ? draw() % 8 : draw() % 5000), first, std::min(steps - 1, first + length)});
    }
    const int64_t end = place_memory_blocks(blocks), least = most_in_use(blocks, steps);
    int64_t last = 0;
    for (size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(blocks[a].offset % 64, 0);
      last = std::max(last, blocks[a].offset + blocks[a].bytes);
      for (size_t b = 0; b < a; ++b) ASSERT_FALSE(overlap(blocks[a], blocks[b]));
    }
    EXPECT_EQ(end, last);
    EXPECT_GE(end, least);
    if (least > 0) worst = std::max(worst, static_cast<double>(end) / static_cast<double>(least));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(MemoryBlocks, TheSameBlocksHaveTheSamePlaces) {
  std::vector<MemoryBlock> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back({64 * (i * 37 % 11), i * 13 % 29, i * 13 % 29 + i % 7});
  std::vector<MemoryBlock> again = blocks;
  EXPECT_EQ(place_memory_blocks(blocks), place_memory_blocks(again));
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].offset, again[i].offset);
}

}  // namespace
}  // namespace coil
