// What attention by keys asks of masks.
#ifndef COIL_DEVICE_KERNELS_ATTENTION_MASKS_H_
#define COIL_DEVICE_KERNELS_ATTENTION_MASKS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr float kLog2e = 1.44269504f;

inline bool equal_bytes(const uint8_t* a, const uint8_t* b, int64_t n) {
  VecU32 differ = VecU32(0);
  int64_t i = 0;
  for (; i + static_cast<int64_t>(sizeof differ) <= n; i += sizeof differ) differ |= load_raw<VecU32>(a + i) ^ load_raw<VecU32>(b + i);
  uint8_t rest = 0;
  for (; i < n; i++) rest |= a[i] ^ b[i];
  return !rest && __builtin_reduce_or(differ) == 0;
}

// Whether the mask's rows are one, or copies of one, as exported models write what is behind a sequence's end: those are read once here, which
// is little beside what follows. Masks with rows of their own tell in their second row.
inline bool same_for_queries(const CoilAttention& a) {
  if (a.mask_row == 0) return true;
  if (a.mask_col != 1) return false;
  const int64_t element = a.mask_dtype == COIL_BOOL ? 1 : element_bytes(a.mask_dtype), bytes = a.kv_len * element;
  for (int64_t b = 0; b < (a.mask_batch ? a.batch : 1); b++) {
    for (int64_t h = 0; h < (a.mask_head ? a.heads : 1); h++) {
      const uint8_t* first = static_cast<const uint8_t*>(a.mask) + (b * a.mask_batch + h * a.mask_head) * element;
      for (int64_t r = 1; r < a.q_len; r++) {
        if (!equal_bytes(first, first + r * a.mask_row * element, bytes)) return false;
      }
    }
  }
  return true;
}

// Where the last key ends that a row of a mask lets through, of those in [least, keys); least, if it is none.
inline int64_t end_of_seen(const uint8_t* row, int64_t least, int64_t keys) {
  constexpr auto kStep = static_cast<int64_t>(sizeof(VecU32));
  while (keys - kStep >= least && __builtin_reduce_or(load_raw<VecU32>(row + keys - kStep)) == 0) keys -= kStep;
  while (keys > least && !row[keys - 1]) keys--;
  return keys;
}

// How many keys, of the first `keys`, come before the end of those that any of `count` queries of a head sees, at least 1: of a cache that is filled in part
// the rest is not even read (nor is a NaN there, which PyTorch would let through). Masks of numbers hide nothing for good.
inline int64_t seen_keys(const CoilAttention& a, int64_t batch, int64_t head, int64_t first, int64_t count, int64_t keys) {
  if (!a.mask || a.mask_dtype != COIL_BOOL || a.mask_col != 1 || keys <= 1) return keys;
  const uint8_t* row = static_cast<const uint8_t*>(a.mask) + batch * a.mask_batch + head * a.mask_head + first * a.mask_row;
  int64_t seen = 1;
  // The last query of a text sees most; the others have to tell only that they see no more.
  for (int64_t r = a.mask_row == 0 ? 0 : count - 1; r >= 0 && seen < keys; r--) seen = end_of_seen(row + r * a.mask_row, seen, keys);
  return seen;
}

// In base 2, and finite where it was: what is as low as numbers go hides no key from a query that sees no higher one.
COIL_INLINE Vec in_base_2(Vec m) {
  const Vec more = m * Vec(kLog2e), lowest = Vec(-0x1.fffffep127f);
  return more < lowest && m >= lowest ? lowest : more;
}
COIL_INLINE Vec unless_seen(Vec seen) { return seen == 0.0f ? Vec(-__builtin_inff()) : Vec(0.0f); }

// `fill`: the highest number of a mask that takes a score's place, in the unit of the mask's.
COIL_INLINE Vec masked(Vec score, Vec mask, Vec fill) { return mask <= fill ? mask : score + mask; }

// first, first + 1, ...
COIL_INLINE VecI32 lanes_from(int64_t first) {
#ifdef __AVX512F__
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
  return lane + VecI32(static_cast<int32_t>(first));
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_ATTENTION_MASKS_H_
