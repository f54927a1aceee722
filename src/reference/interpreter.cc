#include "reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "loop/templates/template.h"
#include "reference/accumulator.h"

namespace coil::reference {
namespace {

std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) strides[i] = step;
  return strides;
}

}  // namespace

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

Interpreter::Interpreter(const LoopProgram& program, std::vector<int64_t> symbols, Arithmetic arithmetic)
    : program_(program), symbols_(std::move(symbols)), arithmetic_(arithmetic) {
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const BufferInfo::Kind kind = program.buffers[b].kind;
    if (kind == BufferInfo::Kind::constant || kind == BufferInfo::Kind::state) known_[BufferId(b)] = exact(program.buffers[b].data);
  }
  for (size_t l = 0; l < program.loops.size(); ++l) {
    for (BufferId id : program.loops[l].outputs) loop_of_[id] = l;
  }
  tensor_of_ = [this](BufferId id) -> const Tensor& { return get(id); };
  symbol_of_ = [this](SymbolId id) {
    CHECK(id.valid() && static_cast<size_t>(id.index) < symbols_.size(), "a symbol without a value");
    return symbols_[static_cast<size_t>(id.index)];
  };
}

const Tensor& Interpreter::get(BufferId buffer) const {
  if (const auto found = known_.find(buffer); found != known_.end()) return found->second;
  const auto made = made_.find(buffer);
  CHECK(made != made_.end(), "buffer '" + program_.buffer(buffer).name + "' has no contents");
  return made->second;
}

std::vector<int64_t> Interpreter::sizes(const std::vector<Expr>& exprs) const {
  std::vector<int64_t> out;
  for (Expr e : exprs) out.push_back(evaluate_index(e, symbol_of_));
  return out;
}

Result<const Tensor*> Interpreter::compute(BufferId buffer) {
  ran_.clear();
  std::set<size_t> needed;
  std::vector<BufferId> open{buffer};
  while (!open.empty()) {
    const BufferId id = open.back();
    open.pop_back();
    if (has(id)) continue;
    const auto found = loop_of_.find(id);
    if (found == loop_of_.end()) return Error{ErrorCode::internal, "nothing computes the buffer " + program_.buffer(id).name, "", ""};
    if (!needed.insert(found->second).second) continue;
    for (BufferId read : reads(program_, program_.loops[found->second])) open.push_back(read);
  }
  for (const size_t l : needed) {
    TRY_STATUS(run(program_.loops[l]));
    ran_.push_back(l);
  }
  return &get(buffer);
}

std::vector<Num> Interpreter::room(BufferId buffer, std::vector<int64_t>* shape) const {
  std::vector<int64_t> s = sizes(program_.buffer(buffer).sizes);
  std::vector<Num> values(static_cast<size_t>(std::max<int64_t>(product(s), 0)));
  if (shape) *shape = std::move(s);
  return values;
}

void Interpreter::store(BufferId buffer, std::vector<Num> values) {
  const DType type = type_of(buffer);
  if (byte_size(type) == 2 && is_float(type)) {
    for (Num& v : values) v = maybe_rounded(v, type);
  }
  made_[buffer] = computed(type, sizes(program_.buffer(buffer).sizes), std::move(values));
}

Status Interpreter::run(const Loop& loop) {
  if (const auto* def = std::get_if<Pointwise>(&loop.def)) return run_pointwise(loop, *def);
  if (const auto* def = std::get_if<Reduction>(&loop.def)) return run_reduction(loop, *def);
  if (const auto* def = std::get_if<Scan>(&loop.def)) return run_scan(loop, *def);
  if (const auto* def = std::get_if<Concat>(&loop.def)) return run_concat(loop, *def);
  if (const auto* def = std::get_if<Sort>(&loop.def)) return run_sort(loop, *def);
  if (const auto* def = std::get_if<Compact>(&loop.def)) return run_compact(loop, *def);
  if (const auto* def = std::get_if<Region>(&loop.def)) return run_region(loop, *def);
  Status status = ok_status();
  if (visit_template(loop.def, [&](const auto& def) { status = run_template(loop, def); })) return status;
  if (const auto* def = std::get_if<ReadSize>(&loop.def)) {
    const Tensor& source = get(def->source);
    set_symbol(def->symbol, source.at(0).i);
    made_[loop.outputs[0]] = computed(DType::i64, {}, {source.at(0)});
    return ok_status();
  }
  if (const auto* def = std::get_if<Library>(&loop.def)) return run_routine(loop, *def);
  return Error{ErrorCode::unsupported_feature, fmt::format("{} has no reference: it is a user's kernel", loop.op), "", ""};
}

