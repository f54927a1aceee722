#include "reference/evaluate.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "loop/block_code.h"
#include "ops/memory.h"

namespace coil::reference {
namespace {

constexpr int64_t kBlock = 256;
using Slot = std::vector<Num>;

using interpreter::BlockCode;
using interpreter::Instr;

class Evaluator {
 public:
  Evaluator(const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol) : domain_(domain), tensor_(tensor), symbol_(symbol) {}

  Status run(Expr body, const Sink& sink) {
    int64_t total = 1;
    for (int64_t s : domain_) total *= s;
    if (total == 0) return ok_status();
    const BlockCode code(body, symbol_);
    read_code(code);
    for (int64_t first = 0; first < total; first += kBlock) {
      const int64_t n = std::min(kBlock, total - first);
      for (const Instr& in : code.instructions) TRY_STATUS(step(in, first, n));
      sink(first, {slot(code.result()).data(), static_cast<size_t>(n)});
    }
    return ok_status();
  }

 private:
  Slot& slot(int i) { return slots_[static_cast<size_t>(i)]; }

  void read_code(const BlockCode& code) {
    slots_.assign(static_cast<size_t>(code.slots()), Slot(static_cast<size_t>(kBlock)));
    for (const auto& [at, value] : code.constants) {
      const bool real = is_float(value->dtype);
      std::ranges::fill(slot(at), Num{real ? value->as_double() : 0, real ? 0 : value->as_int(), 0});
    }
    for (Expr load : code.loads) {
      tensors_.push_back(&tensor_(BufferId(load->id)));
      CHECK(tensors_.back()->sizes.size() == load->args.size(), "load of a buffer of another rank");
    }
  }

  bool wanted(const Instr& in, size_t i) { return in.guard < 0 || slot(in.guard)[i].i != 0; }

  Status step(const Instr& in, int64_t first, int64_t count) {
    const auto n = static_cast<size_t>(count);
    Slot& result = slot(in.result);
    switch (in.kind) {
      case Instr::Kind::var: fill(in, first, count); break;
      case Instr::Kind::load: load(in, n); break;
      case Instr::Kind::checked_index: return check_index(in, n);
      case Instr::Kind::guard_and:
        for (size_t i = 0; i < n; ++i) result[i] = {0, slot(in.args[0])[i].i && slot(in.args[1])[i].i, 0};
        break;
      case Instr::Kind::cast:
        for (size_t i = 0; i < n; ++i) result[i] = convert_num(slot(in.args[0])[i], in.from, in.to);
        break;
      case Instr::Kind::op: operate(in, n); break;
    }
    return ok_status();
  }

  void fill(const Instr& in, int64_t first, int64_t n) {
    int64_t inner = 1;
    for (size_t v = static_cast<size_t>(in.id) + 1; v < domain_.size(); ++v) inner *= domain_[v];
    const int64_t size = domain_[static_cast<size_t>(in.id)];
    for (int64_t i = 0; i < n; ++i) slot(in.result)[static_cast<size_t>(i)] = {0, (first + i) / inner % size, 0};
  }

  // An index that errors may move reads anything.
  void load(const Instr& in, size_t n) {
    const Tensor& t = *tensors_[static_cast<size_t>(in.id)];
    Slot& result = slot(in.result);
    for (size_t i = 0; i < n; ++i) {
      if (!wanted(in, i)) {
        result[i] = {};
        continue;
      }
      int64_t offset = 0;
      bool moved = false;
      for (size_t d = 0; d < in.args.size(); ++d) {
        const Num& c = slot(in.args[d])[i];
        CHECK(c.i >= 0 && c.i < t.sizes[d], "a load lies outside its buffer");
        offset += c.i * t.strides[d];
        moved = moved || c.e > 0;
      }
      result[i] = t.at(offset);
      if (moved) result[i].e = std::numeric_limits<double>::infinity();
    }
  }

  Status check_index(const Instr& in, size_t n) {
    const Slot &value = slot(in.args[0]), &bound = slot(in.args[1]);
    for (size_t i = 0; i < n; ++i) {
      const bool asked = wanted(in, i);
      if (asked && (value[i].i < 0 || value[i].i >= bound[i].i)) {
        return Error{ErrorCode::input_value, fmt::format("index {} is out of range for size {}", value[i].i, bound[i].i), {}, {}};
      }
      slot(in.result)[i] = asked ? value[i] : Num{};
    }
    return ok_status();
  }

  // Indices are most of what is computed, and exact.
  bool operate_on_indices(const Instr& in, size_t n) {
    if (in.from != DType::index || (in.op != ScalarOp::iadd && in.op != ScalarOp::imul)) return false;
    Slot& result = slot(in.result);
    for (size_t i = 0; i < n; ++i) {
      int64_t v = slot(in.args[0])[i].i;
      double e = slot(in.args[0])[i].e;
      for (size_t k = 1; k < in.args.size(); ++k) {
        const Num& a = slot(in.args[k])[i];
        v = in.op == ScalarOp::iadd ? v + a.i : v * a.i;
        e += a.e;
      }
      result[i] = {0, v, e};
    }
    return true;
  }

  void operate(const Instr& in, size_t n) {
    if (operate_on_indices(in, n)) return;
    Slot& result = slot(in.result);
    std::vector<Num> args(in.args.size());
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < args.size(); ++k) args[k] = slot(in.args[k])[i];
      result[i] = apply(in.op, in.from, in.to, args);
    }
  }

  const std::vector<int64_t>& domain_;
  const TensorOf& tensor_;
  const SymbolOf& symbol_;
  std::vector<Slot> slots_;
  std::vector<const Tensor*> tensors_;
};

}  // namespace

Num Tensor::at(int64_t offset) const {
  if (computed) return (*computed)[static_cast<size_t>(offset)];
  return interpreter::with_type(memory.dtype, [&](auto type) -> Num {
    using T = decltype(type);
    const T v = interpreter::read_element<T>(memory.bytes.data() + memory.offset * static_cast<int64_t>(sizeof(T)), offset);
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, interpreter::Byte>) return {0, static_cast<int64_t>(v), 0};
    else return {static_cast<double>(v), 0, 0};
  });
}

Tensor exact(TensorData data) {
  Tensor t;
  t.dtype = data.dtype;
  t.sizes = data.sizes;
  t.strides = data.strides;
  t.memory = std::move(data);
  return t;
}

Tensor computed(DType dtype, std::vector<int64_t> sizes, std::vector<Num> values) {
  Tensor t;
  t.dtype = dtype;
  t.strides.resize(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) t.strides[i] = step;
  t.sizes = std::move(sizes);
  t.computed = std::make_shared<const std::vector<Num>>(std::move(values));
  return t;
}

Status evaluate(Expr body, const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol, const Sink& sink) {
  return Evaluator(domain, tensor, symbol).run(body, sink);
}

}  // namespace coil::reference
