// Attention of many float32 queries, turned: scores have a row for each key and a column for each query, so keys and values are read where they
// are, and maximum, exponential and sum run down the rows, lane by lane.
#ifndef COIL_DEVICE_KERNELS_ATTENTION_BY_KEYS_H_
#define COIL_DEVICE_KERNELS_ATTENTION_BY_KEYS_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// Whether the queries fill vectors and the mask, if any, says the same of all of them.
bool suits_keys(const CoilAttention& a);
void attention_by_keys(const CoilAttention& a, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_ATTENTION_BY_KEYS_H_
