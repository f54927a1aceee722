// Chooses the strides of computed buffers, and copies operands that a template cannot read where they are.
#include <algorithm>
#include <map>
#include <set>

#include "loop/dense.h"
#include "loop/templates/template.h"
#include "schedule/channels_last.h"
#include "schedule/few_last.h"
#include "schedule/products/product_orders.h"
#include "schedule/products/product_rows.h"
#include "schedule/schedule.h"
#include "schedule/templates/parts.h"

namespace coil {
namespace {

class LayoutChooser {
 public:
  LayoutChooser(LoopProgram program, const TargetTraits& target) : program_(std::move(program)), target_(target) {}

  LoopProgram run() {
    const std::set<BufferId> by_points = made_by_points();
    for (const LoopOutput& o : program_.outputs) {
      if (!o.target.valid() || !open(o.source)) continue;
      const BufferInfo& to = program_.buffer(o.target);
      if (!is_dense(to.sizes, to.strides) && !by_points.contains(o.source)) continue;  // it would take the gaps' memory as well
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
      restride();
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

  // What is computed point by point can be stored in the memory of what it is written to.
  std::set<BufferId> made_by_points() const {
    std::set<BufferId> found;
    for (const Loop& l : program_.loops) {
      if (std::holds_alternative<Pointwise>(l.def)) found.insert(l.outputs.begin(), l.outputs.end());
    }
    return found;
  }

  void assign(const Loop& loop) {
    for (BufferId id : loop.outputs) {
      if (!open(id)) continue;
      BufferInfo& b = program_.buffer(id);
      if (const auto rows = rows_of(loop)) {
        b.strides = rows->strides;
        say_why(id, rows->reason);
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

  // How rows lie in the result of a template that stores nothing else; nullopt of all other definitions.
  std::optional<ResultRows> rows_of(const Loop& loop) {
    std::optional<ResultRows> rows;
    visit_template(loop.def, [&](const auto& def) { rows = result_rows(pool(), def, program_.buffer(loop.outputs[0]).sizes); });
    return rows;
  }

  // What the last loop's kernels cannot store as its readers outside want it.
  void restride() {
    const size_t row = program_.loops.size() - 1;
    const std::vector<BufferId> outputs = program_.loops[row].outputs;
    if (rows_of(program_.loops[row]) && program_.buffer(outputs[0]).strides.back() != pool().index(1)) {
      store_dense(row, 0, std::string(template_name(program_.loops[row].def)) + " writes rows");
    }
    if (!defines_whole(program_.loops[row].def)) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const BufferInfo& b = program_.buffer(outputs[i]);
      if (b.strides != contiguous_strides(pool(), b.sizes)) store_dense(row, i, program_.loops[row].op + " writes dense rows");
    }
  }

  // A result becomes a dense buffer, of which a copy has the strides that are wanted.
  void store_dense(size_t row, size_t result, const std::string& why) {
    const BufferId wanted = program_.loops[row].outputs[result];
    BufferInfo dense = program_.buffer(wanted);
    dense.name += "_rows";
    dense.strides = contiguous_strides(pool(), dense.sizes);
    dense.why.clear();
    program_.buffer(wanted).why = "it is a copy of " + dense.name + ": " + why + ", and this has the strides that its reader outside wants";
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(dense);
    program_.loops[row].outputs[result] = id;
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

  void legalise_def(Loop& loop, Library& call) {
    for (BufferId& id : call.inputs) copies_.make_dense(id, loop);
  }

  void legalise_def(Loop& loop, Region& region) {
    for (BufferId& id : region.initial) copies_.make_dense(id, loop);
    std::map<BufferId, BufferId> dense;
    for (RegionPart& part : region.parts) {
      for (auto& capture : part.captures) {
        if (std::find(loop.outputs.begin(), loop.outputs.end(), capture.second) != loop.outputs.end()) continue;
        const auto [known, fresh] = dense.try_emplace(capture.second, capture.second);
        if (fresh) copies_.make_dense(known->second, loop);
        capture.second = known->second;
      }
    }
  }

  void legalise(Loop& loop) {
    visit_template(loop.def, [&](auto& def) { coil::legalise(copies_, loop, def); });
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
      if (!ok) copies_.copy(t->operand, vars, sizes, loop, "the kernel is called with strides that this view does not have");
    }
  }

  LoopProgram program_;
  const TargetTraits& target_;
  OperandCopies copies_{program_, target_};
  std::map<BufferId, const char*> channels_last_;  // and why they are
  ProductRows rows_;
  ProductOrders orders_;
  std::map<BufferId, size_t> lines_;  // the dimension of results of few last elements that loops walk along
};

}  // namespace

LoopProgram choose_layouts(LoopProgram program, const TargetTraits& target) { return LayoutChooser(std::move(program), target).run(); }

}  // namespace coil