Status Interpreter::run_pointwise(const Loop& loop, const Pointwise& def) {
  std::vector<int64_t> domain;
  std::vector<Num> out = room(loop.outputs[0], &domain);
  TRY_STATUS(
      evaluate(def.body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) { std::copy(v.begin(), v.end(), out.begin() + first); }));
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

Status Interpreter::run_reduction(const Loop& loop, const Reduction& def) {
  std::vector<int64_t> domain;
  std::vector<Num> out = room(loop.outputs[0], &domain);
  const std::vector<int64_t> inner = sizes(def.domain);
  const int64_t length = product(inner);
  domain.insert(domain.end(), inner.begin(), inner.end());
  Accumulator acc(def.op, def.body->dtype);
  if (length == 0) {
    for (Num& v : out) v = acc.result();
  }
  TRY_STATUS(evaluate(def.body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) {
    for (size_t i = 0; i < v.size(); ++i) {
      acc.add(v[i]);
      if (acc.count() < length) continue;
      out[static_cast<size_t>((first + static_cast<int64_t>(i)) / length)] = acc.result();
      acc = Accumulator(def.op, def.body->dtype);
    }
  }));
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

Status Interpreter::run_scan(const Loop& loop, const Scan& def) {
  std::vector<int64_t> domain;
  std::vector<Num> out = room(loop.outputs[0], &domain);
  const auto dim = static_cast<size_t>(def.dim);
  const int64_t stride = dense_strides(domain)[dim], length = domain[dim];
  const ReduceOp op = step_of(def.op);
  std::vector<Accumulator> acc(static_cast<size_t>(stride), Accumulator(op, def.body->dtype));
  TRY_STATUS(evaluate(def.body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) {
    for (size_t i = 0; i < v.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      Accumulator& a = acc[static_cast<size_t>(at % stride)];
      if (at / stride % length == 0) a = Accumulator(op, def.body->dtype);
      a.add(v[i]);
      out[static_cast<size_t>(at)] = a.result();
    }
  }));
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

Status Interpreter::run_concat(const Loop& loop, const Concat& def) {
  std::vector<int64_t> all;
  std::vector<Num> out = room(loop.outputs[0], &all);
  const auto dim = static_cast<size_t>(def.dim);
  const std::vector<int64_t> strides = dense_strides(all);
  const int64_t row = strides[dim] * all[dim];
  for (const Concat::Piece& piece : def.pieces) {
    std::vector<int64_t> domain = all;
    domain[dim] = evaluate_index(piece.size, symbol_of_);
    const int64_t begin = evaluate_index(piece.begin, symbol_of_) * strides[dim], run = domain[dim] * strides[dim];
    TRY_STATUS(evaluate(piece.body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) {
      for (size_t i = 0; i < v.size(); ++i) {
        const int64_t at = first + static_cast<int64_t>(i);
        out[static_cast<size_t>(at / run * row + begin + at % run)] = v[i];
      }
    }));
  }
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

// Sorted values move by no more than the largest error; places are sure where neighbours are further apart.
Status Interpreter::run_sort(const Loop& loop, const Sort& def) {
  std::vector<int64_t> all;
  std::vector<Num> values = room(loop.outputs[0], &all), places = room(loop.outputs[1]);
  const auto dim = static_cast<size_t>(def.dim);
  std::vector<int64_t> domain = all;
  domain[dim] = evaluate_index(def.length, symbol_of_);
  std::vector<Num> in(static_cast<size_t>(product(domain)));
  TRY_STATUS(
      evaluate(def.body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) { std::copy(v.begin(), v.end(), in.begin() + first); }));
  const bool floating = is_float(def.body->dtype);
  const int64_t length = domain[dim], kept = all[dim], stride = dense_strides(domain)[dim], rows = length == 0 ? 0 : product(domain) / length;
  std::vector<int64_t> order(static_cast<size_t>(length));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t base = row / stride * stride * length + row % stride, base_out = row / stride * stride * kept + row % stride;
    const auto at = [&](int64_t i) -> const Num& { return in[static_cast<size_t>(base + i * stride)]; };
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto less = [&](int64_t a, int64_t b) {
      if (!floating) return at(a).i < at(b).i;
      return std::isnan(at(b).f) ? !std::isnan(at(a).f) : at(a).f < at(b).f;
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return def.descending ? less(b, a) : less(a, b); });
    double error = 0;
    for (int64_t i = 0; i < length; ++i) error = std::max(error, at(i).e);
    for (int64_t k = 0; k < kept; ++k) {
      Num v = at(order[static_cast<size_t>(k)]);
      v.e = error;
      values[static_cast<size_t>(base_out + k * stride)] = v;
      places[static_cast<size_t>(base_out + k * stride)] = {0, order[static_cast<size_t>(k)], error > 0 ? kInfinity : 0};
    }
  }
  store(loop.outputs[0], std::move(values));
  store(loop.outputs[1], std::move(places));
  return ok_status();
}

