// Routines of the device library that have a reference.
#include <fmt/format.h>

#include "reference/accumulator.h"
#include "reference/interpreter.h"

namespace coil::reference {
Status Interpreter::run_routine(const Loop& loop, const Library& def) {
  if (const std::optional<JoinRows> join = JoinRows::of(def)) return join_rows(loop, def, *join);
  return Error{ErrorCode::unsupported_feature, fmt::format("{} has no reference: it is a routine of the library", loop.op), "", ""};
}

// Each element of the table begins with what it holds at first, and takes what the rows that name it bring, in their order.
Status Interpreter::join_rows(const Loop& loop, const Library& def, const JoinRows& join) {
  std::vector<Num> out = room(loop.outputs[0]);
  const std::vector<int64_t> n = sizes(def.sizes);
  const int64_t rows = n[0], columns = n[1], count = n[2];
  const Tensor &places = get(def.inputs[0]), &values = get(def.inputs[1]), &before = get(def.inputs[2]);
  std::vector<Accumulator> sums(out.size(), Accumulator(join.reduction(), type_of(loop.outputs[0])));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = before.at(join.whole ? static_cast<int64_t>(i) : 0);
    sums[i].add(out[i]);
  }
  for (int64_t k = 0; k < count; ++k) {
    const int64_t row = places.at(k).i;
    if (row < 0 || row >= rows) continue;
    const int64_t from = join.whose == JoinRows::own ? k : join.whose == JoinRows::chosen ? get(def.inputs[3]).at(k).i : 0;
    if (join.whose == JoinRows::chosen && (from < 0 || from >= n[3]))
      return Error{ErrorCode::input_value, fmt::format("{}: an index is out of range for {} rows", loop.op, n[3]), "", ""};
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(row * columns + c);
      const int64_t element = join.turned ? c * count + from : from * columns + c;
      const Num value = join.whose == JoinRows::number ? Num{0, k / n[3] % n[4], 0} : values.at(join.whose == JoinRows::shared ? 0 : element);
      sums[at].add(value);
      out[at] = join.how == JoinRows::last ? value : sums[at].result();
    }
  }
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

}  // namespace coil::reference
