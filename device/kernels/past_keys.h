// Keys and values in two pieces, those of the past and those behind them, and copies of the former that a call has to make.
#ifndef COIL_DEVICE_KERNELS_PAST_KEYS_H_
#define COIL_DEVICE_KERNELS_PAST_KEYS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// Rows of one head that lie in one piece.
template <class T>
struct KeyRows {
  const T *k, *v;
  int64_t k_row, v_row, count;
};

// Those from `key` on, at most `most` of them.
template <class T>
COIL_INLINE KeyRows<T> key_rows(const CoilAttention& a, int64_t batch, int64_t kv_head, int64_t key, int64_t most) {
  if (key < a.past) {
    return {static_cast<const T*>(a.k_past) + batch * a.k_past_batch + kv_head * a.k_past_head + key * a.k_past_row,
            static_cast<const T*>(a.v_past) + batch * a.v_past_batch + kv_head * a.v_past_head + key * a.v_past_row, a.k_past_row, a.v_past_row,
            min64(most, a.past - key)};
  }
  key -= a.past;
  return {static_cast<const T*>(a.k) + batch * a.k_batch + kv_head * a.k_head + key * a.k_row,
          static_cast<const T*>(a.v) + batch * a.v_batch + kv_head * a.v_head + key * a.v_row, a.k_row, a.v_row, most};
}

// Copies rows [first, first + count) of a head's past to where they are kept. Other threads see it once they have waited for this one, as
// they do for all results.
void keep_past(const CoilAttention& a, int64_t batch, int64_t kv_head, int64_t first, int64_t count);
// All of the call's past, on all threads.
void keep_all_past(const CoilAttention& a, const CoilHost* host);

COIL_INLINE bool keeps_past(const CoilAttention& a) { return a.keep_k_past || a.keep_v_past; }

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_PAST_KEYS_H_
