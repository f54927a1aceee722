// Places: what is needed at the same time does not overlap. Lifetimes are found here again, from what kernels touch, and not taken from the memory plan.
#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "schedule/kernel_buffers.h"
#include "schedule/verify_plan.h"

namespace coil {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;

// A piece of memory, in bytes. `space`: which memory: that of a placement's kind, and of late memory which one.
struct BytesInUse {
  std::pair<Placement::Kind, int> space{Placement::Kind::none, -1};
  int64_t begin = 0, end = 0;

  bool holds(const BytesInUse& x) const { return space == x.space && begin <= x.begin && x.end <= end; }
};

class MemoryVerifier {
 public:
  MemoryVerifier(const KernelPlan& plan, const std::vector<KernelBuffers>& used, const std::vector<int64_t>* values)
      : plan_(plan), used_(used), values_(values), ends_(matching_ends(plan)) {}

  // Programs may have sizes whose amounts no machine has; they are refused when code is generated for them (codegen/interface/limits.h).
  Status run() {
    for (const PlanBuffer& b : plan_.buffers) {
      if (bytes_of(b.info).value_or(0) > kMostBytes) return ok_status();
    }
    TRY_STATUS(check_ends());
    return check_level(0, plan_.kernels.size(), nullptr);
  }

 private:
  using Known = std::optional<int64_t>;

  // A kernel, kernels that run at the same time, or a mark with all up to its end.
  struct Item {
    size_t first, last;
    bool region;
  };
  struct Life {
    size_t first, last;  // items
  };
  struct Live {
    int64_t end;
    BufferId id;
    size_t last;
  };

  template <class... A>
  Error wrong(fmt::format_string<A...> format, A&&... args) const {
    std::string at;
    for (size_t s = 0; values_ && s < values_->size(); ++s)
      at += fmt::format("{}{}={}", at.empty() ? " where " : ", ", plan_.pool->symbol_info(SymbolId(s)).label, (*values_)[s]);
    return Error{ErrorCode::internal, "kernel plan: " + fmt::format(format, std::forward<A>(args)...) + at, {}, {}};
  }

  Known value(Expr e) {
    if (!e) return std::nullopt;
    if (e->is_constant()) return e->as_int();
    if (!values_) return std::nullopt;
    const auto found = known_.find(e.node());
    if (found != known_.end()) return found->second;
    return known_[e.node()] = evaluate_index(e, [&](SymbolId id) { return (*values_)[static_cast<size_t>(id.index)]; });
  }

  // From the first element's first byte to the last one's last; at most one more than kMostBytes.
  Known bytes_of(const BufferInfo& b) {
    const bool strided = b.strides.size() == b.sizes.size();
    double last = 0, count = 1;
    bool empty = false;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      const Known size = value(b.sizes[d]), stride = strided ? value(b.strides[d]) : Known(0);
      if (!size || !stride) return std::nullopt;
      empty = empty || *size <= 0;
      last += (static_cast<double>(*size) - 1) * static_cast<double>(*stride);
      count *= static_cast<double>(*size);
    }
    if (empty) return 0;
    const double bytes = (strided ? last + 1 : count) * byte_size(b.dtype);
    return bytes > static_cast<double>(kMostBytes) ? kMostBytes + 1 : static_cast<int64_t>(bytes);
  }

  // Where it begins; no further away than memory reaches.
  Known place(const Placement& p) {
    const Known begin = value(p.offset);
    return begin ? Known(std::clamp<int64_t>(*begin, -1, kMostBytes)) : begin;
  }

  // Where it lies in memory that kernels share; nothing of what has a place of its own, or where the place is no number.
  std::optional<BytesInUse> extent(BufferId id) {
    const PlanBuffer& b = plan_.buffer(id);
    const Placement& p = b.placement;
    if (p.kind != Placement::Kind::arena && p.kind != Placement::Kind::late && p.kind != Placement::Kind::part) return std::nullopt;
    const Known begin = place(p), bytes = begin ? bytes_of(b.info) : std::nullopt;
    if (!bytes) return std::nullopt;
    return BytesInUse{{p.kind, p.kind == Placement::Kind::late ? p.index : -1}, *begin, *begin + *bytes};
  }

