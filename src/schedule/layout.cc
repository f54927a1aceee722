// Chooses the strides of computed buffers, and copies operands that a template cannot read where they are.
#include <algorithm>
#include <map>
#include <set>

#include "loop/templates/template.h"
#include "schedule/channels_last.h"
#include "schedule/few_last.h"
#include "schedule/grouped_heads.h"
#include "schedule/product_orders.h"
#include "schedule/product_rows.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

class LayoutChooser {
 public:
  LayoutChooser(LoopProgram program, const TargetTraits& target) : program_(std::move(program)), target_(target) {}

  LoopProgram run() {
    for (const LoopOutput& o : program_.outputs) {
      if (!o.target.valid() || !open(o.source)) continue;
      program_.buffer(o.source).strides = program_.buffer(o.target).strides;
      say_why(o.source, "it is written to " + program_.buffer(o.target).name + ", which lies so");
    }
    if (target_.convolution_channels_last) channels_last_ = find_channels_last(program_);
    std::set<BufferId> last;
    for (const auto& [id, reason] : channels_last_) last.insert(id);
    rows_ = product_rows(program_, target_);
    orders_ = product_orders(program_, last, target_);
    change_products(program_, orders_);
    if (target_.turns_in_tiles) lines_ = lines_of_readers(program_);
    std::vector<Loop> loops = std::move(program_.loops);
    program_.loops.clear();
    for (Loop& loop : loops) {
      assign(loop);
      legalise(loop);
      program_.loops.push_back(std::move(loop));
      restride_attention();
      restride_whole();
    }
    return std::move(program_);
  }

 private:
  ExprPool& pool() { return *program_.pool; }

  // Of the reasons for a layout the first one counts; dense rows need none.
  void say_why(BufferId id, const std::string& reason) {
    BufferInfo& b = program_.buffer(id);
    if (b.why.empty() && b.strides != contiguous_strides(pool(), b.sizes)) b.why = reason;
  }

  bool open(BufferId id) const {
    const BufferInfo& b = program_.buffer(id);
    return b.kind == BufferInfo::Kind::computed && b.strides.empty();
  }

  void assign(const Loop& loop) {
    for (BufferId id : loop.outputs) {
      if (!open(id)) continue;
      BufferInfo& b = program_.buffer(id);
      if (std::holds_alternative<Attention>(loop.def)) {
        // Rows of all heads side by side: what the projection after it reads.
        const Expr d = b.sizes[3], h = b.sizes[1];
        b.strides = {b.sizes[2] * h * d, d, h * d, pool().index(1)};
        say_why(id, "attention writes the rows of all heads side by side, as the projection behind it reads them");
        continue;
      }
      const auto line = lines_.find(id);
      const bool turned = line != lines_.end() && !channels_last_.contains(id) && reads_along(program_, loop, line->second);
      const auto [strides, reason] = chosen(id, turned ? &line->second : nullptr);
      b.strides = strides;
      say_why(id, reason);
    }
  }

  // The strides of a computed buffer, and why it has them. `along`: a dimension whose elements go side by side.
  std::pair<std::vector<Expr>, std::string> chosen(BufferId id, const size_t* along) {
    const BufferInfo& b = program_.buffer(id);
    if (orders_.strides.contains(id)) return {orders_.strides.at(id), orders_.reasons.at(id)};
    if (along) return {strides_along(pool(), b.sizes, *along), "all who read it walk along another dimension than the last one, which has few elements"};
    if (channels_last_.contains(id) && b.sizes.size() >= 3) return {channels_last_strides(pool(), b.sizes), channels_last_.at(id)};
    if (rows_.padded.contains(id))
      return {padded_strides(pool(), b),
              "a cache line of room between rows: without it the rows that a product reads would meet in few sets of the first cache"};
    if (rows_.aligned.contains(id))
      return {aligned_strides(pool(), b, target_), "its rows begin where the processor's units can load whole boxes of them for a product"};
    return {contiguous_strides(pool(), b.sizes), ""};
  }

