#include "loop/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "loop/accumulator.h"
#include "loop/templates/template.h"
#include "ops/memory.h"

namespace coil {
namespace {

using interpreter::Accumulator;
using interpreter::BlockView;
using interpreter::write_block;

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

}  // namespace

Interpreter::Interpreter(const LoopProgram& program, std::vector<int64_t> symbols)
    : program_(program), symbols_(std::move(symbols)), values_(program.buffers.size()) {
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const BufferInfo::Kind kind = program.buffers[b].kind;
    if (kind == BufferInfo::Kind::constant || kind == BufferInfo::Kind::state) values_[b] = program.buffers[b].data;
  }
  tensor_of_ = [this](BufferId id) {
    const TensorData& d = get(id);
    interpreter::Tensor t{d.dtype, d.bytes.data() + d.offset * byte_size(d.dtype), d.sizes, d.strides};
    static const uint8_t nothing = 0;
    if (d.bytes.empty()) t.data = &nothing;  // an empty tensor has no storage, and no element is read
    return t;
  };
  symbol_of_ = [this](SymbolId id) {
    CHECK(id.valid() && static_cast<size_t>(id.index) < symbols_.size(), "a symbol without a value");
    return symbols_[static_cast<size_t>(id.index)];
  };
}

void Interpreter::set(BufferId buffer, TensorData data) { values_.at(static_cast<size_t>(buffer.index)) = std::move(data); }

const TensorData& Interpreter::get(BufferId buffer) const {
  const std::optional<TensorData>& v = values_.at(static_cast<size_t>(buffer.index));
  CHECK(v.has_value(), "buffer '" + program_.buffer(buffer).name + "' has no contents");
  return *v;
}

std::vector<int64_t> Interpreter::sizes(const std::vector<Expr>& exprs) const {
  std::vector<int64_t> result;
  for (Expr e : exprs) result.push_back(evaluate_index(e, symbol_of_));
  return result;
}

uint8_t* Interpreter::allocate(BufferId buffer) {
  const BufferInfo& info = program_.buffer(buffer);
  TensorData d;
  d.dtype = info.dtype;
  d.sizes = sizes(info.sizes);
  d.strides = dense_strides(d.sizes);
  auto storage = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(product(d.sizes) * byte_size(d.dtype)));
  uint8_t* memory = storage->data();
  d.bytes = {storage->data(), storage->size()};
  d.owner = std::move(storage);
  set(buffer, std::move(d));
  return memory;
}

Status Interpreter::evaluate(Expr body, const std::vector<int64_t>& domain, FunctionRef<void(const BlockView&)> sink) {
  return interpreter::evaluate_blocks(body, domain, tensor_of_, symbol_of_, sink);
}

Status Interpreter::run(const Loop& loop) {
  if (const Pointwise* def = std::get_if<Pointwise>(&loop.def)) {
    const DType dtype = program_.buffer(loop.outputs[0]).dtype;
    uint8_t* memory = allocate(loop.outputs[0]);
    return evaluate(def->body, get(loop.outputs[0]).sizes, [&](const BlockView& b) { write_block(dtype, memory, b.first, b, 0, b.count); });
  }
  if (const Reduction* def = std::get_if<Reduction>(&loop.def)) return run_reduction(loop, *def);
  if (const Scan* def = std::get_if<Scan>(&loop.def)) return run_scan(loop, *def);
  if (const Concat* def = std::get_if<Concat>(&loop.def)) return run_concat(loop, *def);
  if (const Sort* def = std::get_if<Sort>(&loop.def)) return run_sort(loop, *def);
  if (const Library* def = std::get_if<Library>(&loop.def)) {
    return Error{ErrorCode::unsupported_feature, "the interpreter does not call the library routine " + def->routine, {}, {}};
  }
  if (const UserCall* def = std::get_if<UserCall>(&loop.def)) {
    return Error{ErrorCode::unsupported_feature, "the interpreter does not run the user kernel " + def->kernel->name, {}, {}};
  }
  if (const Compact* def = std::get_if<Compact>(&loop.def)) return run_compact(loop, *def);
  if (const ReadSize* def = std::get_if<ReadSize>(&loop.def)) return run_read(loop, *def);
  if (const Region* def = std::get_if<Region>(&loop.def)) return run_region(loop, *def);
  Status status = ok_status();
  const bool ran = visit_template(loop.def, [&](const auto& def) { status = run_template(loop, def); });
  CHECK(ran, "a definition that the interpreter does not know");
  return status;
}

