// A body as a list of instructions, each for a block of points: what the evaluators of bodies run. A subexpression is computed once, and what stands
// behind a condition (`masked`) reads and checks only where the condition holds.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "loop/loop.h"

namespace coil::interpreter {

struct Instr {
  enum class Kind : uint8_t { var, load, op, cast, checked_index, guard_and };
  Kind kind;
  ScalarOp op = ScalarOp::add;
  DType from = DType::f32, to = DType::f32;  // operands' and result's types
  int result = 0;                            // a slot
  std::vector<int> args;                     // slots
  int guard = -1;                            // load, checked_index: only where this slot is true; -1: everywhere
  int id = 0;                                // variable, or number of the load
};

class BlockCode {
 public:
  // The code of `body`; `symbol` gives the sizes that it names.
  BlockCode(Expr body, const std::function<int64_t(SymbolId)>& symbol) : symbol_(symbol), result_(compile(body, -1)) {}

  struct Constant {
    int slot;
    Expr value;
  };
  std::vector<Instr> instructions;  // in the order of their use
  std::vector<Constant> constants;  // slots that hold a value from the start
  std::vector<Expr> loads;          // an instruction's id counts them
  int slots() const { return slots_; }
  int result() const { return result_; }

 private:
  struct Key {
    const ExprNode* node;
    int guard;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const { return std::hash<const void*>()(k.node) * 31 + static_cast<size_t>(k.guard + 1); }
  };

  bool reads_data(Expr e);
  int compile(Expr e, int guard);
  int compile_new(Expr e, int guard);
  int compile_masked(Expr e, int guard);
  int constant(Expr e);
  int emit(Instr in);

  const std::function<int64_t(SymbolId)>& symbol_;
  std::unordered_map<Key, int, KeyHash> done_;
  std::unordered_map<int, int> outer_guard_;  // a guard, and the one that it stands within (-1: none)
  std::unordered_map<const ExprNode*, bool> reads_data_;
  int slots_ = 0;
  int result_;
};

}  // namespace coil::interpreter