  // A stored copy of `operand` over dimensions `sizes` (the template's variables `vars`), dense in their order.
  void copy_operand(Operand& operand, const std::vector<int>& vars, const std::vector<Expr>& sizes, const Loop& user, const char* reason,
                    bool channels_last = false) {
    const BufferInfo source = program_.buffer(operand.buffer);
    std::vector<Expr> renumber(64);
    std::vector<Expr> coordinates;
    for (int i = 0; i < 64; ++i) renumber[static_cast<size_t>(i)] = pool().var(i);
    for (size_t k = 0; k < vars.size(); ++k) {
      renumber[static_cast<size_t>(vars[k])] = pool().var(static_cast<int>(k));
      coordinates.push_back(pool().var(vars[k]));
    }
    std::vector<Expr> at;
    for (Expr c : operand.coordinates) at.push_back(substitute_vars(c, renumber));
    const Expr value = pool().load(operand.buffer, source.dtype, at);
    BufferId& known = copied_[{value.node(), channels_last}];  // Expressions of one value are one node.
    if (known.valid() && program_.buffer(known).sizes == sizes) {
      operand = Operand{known, coordinates};
      return;
    }
    BufferInfo copy;
    copy.name = source.name + "_copy" + std::to_string(++copies_);
    copy.dtype = source.dtype;
    copy.sizes = sizes;
    copy.strides = channels_last ? channels_last_strides(pool(), sizes) : contiguous_strides(pool(), sizes);
    copy.why = copy_of(source.name, user.op, reason);
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(std::move(copy));
    known = id;
    Loop loop;
    loop.def = Pointwise{value};
    loop.outputs = {id};
    loop.op = "copy";
    loop.origins = user.origins;
    program_.loops.push_back(std::move(loop));
    operand = Operand{id, coordinates};
  }

  static std::string copy_of(const std::string& source, const std::string& user, const char* reason) {
    return "it is a copy of " + source + " for " + user + ": " + reason;
  }

  // Attention writes rows; an interface that wants the result otherwise gets a copy.
  void restride_attention() {
    Loop& loop = program_.loops.back();
    if (!std::holds_alternative<Attention>(loop.def)) return;
    const BufferId wanted = loop.outputs[0];
    BufferInfo rows = program_.buffer(wanted);
    if (rows.strides[3] == pool().index(1)) return;
    rows.name += "_rows";
    rows.strides = contiguous_strides(pool(), rows.sizes);
    rows.why.clear();
    program_.buffer(wanted).why = "it is a copy of " + rows.name + ": attention writes rows, and this has the strides that its reader outside wants";
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(rows);
    loop.outputs = {id};
    Loop copy;
    copy.def = Pointwise{pool().load(id, rows.dtype, {pool().var(0), pool().var(1), pool().var(2), pool().var(3)})};
    copy.outputs = {wanted};
    copy.op = "copy";
    copy.origins = loop.origins;
    program_.loops.push_back(std::move(copy));
  }

  // Library routines, regions and user kernels write dense rows: other strides get a copy.
  void restride_whole() {
    const size_t row = program_.loops.size() - 1;
    if (!defines_whole(program_.loops[row].def)) return;
    for (size_t i = 0; i < program_.loops[row].outputs.size(); ++i) {
      const BufferId wanted = program_.loops[row].outputs[i];
      BufferInfo dense = program_.buffer(wanted);
      const std::vector<Expr> strides = contiguous_strides(pool(), dense.sizes);
      if (dense.strides == strides) continue;
      dense.name += "_rows";
      dense.strides = strides;
      dense.why.clear();
      program_.buffer(wanted).why =
          "it is a copy of " + dense.name + ": " + program_.loops[row].op + " writes dense rows, and this has the strides that its reader outside wants";
      const BufferId id(program_.buffers.size());
      program_.buffers.push_back(dense);
      program_.loops[row].outputs[i] = id;
      if (auto* region = std::get_if<Region>(&program_.loops[row].def)) {
        for (RegionPart& part : region->parts) {
          for (auto& capture : part.captures) {
            if (capture.second == wanted) capture.second = id;
          }
        }
      }
      std::vector<Expr> at;
      for (size_t d = 0; d < dense.sizes.size(); ++d) at.push_back(pool().var(static_cast<int>(d)));
      Loop copy;
      copy.def = Pointwise{pool().load(id, dense.dtype, at)};
      copy.outputs = {wanted};
      copy.op = "copy";
      copy.origins = program_.loops[row].origins;
      program_.loops.push_back(std::move(copy));
    }
  }

