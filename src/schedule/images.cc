// Image by image: neighbours whose values for all images together leave the caches run for one image after the other, so that a kernel finds
// what the one before it wrote. A worker has memory for one image of what only these kernels use.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "schedule/renumber.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kAssumedImages = 8;  // where their number is dynamic
constexpr int64_t kConstantShare = 4;  // what all images read is read again for each: at most this part of what an image has of its own

// What one kernel uses of each image, where image i needs row i of its buffers and nothing of the others.
struct Separate {
  Expr images;
  int64_t per = 1;                // iterations of axis 0 that are one image's
  std::vector<BufferId> rows;     // used by rows
  std::vector<BufferId> shared;   // read as a whole, or without regard to the image
  std::vector<BufferId> written;  // of `rows`
};

class Separator {
 public:
  Separator(const KernelPlan& plan, Expr images) : plan_(plan) { out_.images = images; }

  std::optional<Separate> run(const Kernel& k) {
    if (k.beside || !k.assertion.empty()) return std::nullopt;
    const auto* loop = std::get_if<LoopKernel>(&k.def);
    const auto* call = std::get_if<TemplateKernel>(&k.def);
    const bool ok = loop ? add(*loop) : call && std::holds_alternative<Conv2d>(call->def) && add(*call, std::get<Conv2d>(call->def));
    return ok ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }

  bool add(const TemplateKernel& k, const Conv2d& conv) {
    if (!(k.result_sizes[0] == out_.images) || !(conv.x_sizes[0] == out_.images)) return false;
    if (!use(k.operands[0].buffer, k.operands[0].offset, conv.x_sizes, false)) return false;
    for (size_t i = 1; i < k.operands.size(); ++i) out_.shared.push_back(k.operands[i].buffer);
    for (const PlanOperand& w : k.weights) out_.shared.push_back(w.buffer);
    for (BufferId id : out_.shared) {
      if (!constant(id)) return false;
    }
    if (k.epilogue.empty()) return use(k.result, k.result_offset, k.result_sizes, true);
    return add(k.epilogue, k.result_sizes);
  }

  bool add(const LoopKernel& k) {
    if (k.num_outer == 0 || k.sequential) return false;
    const Expr size = k.axes[0].size;
    if (!(size == out_.images)) {  // with what follows it, as one axis
      if (!size->is_constant() || !out_.images->is_constant() || out_.images->as_int() < 1 || size->as_int() % out_.images->as_int() != 0) return false;
      out_.per = size->as_int() / out_.images->as_int();
    }
    std::vector<Expr> sizes;
    for (const Axis& a : k.axes) sizes.push_back(a.size);
    return add(k.stmts, sizes);
  }

  bool add(const std::vector<Stmt>& stmts, const std::vector<Expr>& sizes) {
    return std::all_of(stmts.begin(), stmts.end(), [&](const Stmt& s) {
      if (s.condition || (s.value && !reads(s.value, sizes))) return false;
      if (s.kind != Stmt::Kind::store) return true;
      return s.scratch >= 0 ? !depends_on_var(s.offset, 0) : use(s.buffer, s.offset, sizes, true);
    });
  }

  // Nothing but places of loads may depend on the image.
  bool reads(Expr value, const std::vector<Expr>& sizes) {
    bool ok = true;
    const Expr rest = rewrite(value, [&](Expr leaf) {
      if (leaf->kind != ExprKind::load) return Expr();
      ok = ok && (leaf->id < kScratchBase ? use(BufferId(leaf->id), leaf->args[0], sizes, false) : !depends_on_var(leaf->args[0], 0));
      return pool().temp(TempId(0), leaf->dtype);
    });
    return ok && !depends_on_var(rest, 0) && !any_of(value, [](Expr e) { return e->is_op(ScalarOp::checked_index); });
  }