Status Interpreter::run_compact(const Loop& loop, const Compact& def) {
  std::vector<Num> out = room(loop.outputs[0]);
  const std::vector<int64_t> domain = sizes({def.blocks, def.length});
  std::vector<Num> keep, value, start;
  const auto all = [&](Expr body, const std::vector<int64_t>& over, std::vector<Num>& into) {
    return evaluate(body, over, tensor_of_, symbol_of_, [&](int64_t, std::span<const Num> v) { into.insert(into.end(), v.begin(), v.end()); });
  };
  TRY_STATUS(all(def.keep, domain, keep));
  TRY_STATUS(all(def.value, domain, value));
  TRY_STATUS(all(def.start, {domain[0]}, start));
  double unsure = 0;
  for (const Num& k : keep) unsure = std::max(unsure, k.e > 0 ? kInfinity : 0);
  for (int64_t b = 0; b < domain[0]; ++b) {
    int64_t next = start[static_cast<size_t>(b)].i;
    for (int64_t j = 0; j < domain[1]; ++j) {
      const auto at = static_cast<size_t>(b * domain[1] + j);
      if (!keep[at].i) continue;
      if (next >= 0 && next < static_cast<int64_t>(out.size())) out[static_cast<size_t>(next)] = {0, value[at].i, std::max(unsure, value[at].e)};
      ++next;
    }
  }
  store(loop.outputs[0], std::move(out));
  return ok_status();
}

Result<std::vector<Tensor>> Interpreter::run_part(const RegionPart& part) {
  Interpreter inner(*part.program, symbols_, arithmetic_);
  for (const auto& [own, outer] : part.captures) inner.set(own, get(outer));
  std::vector<Tensor> results;
  for (const LoopOutput& out : part.program->outputs) {
    if (out.kind != LoopOutput::Kind::user) continue;
    TRY(const Tensor* t, inner.compute(out.source));
    results.push_back(*t);
  }
  return results;
}

// Which way a branch goes is taken as it is: a kernel that goes the other way shows in the results. A loop whose end is unsure gives anything.
Status Interpreter::run_region(const Loop& loop, const Region& def) {
  const auto is_true = [](const Tensor& t) { return t.at(0).i != 0; };
  if (def.kind == Region::Kind::branch) {
    TRY(std::vector<Tensor> results, run_part(def.parts[is_true(get(def.predicate)) ? 0 : 1]));
    for (size_t i = 0; i < results.size(); ++i) made_[loop.outputs[i]] = std::move(results[i]);
    return ok_status();
  }
  const size_t carried = def.initial.size();
  for (size_t i = 0; i < carried; ++i) made_[loop.outputs[i]] = Tensor(get(def.initial[i]));
  std::vector<std::vector<Num>> rows;
  for (size_t i = carried; i < loop.outputs.size(); ++i) rows.push_back(room(loop.outputs[i]));
  const int64_t steps = def.steps ? sizes({def.steps})[0] : INT64_MAX;
  bool unsure = false;  // how many steps there are
  for (int64_t step = 0; step < steps; ++step) {
    set_symbol(def.step, step);
    if (def.parts.size() > 1) {
      TRY(const std::vector<Tensor> goes_on, run_part(def.parts[1]));
      unsure = unsure || goes_on[0].at(0).e > 0;
      if (!is_true(goes_on[0])) break;
    }
    TRY(std::vector<Tensor> results, run_part(def.parts[0]));
    for (size_t i = 0; i < carried; ++i) made_[loop.outputs[i]] = std::move(results[i]);
    for (size_t i = carried; i < results.size(); ++i) {
      const int64_t elements = product(results[i].sizes);
      const std::vector<int64_t> dense = dense_strides(results[i].sizes);
      CHECK(results[i].strides == dense || elements <= 1, "a region's result that is not dense");
      for (int64_t e = 0; e < elements; ++e) rows[i - carried][static_cast<size_t>(step * elements + e)] = results[i].at(e);
    }
  }
  for (size_t i = carried; i < loop.outputs.size(); ++i) store(loop.outputs[i], std::move(rows[i - carried]));
  for (size_t i = 0; i < loop.outputs.size() && unsure; ++i) {
    const Tensor& t = get(loop.outputs[i]);
    std::vector<Num> values;
    for (int64_t n = 0; n < product(t.sizes); ++n) {
      int64_t rest = n, offset = 0;
      for (size_t d = t.sizes.size(); d-- > 0; rest /= t.sizes[d]) offset += rest % t.sizes[d] * t.strides[d];
      values.push_back(t.at(offset));
      values.back().e = kInfinity;
    }
    made_[loop.outputs[i]] = computed(t.dtype, t.sizes, std::move(values));
  }
  return ok_status();
}

}  // namespace coil::reference
