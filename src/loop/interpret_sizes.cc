// The interpreter's part for sizes from data: compaction, and symbols that a program reads.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "loop/interpret.h"

namespace coil {

Status Interpreter::run_compact(const Loop& loop, const Compact& def) {
  const std::vector<int64_t> domain = sizes({def.blocks, def.length});
  const auto integers = [this](Expr body, const std::vector<int64_t>& points, std::vector<int64_t>& out) {
    return evaluate(body, points, [&](const interpreter::BlockView& b) { out.insert(out.end(), b.integers, b.integers + b.count); });
  };
  std::vector<int64_t> next, kept, values;
  TRY_STATUS(integers(def.start, {domain[0]}, next));
  TRY_STATUS(integers(def.keep, domain, kept));
  TRY_STATUS(integers(def.value, domain, values));
  uint8_t* memory = allocate(loop.outputs[0]);
  const int64_t size = get(loop.outputs[0]).sizes[0];
  for (int64_t b = 0; b < domain[0]; ++b) {
    for (int64_t j = 0; j < domain[1]; ++j) {
      const auto at = static_cast<size_t>(b * domain[1] + j);
      if (!kept[at]) continue;
      const int64_t to = next[static_cast<size_t>(b)]++;
      if (to < 0 || to >= size) return Error{ErrorCode::input_value, fmt::format("element {} of '{}', which has {}", to, loop.op, size), {}, {}};
      std::memcpy(memory + to * 8, &values[at], 8);
    }
  }
  return ok_status();
}

Status Interpreter::run_read(const Loop& loop, const ReadSize& def) {
  const TensorData& data = get(def.source);
  const Symbol& symbol = program_.pool->symbol_info(def.symbol);
  int64_t value = 0;
  std::memcpy(&value, data.bytes.data() + data.offset * 8, 8);
  symbols_[static_cast<size_t>(def.symbol.index)] = value;
  std::memcpy(allocate(loop.outputs[0]), &value, 8);
  const int64_t most = def.limit ? std::min(symbol.max, sizes({def.limit})[0]) : symbol.max;
  if (value >= symbol.min && value <= most) return ok_status();
  return Error{ErrorCode::runtime_assert,
               fmt::format("the size '{}' that the program reads from data is {}, not in {}..{}", symbol.label, value, symbol.min, most),
               {},
               {}};
}

}  // namespace coil
