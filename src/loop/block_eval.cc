#include "loop/block_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "loop/block_code.h"
#include "loop/block_ops.h"
#include "ops/memory.h"

namespace coil::interpreter {
namespace {

// A load whose place moves by a fixed stride with each variable.
struct AffineLoad {
  int64_t base = 0;
  std::vector<int64_t> strides;
};

class Evaluator {
 public:
  Evaluator(const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol) : domain_(domain), tensor_(tensor), symbol_(symbol) {}

  Status run(Expr body, FunctionRef<void(const BlockView&)> sink) {
    for (int64_t s : domain_) {
      if (s == 0) return ok_status();
    }
    BlockCode code(body, symbol_);
    read_code(code);
    result_ = code.result();
    is_float_ = is_float(body->dtype);
    if (find_affine()) return run_affine(sink);
    return run_general(sink);
  }

 private:
  void read_code(BlockCode& code) {
    for (int i = 0; i < code.slots(); ++i) slots_.emplace_back(std::make_unique<Slot>());
    for (const BlockCode::Constant& c : code.constants) {
      Slot& slot = *slots_[static_cast<size_t>(c.slot)];
      if (is_float(c.value->dtype)) std::fill_n(slot.f, kBlock, c.value->as_double());
      else std::fill_n(slot.i, kBlock, c.value->as_int());
    }
    for (Expr load : code.loads) {
      tensors_.push_back(tensor_(BufferId(load->id)));
      CHECK(tensors_.back().data != nullptr && tensors_.back().sizes.size() == load->args.size(), "load of a buffer without data");
    }
    loads_ = std::move(code.loads);
    code_ = std::move(code.instructions);
  }

  // --- the fast way: all loads affine, variables used nowhere else
  bool find_affine() {
    for (const Instr& in : code_) {
      if (in.kind == Instr::Kind::checked_index || in.kind == Instr::Kind::guard_and) return false;
      if (in.kind == Instr::Kind::load && in.guard >= 0) return false;
      const bool from_index = in.kind != Instr::Kind::var && in.kind != Instr::Kind::load && in.from == DType::index;
      if (from_index && in.to != DType::index) return false;  // an index becomes a value
    }
    for (size_t l = 0; l < loads_.size(); ++l) {
      std::optional<AffineLoad> a = affine(loads_[l], tensors_[l]);
      if (!a) return false;
      affine_.push_back(std::move(*a));
    }
    std::erase_if(code_, [](const Instr& in) { return in.kind == Instr::Kind::var || (in.kind == Instr::Kind::op && in.to == DType::index); });
    return true;
  }

  std::optional<AffineLoad> affine(Expr load, const Tensor& tensor) {
    AffineLoad r{0, std::vector<int64_t>(domain_.size(), 0)};
    for (size_t d = 0; d < load->args.size(); ++d) {
      Expr c = load->args[d];
      int64_t low = 0, high = 0;
      for (size_t v = 0; v < domain_.size(); ++v) {
        if (!depends_on_var(c, static_cast<int32_t>(v))) continue;
        std::optional<Affine> split = as_affine(c, static_cast<int32_t>(v));
        if (!split || any_of(split->coefficient, [](Expr x) { return x->kind == ExprKind::var; })) return std::nullopt;
        const int64_t step = evaluate_index(split->coefficient, symbol_);
        r.strides[v] += step * tensor.strides[d];
        (step < 0 ? low : high) += step * (domain_[v] - 1);
        c = split->base;
      }
      if (any_of(c, [](Expr x) { return x->kind == ExprKind::var || x->kind == ExprKind::load; })) return std::nullopt;
      const int64_t base = evaluate_index(c, symbol_);
      CHECK(base + low >= 0 && base + high < tensor.sizes[d], "a load lies outside its buffer");
      r.base += base * tensor.strides[d];
    }
    return r;
  }

