// What many rows come to at the rows of a table that they name: the messages to a graph's nodes, the last writer of an element.
#include <cstdint>

#include "device/library.h"

namespace {

constexpr int64_t kPart = 1 << 15;  // elements that a thread is worth waking for

enum : int64_t { kSum, kProduct, kLargest, kSmallest };  // as in row_sums.cc

// Integers wrap around; a NaN stays.
template <class T, int64_t how>
T joined(T a, T b) {
  if constexpr (how == kLargest) return a > b || a != a ? a : b;
  else if constexpr (how == kSmallest) return a < b || a != a ? a : b;
  else if constexpr (T(0.5) != T(0)) return how == kSum ? a + b : a * b;
  else return static_cast<T>(how == kSum ? static_cast<uint64_t>(a) + static_cast<uint64_t>(b) : static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

struct Job {
  const CoilLibraryCall* call;
  int64_t parts;
};

// A part of the table: all places are looked at, in order.
template <class T, int64_t how>
void join_part(const Job& job, int64_t part) {
  const CoilLibraryCall& call = *job.call;
  const int64_t rows = call.sizes[0], columns = call.sizes[1], count = call.sizes[2];
  const int64_t first = rows * part / job.parts, end = rows * (part + 1) / job.parts;
  const int64_t* places = static_cast<const int64_t*>(call.in[0]);
  const T* values = static_cast<const T*>(call.in[1]);
  const T none = *static_cast<const T*>(call.in[2]);
  T* out = static_cast<T*>(call.out[0]);
  for (int64_t i = first * columns; i < end * columns; ++i) out[i] = none;
  for (int64_t k = 0; k < count; ++k) {
    if (places[k] < first || places[k] >= end) continue;
    T* to = out + places[k] * columns;
    const T* from = values + k * columns;
    for (int64_t c = 0; c < columns; ++c) to[c] = joined<T, how>(to[c], from[c]);
  }
}

template <class T, int64_t how>
void run(const CoilLibraryCall* call) {
  const CoilHost* host = call->host;
  const int64_t elements = (call->sizes[0] + call->sizes[2]) * call->sizes[1], most = elements / kPart;
  Job job = {call, most < 1 ? 1 : most < host->num_workers ? most : host->num_workers};
  auto chunk = [](void* context, int64_t begin, int64_t end, int32_t) {
    for (int64_t part = begin; part < end; ++part) join_part<T, how>(*static_cast<const Job*>(context), part);
  };
  if (job.parts == 1) return chunk(&job, 0, 1, 0);
  host->parallel_for(host->pool, job.parts, 1, chunk, &job);
}

template <class T>
int32_t run_as(const CoilLibraryCall* call) {
  switch (call->options[0]) {
    case kSum: run<T, kSum>(call); break;
    case kProduct: run<T, kProduct>(call); break;
    case kLargest: run<T, kLargest>(call); break;
    default: run<T, kSmallest>(call);
  }
  return 0;
}

}  // namespace

// in: places (i64 [count]; one outside of [0, rows) is for none), values [count, columns], and one element: what a row of the table has that
// no row is for, the identity of the operation. out: [rows, columns]. sizes: rows, columns, count. options: 0 sum, 1 product, 2 largest,
// 3 smallest. Rows are joined in their order.
COIL_LIBRARY_ROUTINE(join_rows) {
  switch (call->dtype) {
    case COIL_FLOAT32: return run_as<float>(call);
    case COIL_FLOAT64: return run_as<double>(call);
    case COIL_INT64: return run_as<int64_t>(call);
    case COIL_INT32: return run_as<int32_t>(call);
    case COIL_INT16: return run_as<int16_t>(call);
    case COIL_INT8: return run_as<int8_t>(call);
    default: return run_as<uint8_t>(call);
  }
}
