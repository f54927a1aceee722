// The interpreter's part for control flow: a region's parts are programs of their own.
#include <cstring>

#include "loop/interpret.h"

namespace coil {

Result<std::vector<TensorData>> Interpreter::run_part(const RegionPart& part) {
  Interpreter inner(*part.program, symbols_);
  for (const auto& [own, outer] : part.captures) inner.set(own, get(outer));
  for (const Loop& loop : part.program->loops) {
    const Status done = inner.run(loop);
    if (!done.ok() && !loop.assertion.empty()) return Error{ErrorCode::runtime_assert, loop.assertion, {}, {}};
    TRY_STATUS(done);
  }
  std::vector<TensorData> results;
  for (const LoopOutput& out : part.program->outputs) {
    if (out.kind == LoopOutput::Kind::user) results.push_back(inner.get(out.source));
  }
  return results;
}

Status Interpreter::run_region(const Loop& loop, const Region& def) {
  const auto is_true = [](const TensorData& t) { return t.bytes[static_cast<size_t>(t.offset)] != 0; };
  if (def.kind == Region::Kind::branch) {
    TRY(std::vector<TensorData> results, run_part(def.parts[is_true(get(def.predicate)) ? 0 : 1]));
    for (size_t i = 0; i < results.size(); ++i) set(loop.outputs[i], std::move(results[i]));
    return ok_status();
  }
  const size_t carried = def.initial.size();
  for (size_t i = 0; i < carried; ++i) set(loop.outputs[i], get(def.initial[i]));
  std::vector<uint8_t*> rows;
  for (size_t i = carried; i < loop.outputs.size(); ++i) rows.push_back(allocate(loop.outputs[i]));
  const int64_t steps = def.steps ? sizes({def.steps})[0] : INT64_MAX;
  for (int64_t step = 0; step < steps; ++step) {
    symbols_[static_cast<size_t>(def.step.index)] = step;
    if (def.parts.size() > 1) {
      TRY(const std::vector<TensorData> goes_on, run_part(def.parts[1]));
      if (!is_true(goes_on[0])) break;
    }
    TRY(std::vector<TensorData> results, run_part(def.parts[0]));
    for (size_t i = 0; i < carried; ++i) set(loop.outputs[i], std::move(results[i]));
    for (size_t i = carried; i < results.size(); ++i) {
      const size_t bytes = results[i].bytes.size();
      std::memcpy(rows[i - carried] + static_cast<size_t>(step) * bytes, results[i].bytes.data(), bytes);
    }
  }
  return ok_status();
}

}  // namespace coil