  bool use(BufferId id, Expr offset, const std::vector<Expr>& sizes, bool store) {
    const std::optional<Affine> by_image = as_affine(offset, 0);
    if (!by_image) return false;
    if (by_image->coefficient == pool().index(0)) {
      add_to(out_.shared, id);
      return !store;
    }
    const BufferInfo& b = plan_.buffer(id).info;
    if (b.sizes.empty() || !(b.sizes[0] == out_.images) || !(by_image->coefficient * out_.per == b.strides[0])) return false;
    std::vector<Expr> ranges = sizes;
    ranges[0] = pool().index(out_.per);
    const Expr within = substitute_vars(by_image->base, std::vector<Expr>{pool().index(0)}) + by_image->coefficient * (out_.per - 1);
    if (!provably_nonnegative(by_image->base, {ranges}) || !provably_less(within, b.strides[0], {ranges})) return false;
    add_to(out_.rows, id);
    if (store) add_to(out_.written, id);
    return true;
  }

  static void add_to(std::vector<BufferId>& list, BufferId id) {
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  }

  bool constant(BufferId id) const {
    const PlanBuffer& b = plan_.buffer(id);
    return b.info.kind == BufferInfo::Kind::constant || b.placement.kind == Placement::Kind::constant;
  }

  const KernelPlan& plan_;
  Separate out_;
};

class ByImage {
 public:
  ByImage(KernelPlan& plan, const TargetTraits& target) : plan_(plan), target_(target) {
    for (const LoopOutput& o : plan.outputs) kept_.insert(o.source);
  }

  void run() {
    find_images();
    std::vector<std::vector<Separate>> chains;
    std::vector<size_t> begins;
    std::vector<Separate> open;
    for (size_t k = 0; k <= plan_.kernels.size(); ++k) {
      const std::optional<Separate> s = k < plan_.kernels.size() ? large(k) : std::nullopt;
      if (s && !open.empty() && !continues(open, *s)) close(open, k, chains, begins);
      if (s) open.push_back(*s);
      else close(open, k, chains, begins);
    }
    if (chains.empty()) return;
    lives_ = lifetimes(plan_);
    // From the last to the first: rows of earlier kernels stay.
    for (size_t i = chains.size(); i-- > 0;) wrap(begins[i], chains[i]);
    insert_marks();
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }

  static void close(std::vector<Separate>& open, size_t end, std::vector<std::vector<Separate>>& chains, std::vector<size_t>& begins) {
    if (open.size() > 1) {
      begins.push_back(end - open.size());
      chains.push_back(std::move(open));
    }
    open.clear();
  }

  // Of each kernel those of the nearest convolution before it, or else behind it.
  void find_images() {
    images_.resize(plan_.kernels.size());
    for (size_t k = 0; k < images_.size(); ++k) {
      const auto* t = std::get_if<TemplateKernel>(&plan_.kernels[k].def);
      images_[k] = t && std::holds_alternative<Conv2d>(t->def) ? t->result_sizes[0] : k > 0 ? images_[k - 1] : Expr();
    }
    for (size_t k = images_.size(); k-- > 1;) {
      if (!images_[k - 1]) images_[k - 1] = images_[k];
    }
  }

  // Bytes that a kernel moves, if they are known.
  std::optional<int64_t> bytes_of(const std::vector<BufferId>& ids, size_t first_dim) const {
    int64_t total = 0;
    for (BufferId id : ids) {
      const BufferInfo& b = plan_.buffer(id).info;
      int64_t bytes = byte_size(b.dtype);
      for (size_t d = first_dim; d < b.sizes.size(); ++d) {
        if (!b.sizes[d]->is_constant()) return std::nullopt;
        bytes *= b.sizes[d]->as_int();
      }
      total += bytes;
    }
    return total;
  }

  // A kernel that moves more than the caches keep, and nearly all of it for single images.
  std::optional<Separate> large(size_t k) const {
    const Expr images = images_[k];
    if (!images) return std::nullopt;
    std::optional<Separate> s = Separator(plan_, images).run(plan_.kernels[k]);
    if (!s) return std::nullopt;
    const int64_t count = images->is_constant() ? images->as_int() : upper_bound(images) == 1 ? 1 : kAssumedImages;
    const std::optional<int64_t> own = bytes_of(s->rows, 1), all = bytes_of(s->shared, 0);
    const bool is_large = own && all && count > 1 && *own * count > target_.kept_bytes && *all * kConstantShare <= *own;
    return is_large ? s : std::nullopt;
  }

