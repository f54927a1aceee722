// Products of signed bytes with int8 or 4-bit weights whose scales belong to groups of k: sums within a group are exact, those of groups float32.
#ifndef COIL_DEVICE_KERNELS_BYTE_GROUPS_H_
#define COIL_DEVICE_KERNELS_BYTE_GROUPS_H_

#include "block.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {

// Some k of some rows by one panel, from the beginning of a group or from within one.
struct GroupChunk {
  int64_t k;             // a multiple of 4
  int64_t first, group;  // of these k the first group has so many, each other one so many (the last one what is left)
  const int8_t* a;       // rows a_stride apart
  int64_t a_stride;
  const int32_t* sums;  // of a's numbers in each group: rows sum_stride apart
  int64_t sum_stride;
  const uint8_t* b;  // [k / 4][kPanel][4], or of 4 bits [k / 4][kPanel / 2][4]
  int64_t number;    // of the first group in the tables
  PanelTable scale, zero;
  bool no_least;  // no number of b is -128
  bool coded;     // numbers of 4 bits are codes
  VecI32 list;    // their numbers, in each 16 bytes
  float* acc;     // rows kPanel apart
  bool accumulate;
};

constexpr int64_t kGroupTileRows = kLanes == 16 ? 8 : 4;
constexpr int64_t kLeastByteGroup = COIL_LEAST_BYTE_GROUP;

// For 1 to kGroupTileRows rows. bits: 8 or 4. dot: what has_byte_dot() says.
void byte_group_tile(int64_t rows, int bits, bool dot, const GroupChunk& chunk);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_BYTE_GROUPS_H_