  // `id` as a dense buffer, row by row.
  void make_dense(BufferId& id, const Loop& user) {
    const BufferInfo& b = program_.buffer(id);
    if (b.strides == contiguous_strides(pool(), b.sizes)) return;
    std::vector<int> vars;
    Operand whole{id, {}};
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      vars.push_back(static_cast<int>(d));
      whole.coordinates.push_back(pool().var(static_cast<int>(d)));
    }
    copy_operand(whole, vars, std::vector<Expr>(b.sizes), user, "it reads dense rows, which these are not");
    id = whole.buffer;
  }

  void legalise_def(Loop& loop, Library& call) {
    for (BufferId& id : call.inputs) make_dense(id, loop);
  }

  void legalise_def(Loop& loop, Region& region) {
    for (BufferId& id : region.initial) make_dense(id, loop);
    std::map<BufferId, BufferId> dense;
    for (RegionPart& part : region.parts) {
      for (auto& capture : part.captures) {
        if (std::find(loop.outputs.begin(), loop.outputs.end(), capture.second) != loop.outputs.end()) continue;
        const auto [known, fresh] = dense.try_emplace(capture.second, capture.second);
        if (fresh) make_dense(known->second, loop);
        capture.second = known->second;
      }
    }
  }

  Expr offset_of(const Operand& operand, const LoopDef& user) {
    return simplify_index(linear_offset(pool(), program_.buffer(operand.buffer), operand.coordinates), {operand_ranges(user)});
  }

  // A template that lacks its part here does not compile.
  void legalise(Loop& loop) {
    visit_template(loop.def, [&](auto& def) { legalise_def(loop, def); });
    if (auto* library = std::get_if<Library>(&loop.def)) legalise_def(loop, *library);
    if (auto* region = std::get_if<Region>(&loop.def)) legalise_def(loop, *region);
    if (auto* call = std::get_if<UserCall>(&loop.def)) legalise_def(loop, *call);
  }

  // What the kernel reads has strides, and where it asks for that those of dense rows (from wherever they begin). What it writes to is
  // copied into its result, which takes any strides.
  void legalise_def(Loop& loop, UserCall& call) {
    for (size_t i = 0; i < call.args.size(); ++i) {
      auto* t = std::get_if<UserCall::Tensor>(&call.args[i]);
      if (!t || !t->operand.buffer.valid()) continue;
      const std::vector<Expr> sizes = t->sizes;
      const Expr offset = simplify_index(linear_offset(pool(), program_.buffer(t->operand.buffer), t->operand.coordinates), {sizes});
      const std::vector<Expr> dense = contiguous_strides(pool(), sizes);
      std::vector<int> vars;
      bool ok = true;
      for (size_t d = 0; d < sizes.size(); ++d) {
        vars.push_back(static_cast<int>(d));
        const auto affine = as_affine(offset, static_cast<int>(d));
        ok = ok && affine && !std::any_of(vars.begin(), vars.end(), [&](int v) { return depends_on_var(affine->coefficient, v); });
        if (ok && (call.kernel->contiguous || call.kernel->args[i].written)) ok = affine->coefficient == dense[d] || sizes[d] == pool().index(1);
      }
      if (!ok) copy_operand(t->operand, vars, sizes, loop, "the kernel is called with strides that this view does not have");
    }
  }

  void legalise_def(Loop& loop, Gemm& g) {
    const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
    const auto fix = [&](Operand& x, int first, const std::vector<Expr>& rows, const std::vector<Expr>& others) {
      const Expr offset = offset_of(x, loop.def);
      const auto row = merged_stride(offset, first, rows), step = merged_stride(offset, k0, g.k);
      const bool misses = row && step && misses_boxes(program_.buffer(x.buffer), *row, *step, others, target_);
      if (merged_stride(offset, 0, g.batch) && row && step && !misses) return;
      std::vector<int> vars;
      std::vector<Expr> sizes;
      const auto take = [&](int begin, const std::vector<Expr>& dims) {
        for (size_t i = 0; i < dims.size(); ++i) {
          vars.push_back(begin + static_cast<int>(i));
          sizes.push_back(dims[i]);
        }
      };
      take(0, g.batch);
      const bool across = misses || lies_across(program_.buffer(x.buffer), offset, first, rows, k0, g.k, target_);
      if (!across) take(first, rows);
      take(k0, g.k);
      if (across) take(first, rows);
      const size_t before = program_.buffers.size();
      copy_operand(x, vars, sizes, loop,
                   misses ? "its lines begin at odd places, so that they cannot be loaded in boxes"
                          : "a product reads its rows with one stride, and what it sums over with another one: this view has more of them");
      if (misses && program_.buffers.size() > before) program_.buffer(x.buffer).strides = aligned_strides(pool(), program_.buffer(x.buffer), target_);
    };
    fix(g.a, m0, g.m, g.n);
    fix(g.b, n0, g.n, g.m);
  }

  // Operands have strides; the ends are a list.
  void legalise_def(Loop& loop, GroupedGemm& g) {
    const std::vector<Expr> sizes = operand_ranges(loop.def);
    const auto fix = [&](Operand& x, const std::vector<int>& vars) {
      const Expr offset = offset_of(x, loop.def);
      std::vector<Expr> dims;
      bool ok = true;
      for (const int v : vars) {
        dims.push_back(sizes[static_cast<size_t>(v)]);
        ok = ok && merged_stride(offset, v, {&dims.back(), 1}).has_value();
      }
      if (!ok) copy_operand(x, vars, dims, loop, "a product of groups reads each dimension with one stride, which this view does not have");
    };
    fix(g.a, {1, 3});
    fix(g.b, g.kind == GroupedGemm::Kind::rows ? std::vector<int>{0, 3, 2} : std::vector<int>{3, 2});
    make_dense(g.ends, loop);
  }

  // The template reads unit-stride channels, or gathers from few channels.
  void legalise_def(Loop& loop, Conv2d& c) {
    legalise_conv_weight(loop, c);
    const Expr offset = offset_of(c.x, loop.def);
    bool ok = true;
    for (int v = 0; v < 4; ++v) ok = ok && as_affine(offset, v).has_value();
    if (ok) {
      const auto channel = as_affine(offset, 1);
      const bool few = c.x_sizes[1]->is_constant() && c.x_sizes[1]->as_int() <= 4;
      const bool bytes = is_int(program_.buffer(c.x.buffer).dtype), one = c.x_sizes[1] == pool().index(1);
      if (channel->coefficient == pool().index(1) || (few && c.groups == 1 && (!bytes || one))) return;
    }
    copy_operand(c.x, {0, 1, 2, 3}, c.x_sizes, loop, "a convolution reads the channels of a point side by side", true);
  }

  // Where the template wants constant weights as [oc][kh][kw][ic], those of run time are copied to be so.
  void legalise_conv_weight(Loop& loop, Conv2d& c) {
    const BufferInfo& w = program_.buffer(c.weight);
    if (w.kind == BufferInfo::Kind::constant || target_.packs_convolution_weights) return;
    const Expr ic = w.sizes[1], row = w.sizes[3] * ic;
    if (w.strides == std::vector<Expr>{w.sizes[2] * row, pool().index(1), row, ic} && w.kind == BufferInfo::Kind::computed) return;
    Operand whole{c.weight, {}};
    for (int d = 0; d < 4; ++d) whole.coordinates.push_back(pool().var(d));
    copy_operand(whole, {0, 1, 2, 3}, std::vector<Expr>(w.sizes), loop, "a convolution reads the weights of a point of its window side by side", true);
    c.weight = whole.buffer;
  }

  void legalise_def(Loop& loop, Attention& a) {
    group_heads(pool(), a, {operand_ranges(loop.def)});
    const auto fix = [&](Operand& x, const std::vector<Expr>& sizes, bool unit_column) {
      const Expr offset = offset_of(x, loop.def);
      bool ok = true;
      for (int v = 0; v < 4; ++v) ok = ok && as_affine(offset, v).has_value();
      if (ok && unit_column) ok = as_affine(offset, 3)->coefficient == pool().index(1) || sizes[3] == pool().index(1);
      if (!ok) copy_operand(x, {0, 1, 2, 3}, sizes, loop, "attention reads the elements of a head side by side, and each dimension with one stride");
    };
    fix(a.q, {a.batch, a.heads, a.q_len, a.dim}, true);
    fix(a.k, {a.batch, a.kv_heads, a.kv_len, a.dim}, true);
    fix(a.v, {a.batch, a.kv_heads, a.kv_len, a.v_dim}, true);
    if (a.mask) fix(*a.mask, {a.batch, a.heads, a.q_len, a.kv_len}, false);
  }

  LoopProgram program_;
  const TargetTraits& target_;
  std::map<std::pair<const ExprNode*, bool>, BufferId> copied_;  // by the value that was copied, and whether channels are last
  std::map<BufferId, const char*> channels_last_;                // and why they are
  ProductRows rows_;
  ProductOrders orders_;
  std::map<BufferId, size_t> lines_;  // the dimension of results of few last elements that loops walk along
  int copies_ = 0;
};

}  // namespace

LoopProgram choose_layouts(LoopProgram program, const TargetTraits& target) { return LayoutChooser(std::move(program), target).run(); }

}  // namespace coil