  // What another image of an earlier kernel gives must not be asked for.
  static bool continues(const std::vector<Separate>& open, const Separate& next) {
    if (!(open.back().images == next.images)) return false;
    return std::none_of(open.begin(), open.end(), [&](const Separate& s) {
      const auto has = [](const std::vector<BufferId>& list, BufferId id) { return std::find(list.begin(), list.end(), id) != list.end(); };
      return std::any_of(next.shared.begin(), next.shared.end(), [&](BufferId id) { return has(s.written, id); }) ||
             std::any_of(next.written.begin(), next.written.end(), [&](BufferId id) { return has(s.shared, id); });
    });
  }

  bool inside_only(BufferId id, size_t begin, size_t end) const {
    const Lifetime& life = lives_[static_cast<size_t>(id.index)];
    return plan_.buffer(id).info.kind == BufferInfo::Kind::computed && life.first >= static_cast<int>(begin) && life.last < static_cast<int>(end) &&
           !kept_.contains(id);
  }

  // Kernels [begin, begin + chain.size()) between two marks, each of them for one image.
  void wrap(size_t begin, const std::vector<Separate>& chain) {
    const size_t end = begin + chain.size();
    std::map<BufferId, BufferId> moved;
    std::vector<BufferId> own;
    for (const Separate& s : chain) {
      for (BufferId id : s.rows) {
        if (moved.contains(id) || std::find(own.begin(), own.end(), id) != own.end()) continue;
        if (inside_only(id, begin, end)) {
          plan_.buffer(id).info.sizes[0] = pool().index(1);
          own.push_back(id);
          continue;
        }
        PlanBuffer row = plan_.buffer(id);
        row.info.sizes[0] = pool().index(1);
        row.placement = {Placement::Kind::row, id.index, row.info.strides[0] * byte_size(row.info.dtype)};
        moved[id] = BufferId(plan_.buffers.size());
        plan_.buffers.push_back(std::move(row));
      }
    }
    for (size_t k = begin; k < end; ++k) narrow(plan_.kernels[k], chain[k - begin], moved, own);
    const ControlMark mark = place(begin, end, own, chain[0].images);
    marks_.emplace_back(end, Kernel{"images", ControlMark{ControlMark::Kind::end, {}, {}, {}, {}, {}}, {}, {}});
    marks_.emplace_back(begin, Kernel{"images", mark, {}, {}});
  }

  void insert_marks() {
    std::vector<Kernel> all;
    all.reserve(plan_.kernels.size() + marks_.size());
    auto next = marks_.rbegin();
    for (size_t k = 0; k <= plan_.kernels.size(); ++k) {
      for (; next != marks_.rend() && next->first == k; ++next) all.push_back(std::move(next->second));
      if (k < plan_.kernels.size()) all.push_back(std::move(plan_.kernels[k]));
    }
    plan_.kernels = std::move(all);
  }

  void narrow(Kernel& kernel, const Separate& s, const std::map<BufferId, BufferId>& moved, std::vector<BufferId>& own) {
    const std::vector<Expr> first = {pool().index(0)};
    const auto narrow_all = [&](std::vector<Stmt>& stmts) {
      for (Stmt& stmt : stmts) {
        if (stmt.value) stmt.value = substitute_vars(stmt.value, first);
        if (stmt.offset) stmt.offset = substitute_vars(stmt.offset, first);
      }
    };
    kernel = renumbered(std::move(kernel), [&](BufferId id) {
      const auto to = moved.find(id);
      return to == moved.end() ? id : to->second;
    });
    if (auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
      loop->axes[0].size = pool().index(s.per);
      if (s.per == 1) narrow_all(loop->stmts);
      return;
    }
    auto& t = std::get<TemplateKernel>(kernel.def);
    std::get<Conv2d>(t.def).x_sizes[0] = t.result_sizes[0] = pool().index(1);
    t.operands[0].offset = substitute_vars(t.operands[0].offset, first);
    t.result_offset = substitute_vars(t.result_offset, first);
    narrow_all(t.epilogue);
    if (!t.scratch.valid()) return;
    const Expr bytes = target_.template_scratch(plan_, t);
    if (!bytes) t.scratch = BufferId();
    else plan_.buffer(t.scratch).info.sizes = {bytes}, own.push_back(t.scratch);
  }

