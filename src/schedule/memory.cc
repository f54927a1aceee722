// The memory plan: one arena a call. It begins with the buffers whose sizes are numbers; those with disjoint lifetimes overlap (memory_blocks.h). The rest is
// cut into slots that the others share. A slot's size is an expression of the dynamic sizes, so the peak is a formula.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <ranges>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "device/alignment.h"
#include "expr/written_size.h"
#include "loop/dense.h"
#include "schedule/memory_blocks.h"
#include "schedule/read_order.h"
#include "schedule/schedule.h"
#include "schedule/shared_states.h"

namespace coil {
namespace {

constexpr int64_t kAlignment = cd::kPlacedAlignment;
// Budgets: formulas stay as long as someone may read them, and all of them linear in the program.
constexpr int64_t kMaxSlotText = 200;        // nodes of a slot's size
constexpr size_t kExactSlots = 64;           // of sizes that are no numbers
constexpr size_t kMostTerms = 1 << 20;       // of the places of all slots
constexpr int64_t kMostPlacement = 1 << 27;  // comparisons of buffers of known sizes with those that live long

class MemoryPlanner {
 public:
  MemoryPlanner(KernelPlan& plan, const TargetTraits& target) : plan_(plan), target_(target), reads_(plan) {}

  Status run() {
    if (target_.memory_per_worker) add_worker_scratch();
    find_limits();
    lives_ = lifetimes(plan_);
    place_interface();
    TRY_STATUS(place_arena());
    place_constants();
    return ok_status();
  }

 private:
  ExprPool& pool() { return *plan_.pool; }

  void add_worker_scratch() {
    for (Kernel& k : plan_.kernels) {
      auto* loop = std::get_if<LoopKernel>(&k.def);
      if (!loop) continue;
      for (WorkerScratch& s : loop->scratch) {
        if (s.buffer.valid()) continue;  // of a region's part: it has its place
        BufferInfo b;
        b.name = k.name + "_scratch";
        b.dtype = s.dtype;
        b.sizes = {worker_part(s), plan_.pool->symbol(plan_.workers)};
        b.strides = {pool().index(1), worker_part(s)};
        plan_.buffers.push_back({std::move(b), {}});
        s.buffer = BufferId(plan_.buffers.size() - 1);
      }
    }
  }

  // Elements of one worker's part, rounded so that parts do not share cache lines.
  Expr worker_part(const WorkerScratch& s) {
    const int64_t line = kAlignment / byte_size(s.dtype);
    return ceil_div(s.elements, pool().index(line)) * line;
  }

  void place_interface() {
    // Positions in the call: symbolic integers are inputs too, but no buffers.
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (!plan_.inputs[i].buffer.valid()) continue;
      plan_.buffer(plan_.inputs[i].buffer).placement = {Placement::Kind::input, static_cast<int>(i), Expr()};
    }
    for (size_t i = 0, user = 0; i < plan_.outputs.size(); ++i) {
      if (plan_.outputs[i].kind != LoopOutput::Kind::user) continue;
      plan_.buffer(plan_.outputs[i].source).placement = {Placement::Kind::output, static_cast<int>(user++), Expr()};
    }
    if (target_.states) return place_shared_states();
    place_states(false);
    plan_.state_stored = plan_.state_bytes;
    place_states(true);
  }

