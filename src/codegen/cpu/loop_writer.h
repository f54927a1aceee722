// Writes a loop kernel in one of its forms; see loop_kernel.cc.
#pragma once

#include <string>
#include <vector>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/emit_expr.h"
#include "codegen/cpu/loop_form.h"
#include "codegen/cpu/reduce_text.h"
#include "codegen/sum_blocks.h"

namespace coil::cpu {

constexpr int64_t kTiledBlock = 256;      // lanes of an item of tiles
constexpr int64_t kTileRows = kMaxLanes;  // points across of an item of tiles: as many lines as a core reads at once

inline bool whole_vectors(Expr n) { return n->is_constant() && n->as_int() % kMaxLanes == 0; }
// Weighing whether to unroll a long body is a fifth of clang's time, and unrolled it takes half as long again.
inline std::string keep_rolled(const std::string& indent) { return indent + "#pragma clang loop unroll(disable)\n"; }

class LoopWriter {
 public:
  LoopWriter(const KernelPlan& plan, const LoopKernel& k, const LoopForm& form, const std::vector<BufferId>& buffers, const std::vector<int>& symbols);
  KernelText run();

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string& out() { return *out_; }
  const Axis& axis(int a) const { return k_.axes[static_cast<size_t>(a)]; }
  std::string size(int a) { return scalar_index(axis(a).size); }
  bool any_inner() const { return k_.num_outer < static_cast<int>(k_.axes.size()); }
  bool lane_outer() const { return form_.lanes >= 0 && form_.lanes < k_.num_outer; }
  bool several() const { return form_.vectors > 1; }

  std::string scalar_index(Expr e);
  std::string scratch_pointer(size_t r);
  // Lanes along an outer axis: an item is a block of that axis. The other outer axes are unpacked from the item's number.
  void item_loop();
  // The item's number taken apart, the fastest first: names and how many values each has.
  using ItemParts = std::vector<std::pair<std::string, Expr>>;
  std::string unpack(const ItemParts& parts, const std::string& item, const std::string& indent);
  // At an item's begin: the rows that data names, where an item has one of each, checked once. Compilers leave that in the innermost loop, since it
  // may raise the flag. Memory is asked for the rows of an item to come (loop_rows.cc).
  void rows_of_item(const ItemParts& parts, int64_t block);
  std::vector<Expr> rows_of(Expr offset) const;
  void look_up_rows(Expr offset);
  void ask_for_rows(const std::vector<Expr>& loads, const ItemParts& parts, int64_t block);
  void lane_block(int64_t block);
  // One vector after the other, with what is left of the lanes behind; `at` is how far it got.
  void vectors_until_stop(const std::string& at, const std::string& indent);
  int64_t lanes_of_item() const;
  void column_block();
  void column_rows(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& begin, const std::string& end,
                   const std::string& indent);
  void tiles();
  void tile(const std::string& indent);
  // What moves a whole square, or the part of one at the end of an axis.
  std::string at_first_point(const std::string& whole, const std::string& part, const std::string& indent) const;
  // Tiles that hold results until all points of a tile are there.
  std::string open_turned(const std::string& indent);
  void close_turned(const std::string& indent);
  // All statements at one outer point (or one vector of them, or form_.vectors of them), pass by pass.
  void phases(const std::string& indent);
  void outer_statements(const std::vector<const Stmt*>& stmts, const std::string& indent);
  // Of several vectors at once: values that others need are arrays.
  void repeated_outer(const std::vector<const Stmt*>& stmts, const std::string& indent);
  void run_statement(const Stmt& s, ExprEmitter& emitter);
  // One pass over the inner axes.
  void inner_loops(const std::vector<const Stmt*>& stmts, const std::string& indent);
  void lane_loop(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& in, int axis, int vectors, bool blocks);
  // Opens the loop over an inner axis; of blocks of so many points, if any, and over those of a block.
  // by_rows: column_rows writes the loop over a block's points itself.
  std::string open_inner(int a, Expr block, const std::string& indent, bool by_rows);
  std::string next_block(const std::vector<ReduceText>& reductions, const std::string& indent) const;
  void inner_body(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& indent);
  // A loop over the vectors of one step, which the compiler writes out, or over those of an item of columns; its variable is u.
  std::string open_repeat(const std::string& indent, int vectors) const;
  Expr inner_points() const;
  // The number of an inner point, row-major over the inner axes: what argmax and argmin return.
  Expr point_number() const;
  // Vector operations of one item, roughly: what the host needs to choose a grain.
  Expr work() const;

  const KernelPlan& plan_;
  const LoopKernel& k_;
  const LoopForm form_;
  KernelNames names_;
  EmitContext context_;
  std::vector<const Stmt*> turned_;  // stores, by number of their tile
  bool repeats_ = false;             // the text at hand is for several vectors of an outer axis
  std::string* out_ = nullptr;
  int next_name_ = 0;
  Expr items_;
};

}  // namespace coil::cpu
