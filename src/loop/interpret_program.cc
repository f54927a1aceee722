// Whole programs: symbols from inputs, loops in order.
#include <fmt/format.h>

#include <algorithm>

#include "loop/interpret.h"

namespace coil {
namespace {

// The single symbol that the expression depends on and that has no value yet.
std::optional<SymbolId> unknown_symbol(Expr e, const std::vector<std::optional<int64_t>>& known) {
  std::optional<SymbolId> found;
  bool several = false;
  visit(e, [&](Expr x) {
    if (x->kind != ExprKind::symbol || known[static_cast<size_t>(x->id)]) return;
    several = several || (found && *found != SymbolId(x->id));
    found = SymbolId(x->id);
  });
  return several ? std::nullopt : found;
}

// Solves e = value for one symbol, where e grows evenly with it.
void solve(Expr e, int64_t value, std::vector<std::optional<int64_t>>& known) {
  std::optional<SymbolId> symbol = unknown_symbol(e, known);
  if (!symbol) return;
  auto at = [&](int64_t s) { return evaluate_index(e, [&](SymbolId id) { return id == *symbol ? s : known[static_cast<size_t>(id.index)].value_or(0); }); };
  const int64_t base = at(0), slope = at(1) - base;
  if (slope == 0 || (value - base) % slope != 0) return;
  const int64_t s = (value - base) / slope;
  if (at(s) == value) known[static_cast<size_t>(symbol->index)] = s;
}

int64_t scalar_value(const TensorData& t) {
  int64_t v = 0;
  if (t.dtype == DType::i64 && t.bytes.size() >= static_cast<size_t>(t.offset + 1) * 8) std::memcpy(&v, t.bytes.data() + t.offset * 8, 8);
  return v;
}

}  // namespace

Result<std::vector<int64_t>> bind_symbols(const LoopProgram& program, std::span<const TensorData> inputs) {
  if (inputs.size() != program.inputs.size()) {
    return Error{ErrorCode::input_count, fmt::format("{} inputs are given, the program has {}", inputs.size(), program.inputs.size()), {}, {}};
  }
  std::vector<std::optional<int64_t>> known(program.pool->num_symbols());
  for (int round = 0; round < 2; ++round) {  // the second solves sizes that mention symbols of later inputs
    for (size_t i = 0; i < inputs.size(); ++i) {
      const LoopInput& in = program.inputs[i];
      if (!in.buffer.valid()) {
        solve(in.symint, scalar_value(inputs[i]), known);
        continue;
      }
      const BufferInfo& info = program.buffer(in.buffer);
      if (inputs[i].dtype != info.dtype) {
        return Error{ErrorCode::input_dtype, fmt::format("input '{}' is {}, expected {}", in.name, name(inputs[i].dtype), name(info.dtype)), {}, {}};
      }
      if (inputs[i].sizes.size() != info.sizes.size()) {
        return Error{
            ErrorCode::input_rank, fmt::format("input '{}' has {} dimensions, expected {}", in.name, inputs[i].sizes.size(), info.sizes.size()), {}, {}};
      }
      for (size_t d = 0; d < info.sizes.size(); ++d) solve(info.sizes[d], inputs[i].sizes[d], known);
    }
  }
  std::vector<int64_t> symbols;
  for (const std::optional<int64_t>& v : known) symbols.push_back(v.value_or(0));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!program.inputs[i].buffer.valid()) continue;
    const BufferInfo& info = program.buffer(program.inputs[i].buffer);
    for (size_t d = 0; d < info.sizes.size(); ++d) {
      const int64_t expected = evaluate_index(info.sizes[d], [&](SymbolId id) { return symbols[static_cast<size_t>(id.index)]; });
      if (expected == inputs[i].sizes[d]) continue;
      return Error{
          ErrorCode::input_size, fmt::format("input '{}' has size {} in dimension {}, expected {}", info.name, inputs[i].sizes[d], d, expected), {}, {}};
    }
  }
  return symbols;
}

namespace {

// The conditions of which `known` says that all sizes have values, and `due` that they are not checked yet.
Status check_sizes(const LoopProgram& program, FunctionRef<int64_t(SymbolId)> value, std::vector<char>& due, FunctionRef<bool(const Condition&)> known) {
  for (size_t i = 0; i < program.checks.size(); ++i) {
    const SizeCheck& c = program.checks[i];
    if (!due[i] || !known(c.condition)) continue;
    due[i] = 0;
    if (evaluate_index(holds(*program.pool, c.condition), value)) continue;
    if (c.message.empty()) return Error{ErrorCode::input_size, "the sizes must satisfy " + to_string(c.condition), {}, {}};
    return Error{ErrorCode::runtime_assert, "assertion failed: " + c.message, c.where, {}};
  }
  return ok_status();
}

bool all_read(const Condition& c, const std::vector<SymbolId>& read) {
  const auto known = [&](Expr e) {
    return !e || !any_of(e, [&](Expr n) {
      return n->kind == ExprKind::symbol && depends_on_data(n) && std::find(read.begin(), read.end(), SymbolId(n->id)) == read.end();
    });
  };
  return known(c.a) && known(c.b) && std::all_of(c.parts.begin(), c.parts.end(), [&](const Condition& part) { return all_read(part, read); });
}

}  // namespace

Result<std::vector<TensorData>> interpret(const LoopProgram& program, std::span<const TensorData> inputs) {
  TRY(std::vector<int64_t> symbols, bind_symbols(program, inputs));
  Interpreter interpreter(program, std::move(symbols));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (program.inputs[i].buffer.valid()) interpreter.set(program.inputs[i].buffer, inputs[i]);
  }
  std::vector<char> due(program.checks.size(), 1);
  std::vector<SymbolId> read;
  const auto value = [&](SymbolId id) { return interpreter.symbol(id); };
  const auto known = [&](const Condition& c) { return all_read(c, read); };
  TRY_STATUS(check_sizes(program, value, due, known));
  for (const Loop& loop : program.loops) {
    const Status done = interpreter.run(loop);
    if (const ReadSize* def = std::get_if<ReadSize>(&loop.def)) {
      read.push_back(def->symbol);
      TRY_STATUS(check_sizes(program, value, due, known));  // the program's own words first
    }
    if (!done.ok() && !loop.assertion.empty()) return Error{ErrorCode::runtime_assert, loop.assertion, {}, {}};
    TRY_STATUS(done);
  }
  std::vector<TensorData> results;
  for (const LoopOutput& out : program.outputs) {
    if (out.kind == LoopOutput::Kind::check) continue;
    TensorData& made = results.emplace_back(interpreter.get(out.source));
    const BufferInfo& buffer = program.buffer(out.source);
    if (buffer.shown.empty()) continue;
    made.sizes = interpreter.sizes(buffer.shown);
    made.strides = interpreter.sizes(face(buffer).strides);
  }
  return results;
}

}  // namespace coil