  // Caches begin empty: what is zero comes last, and the package does not store it.
  void place_states(bool zero) {
    for (PlanBuffer& b : plan_.buffers) {
      if (b.info.kind != BufferInfo::Kind::state || begins_with_zeros(b.info.data) != zero) continue;
      uint64_t bytes = static_cast<uint64_t>(byte_size(b.info.dtype));
      for (Expr s : b.info.sizes) bytes *= static_cast<uint64_t>(s->as_int());
      b.placement = {Placement::Kind::state, -1, pool().index(static_cast<int64_t>(plan_.state_bytes))};
      plan_.state_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  void place_shared_states() {
    plan_.states = target_.states;
    plan_.state_bytes = plan_.states->bytes;
    plan_.state_stored = plan_.states->stored;
    for (PlanBuffer& b : plan_.buffers) {
      if (b.info.kind != BufferInfo::Kind::state) continue;
      b.placement = {Placement::Kind::state, -1, pool().index(static_cast<int64_t>(plan_.states->find(b.info.name)->offset))};
    }
  }

  // No fewer elements than lie between the first and the last one: the gaps are those of an input that the program writes to.
  Expr most_spanned(const BufferInfo& b) {
    Expr sum = pool().index(0);
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      if (!(b.sizes[d] == pool().index(1))) sum = sum + b.sizes[d] * b.strides[d];
    }
    return index_max(sum, product(pool(), b.sizes));
  }

  Expr bytes_of(const BufferInfo& b) {
    std::vector<Expr> sizes = b.sizes;
    const size_t rank = sizes.size();
    if (rank > 1 && b.strides.size() == rank && b.strides[rank - 1] == pool().index(1)) {  // rows may have room between them
      sizes[rank - 1] = b.strides[rank - 2];
      if (contiguous_strides(pool(), sizes) != b.strides) sizes[rank - 1] = b.sizes[rank - 1];
    }
    Expr elements = product(pool(), sizes);
    if (sizes == b.sizes && !b.strides.empty() && !is_dense(b.sizes, b.strides)) elements = most_spanned(b);
    const Expr bytes = elements * byte_size(b.dtype);
    return ceil_div(bytes, pool().index(kAlignment)) * kAlignment;
  }

  struct Slot {
    Expr bytes;
    int free_after = -1;  // the last kernel that uses its present buffer
    int late = -1;        // row of the plan's late memory; -1: in the arena
  };

  // Whether the expression does not fall where a size from data in it rises.
  static bool grows(Expr e) {
    if (!depends_on_data(e) || e->kind == ExprKind::symbol) return true;
    if (e->is_op(ScalarOp::idiv)) return grows(e->args[0]) && e->args[1]->is_constant();
    const bool fits = e->is_op(ScalarOp::iadd) || e->is_op(ScalarOp::imin) || e->is_op(ScalarOp::imax) ||
                      (e->is_op(ScalarOp::imul) && std::all_of(e->args.begin(), e->args.end(), [](Expr a) { return provably_nonnegative(a); }));
    return fits && std::all_of(e->args.begin(), e->args.end(), grows);
  }

  // Of a region's part, symbols that the programs around it read are known.
  bool is_read(Expr e) const { return e->kind == ExprKind::symbol && limits_.contains(e->id); }

  // The most that the expression may be before any data is read; null where that has no bound.
  Expr bound(Expr e) {
    if (!any_of(e, [&](Expr n) { return is_read(n); })) return e;
    if (!grows(e)) return Expr();
    bool known = true;
    const Expr most = rewrite(e, [&](Expr leaf) {
      if (!is_read(leaf)) return Expr();
      const Expr limit = limits_.at(leaf->id), found = limit ? bound(limit) : Expr();
      known = known && found;
      return found;
    });
    return known ? most : Expr();
  }

  void find_limits() {
    for (const Kernel& k : plan_.kernels) {
      if (const auto* read = std::get_if<ReadKernel>(&k.def)) limits_[read->symbol.index] = read->limit;
    }
  }

  int late_row(const std::vector<Expr>& sizes) {
    const SymbolId after = reads_.last(sizes);
    CHECK(after.valid(), "a size from data that is never read");
    const auto [row, fresh] = late_rows_.try_emplace(after.index, static_cast<int>(plan_.late_memory.size()));
    if (fresh) plan_.late_memory.push_back({after, pool().index(0)});
    return row->second;
  }

  // max(a, b), but a or b where the ranges of the dynamic sizes decide it: formulas are for reading.
  static Expr larger(Expr a, Expr b) {
    if (provably_nonnegative(a - b)) return a;
    if (provably_nonnegative(b - a)) return b;
    return index_max(a, b);
  }

  // A slot of the same size first, then the smallest that is large enough, then the largest free one, which grows; the first of equal ones.
  size_t choose_slot(Expr bytes, int late) {
    FreeSlots& free = free_[late];
    if (const auto same = free.same.find(bytes.node()); same != free.same.end()) return take_free(*same->second.begin());
    if (free.by_size.empty()) {
      slots_.push_back({bytes, -1, late});
      return slots_.size() - 1;
    }
    auto best = free.by_size.lower_bound({typical(bytes), 0});
    if (best == free.by_size.end()) best = free.by_size.lower_bound({free.by_size.rbegin()->first, 0});
    const Expr grown = larger(slots_[best->second].bytes, bytes);
    if (!grown->is_constant() && written_size(grown, kMaxSlotText) > kMaxSlotText) {
      slots_.push_back({bytes, -1, late});
      return slots_.size() - 1;
    }
    const size_t slot = take_free(best->second);
    slots_[slot].bytes = grown;
    return slot;
  }

  size_t take_free(size_t slot) {
    FreeSlots& free = free_[slots_[slot].late];
    const auto same = free.same.find(slots_[slot].bytes.node());
    same->second.erase(slot);
    if (same->second.empty()) free.same.erase(same);
    free.by_size.erase({typical(slots_[slot].bytes), slot});
    return slot;
  }

  // The slots whose buffers no kernel from this one on uses.
  void release(int kernel) {
    for (; !busy_.empty() && busy_.top().first < kernel; busy_.pop()) {
      const auto [until, slot] = busy_.top();
      if (slots_[slot].free_after != until) continue;  // has another buffer since
      FreeSlots& free = free_[slots_[slot].late];
      free.same[slots_[slot].bytes.node()].insert(slot);
      free.by_size.emplace(typical(slots_[slot].bytes), slot);
    }
  }

  // The buffers that want a place in the arena (or late memory), by the kernel that they begin at.
  using Beginning = std::vector<std::vector<size_t>>;
  Beginning beginning() const {
    Beginning begins(plan_.kernels.size());
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      if (lives_[b].first < 0 || buffer.placement.kind != Placement::Kind::none || buffer.info.kind != BufferInfo::Kind::computed) continue;
      begins[static_cast<size_t>(lives_[b].first)].push_back(b);
    }
    return begins;
  }

