// Copies of the past's rows. Large ones go past the caches: memory would else be read before it is written, and the rows that attention
// reads next, the source's, stay where they are.
#include "past_keys.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLargeBytes = 1 << 21;  // of a call's copies
constexpr int64_t kTaskRows = 64;         // of copies alone

struct Rows {
  const char* from;
  char* to;
  int64_t from_step, to_step, bytes;  // from row to row, and of one
};

void copy_streaming(char* to, const char* from, int64_t bytes) {
  const int64_t lead = min64(bytes, -reinterpret_cast<int64_t>(to) & (kLine - 1));
  memcpy(to, from, static_cast<size_t>(lead));
  int64_t i = lead;
  for (; i + kLine <= bytes; i += kLine) {
#pragma unroll
    for (int64_t u = 0; u < kLine; u += static_cast<int64_t>(sizeof(Vec)))
      __builtin_nontemporal_store(load_raw<Vec>(from + i + u), reinterpret_cast<Vec*>(to + i + u));
  }
  memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

// One after the other, rows are too short for memcpy.
COIL_INLINE void copy_row_bytes(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kVecBytes = sizeof(Vec);
  int64_t i = 0;
  for (; i + kVecBytes <= bytes; i += kVecBytes) store_raw(to + i, load_raw<Vec>(from + i));
  if (i < bytes && bytes >= kVecBytes) store_raw(to + bytes - kVecBytes, load_raw<Vec>(from + bytes - kVecBytes));  // the last vector, in part again
  else if (i < bytes) memcpy(to, from, static_cast<size_t>(bytes));
}

// Rows side by side are one long row. Lines are stored past the caches where they are whole.
void copy(Rows r, int64_t count, bool streams) {
  if (r.from_step == r.bytes && r.to_step == r.bytes) r.bytes *= count, count = 1;
  const bool whole_lines = count == 1 || ((reinterpret_cast<int64_t>(r.to) | r.to_step | r.bytes) & (kLine - 1)) == 0;
  for (; count > 0; count--, r.from += r.from_step, r.to += r.to_step) {
    if (streams && whole_lines) copy_streaming(r.to, r.from, r.bytes);
    else if (count > 1) copy_row_bytes(r.to, r.from, r.bytes);
    else memcpy(r.to, r.from, static_cast<size_t>(r.bytes));
  }
}

int64_t copied_bytes(const CoilAttention& a) {
  return a.batch * a.kv_heads * a.past * ((a.keep_k_past ? a.dim : 0) + (a.keep_v_past ? a.v_dim : 0)) * element_bytes(a.dtype);
}

}  // namespace

void keep_past(const CoilAttention& a, int64_t batch, int64_t kv_head, int64_t first, int64_t count) {
  if (count <= 0) return;
  const bool streams = copied_bytes(a) >= kLargeBytes;
  const int64_t size = element_bytes(a.dtype), row = first - a.past;  // k and v begin behind the past
  if (a.keep_k_past) {
    const int64_t from = batch * a.k_past_batch + kv_head * a.k_past_head + first * a.k_past_row, to = batch * a.k_batch + kv_head * a.k_head + row * a.k_row;
    copy({static_cast<const char*>(a.k_past) + from * size, static_cast<char*>(const_cast<void*>(a.k)) + to * size, a.k_past_row * size, a.k_row * size,
          a.dim * size},
         count, streams);
  }
  if (a.keep_v_past) {
    const int64_t from = batch * a.v_past_batch + kv_head * a.v_past_head + first * a.v_past_row, to = batch * a.v_batch + kv_head * a.v_head + row * a.v_row;
    copy({static_cast<const char*>(a.v_past) + from * size, static_cast<char*>(const_cast<void*>(a.v)) + to * size, a.v_past_row * size, a.v_row * size,
          a.v_dim * size},
         count, streams);
  }
  if (streams) end_streams();
}

void keep_all_past(const CoilAttention& a, const CoilHost* host) {
  const auto run = [](void* context, int64_t begin, int64_t end, int32_t) {
    const CoilAttention& a = *static_cast<const CoilAttention*>(context);
    const int64_t parts = ceil_div(a.past, kTaskRows);
    for (int64_t task = begin; task < end; task++) {
      const int64_t head = task / parts, first = task % parts * kTaskRows;
      keep_past(a, head / a.kv_heads, head % a.kv_heads, first, min64(kTaskRows, a.past - first));
    }
  };
  const int64_t tasks = a.batch * a.kv_heads * ceil_div(a.past, kTaskRows);
  if (host->num_workers <= 1 || copied_bytes(a) < kLargeBytes / 8) return run(const_cast<CoilAttention*>(&a), 0, tasks, 0);
  host->parallel_for(host->pool, tasks, max64(1, min64(tasks / (4 * host->num_workers), 16)), run, const_cast<CoilAttention*>(&a));
}

}  // namespace COIL_KERNELS_NAMESPACE