  std::vector<BufferId> buffers_of(size_t begin, size_t end, const std::vector<BufferId>& own) {
    std::set<BufferId> used(own.begin(), own.end());
    for (size_t k = begin; k < end; ++k) {
      plan_.kernels[k] = renumbered(std::move(plan_.kernels[k]), [&](BufferId id) {
        used.insert(id);
        if (const Placement& p = plan_.buffer(id).placement; p.kind == Placement::Kind::row) used.insert(BufferId(p.index));
        return id;
      });
    }
    return {used.begin(), used.end()};
  }

  // Memory for what only these kernels use: a plan of its own, once for each worker that has an image of its own.
  ControlMark place(size_t begin, size_t end, const std::vector<BufferId>& own, Expr images) {
    KernelPlan part;
    part.pool = plan_.pool;
    part.workers = plan_.workers;
    // Of the buffers those that these kernels use, in their order.
    std::vector<BufferId> used = buffers_of(begin, end, own);
    std::map<BufferId, BufferId> local;
    for (size_t i = 0; i < used.size(); ++i) local[used[i]] = BufferId(i);
    for (BufferId id : used) {
      PlanBuffer b = plan_.buffer(id);
      if (b.placement.kind == Placement::Kind::none) b.placement.kind = Placement::Kind::input;  // has its place elsewhere
      if (b.placement.kind == Placement::Kind::row) b.placement.index = local.at(BufferId(b.placement.index)).index;
      part.buffers.push_back(std::move(b));
    }
    for (BufferId id : own) part.buffer(local.at(id)).placement = {};
    for (size_t k = begin; k < end; ++k) part.kernels.push_back(renumbered(std::move(plan_.kernels[k]), [&](BufferId id) { return local.at(id); }));
    const Status planned = plan_memory(part, target_);
    CHECK(planned.ok(), "images of few sizes");
    for (size_t b = 0; b < part.buffers.size(); ++b) {
      if (b >= used.size()) {  // what loops keep between their passes
        used.push_back(BufferId(plan_.buffers.size()));
        plan_.buffers.push_back(part.buffers[b]);
      }
      if (part.buffers[b].placement.kind != Placement::Kind::arena) continue;
      plan_.buffer(used[b]).placement = {Placement::Kind::part, -1, part.buffers[b].placement.offset};
    }
    for (size_t k = begin; k < end; ++k) plan_.kernels[k] = renumbered(std::move(part.kernels[k - begin]), used);
    // With fewer images than workers all of them share one image's.
    const Expr workers = pool().symbol(plan_.workers);
    const Expr one = rewrite(part.arena_bytes, [&](Expr leaf) { return leaf == workers ? pool().index(1) : Expr(); }), apart = index_min(workers, images) * one;
    BufferInfo memory;
    memory.name = "images";
    memory.dtype = DType::u8;
    if (one == part.arena_bytes) memory.sizes = {apart};
    else memory.sizes = {provably_nonnegative(part.arena_bytes - workers * one) ? part.arena_bytes : index_max(apart, part.arena_bytes)};
    memory.strides = {pool().index(1)};
    plan_.buffers.push_back({std::move(memory), {}});
    return {ControlMark::Kind::images, {}, {}, images, BufferId(plan_.buffers.size() - 1), one};
  }

  KernelPlan& plan_;
  const TargetTraits& target_;
  std::vector<Lifetime> lives_;
  std::vector<Expr> images_;                      // of each kernel; null: no convolution is there
  std::set<BufferId> kept_;                       // results of the program
  std::vector<std::pair<size_t, Kernel>> marks_;  // and the kernels that they stand before; those further down first
};

}  // namespace

void run_by_image(KernelPlan& plan, const TargetTraits& target) {
  if (target.kept_bytes > 0) ByImage(plan, target).run();
}

}  // namespace coil
