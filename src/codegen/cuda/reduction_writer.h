// Writes a kernel with reductions or scans; see reduction.cc.
#pragma once

#include <functional>
#include <set>
#include <utility>

#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/loop_way.h"
#include "codegen/sum_blocks.h"
#include "loop/reduced_span.h"

namespace coil::cuda {

constexpr int kColumns = 32;
constexpr int kShortReduction = 64;  // points that one thread may take alone
// ... of neighbours that lie in a row, where one after another is read by a thread and a warp's rows shall stay in the L1 cache: if they are read once, and
// if they are read again or written. On an H100 300,000 softmaxes of 12 points take 44 us by threads and 53 by warps, of 16 points 66 and 57, of 49 points
// 431 and 53; sums of 49 points 30 and 33, of 64 points 82 and 36.
constexpr int kShortSum = 63, kShortRow = 12;
// Columns so short that a thread could take each, and so few that blocks take them in parts: 12,544 sums of 64 points take an H100 22 us by a thread each.
constexpr int64_t kFewSteps = 16, kFewPoints = 1 << 15;
constexpr int kKeptRegisters = 64;  // of a thread, for values that later passes read again; half of it in the largest blocks
constexpr int kUnrolledChunks = 16;
constexpr int kScannedBytes = 64;  // of a thread's values in a scan
constexpr int64_t kSkewed = 512;   // points of a row that may begin at odd addresses and still be read in chunks
constexpr int kDear = 8;           // operations of this cost are rather kept than repeated

enum class Way { row, column, thread, scan };

// The text of a chunk of `width` points; `element` indexes what a thread keeps of each point.
using AtChunk = std::function<std::string(int width, const std::string& indent, const std::string& element)>;

struct Accumulator {
  const Stmt* stmt = nullptr;
  std::string name;
  std::string lane;  // "[v]" where a thread has one for each of its points
};

// A kernel whose only reductions are over one range that data says: the kernel without the conditions that say so, and the range.
struct NarrowKernel {
  LoopKernel kernel;
  Expr first, last;
};
std::optional<NarrowKernel> narrow_kernel(const LoopKernel& k);

class ReductionWriter {
 public:
  // way: null for the own rules.
  ReductionWriter(const KernelPlan& plan, const LoopKernel& k, const LoopWay* way = nullptr);

  KernelText run();
  // As a function of (arguments, block, rows) that a kernel calls for each row of a block: the row in place of blockIdx.x, the only buffer that is stored point
  // by point in place of its own memory in that of `rows`.
  KernelText run_as_part();
  bool possible() const { return possible_; }
  bool takes_row_by_block() const { return possible_ && way_ == Way::row && threads_ > 32 && !narrow_; }
  LoopWay way() const;

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string type() const { return c_.index_type(); }
  std::string index(Expr e) { return index_text(c_, e); }
  const Axis& axis(int a) const { return k_.axes[static_cast<size_t>(a)]; }
  int num_axes() const { return static_cast<int>(k_.axes.size()); }
  int last_axis() const { return num_axes() - 1; }

  Expr outer_points() const;
  Expr inner_points() const;
  // Outer points by groups of so many neighbours along lane_.
  Expr outer_groups(int points) const;
  void choose_lanes();
  void choose_way();
  void choose_narrow(int64_t n, int64_t outer);
  // Gives each thread `most` columns side by side, or as many as can be read at once, for which one pass of sums may be all there is. False: it cannot.
  bool widen_columns(int most);
  // The same for threads that have their points alone, if enough threads are left to hide the memory's latency. Otherwise a thread has one point.
  void widen_threads(int most);
  // Points along lane_ that can be read at once, at most so many; the axis has a multiple of them wherever they are.
  int lane_width(int most);
  // Whether all is reductions in one pass, and what follows from them.
  bool one_pass(bool with_positions) const;
  // Whether a thread has several outer points, neighbours along lane_.
  bool several() const { return width_ > 1 && (way_ == Way::column || way_ == Way::thread); }
  // Whether the points are read in one pass, and nothing is stored at each of them.
  bool reads_once() const;
  // Whether eight rows share a block, a warp each.
  bool warp_rows() const { return (way_ == Way::row || way_ == Way::scan) && threads_ == 32; }
  // What cd::columns_reduce needs: the columns of each warp, and the results.
  int wide_slots() const { return columns_ * width_ * (block_threads() / 32 + 1); }
  // The axis along which a thread handles several points at once.
  int vector_axis() const { return several() ? lane_ : last_axis(); }
  // What somebody else chose, as far as the kernel can be computed so.
  void take_way(const LoopWay& way);
  // Threads of a row: some 16 values each, or as many as are wished; and whether the row's values can stay in registers.
  void choose_row(int64_t n, std::optional<int64_t> bound, int wished);
  int most_kept() const { return threads_ < 1024 ? kKeptRegisters : kKeptRegisters / 2; }