  // The beginning of the arena, for buffers whose sizes are numbers (memory_blocks.h), unless they are too many.
  void place_blocks() {
    std::vector<MemoryBlock> blocks;
    std::vector<std::pair<size_t, size_t>> placed;  // buffer, block
    std::vector<std::vector<size_t>> ends(plan_.kernels.size());
    const Beginning begins = beginning();
    for (const size_t b : begins | std::views::join) {
      const Expr bytes = bytes_of(plan_.buffers[b].info);
      if (!bytes->is_constant()) continue;
      const auto same = [&](size_t block, int kernel) { return blocks[block].last == kernel && blocks[block].bytes == bytes->as_int(); };
      const std::optional<size_t> known = in_place(BufferId(b), lives_[b].first, placed, ends[static_cast<size_t>(lives_[b].first)], same);
      const size_t block = known.value_or(blocks.size());
      if (!known) blocks.push_back({bytes->as_int(), lives_[b].first, lives_[b].last, 0});
      blocks[block].last = std::max(blocks[block].last, lives_[b].last);
      ends[static_cast<size_t>(lives_[b].last)].push_back(placed.size());
      placed.emplace_back(b, block);
    }
    if (placement_work(blocks) > kMostPlacement) return;
    plan_.arena_bytes = pool().index(place_memory_blocks(blocks));
    for (const auto& [b, block] : placed) plan_.buffers[b].placement = {Placement::Kind::arena, -1, pool().index(blocks[block].offset)};
  }

  Status place_arena() {
    plan_.arena_bytes = pool().index(0);
    place_blocks();
    const Beginning begins = beginning();
    std::vector<std::pair<size_t, size_t>> placed;                // buffer, slot
    std::vector<std::vector<size_t>> ends(plan_.kernels.size());  // rows of `placed`
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      const int kernel = static_cast<int>(n);
      release(kernel);
      for (const size_t b : begins[n]) {
        PlanBuffer& buffer = plan_.buffers[b];
        Expr bytes = bound(bytes_of(buffer.info));
        const int late = bytes ? -1 : late_row(buffer.info.sizes);
        if (!bytes) bytes = bytes_of(buffer.info);
        const auto same = [&](size_t slot, int last) { return slots_[slot].free_after == last && slots_[slot].bytes == bytes; };
        std::optional<size_t> slot = in_place(BufferId(b), kernel, placed, ends[n], same);
        if (!slot) slot = choose_slot(bytes, late);
        slots_[*slot].free_after = std::max(slots_[*slot].free_after, lives_[b].last);
        busy_.emplace(slots_[*slot].free_after, *slot);
        ends[static_cast<size_t>(lives_[b].last)].push_back(placed.size());
        placed.emplace_back(b, *slot);
        buffer.placement = {late < 0 ? Placement::Kind::arena : Placement::Kind::late, late, Expr()};
      }
    }
    TRY(const std::vector<Expr> offsets, place_slots());
    for (const auto& [b, s] : placed) plan_.buffers[b].placement.offset = offsets[s];
    return ok_status();
  }

  // The arena, or late memory, as far as it has slots.
  struct Area {
    Expr end, loose;      // loose: the end before it is rounded; null: slots lie one behind the other
    size_t formulas = 0;  // slots whose size is no number
  };

