// Loop kernels and sorts of plans: statement by statement, each over all points.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "loop/accumulator.h"
#include "loop/block_eval.h"
#include "schedule/interpret_plan.h"
#include "schedule/kernel_buffers.h"

namespace coil {
namespace {

using interpreter::BlockView;

// Temps are read as loads of buffers with these numbers, behind those of worker scratch.
constexpr int32_t kTempBase = 1 << 29;
constexpr int64_t kMostParts = 64;  // of a kernel that reads what it writes

int64_t product(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

// Values at all points of a domain, in row-major order.
struct PointValues {
  std::vector<double> f;
  std::vector<int64_t> i;
};

// Dense memory of a temp, or of a row of worker scratch for each outer point.
struct Own {
  DType dtype = DType::f32;
  std::vector<uint8_t> bytes;

  Own() = default;
  Own(DType type, int64_t count) : dtype(type), bytes(static_cast<size_t>(std::max<int64_t>(count, 1) * byte_size(type)), 0xff) {}
  interpreter::Tensor tensor() const { return {dtype, bytes.data(), {static_cast<int64_t>(bytes.size()) / byte_size(dtype)}, {1}}; }
};

// The statements of a kernel at some of its points: those of `count` values of the first outer axis, from `begin` on.
class Part {
 public:
  Part(PlanMemory& memory, const LoopKernel& kernel, int64_t begin, int64_t count) : memory_(memory), kernel_(kernel), begin_(begin) {
    for (const Axis& axis : kernel.axes) all_.push_back(memory.value(axis.size));
    if (kernel.num_outer > 0) all_[0] = count;
    outer_.assign(all_.begin(), all_.begin() + kernel.num_outer);
    for (const WorkerScratch& s : kernel.scratch) scratch_.emplace_back(s.dtype, product(outer_) * memory.value(s.elements));
  }

  void know(TempId temp, Own values) { temps_[temp.index] = {std::move(values), false}; }

  Status run() {
    for (const Stmt& s : kernel_.stmts) {
      switch (s.kind) {
        case Stmt::Kind::let: TRY_STATUS(define(s)); break;
        case Stmt::Kind::reduce: TRY_STATUS(reduce(s)); break;
        case Stmt::Kind::scan: TRY_STATUS(scan(s)); break;
        case Stmt::Kind::store: TRY_STATUS(store(s)); break;
      }
    }
    return ok_status();
  }

 private:
  struct Temp {
    Own values;
    bool inner = false;
  };

  ExprPool& pool() const { return memory_.pool(); }
  const std::vector<int64_t>& domain(const Stmt& s) const { return s.inner ? all_ : outer_; }

  // The number of a point among those of this part: of the outer axes, or of all.
  Expr number(bool inner) const {
    const std::vector<int64_t>& sizes = inner ? all_ : outer_;
    Expr sum = pool().index(0);
    for (size_t d = 0; d < sizes.size(); ++d) sum = sum * sizes[d] + pool().var(static_cast<int32_t>(d));
    return sum;
  }

  // In the part's own points, temps and scratch memory as what they are in.
  Expr here(Expr e) const {
    if (begin_ != 0) {
      std::vector<Expr> shifted{pool().var(0) + begin_};
      e = substitute_vars(e, shifted);
    }
    return rewrite(e, [&](Expr leaf) -> Expr {
      if (leaf->kind == ExprKind::temp) {
        const auto found = temps_.find(leaf->id);
        CHECK(found != temps_.end(), "a temp that is not computed");
        return pool().load(BufferId(kTempBase + leaf->id), leaf->dtype, {number(found->second.inner)});
      }
      if (leaf->kind != ExprKind::load || leaf->id < kScratchBase) return Expr();
      const WorkerScratch& s = kernel_.scratch.at(static_cast<size_t>(leaf->id - kScratchBase));
      return pool().load(BufferId(leaf->id), s.dtype, {number(false) * memory_.value(s.elements) + leaf->args[0]});
    });
  }

  interpreter::Tensor tensor(BufferId id) {
    if (id.index >= kTempBase) return temps_.at(id.index - kTempBase).values.tensor();
    if (id.index >= kScratchBase) return scratch_.at(static_cast<size_t>(id.index - kScratchBase)).tensor();
    return memory_.linear(id);
  }

  Status evaluate(Expr body, const std::vector<int64_t>& domain, FunctionRef<void(const BlockView&)> sink) {
    return interpreter::evaluate_blocks(body, domain, [this](BufferId id) { return tensor(id); }, memory_.symbol_of(), sink);
  }

  Result<PointValues> values(Expr body, const std::vector<int64_t>& domain) {
    PointValues out;
    TRY_STATUS(evaluate(body, domain, [&](const BlockView& b) {
      if (b.floats) out.f.insert(out.f.end(), b.floats, b.floats + b.count);
      else out.i.insert(out.i.end(), b.integers, b.integers + b.count);
    }));
    return out;
  }

  Status define(const Stmt& s) {
    Own made(s.dtype, product(domain(s)));
    TRY_STATUS(evaluate(here(s.value), domain(s), [&](const BlockView& b) { interpreter::write_block(s.dtype, made.bytes.data(), b.first, b, 0, b.count); }));
    temps_[s.temp.index] = {std::move(made), s.inner};
    return ok_status();
  }

  Status reduce(const Stmt& s) {
    const int64_t results = product(outer_), length = product(std::span(all_).subspan(outer_.size()));
    Own made(s.dtype, results);
    interpreter::Accumulator acc{s.op, is_float(s.value->dtype), s.value->dtype};
    acc.start();
    for (int64_t r = 0; length == 0 && r < results; ++r) acc.write(s.dtype, made.bytes.data(), r);
    TRY_STATUS(evaluate(here(s.value), all_, [&](const BlockView& b) {
      for (int64_t i = 0; i < b.count; ++i) {
        b.floats ? acc.add(b.floats[i]) : acc.add(b.integers[i]);
        if (acc.seen < length) continue;
        acc.write(s.dtype, made.bytes.data(), (b.first + i) / length);
        acc.start();
      }
    }));
    temps_[s.temp.index] = {std::move(made), false};
    return ok_status();
  }

  Status scan(const Stmt& s) {
    const int64_t length = product(std::span(all_).subspan(outer_.size()));
    Own made(s.dtype, product(all_));
    interpreter::Accumulator acc{s.op, is_float(s.value->dtype), s.value->dtype};
    TRY_STATUS(evaluate(here(s.value), all_, [&](const BlockView& b) {
      for (int64_t i = 0; i < b.count; ++i) {
        if ((b.first + i) % length == 0) acc.start();
        b.floats ? acc.add(b.floats[i]) : acc.add(b.integers[i]);
        acc.write(s.dtype, made.bytes.data(), b.first + i);
      }
    }));
    temps_[s.temp.index] = {std::move(made), true};
    return ok_status();
  }

  // Where the condition does not hold, neither the offset nor the value has to be in range.
  Status store(const Stmt& s) {
    const Expr as_number = pool().cast(here(s.offset), DType::i64), none = pool().constant_int(0, DType::i64);
    const Expr condition = s.condition ? here(s.condition) : Expr();
    Expr value = here(s.value), offset = as_number;
    PointValues wanted;
    if (condition) {
      TRY(wanted, values(condition, domain(s)));
      offset = pool().op(ScalarOp::masked, {condition, as_number, none});
      const Expr zero = is_float(value->dtype) ? pool().constant(0, value->dtype) : pool().constant_int(0, value->dtype);
      value = pool().op(ScalarOp::masked, {condition, value, zero});
    }
    TRY(const PointValues places, values(offset, domain(s)));
    TRY(const PointValues made, values(value, domain(s)));
    const bool own = s.scratch >= 0;
    const interpreter::Tensor to = own ? scratch_.at(static_cast<size_t>(s.scratch)).tensor() : memory_.linear(s.buffer);
    const int64_t elements = own ? memory_.value(kernel_.scratch[static_cast<size_t>(s.scratch)].elements) : to.sizes[0];
    const int64_t inner = product(std::span(all_).subspan(outer_.size()));
    for (size_t p = 0; p < places.i.size(); ++p) {
      if (condition && !wanted.i[p]) continue;
      int64_t at = places.i[p];
      CHECK(at >= 0 && at < elements, fmt::format("a store to element {} of {}", at, elements));
      if (own) at += static_cast<int64_t>(p) / (s.inner ? std::max<int64_t>(inner, 1) : 1) * elements;
      const BlockView one{0, 1, made.f.empty() ? nullptr : &made.f[p], made.f.empty() ? &made.i[p] : nullptr};
      interpreter::write_block(to.dtype, const_cast<uint8_t*>(to.data), at, one, 0, 1);
    }
    return ok_status();
  }

  PlanMemory& memory_;
  const LoopKernel& kernel_;
  const int64_t begin_;
  std::vector<int64_t> outer_, all_;
  std::unordered_map<int32_t, Temp> temps_;
  std::vector<Own> scratch_;
};

// Whether memory that the kernel writes is memory that it reads: of the same buffer, or of another one that has the same place.
bool reads_what_it_writes(PlanMemory& memory, const LoopKernel& kernel) {
  Kernel k;
  k.def = kernel;
  const KernelBuffers used = buffers_of(k);
  for (BufferId w : used.writes) {
    for (BufferId r : used.reads) {
      const PlanMemory::Piece to = memory.piece(w), from = memory.piece(r);
      if (to.data < from.data + from.bytes && from.data < to.data + to.bytes) return true;
    }
  }
  return false;
}

}  // namespace

// A kernel that reads what it writes runs in parts, the last ones first, so that a value which another point needs is gone when that is computed.
Status run_loop_kernel(PlanMemory& memory, const LoopKernel& kernel) {
  const int64_t size = kernel.num_outer > 0 ? memory.value(kernel.axes[0].size) : 1;
  const int64_t count = reads_what_it_writes(memory, kernel) ? std::max<int64_t>((size + kMostParts - 1) / kMostParts, 1) : std::max<int64_t>(size, 1);
  if (size <= 0) return ok_status();
  for (int64_t begin = (size - 1) / count * count; begin >= 0; begin -= count) TRY_STATUS(Part(memory, kernel, begin, std::min(count, size - begin)).run());
  return ok_status();
}

Status run_statements(PlanMemory& memory, const std::vector<Expr>& sizes, const std::vector<Stmt>& stmts, KnownTemp known) {
  LoopKernel kernel;
  for (Expr size : sizes) kernel.axes.push_back({size, ""});
  kernel.num_outer = static_cast<int>(sizes.size());
  kernel.stmts = stmts;
  Part part(memory, kernel, 0, sizes.empty() ? 1 : memory.value(sizes[0]));
  Own values;
  values.dtype = known.dtype;
  values.bytes = std::move(known.bytes);
  part.know(known.temp, std::move(values));
  return part.run();
}

Status run_sort_kernel(PlanMemory& memory, const SortKernel& k) {
  const interpreter::TensorOf tensor = [&](BufferId id) { return memory.linear(id); };
  const auto values = [&](Expr body, const std::vector<int64_t>& domain) -> Result<PointValues> {
    PointValues out;
    TRY_STATUS(interpreter::evaluate_blocks(body, domain, tensor, memory.symbol_of(), [&](const BlockView& b) {
      if (b.floats) out.f.insert(out.f.end(), b.floats, b.floats + b.count);
      else out.i.insert(out.i.end(), b.integers, b.integers + b.count);
    }));
    return out;
  };
  std::vector<int64_t> kept = memory.values(k.sizes), domain = kept;
  const int64_t length = memory.value(k.def.length);
  const size_t dim = static_cast<size_t>(k.def.dim);
  if (!domain.empty()) domain[dim] = length;
  TRY(const PointValues from, values(k.body, domain));
  TRY(const PointValues value_places, values(memory.pool().cast(k.values_offset, DType::i64), kept));
  TRY(const PointValues index_places, values(memory.pool().cast(k.indices_offset, DType::i64), kept));
  const bool floating = is_float(k.body->dtype);
  const int64_t rest = domain.empty() ? 1 : product(std::span(domain).subspan(dim + 1)), count = domain.empty() ? 1 : kept[dim];
  const interpreter::Tensor to = memory.linear(k.values), numbers = memory.linear(k.indices);
  std::vector<int64_t> order(static_cast<size_t>(length));
  for (int64_t row = 0; row < (length == 0 ? 0 : product(domain) / length); ++row) {
    const int64_t base = row / rest * rest * length + row % rest, base_out = row / rest * rest * count + row % rest;
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto at = [&](int64_t i) { return static_cast<size_t>(base + i * rest); };
    const auto less = [&](int64_t a, int64_t b) {  // NaN is the largest
      if (!floating) return from.i[at(a)] < from.i[at(b)];
      return std::isnan(from.f[at(b)]) ? !std::isnan(from.f[at(a)]) : from.f[at(a)] < from.f[at(b)];
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return k.def.descending ? less(b, a) : less(a, b); });
    for (int64_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(base_out + i * rest);
      const size_t element = at(order[static_cast<size_t>(i)]);
      const int64_t to_value = value_places.i[place], to_index = index_places.i[place];
      CHECK(to_value >= 0 && to_value < to.sizes[0] && to_index >= 0 && to_index < numbers.sizes[0], "a store of sorted elements outside of their buffers");
      const BlockView value{0, 1, floating ? &from.f[element] : nullptr, floating ? nullptr : &from.i[element]};
      interpreter::write_block(to.dtype, const_cast<uint8_t*>(to.data), to_value, value, 0, 1);
      interpreter::write_block(DType::i64, const_cast<uint8_t*>(numbers.data), to_index, {0, 1, nullptr, &order[static_cast<size_t>(i)]}, 0, 1);
    }
  }
  return ok_status();
}

}  // namespace coil