  Status run_affine(FunctionRef<void(const BlockView&)> sink) {
    // Neighbouring dimensions through which every load walks evenly are one.
    std::vector<int64_t> sizes;
    std::vector<std::vector<int64_t>> strides(affine_.size());
    for (size_t v = 0; v < domain_.size(); ++v) {
      if (domain_[v] == 1) continue;
      bool joins = !sizes.empty();
      for (size_t l = 0; joins && l < affine_.size(); ++l) joins = strides[l].back() == affine_[l].strides[v] * domain_[v];
      if (joins) {
        sizes.back() *= domain_[v];
        for (size_t l = 0; l < affine_.size(); ++l) strides[l].back() = affine_[l].strides[v];
      } else {
        sizes.push_back(domain_[v]);
        for (size_t l = 0; l < affine_.size(); ++l) strides[l].push_back(affine_[l].strides[v]);
      }
    }
    if (sizes.empty()) {
      sizes.push_back(1);
      for (auto& s : strides) s.push_back(0);
    }
    std::vector<int64_t> at(sizes.size(), 0), place(affine_.size());
    for (size_t l = 0; l < affine_.size(); ++l) place[l] = affine_[l].base;
    const size_t inner = sizes.size() - 1;
    for (int64_t first = 0;;) {
      for (int64_t begin = 0; begin < sizes[inner]; begin += kBlock) {
        const int64_t n = std::min(kBlock, sizes[inner] - begin);
        for (const Instr& in : code_) {
          if (in.kind == Instr::Kind::load) {
            const size_t l = static_cast<size_t>(in.id);
            load_strided(tensors_[l], place[l] + begin * strides[l][inner], strides[l][inner], n, *slots_[static_cast<size_t>(in.result)]);
          } else {
            step(in, n);
          }
        }
        give(sink, first, n);
        first += n;
      }
      size_t d = inner;
      while (d-- > 0) {
        ++at[d];
        for (size_t l = 0; l < place.size(); ++l) place[l] += strides[l][d];
        if (at[d] < sizes[d]) break;
        for (size_t l = 0; l < place.size(); ++l) place[l] -= strides[l][d] * sizes[d];
        at[d] = 0;
      }
      if (d == SIZE_MAX) return ok_status();
    }
  }

  // --- the general way: every variable as an array
  Status run_general(FunctionRef<void(const BlockView&)> sink) {
    int64_t total = 1;
    for (int64_t s : domain_) total *= s;
    for (int64_t first = 0; first < total; first += kBlock) {
      const int64_t n = std::min(kBlock, total - first);
      fill_vars(first, n);
      for (const Instr& in : code_) {
        if (in.kind == Instr::Kind::load) gather(in, n);
        else if (in.kind == Instr::Kind::checked_index) TRY_STATUS(check_index(in, n));
        else if (in.kind == Instr::Kind::guard_and) both(in, n);
        else if (in.kind != Instr::Kind::var) step(in, n);
      }
      give(sink, first, n);
    }
    return ok_status();
  }

  void fill_vars(int64_t first, int64_t n) {
    for (const Instr& in : code_) {
      if (in.kind != Instr::Kind::var) continue;
      int64_t inner = 1;
      for (size_t v = static_cast<size_t>(in.id) + 1; v < domain_.size(); ++v) inner *= domain_[v];
      const int64_t size = domain_[static_cast<size_t>(in.id)];
      int64_t value = first / inner % size, left = inner - first % inner;
      int64_t* out = slots_[static_cast<size_t>(in.result)]->i;
      for (int64_t i = 0; i < n; ++i) {
        out[i] = value;
        if (--left == 0) {
          left = inner;
          value = value + 1 == size ? 0 : value + 1;
        }
      }
    }
  }