  // One behind the other. Rounded sizes do not add up: a sum of many has as many terms. Behind the first ones a slot begins at the sum, rounded, of
  // all sizes before it as they are, each with room for what rounding takes.
  Result<std::vector<Expr>> place_slots() {
    std::map<int, Area> areas;
    std::vector<Expr> offsets;
    areas[-1].end = plan_.arena_bytes;
    size_t terms = 0;
    for (const Slot& s : slots_) {
      Area& area = areas[s.late];
      if (!area.end) area.end = pool().index(0);
      if (!s.bytes->is_constant() && ++area.formulas > kExactSlots && !area.loose) area.loose = area.end;
      if (area.loose) {
        const Expr begin = rounded(area.loose);
        offsets.push_back(begin);
        area.loose = area.loose + unrounded(s.bytes) + kAlignment;
        area.end = rounded(area.loose);
      } else {
        offsets.push_back(area.end);
        area.end = area.end + s.bytes;
      }
      terms += area.end->args.size();
      if (terms > kMostTerms) {
        return Error{
            ErrorCode::unsupported_feature,
            fmt::format(
                "the places of {} values with sizes of their own in the scratch space are formulas of more than {} terms, the budget of the memory plan",
                slots_.size(), kMostTerms),
            {},
            "give dimensions that are equal one torch.export.Dim, or export with fixed sizes"};
      }
    }
    for (const auto& [late, area] : areas) (late < 0 ? plan_.arena_bytes : plan_.late_memory[static_cast<size_t>(late)].bytes) = area.end;
    return offsets;
  }

  Expr rounded(Expr bytes) { return ceil_div(bytes, pool().index(kAlignment)) * kAlignment; }

  // Of a rounded size: what is at least the bytes before they were rounded and at most 63 more.
  Expr unrounded(Expr bytes) {
    if (!bytes->is_op(ScalarOp::imul) || bytes->args.size() != 2 || bytes->args[0] != pool().index(kAlignment)) return bytes;
    const Expr quotient = bytes->args[1];
    return quotient->is_op(ScalarOp::idiv) && quotient->args[1] == pool().index(kAlignment) ? quotient->args[0] : bytes;
  }

  // A pointwise kernel may write its result over an operand that dies there, if both are always at the same offset.
  // `placed`: buffers and where they are; `dying`: the rows of it that this kernel is the last to use; same(where, kernel): whether nothing else there is
  // used from that kernel on, and the room is the result's.
  std::optional<size_t> in_place(BufferId out, int kernel, const std::vector<std::pair<size_t, size_t>>& placed, const std::vector<size_t>& dying,
                                 FunctionRef<bool(size_t, int)> same) {
    const auto* loop = std::get_if<LoopKernel>(&plan_.kernels[static_cast<size_t>(kernel)].def);
    if (!loop || loop->num_outer != static_cast<int>(loop->axes.size()) || loop->stmts.size() != 1) return std::nullopt;
    const Stmt& store = loop->stmts[0];
    if (store.kind != Stmt::Kind::store || store.buffer != out) return std::nullopt;
    for (const size_t row : dying) {
      const auto [b, slot] = placed[row];
      const BufferId id(b);
      if (!same(slot, kernel)) continue;
      if (byte_size(plan_.buffer(id).info.dtype) != byte_size(store.dtype)) continue;
      bool reads = false, aligned = true;
      visit(store.value, [&](Expr e) {
        if (e->kind != ExprKind::load || e->id != id.index) return;
        reads = true;
        aligned = aligned && e->args[0] == store.offset;
      });
      if (reads && aligned) return slot;
    }
    return std::nullopt;
  }

  // Plain constants that some kernel reads; packed ones have their rows already.
  void place_constants() {
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.info.kind != BufferInfo::Kind::constant || buffer.placement.kind != Placement::Kind::none || lives_[b].first < 0) continue;
      PlanConstant c;
      c.buffer = BufferId(b);
      buffer.placement = {Placement::Kind::constant, static_cast<int>(plan_.constants.size()), Expr()};
      plan_.constants.push_back(c);
    }
  }

  KernelPlan& plan_;
  const TargetTraits& target_;
  const ReadOrder reads_;
  std::vector<Lifetime> lives_;
  std::vector<Slot> slots_;
  struct FreeSlots {
    std::unordered_map<const ExprNode*, std::set<size_t>> same;  // by their bytes
    std::set<std::pair<int64_t, size_t>> by_size;                // with their typical size
  };
  std::unordered_map<int32_t, int> late_rows_;                                                             // of the late memory, by the symbol it waits for
  std::map<int, FreeSlots> free_;                                                                          // by late memory
  std::priority_queue<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>, std::greater<>> busy_;  // slots by free_after, former ones as well
  std::unordered_map<int32_t, Expr> limits_;                                                               // of symbols that are read
};

}  // namespace

Status plan_memory(KernelPlan& plan, const TargetTraits& target) { return MemoryPlanner(plan, target).run(); }

}  // namespace coil