  // Rows that begin anywhere, as those of an odd length do: chunks are counted from the multiple of their width before the row, if all
  // that is read and written along it begins at the same place.
  void skew_row();
  // Chunks of a row: `width_` consecutive points of the last axis each.
  Expr chunk_count() const;
  // Whether it differs between the points of a row and can be computed at each of them.
  bool moves(Expr e) const;
  // Nodes of a statement's value that are always evaluated; f says whether to go on below a node.
  void visit_plain(Expr e, std::set<const ExprNode*>& seen, const std::function<bool(Expr)>& f) const;
  // Values that several passes need and that registers can hold: first what is dear to compute, then what else has to be read again.
  void find_kept_values();
  int block_threads() const;
  // Rows of few values a thread, of one operand, wait for memory most of the time: as many blocks as fit should wait together. More
  // operands do not fit the registers that are left to a thread then.
  std::string bounds() const;
  // Expr of the number of groups a block's grid has to cover.
  GridWork grid() const;
  // The outer point of this thread.
  std::string frame_code();
  std::string slots_code() const;
  // Coordinates of axes, the fastest first, from a number. lane_blocks: the first axis is counted in blocks of columns.
  std::string take_apart(std::string rest, const std::vector<int>& order, const std::string& lane_blocks);
  std::string phases();
  std::string keep_array(const std::string& name, DType dtype);
  std::string outer_statements(const std::vector<const Stmt*>& stmts);
  // The same for each point of a thread that has several.
  std::string outer_of_several(const std::vector<const Stmt*>& stmts);
  std::string outer_code(const std::vector<const Stmt*>& stmts, const std::string& only, const std::string& indent);
  // One pass over the inner axes: declares accumulators, loops, combines.
  std::string inner_pass(const std::vector<const Stmt*>& stmts, int phase);
  // A pass that finds the largest x, followed by one that sums exp(x - largest), over rows that are too long to stay in registers: the
  // second's statement. `next`: the statement behind the first pass.
  const Stmt* softmax_sum(const std::vector<const Stmt*>& first, size_t next) const;
  // The row in batches of chunks, so that a thread has several loads under way: declares x and fills it, -inf behind the row's end; the
  // loop stays open.
  std::string softmax_batches(const std::string& type, const std::string& x, const std::string& none, const AtChunk& fill);
  std::string softmax_pass(const Stmt& top, const Stmt& sum);
  std::string combine(const Accumulator& a);
  std::string update(const Accumulator& a, const std::string& value, const std::string& number, const std::string& indent);
  Expr point_number() const;
  // The statements at one chunk: `width` points at once, or one.
  std::string chunk(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, int phase, int width, const std::string& indent,
                    const std::string& element);
  void know_scratch(Emitter& emitter, const std::vector<const Stmt*>& stmts, int row, const std::string& text, bool lanes);
  // The row's chunks, each by the text that at_chunk gives for `width` points.
  std::string row_loop(const AtChunk& at_chunk);
  // All inner points of a thread, one after the other: every one, or every `lines_`-th.
  std::string serial_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators);
  std::string thread_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool adds);
  std::string column_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool adds);
  // Opens the loop over the points of a thread, one after the other; behind the axis's last one, that one again.
  std::string each_point(const std::string& indent);
  // A loop's innermost text: all points of the thread at once, or (not wide) one after the other, or the only one.
  std::string points_chunk(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool wide, const std::string& indent,
                           const std::string& element);
  std::string thread_points(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, const SumBlocks& blocks, bool wide);
  std::string column_points(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, bool blocks, bool wide);
  // Of a loop, which goes through blocks of so many points, if any; indent: that of what is inside. Behind a block its sums go to the whole ones.
  // Declares the ends of the range that a thread visits, in the domain.
  std::string range_code();
  int unrolled_points() const;
  std::string open_loop(const std::string& v, const std::string& first, const std::string& end, const std::string& step, const std::string& block,
                        std::string& indent) const;
  std::string close_loop(const std::vector<Accumulator>& accumulators, bool block, std::string& indent) const;
  std::string whole_sums(const std::vector<Accumulator>& accumulators) const;
  std::string join_sums(const std::vector<Accumulator>& accumulators) const;
  Expr inner_number() const { return point_number(); }

  // Threads and values of a thread; blocks of the scanned axis come one after the other.
  void choose_scan(int64_t n, int most_threads);
  std::string scan_code();
  // What a thread does at each of its chunks.
  std::string scan_groups(const AtChunk& at_chunk);

  const KernelPlan& plan_;
  const std::optional<NarrowKernel> narrow_;
  const LoopKernel& k_;
  KernelContext c_;
  std::map<int, TempText> temps_;
  Way way_ = Way::row;
  int lane_ = -1;  // thread, column: the outer axis that consecutive threads run along
  bool possible_ = true;
  int outer_score_ = 0;
  int threads_ = 32;        // row: of one row; thread: of a block
  int lines_ = 8;           // column
  int columns_ = kColumns;  // column: threads side by side
  int width_ = 1;           // row: points of a chunk; column, thread: outer points of a thread, along lane_
  int chunks_ = 0;          // row: chunks a thread, when they are few enough to stay in registers; 0: a loop. scan: of a block of the axis
  std::vector<std::pair<Expr, int>> kept_values_;  // and the phase that computes them
  bool needs_slots_ = false;
  bool part_ = false;
  int set_ = 0;
};

std::optional<KernelText> reduction_text(const KernelPlan& plan, const LoopKernel& kernel, const LoopWay& way);
// run_as_part() by so many threads; null: the kernel does not give each row to a block.
std::optional<KernelText> reduction_part(const KernelPlan& plan, const LoopKernel& kernel, int threads);
LoopWay own_reduction(const KernelPlan& plan, const LoopKernel& kernel);

}  // namespace coil::cuda
