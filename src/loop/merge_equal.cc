// What is defined twice is computed once. Graphs have no equal nodes left (src/passes/common_subexpr.cc); this is about what the lowering of different
// nodes has in common: which row of a cache is written last by the same positions, in each layer.
#include <map>

#include "loop/loop.h"
#include "loop/rename.h"
#include "loop/visit.h"

namespace coil {
namespace {

using Key = std::vector<uint64_t>;

// Expressions are interned: equal ones are one node.
class KeyOf {
 public:
  explicit KeyOf(Key& key) : key_(key) {}

  bool operator()(const Pointwise& d) { return add(d.body); }
  bool operator()(const Reduction& d) { return add(static_cast<uint64_t>(d.op)) && add(d.domain) && add(d.body); }
  bool operator()(const Scan& d) { return add(static_cast<uint64_t>(d.op)) && add(static_cast<uint64_t>(d.dim)) && add(d.body); }
  bool operator()(const Sort& d) {
    return add(static_cast<uint64_t>(d.dim)) && add(d.length) && add(uint64_t{d.descending}) && add(d.body) && add(static_cast<uint64_t>(d.below));
  }
  bool operator()(const Concat& d) {
    add(static_cast<uint64_t>(d.dim));
    for (const Concat::Piece& piece : d.pieces) add(piece.begin), add(piece.size), add(piece.body);
    return true;
  }
  bool operator()(const Library& d) {
    for (const std::string* text : {&d.routine, &d.subject}) {
      add(text->size());
      for (const char c : *text) add(static_cast<uint64_t>(c));
    }
    add(static_cast<uint64_t>(d.dtype));
    for (const BufferId id : d.inputs) add(static_cast<uint64_t>(id.index));
    add(d.options.size());
    for (const int64_t option : d.options) add(static_cast<uint64_t>(option));
    return add(d.sizes) && add(d.scratch) && add(d.worker_scratch);
  }
  bool operator()(const Compact& d) { return add(d.blocks) && add(d.length) && add(d.keep) && add(d.start) && add(d.value); }
  // Products of equal operands are equal nodes of the graph; what reads sizes, runs users' code or other programs is as it is.
  template <class Other>
  bool operator()(const Other&) {
    return false;
  }

  bool add(uint64_t number) {
    key_.push_back(number);
    return true;
  }
  bool add(Expr e) { return add(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(e ? e.node() : nullptr))); }
  bool add(const std::vector<Expr>& list) {
    add(list.size());
    for (const Expr e : list) add(e);
    return true;
  }

 private:
  Key& key_;
};

class Merger {
 public:
  explicit Merger(LoopProgram program) : program_(std::move(program)), now_(program_.buffers.size()), results_(program_.buffers.size(), false) {
    for (size_t i = 0; i < now_.size(); ++i) now_[i] = BufferId(i);
    for (const LoopOutput& o : program_.outputs) results_[static_cast<size_t>(o.source.index)] = true;
  }

  LoopProgram run() {
    std::map<Key, const Loop*> known;
    bool merged = false;
    for (Loop& loop : program_.loops) {
      if (merged) rename_reads(loop, [this](BufferId id) { return now_[static_cast<size_t>(id.index)]; });
      const std::optional<Key> key = key_of(loop);
      if (!key) continue;
      const auto [first, fresh] = known.try_emplace(*key, &loop);
      if (fresh) continue;
      for (size_t i = 0; i < loop.outputs.size(); ++i) now_[static_cast<size_t>(loop.outputs[i].index)] = first->second->outputs[i];
      merged = true;
    }
    return merged ? dead_loops(std::move(program_)) : std::move(program_);
  }

 private:
  // Results of a program are buffers of their own. An assertion is one for its message.
  std::optional<Key> key_of(const Loop& loop) const {
    if (!loop.assertion.empty()) return std::nullopt;
    Key key{loop.def.index()};
    KeyOf of(key);
    for (const BufferId id : loop.outputs) {
      if (results_[static_cast<size_t>(id.index)]) return std::nullopt;
      const BufferInfo& info = program_.buffer(id);
      of.add(static_cast<uint64_t>(info.dtype));
      of.add(static_cast<uint64_t>(info.pairs) + 2 * static_cast<uint64_t>(info.meant ? static_cast<int>(*info.meant) + 1 : 0));
      of.add(info.sizes);
      of.add(info.strides);
    }
    if (!std::visit(of, loop.def)) return std::nullopt;
    return key;
  }

  LoopProgram program_;
  std::vector<BufferId> now_;  // what stands for each buffer
  std::vector<bool> results_;
};

}  // namespace

LoopProgram merge_equal(LoopProgram program) { return Merger(std::move(program)).run(); }

}  // namespace coil