  void gather(const Instr& in, int64_t n) {
    const Tensor& t = tensors_[static_cast<size_t>(in.id)];
    int64_t offsets[kBlock];
    bool inside[kBlock];
    const int64_t* guard = in.guard >= 0 ? slots_[static_cast<size_t>(in.guard)]->i : nullptr;
    for (int64_t i = 0; i < n; ++i) {
      offsets[i] = 0;
      inside[i] = true;
    }
    for (size_t d = 0; d < in.args.size(); ++d) {
      const int64_t* c = slots_[static_cast<size_t>(in.args[d])]->i;
      const int64_t size = t.sizes[d], stride = t.strides[d];
      for (int64_t i = 0; i < n; ++i) {
        offsets[i] += c[i] * stride;
        inside[i] = inside[i] && c[i] >= 0 && c[i] < size;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      if (guard && !guard[i]) offsets[i] = -1;
      else CHECK(inside[i], "a load lies outside its buffer");
    }
    load_gathered(t, offsets, n, *slots_[static_cast<size_t>(in.result)]);
  }

  Status check_index(const Instr& in, int64_t n) {
    const int64_t* value = slots_[static_cast<size_t>(in.args[0])]->i;
    const int64_t* bound = slots_[static_cast<size_t>(in.args[1])]->i;
    const int64_t* guard = in.guard >= 0 ? slots_[static_cast<size_t>(in.guard)]->i : nullptr;
    int64_t* out = slots_[static_cast<size_t>(in.result)]->i;
    for (int64_t i = 0; i < n; ++i) {
      const bool wanted = !guard || guard[i];
      if (wanted && (value[i] < 0 || value[i] >= bound[i])) {
        return Error{ErrorCode::input_value, fmt::format("index {} is out of range for size {}", value[i], bound[i]), {}, {}};
      }
      out[i] = wanted ? value[i] : 0;
    }
    return ok_status();
  }

  void both(const Instr& in, int64_t n) {
    const int64_t *a = slots_[static_cast<size_t>(in.args[0])]->i, *b = slots_[static_cast<size_t>(in.args[1])]->i;
    int64_t* out = slots_[static_cast<size_t>(in.result)]->i;
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] && b[i];
  }

  void step(const Instr& in, int64_t n) {
    const Slot* args[8] = {};
    Slot& result = *slots_[static_cast<size_t>(in.result)];
    if (in.args.size() > 8) return long_step(in, n);
    for (size_t i = 0; i < in.args.size(); ++i) args[i] = slots_[static_cast<size_t>(in.args[i])].get();
    if (in.kind == Instr::Kind::cast) block_cast(in.from, in.to, *args[0], n, result);
    else block_op(in.op, in.from, args, in.args.size(), n, result);
  }

  // Sums and products of many index terms, pair by pair.
  void long_step(const Instr& in, int64_t n) {
    Slot& result = *slots_[static_cast<size_t>(in.result)];
    result = *slots_[static_cast<size_t>(in.args[0])];
    for (size_t k = 1; k < in.args.size(); ++k) {
      const Slot* pair[] = {&result, slots_[static_cast<size_t>(in.args[k])].get()};
      block_op(in.op, in.from, pair, 2, n, result);
    }
  }

  void give(FunctionRef<void(const BlockView&)> sink, int64_t first, int64_t n) {
    const Slot& s = *slots_[static_cast<size_t>(result_)];
    sink({first, n, is_float_ ? s.f : nullptr, is_float_ ? nullptr : s.i});
  }

  const std::vector<int64_t>& domain_;
  const TensorOf& tensor_;
  const SymbolOf& symbol_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Instr> code_;
  std::vector<Tensor> tensors_;
  std::vector<Expr> loads_;
  std::vector<AffineLoad> affine_;
  int result_ = 0;
  bool is_float_ = false;
};

}  // namespace

Status evaluate_blocks(Expr body, const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol,
                       FunctionRef<void(const BlockView&)> sink) {
  return Evaluator(domain, tensor, symbol).run(body, sink);
}

}  // namespace coil::interpreter
