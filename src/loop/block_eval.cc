#include "loop/block_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "loop/block_ops.h"
#include "ops/memory.h"

namespace coil::interpreter {
namespace {

struct Instr {
  enum class Kind : uint8_t { var, load, op, cast, checked_index, guard_and };
  Kind kind;
  ScalarOp op = ScalarOp::add;
  DType from = DType::f32, to = DType::f32;  // operands' and result's types
  int result = 0;
  std::vector<int> args;
  int guard = -1;  // load, checked_index: only where this slot is true
  int id = 0;      // variable, or number of the tensor
};

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
    result_ = compile(body, -1);
    is_float_ = is_float(body->dtype);
    if (find_affine()) return run_affine(sink);
    return run_general(sink);
  }

 private:
  // --- compilation
  struct Key {
    const ExprNode* node;
    int guard;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const { return std::hash<const void*>()(k.node) * 31 + static_cast<size_t>(k.guard + 1); }
  };

  int new_slot() {
    slots_.emplace_back(std::make_unique<Slot>());
    return static_cast<int>(slots_.size()) - 1;
  }

  int constant(Expr e) {
    const int slot = new_slot();
    for (int64_t i = 0; i < kBlock; ++i) {
      if (is_float(e->dtype)) slots_.back()->f[i] = e->as_double();
      else slots_.back()->i[i] = e->as_int();
    }
    return slot;
  }

  bool reads_data(Expr e) {
    auto [it, fresh] = reads_data_.try_emplace(e.node(), false);
    if (!fresh) return it->second;
    bool r = e->kind == ExprKind::load || e->is_op(ScalarOp::checked_index);
    for (Expr a : e->args) r = reads_data(a) || r;
    return reads_data_[e.node()] = r;
  }

  int compile(Expr e, int guard) {
    const Key key{e.node(), reads_data(e) ? guard : -1};
    // What was computed where an outer guard holds is right here too; a search's rounds, each within the last one's guard, would double otherwise.
    for (int outer = key.guard;; outer = outer_guard_.at(outer)) {
      if (auto it = done_.find({e.node(), outer}); it != done_.end()) return it->second;
      if (outer < 0) break;
    }
    const int slot = compile_new(e, key.guard);
    done_[key] = slot;
    return slot;
  }

  int compile_new(Expr e, int guard) {
    if (e->kind == ExprKind::constant) return constant(e);
    if (e->kind == ExprKind::symbol) return constant(e->pool->index(symbol_(SymbolId(e->id))));
    CHECK(e->kind != ExprKind::temp, "temporaries belong to kernels");
    Instr in{Instr::Kind::op};
    in.to = e->dtype;
    in.guard = guard;
    if (e->is_op(ScalarOp::masked)) return compile_masked(e, guard);
    for (Expr a : e->args) in.args.push_back(compile(a, guard));
    if (e->kind == ExprKind::var) {
      in.kind = Instr::Kind::var;
      in.id = e->id;
    } else if (e->kind == ExprKind::load) {
      in.kind = Instr::Kind::load;
      in.id = static_cast<int>(tensors_.size());
      tensors_.push_back(tensor_(BufferId(e->id)));
      loads_.push_back(e);
      CHECK(tensors_.back().data != nullptr && tensors_.back().sizes.size() == e->args.size(), "load of a buffer without data");
    } else if (e->op == ScalarOp::cast || e->op == ScalarOp::checked_index) {
      in.kind = e->op == ScalarOp::cast ? Instr::Kind::cast : Instr::Kind::checked_index;
      in.from = e->args[0]->dtype;
    } else {
      in.op = e->op;
      in.from = e->args[e->op == ScalarOp::select ? 1 : 0]->dtype;
    }
    return emit(std::move(in));
  }

  int compile_masked(Expr e, int guard) {
    const int condition = compile(e->args[0], guard);
    int inner = condition;
    if (guard >= 0) {
      Instr both{Instr::Kind::guard_and};
      both.args = {guard, condition};
      inner = emit(std::move(both));
    }
    outer_guard_.try_emplace(inner, guard);
    Instr in{Instr::Kind::op};
    in.op = ScalarOp::select;
    in.from = in.to = e->dtype;
    in.args = {condition, compile(e->args[1], inner), compile(e->args[2], guard)};
    return emit(std::move(in));
  }

  int emit(Instr in) {
    in.result = new_slot();
    code_.push_back(std::move(in));
    return code_.back().result;
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
  std::unordered_map<Key, int, KeyHash> done_;
  std::unordered_map<int, int> outer_guard_;  // a guard, and the one that it stands within (-1: none)
  std::unordered_map<const ExprNode*, bool> reads_data_;
  int result_ = 0;
  bool is_float_ = false;
};

}  // namespace

Status evaluate_blocks(Expr body, const std::vector<int64_t>& domain, const TensorOf& tensor, const SymbolOf& symbol,
                       FunctionRef<void(const BlockView&)> sink) {
  return Evaluator(domain, tensor, symbol).run(body, sink);
}

}  // namespace coil::interpreter
