// What many rows come to at the rows of a table that they name: the messages to a graph's nodes, the last writer of an element.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "device/cuda/join_rules.h"
#include "device/host_support.h"
#include "device/library.h"

namespace {

constexpr int64_t kPart = 1 << 15;  // elements that a thread is worth waking for

constexpr int64_t kAhead = 8, kAheadBytes = 512;  // how many rows ahead memory is asked, and for how much of one

using namespace cd;

// Integers wrap around; a NaN stays.
template <class T, int64_t how>
T joined(T a, T b) {
  if constexpr (how == kJoinLast) return b;
  else if constexpr (how == kJoinLargest) return a > b || a != a ? a : b;
  else if constexpr (how == kJoinSmallest) return a < b || a != a ? a : b;
  else if constexpr (T(0.5) != T(0)) return how == kJoinSum ? a + b : a * b;
  else return static_cast<T>(how == kJoinSum ? static_cast<uint64_t>(a) + static_cast<uint64_t>(b) : static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Chosen rows lie anywhere: memory is asked for the one that comes kAhead later.
template <class T>
void ask(const T* row, int64_t columns) {
  const char* next = reinterpret_cast<const char*>(row);
  for (int64_t b = 0; b < columns * static_cast<int64_t>(sizeof(T)) && b < kAheadBytes; b += 64) __builtin_prefetch(next + b);
}

// Of several rows one after the other for the same place (a bag's), `width` columns that registers hold from the first row to the last.
template <class T, int64_t width, int64_t how>
void join_columns(T* to, const T* values, const int64_t* chosen, int64_t rows, int64_t columns, int64_t known) {
  T sum[width];
  memcpy(sum, to, sizeof sum);
  for (int64_t k = 0; k < rows; ++k) {
    const T* from = values + chosen[k] * columns;
    if (k + kAhead < known) ask(values + chosen[k + kAhead] * columns, columns);
    for (int64_t c = 0; c < width; ++c) sum[c] = joined<T, how>(sum[c], from[c]);
  }
  memcpy(to, sum, sizeof sum);
}

// Chosen rows for one place; the numbers of `known` rows, from the first on, may be read. The first columns ask for whole rows to come.
template <class T, int64_t how>
void join_run(T* __restrict to, const T* __restrict values, const int64_t* chosen, int64_t rows, int64_t columns, int64_t known) {
  constexpr int64_t kWide = 256 / sizeof(T), kMiddle = 128 / sizeof(T), kNarrow = 32 / sizeof(T);
  int64_t done = 0;
  for (; done + kWide <= columns; done += kWide, known = 0) join_columns<T, kWide, how>(to + done, values + done, chosen, rows, columns, known);
  for (; done + kMiddle <= columns; done += kMiddle, known = 0) join_columns<T, kMiddle, how>(to + done, values + done, chosen, rows, columns, known);
  for (; done + kNarrow <= columns; done += kNarrow, known = 0) join_columns<T, kNarrow, how>(to + done, values + done, chosen, rows, columns, known);
  if (done == columns) return;
  for (int64_t k = 0; k < rows; ++k) {
    if (k + kAhead < known) ask(values + chosen[k + kAhead] * columns, columns);
    for (int64_t c = done; c < columns; ++c) to[c] = joined<T, how>(to[c], values[chosen[k] * columns + c]);
  }
}

// join() of chosen rows: those that follow one another to the same place are taken together.
template <class T, int64_t how>
void join_chosen(const CoilLibraryCall& call, T* out, int64_t first, int64_t end, int64_t begin, int64_t stop, int32_t* bad) {
  const int64_t columns = call.sizes[1];
  const int64_t *places = static_cast<const int64_t*>(call.in[0]), *chosen = static_cast<const int64_t*>(call.in[3]);
  const T* values = static_cast<const T*>(call.in[1]);
  const auto given = static_cast<uint64_t>(call.sizes[3]), height = static_cast<uint64_t>(end - first);
  for (int64_t k = begin, next; k < stop; k = next) {
    const auto place = static_cast<uint64_t>(places[k] - first);
    next = k + 1;
    if (place >= height) continue;
    if (static_cast<uint64_t>(chosen[k]) >= given) {
      __atomic_store_n(bad, 1, __ATOMIC_RELAXED);
      continue;
    }
    while (next < stop && places[next] == places[k] && static_cast<uint64_t>(chosen[next]) < given) ++next;
    join_run<T, how>(out + static_cast<int64_t>(place) * columns, values, chosen + k, next - k, columns, stop - k);
  }
}

// Values joined in some order at rows [first, end) of a table that begins at `out`.
template <class T, int64_t how, int64_t whose>
void join(const CoilLibraryCall& call, T* out, int64_t first, int64_t end, int64_t begin, int64_t stop) {
  const int64_t columns = call.sizes[1];
  const int64_t* places = static_cast<const int64_t*>(call.in[0]);
  const T* values = static_cast<const T*>(call.in[1]);
  const auto height = static_cast<uint64_t>(end - first);
  for (int64_t k = begin; k < stop; ++k) {
    const auto place = static_cast<uint64_t>(places[k] - first);
    if (place >= height) continue;
    T* __restrict to = out + static_cast<int64_t>(place) * columns;
    const T* __restrict from = values + (whose == kJoinOwn ? k : 0) * columns;
    if (columns == 1) *to = joined<T, how>(*to, *from);
    else
      for (int64_t c = 0; c < columns; ++c) to[c] = joined<T, how>(to[c], from[c]);
  }
}

template <class T, int64_t how>
void join_in_order(const CoilLibraryCall& call, T* out, int64_t first, int64_t end, int64_t begin, int64_t stop, int32_t* bad) {
  switch (call.options[2]) {
    case kJoinOwn: return join<T, how, kJoinOwn>(call, out, first, end, begin, stop);
    case kJoinShared: return join<T, how, kJoinShared>(call, out, first, end, begin, stop);
    default: return join_chosen<T, how>(call, out, first, end, begin, stop, bad);
  }
}

// What rows [first, end) hold at first, at `out`.
template <class T>
void begin_rows(const CoilLibraryCall& call, T* out, int64_t first, int64_t end) {
  const int64_t columns = call.sizes[1], n = (end - first) * columns;
  const T* before = static_cast<const T*>(call.in[2]);
  if (call.options[1]) memcpy(out, before + first * columns, static_cast<size_t>(n) * sizeof(T));
  else
    for (int64_t i = 0; i < n; ++i) out[i] = *before;
}

struct Job {
  const CoilLibraryCall* call;
  int64_t parts;
  void* tables;  // of the parts but the first, where each has one
  int32_t* bad;  // becomes 1 where a chosen row is none of the values'
};

// A part of the table: all places are looked at, in order.
template <class T, int64_t how>
void join_rows_of_part(const Job& job, int64_t part) {
  const CoilLibraryCall& call = *job.call;
  const int64_t rows = call.sizes[0], columns = call.sizes[1];
  const int64_t first = rows * part / job.parts, end = rows * (part + 1) / job.parts;
  T* out = static_cast<T*>(call.out[0]) + first * columns;
  begin_rows(call, out, first, end);
  join_in_order<T, how>(call, out, first, end, 0, call.sizes[2], job.bad);
}

// A part of the places, for a table of the part's own.
template <class T, int64_t how>
void join_places_of_part(const Job& job, int64_t part) {
  const CoilLibraryCall& call = *job.call;
  const int64_t rows = call.sizes[0], count = call.sizes[2];
  T* out = part == 0 ? static_cast<T*>(call.out[0]) : static_cast<T*>(job.tables) + (part - 1) * rows;
  if (part == 0) begin_rows(call, out, 0, rows);
  else
    for (int64_t i = 0; i < rows; ++i) out[i] = T(how == kJoinProduct);
  join_in_order<T, how>(call, out, 0, rows, count * part / job.parts, count * (part + 1) / job.parts, job.bad);
}

template <void (*run_part)(const Job&, int64_t)>
void run_parts(const Job& job) {
  auto chunk = [](void* context, int64_t begin, int64_t end, int32_t) {
    for (int64_t part = begin; part < end; ++part) run_part(*static_cast<const Job*>(context), part);
  };
  Job copy = job;
  const CoilHost* host = job.call->host;
  if (job.parts == 1) return chunk(&copy, 0, 1, 0);
  host->parallel_for(host->pool, job.parts, 1, chunk, &copy);
}

// Integers that are added up may meet in any order: histograms, which have few bins, are counted in parts. False: not done.
template <class T, int64_t how>
bool run_by_places(const Job& job) {
  const int64_t rows = job.call->sizes[0], columns = job.call->sizes[1], count = job.call->sizes[2];
  if (job.parts < 2 || columns != 1 || rows > count / (2 * job.parts)) return false;
  T* tables = static_cast<T*>(malloc(static_cast<size_t>((job.parts - 1) * rows) * sizeof(T) + 1));
  if (!tables) return false;
  run_parts<join_places_of_part<T, how>>({job.call, job.parts, tables, job.bad});
  T* out = static_cast<T*>(job.call->out[0]);
  for (int64_t part = 1; part < job.parts; ++part) {
    for (int64_t i = 0; i < rows; ++i) out[i] = joined<T, how>(out[i], tables[(part - 1) * rows + i]);
  }
  free(tables);
  return true;
}

template <class T, int64_t how>
int32_t run(const CoilLibraryCall* call) {
  const CoilHost* host = call->host;
  const int64_t elements = (call->sizes[0] + call->sizes[2]) * call->sizes[1], most = elements / kPart;
  int32_t bad = 0;
  const Job job = {call, most < 1 ? 1 : most < host->num_workers ? most : host->num_workers, nullptr, &bad};
  bool done = false;
  if constexpr (T(0.5) == T(0) && how <= kJoinProduct) done = run_by_places<T, how>(job);
  if (!done) run_parts<join_rows_of_part<T, how>>(job);
  constexpr int32_t kBadIndex = 210;
  return bad ? cd::fail(call->error, kBadIndex, "%s: an index is out of range for %lld rows", call->subject, static_cast<long long>(call->sizes[3])) : 0;
}

template <class T>
int32_t run_as(const CoilLibraryCall* call) {
  switch (call->options[0]) {
    case kJoinSum: return run<T, kJoinSum>(call);
    case kJoinProduct: return run<T, kJoinProduct>(call);
    case kJoinLargest: return run<T, kJoinLargest>(call);
    case kJoinSmallest: return run<T, kJoinSmallest>(call);
    default: return run<T, kJoinLast>(call);
  }
}

}  // namespace

// in: places (i64 [count]; one outside of [0, rows) is for none); values; what the table holds at first: all of it, or one element for all, mostly the
// identity of the operation; rows of the values (i64 [count]), where these are chosen. out: [rows, columns]. sizes: rows, columns, count, and how many rows
// there are to choose from. options: 0 sum, 1 product, 2 largest, 3 smallest, 4 the last one; 1 where the whole table is given; values are 0 [count, columns],
// 1 one row for all, 2 chosen rows. Rows are joined in their order. For the last one the type is an integer of the elements' size.
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