  // All of it is within the memory that a call has.
  Status check_ends() {
    std::map<int64_t, std::pair<int64_t, BufferId>> states;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const BufferId id(b);
      const PlanBuffer& buffer = plan_.buffer(id);
      if (buffer.placement.kind == Placement::Kind::state) {
        const Known begin = place(buffer.placement), bytes = bytes_of(buffer.info);
        if (!begin || !bytes || *begin < 0 || *begin + *bytes > static_cast<int64_t>(plan_.state_bytes))
          return wrong("the state '{}' is not within the {} bytes of states", buffer.info.name, plan_.state_bytes);
        if (*bytes > 0) states[*begin] = std::max(states[*begin], {*begin + *bytes, id});
        continue;
      }
      const std::optional<BytesInUse> x = extent(id);
      if (!x || x->space.first == Placement::Kind::part) continue;
      const bool late = x->space.first == Placement::Kind::late;
      const Known all = value(late ? plan_.late_memory[static_cast<size_t>(x->space.second)].bytes : plan_.arena_bytes);
      if (x->begin < 0 || (all && x->end > *all))
        return wrong("'{}' at bytes {} to {} is not within the {} bytes of its memory", buffer.info.name, x->begin, x->end, all.value_or(0));
    }
    const std::pair<int64_t, BufferId>* before = nullptr;
    for (const auto& [begin, state] : states) {
      if (before && before->first > begin) return wrong("the states '{}' and '{}' overlap", name(before->second), name(state.second));
      before = &state;
    }
    return ok_status();
  }

  const std::string& name(BufferId id) const { return plan_.buffer(id).info.name; }

  std::vector<Item> items(size_t begin, size_t end) const {
    std::vector<Item> all;
    for (size_t n = begin; n < end;) {
      const auto* mark = std::get_if<ControlMark>(&plan_.kernels[n].def);
      const bool region = mark && mark->opens() && ends_[n] >= 0;
      const size_t last = region ? static_cast<size_t>(ends_[n]) : std::min(last_of_group(plan_, n), end - 1);
      all.push_back({n, last, region});
      n = last + 1;
    }
    return all;
  }

  // Kernels [begin, end) in which marks nest. home: what all of them have as their memory, where they are a region's; what lies elsewhere was looked at
  // further out, where it lives as long as the region.
  Status check_level(size_t begin, size_t end, const BytesInUse* home) {
    const std::vector<Item> all = items(begin, end);
    std::map<BufferId, Life> lives;
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t n = all[i].first; n <= all[i].last; ++n) touch(used_[n], i, lives);
    }
    std::vector<std::vector<BufferId>> begins(all.size());
    std::vector<std::optional<BytesInUse>> regions(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].region) regions[i] = home_of(all[i]);
    }
    for (const auto& [id, life] : lives) {
      const std::optional<BytesInUse> x = extent(id);
      if (!x || (home ? !home->holds(*x) : x->space.first == Placement::Kind::part)) continue;
      const auto& region = regions[life.first];
      const bool inside = life.first == life.last && all[life.first].region && id != scratch_of(all[life.first]);
      if (inside && (!region || region->holds(*x))) continue;  // looked at with the kernels inside
      begins[life.first].push_back(id);
    }
    TRY_STATUS(sweep(all, lives, begins));
    for (size_t i = 0; i < all.size(); ++i) {
      if (regions[i]) TRY_STATUS(check_region(all[i], *regions[i]));
    }
    return ok_status();
  }

  void touch(const KernelBuffers& used, size_t item, std::map<BufferId, Life>& lives) const {
    for (const auto* list : {&used.reads, &used.writes, &used.own}) {
      for (BufferId id : *list) lives.try_emplace(whole_buffer(plan_, id), Life{item, item}).first->second.last = item;
    }
  }

  BufferId scratch_of(const Item& region) const { return std::get<ControlMark>(plan_.kernels[region.first].def).scratch; }

  // The memory of the kernels of a region. Those of images have places of a kind of their own.
  std::optional<BytesInUse> home_of(const Item& region) {
    const auto& mark = std::get<ControlMark>(plan_.kernels[region.first].def);
    if (!mark.scratch.valid()) return std::nullopt;
    if (mark.kind != ControlMark::Kind::images) return extent(mark.scratch);
    const Known bytes = bytes_of(plan_.buffer(mark.scratch).info);
    return bytes ? std::optional(BytesInUse{{Placement::Kind::part, -1}, 0, *bytes}) : std::nullopt;
  }

  // The parts of a region one by one: only one of a branch's runs.
  Status check_region(const Item& region, const BytesInUse& home) {
    size_t begin = region.first + 1;
    for (size_t n = begin; n < region.last; ++n) {
      const auto* mark = std::get_if<ControlMark>(&plan_.kernels[n].def);
      if (mark && mark->opens() && ends_[n] >= 0) {
        n = static_cast<size_t>(ends_[n]);
      } else if (mark && mark->kind == ControlMark::Kind::otherwise) {
        TRY_STATUS(check_level(begin, n, &home));
        begin = n + 1;
      }
    }
    return check_level(begin, region.last, &home);
  }

  Status sweep(const std::vector<Item>& all, const std::map<BufferId, Life>& lives, const std::vector<std::vector<BufferId>>& begins) {
    std::map<std::pair<Placement::Kind, int>, std::map<int64_t, Live>> spaces;
    std::vector<std::vector<BufferId>> dying(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      for (BufferId id : begins[i]) {
        const BytesInUse x = *extent(id);
        if (x.begin == x.end) continue;
        std::map<int64_t, Live>& live = spaces[x.space];
        auto next = live.lower_bound(x.begin);
        if (next != live.begin() && std::prev(next)->second.end > x.begin) --next;
        while (next != live.end() && next->first < x.end) {
          const bool over = next->second.last == i && next->first == x.begin && replaces(all[i], id, next->second.id);
          if (!over) return wrong("{} at bytes {} to {}", both(all[i], id, next->second.id), std::max(x.begin, next->first), std::min(x.end, next->second.end));
          next = live.erase(next);
        }
        const size_t last = lives.at(id).last;
        live[x.begin] = {x.end, id, last};
        dying[last].push_back(id);
      }
      for (BufferId id : dying[i]) {
        const BytesInUse x = *extent(id);
        std::map<int64_t, Live>& live = spaces[x.space];
        if (const auto found = live.find(x.begin); found != live.end() && found->second.id == id) live.erase(found);
      }
    }
    return ok_status();
  }

  std::string both(const Item& item, BufferId a, BufferId b) const {
    return fmt::format("'{}' and '{}' are both needed at kernel {} '{}' and overlap", name(a), name(b), item.first, plan_.kernels[item.first].name);
  }

  // Whether the kernel writes each element of a new buffer over the element of the old one that it read for it, which nobody reads again.
  bool replaces(const Item& item, BufferId made, BufferId old) const {
    const auto* loop = item.first == item.last ? std::get_if<LoopKernel>(&plan_.kernels[item.first].def) : nullptr;
    if (!loop || loop->num_outer != static_cast<int>(loop->axes.size()) || loop->stmts.size() != 1) return false;
    const Stmt& store = loop->stmts[0];
    if (store.kind != Stmt::Kind::store || store.buffer != made) return false;
    if (byte_size(plan_.buffer(old).info.dtype) != byte_size(store.dtype)) return false;
    bool same = true;
    for_expressions(store, [&](Expr e) {
      visit(e, [&](Expr n) { same = same && (n->kind != ExprKind::load || n->id != old.index || (e == store.value && n->args[0] == store.offset)); });
    });
    return same;
  }

  const KernelPlan& plan_;
  const std::vector<KernelBuffers>& used_;
  const std::vector<int64_t>* values_;
  const std::vector<int> ends_;
  std::unordered_map<const ExprNode*, int64_t> known_;
};

}  // namespace

Status verify_memory(const KernelPlan& plan, const std::vector<KernelBuffers>& used, const std::vector<int64_t>* values) {
  return MemoryVerifier(plan, used, values).run();
}

}  // namespace coil
