// Routines of the library that an interpreter of plans knows: those that move rows and bytes.
#include <cstring>

#include <fmt/format.h>

#include "loop/accumulator.h"
#include "loop/join_rows.h"
#include "schedule/interpret_plan.h"

namespace coil {
namespace {

// The element of a vector, as a number of its kind.
struct Number {
  double f = 0;
  int64_t i = 0;
};
Number number_at(const interpreter::Tensor& t, int64_t at) {
  CHECK(at >= 0 && at < t.sizes[0], "a routine reads outside of its buffer");
  return interpreter::with_type(t.dtype, [&](auto type) -> Number {
    using T = decltype(type);
    const T v = interpreter::read_element<T>(t.data, at);
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, interpreter::Byte>) return {0, static_cast<int64_t>(v)};
    else return {static_cast<double>(v), 0};
  });
}

// Each element of the table begins with what it holds at first, and takes what the rows that name it bring, in their order.
Status join_rows(PlanMemory& memory, const LibraryKernel& k, const JoinRows& join) {
  const std::vector<int64_t> n = memory.values(k.def.sizes);
  const int64_t rows = n[0], columns = n[1], count = n[2];
  const interpreter::Tensor places = memory.linear(k.def.inputs[0]), values = memory.linear(k.def.inputs[1]), before = memory.linear(k.def.inputs[2]);
  const interpreter::Tensor out = memory.linear(k.results[0]);
  CHECK(rows * columns <= out.sizes[0], "a table of more elements than its buffer has");
  const bool floating = is_float(out.dtype);
  const interpreter::Accumulator empty{join.reduction(), floating, compute_type(out.dtype)};
  std::vector<interpreter::Accumulator> sums(static_cast<size_t>(rows * columns), empty);
  const auto add = [&](size_t at, const Number& v) {
    if (join.how == JoinRows::last) sums[at].start();
    floating ? sums[at].add(v.f) : sums[at].add(v.i);
  };
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i].start();
    add(i, number_at(before, join.whole ? static_cast<int64_t>(i) : 0));
  }
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = number_at(places, r).i;
    if (row < 0 || row >= rows) continue;
    const int64_t from = join.whose == JoinRows::own ? r : join.whose == JoinRows::chosen ? number_at(memory.linear(k.def.inputs[3]), r).i : 0;
    if (join.whose == JoinRows::chosen && (from < 0 || from >= n[3]))
      return Error{ErrorCode::input_value, fmt::format("{}: an index is out of range for {} rows", k.def.subject, n[3]), "", ""};
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t element = join.whose == JoinRows::shared ? 0 : join.turned ? c * count + from : from * columns + c;
      const int64_t own = join.whose == JoinRows::number ? r / n[3] % n[4] : 0;
      const Number v = join.whose == JoinRows::number ? Number{static_cast<double>(own), own} : number_at(values, element);
      add(static_cast<size_t>(row * columns + c), v);
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i].write(out.dtype, const_cast<uint8_t*>(out.data), static_cast<int64_t>(i));
  return ok_status();
}

}  // namespace

Status run_library_kernel(PlanMemory& memory, const LibraryKernel& k) {
  if (const std::optional<JoinRows> join = JoinRows::of(k.def)) return join_rows(memory, k, *join);
  if (k.def.routine != "copy_bytes") return Error{ErrorCode::unsupported_feature, "the library routine " + k.def.routine + " has no reference", "", ""};
  const PlanMemory::Piece from = memory.piece(k.def.inputs[0]), to = memory.piece(k.results[0]);
  const int64_t bytes = memory.value(k.def.sizes[0]);
  CHECK(bytes >= 0 && bytes <= from.bytes && bytes <= to.bytes, "a copy of more bytes than there are");
  if (bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
  return ok_status();
}

}  // namespace coil