Status Interpreter::run_reduction(const Loop& loop, const Reduction& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  std::vector<int64_t> domain = get(loop.outputs[0]).sizes;
  const int64_t results = product(domain);
  const std::vector<int64_t> inner = sizes(def.domain);
  const int64_t length = product(inner);
  domain.insert(domain.end(), inner.begin(), inner.end());
  Accumulator acc{def.op, is_float(def.body->dtype), def.body->dtype};
  acc.start();
  if (length == 0) {
    for (int64_t r = 0; r < results; ++r) acc.write(dtype, memory, r);
    return ok_status();
  }
  return evaluate(def.body, domain, [&](const BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      b.floats ? acc.add(b.floats[i]) : acc.add(b.integers[i]);
      if (acc.seen == length) {
        acc.write(dtype, memory, (b.first + i) / length);
        acc.start();
      }
    }
  });
}

Status Interpreter::run_concat(const Loop& loop, const Concat& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  const int64_t row = out.strides[dim] * out.sizes[dim];  // one step of the dimensions before
  for (const Concat::Piece& piece : def.pieces) {
    std::vector<int64_t> domain = out.sizes;
    domain[dim] = evaluate_index(piece.size, symbol_of_);
    const int64_t begin = evaluate_index(piece.begin, symbol_of_) * out.strides[dim], run = domain[dim] * out.strides[dim];
    TRY_STATUS(evaluate(piece.body, domain, [&](const BlockView& b) {
      for (int64_t i = 0; i < b.count;) {
        const int64_t at = b.first + i, n = std::min(b.count - i, run - at % run);
        write_block(dtype, memory, at / run * row + begin + at % run, b, i, n);
        i += n;
      }
    }));
  }
  return ok_status();
}

Status Interpreter::run_scan(const Loop& loop, const Scan& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* memory = allocate(loop.outputs[0]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  const int64_t stride = out.strides[dim], length = out.sizes[dim];
  const ReduceOp op = step_of(def.op);
  std::vector<Accumulator> acc(static_cast<size_t>(stride), Accumulator{op, is_float(def.body->dtype), def.body->dtype});
  return evaluate(def.body, out.sizes, [&](const BlockView& b) {
    for (int64_t i = 0; i < b.count; ++i) {
      const int64_t at = b.first + i;
      Accumulator& a = acc[static_cast<size_t>(at % stride)];
      if (at / stride % length == 0) a.start();
      b.floats ? a.add(b.floats[i]) : a.add(b.integers[i]);
      a.write(dtype, memory, at);
    }
  });
}

Status Interpreter::run_sort(const Loop& loop, const Sort& def) {
  const DType dtype = program_.buffer(loop.outputs[0]).dtype;
  uint8_t* values = allocate(loop.outputs[0]);
  uint8_t* numbers = allocate(loop.outputs[1]);
  const TensorData& out = get(loop.outputs[0]);
  const size_t dim = static_cast<size_t>(def.dim);
  std::vector<int64_t> domain = out.sizes;
  domain[dim] = evaluate_index(def.length, symbol_of_);
  const bool floating = is_float(def.body->dtype);
  std::vector<double> f;
  std::vector<int64_t> n;
  TRY_STATUS(evaluate(def.body, domain, [&](const BlockView& b) {
    if (floating) f.insert(f.end(), b.floats, b.floats + b.count);
    else n.insert(n.end(), b.integers, b.integers + b.count);
  }));
  const int64_t length = domain[dim], kept = out.sizes[dim], stride = dense_strides(domain)[dim];
  const int64_t rows = length == 0 ? 0 : product(domain) / length;
  std::vector<int64_t> order(static_cast<size_t>(length));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t base = row / stride * stride * length + row % stride, base_out = row / stride * stride * kept + row % stride;
    std::iota(order.begin(), order.end(), int64_t{0});
    auto less = [&](int64_t a, int64_t b) {  // NaN is the largest
      if (!floating) return n[static_cast<size_t>(base + a * stride)] < n[static_cast<size_t>(base + b * stride)];
      const double x = f[static_cast<size_t>(base + a * stride)], y = f[static_cast<size_t>(base + b * stride)];
      return std::isnan(y) ? !std::isnan(x) : x < y;
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return def.descending ? less(b, a) : less(a, b); });
    for (int64_t k = 0; k < kept; ++k) {
      const size_t from = static_cast<size_t>(base + order[static_cast<size_t>(k)] * stride);
      BlockView one;
      if (floating) one.floats = &f[from];
      else one.integers = &n[from];
      write_block(dtype, values, base_out + k * stride, one, 0, 1);
      one = {0, 1, nullptr, &order[static_cast<size_t>(k)]};
      write_block(DType::i64, numbers, base_out + k * stride, one, 0, 1);
    }
  }
  return ok_status();
}

}  // namespace coil
