#include "loop/unread_checks.h"

#include <algorithm>

#include "loop/guard_positions.h"
#include "loop/narrow.h"

namespace coil {
namespace {

class UnreadChecks {
 public:
  explicit UnreadChecks(LoopProgram program) : program_(std::move(program)), live_(program_.buffers.size(), 0) {}

  LoopProgram run(std::span<const size_t> begins) {
    for (const LoopOutput& out : program_.outputs) {
      mark(out.source);
      mark(out.target);
    }
    for (const auto& [symbol, buffer] : program_.data_sizes) mark(buffer);
    size_t end = program_.loops.size();
    for (size_t i = begins.size(); i-- > 0;) {
      look(begins[i], end);
      end = std::min(end, begins[i]);
    }
    return std::move(program_);
  }

 private:
  void mark(BufferId id) {
    if (id.valid()) live_[static_cast<size_t>(id.index)] = 1;
  }

  bool is_live(const Loop& loop) const {
    return std::any_of(loop.outputs.begin(), loop.outputs.end(), [&](BufferId id) { return live_[static_cast<size_t>(id.index)]; });
  }

  bool may_refuse(const Loop& loop) const {
    const std::vector<BodyRef> all = bodies(program_, loop);
    return std::any_of(all.begin(), all.end(),
                       [](const BodyRef& ref) { return any_of(ref.body, [](Expr e) { return e->is_op(ScalarOp::checked_index) && !never_fails(e); }); });
  }

  // The loops of one operator, the last one first: their readers come after them.
  void look(size_t begin, size_t end) {
    bool checked = false;
    for (size_t i = end; i-- > begin;) {
      const Loop& loop = program_.loops[i];
      if (is_live(loop)) {
        for (BufferId id : reads(program_, loop)) mark(id);
        checked = checked || may_refuse(loop);
      }
    }
    for (size_t i = end; !checked && i-- > begin;) {
      if (!is_live(program_.loops[i]) && may_refuse(program_.loops[i])) keep(i);
      if (is_live(program_.loops[i])) {
        for (BufferId id : reads(program_, program_.loops[i])) mark(id);
      }
    }
  }

  void keep(size_t number) {
    Loop& loop = program_.loops[number];
    const std::vector<Expr> sizes = program_.buffer(loop.outputs[0]).sizes;
    if (const std::optional<std::vector<char>> dims = defines_whole(loop.def) ? std::nullopt : checked_dims(program_, loop)) {
      std::vector<DimRange> ranges;
      const Expr one = program_.pool->index(1);
      bool narrower = false;
      for (size_t d = 0; d < sizes.size(); ++d) {
        ranges.push_back(whole_range(sizes[d]));
        if (dims->at(d) || !provably_nonnegative(sizes[d] - 1)) continue;
        ranges[d] = narrowable(program_, loop, d, {program_.pool->index(0), one, one});
        narrower = narrower || !is_whole(ranges[d], sizes[d]);
      }
      if (narrower) narrow(program_, loop, ranges);
    }
    LoopOutput out;
    out.kind = LoopOutput::Kind::check;
    out.source = loop.outputs[0];
    out.name = program_.buffer(out.source).name;
    program_.outputs.push_back(std::move(out));
    mark(loop.outputs[0]);
  }

  LoopProgram program_;
  std::vector<char> live_;
};

}  // namespace

LoopProgram keep_unread_checks(LoopProgram program, std::span<const size_t> begins) { return UnreadChecks(std::move(program)).run(begins); }

}  // namespace coil
