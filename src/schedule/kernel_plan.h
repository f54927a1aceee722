// The kernel plan: which loops share a kernel, in what order kernels run, and where every buffer lives.
//
// Semantics. Kernels run one after the other, as far as control marks do not say otherwise. Expressions in a plan read buffers by one linear element offset,
// `load(buffer, {offset})`; all layout is resolved. Temps name values within one kernel. Target-neutral: a code generator chooses
// vector axes, tiles and threads.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "loop/loop.h"
#include "schedule/packing.h"

namespace coil {

struct Placement {
  enum class Kind : uint8_t { none, input, output, constant, state, arena, late, row, part };
  Kind kind = Kind::none;
  int index = -1;  // input, output: position in the call; constant: row of KernelPlan::constants; late: row of KernelPlan::late_memory; row: the whole buffer;
                   // arena: the first buffer at that place
  Expr offset;     // bytes into the arena, the state block, the late memory or a worker's part of the images mark's memory; row: bytes of one
};

struct PlanBuffer {
  BufferInfo info;
  Placement placement;
};

// One iteration variable; variable number k of the kernel's expressions is axis k.
struct Axis {
  Expr size;
  std::string name;  // for readers: "i0", "r1"
};

// A statement of a loop kernel. `inner` statements run for each point of all axes, the others once per outer point.
struct Stmt {
  enum class Kind : uint8_t { let, reduce, scan, store };
  Kind kind = Kind::store;
  bool inner = false;
  TempId temp;  // let, reduce, scan: what it defines
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;  // store: the buffer's element type; reduce, scan, let: the type of the value
  Expr value;
  BufferId buffer;   // store
  Expr offset;       // store: linear element offset
  int phase = 0;     // inner statements: which pass over the inner axes runs it
  Expr condition;    // store: null, or what has to hold for it to happen (and for `offset` to be in range)
  int scratch = -1;  // store: row of LoopKernel::scratch instead of a buffer (offset counts within the worker's part)
};

// Loads of worker scratch row r name the buffer kScratchBase + r; it is no row of the plan's buffers.
inline constexpr int32_t kScratchBase = 1 << 28;

// A buffer private to a worker that holds one value per inner point between two phases.
struct WorkerScratch {
  DType dtype = DType::f32;
  Expr elements;
  BufferId buffer;  // its row in the plan's buffers (arena, one part per worker); invalid: the generator's business
};

struct LoopKernel {
  std::vector<Axis> axes;  // outer ones first
  int num_outer = 0;
  int num_phases = 0;
  bool sequential = false;  // the last inner axis carries a scan
  std::vector<Stmt> stmts;  // in an order that respects dependences: by phase, outer statements between phases
  std::vector<WorkerScratch> scratch;
};

// A template call. The result's element is the temp `acc` (compute type) in the epilogue's expressions, whose variables are the
// template's result coordinates. Without epilogue statements the template stores its result itself.
struct PlanOperand {
  BufferId buffer;
  Expr offset;  // linear element offset over the template's variables
};
// The first rows of an attention's keys and values, which lie before those of its operands k and v: the loop program concatenates them.
struct PastKeys {
  Expr rows;
  PlanOperand k, v;                     // over the operands' variables
  bool keep_k = false, keep_v = false;  // others read the whole: the kernel copies them to where it has their place, in front of its operand
};
struct TemplateKernel {
  LoopDef def;                        // a template; operands' coordinates are as in the loop program
  std::vector<PlanOperand> operands;  // gemm: a, b; grouped: a, b, ends; conv2d: x, weight; attention: q, k, v [, mask]
  std::vector<PlanOperand> weights;   // conv2d: the same weight packed otherwise, for the choices that want it so
  int32_t call_winograd = 0;          // conv2d: the tile for which each call transforms a weight that is no constant; 0: it does not
  std::optional<PastKeys> past;
  std::vector<Expr> result_sizes;
  BufferId result;     // where the plain result goes when there is no epilogue
  Expr result_offset;  // over the result's coordinates
  TempId acc;
  std::vector<Stmt> epilogue;  // stores
  BufferId scratch;            // invalid: none
};

struct SortKernel {
  Sort def;
  Expr source_offset, values_offset, indices_offset;  // over the result's coordinates; source's along `dim` in [0, length)
  BufferId values, indices, scratch;
  std::vector<Expr> sizes;  // of the result
  DType dtype = DType::f32;
  Expr body;  // the values to sort, linear loads
};

// A routine of the device library; `def` says which, its buffers are dense.
struct LibraryKernel {
  Library def;
  std::vector<BufferId> results;
  BufferId scratch;  // invalid: none
};

// A user's kernel. Tensors' strides and beginnings are those of `operands`, over the tensor's own coordinates. Results that the kernel
// writes in place come after the new ones; before the kernel runs, the elements of their operands are copied there.
struct UserCallKernel {
  UserCall def;
  std::vector<PlanOperand> operands;  // of `def`'s arguments, by their places; buffer invalid for what is no tensor
  std::vector<BufferId> results;
};

// Copy of a whole buffer, dense or to one with gaps (copies_elements): writes to state and inputs after a call, what loops carry, and their rows.
struct CopyKernel {
  BufferId from, to;
  Expr to_element;  // where in `to` it begins; null: 0
  std::string why;  // what keeps its kernel from writing there itself
};

// The host waits for `source` (0-d i64) and takes it as the value of a symbol, once it is found in the symbol's range, at most `limit`
// (null: none), and all conditions of KernelPlan::checks hold of which it is the last symbol.
struct ReadKernel {
  SymbolId symbol;
  BufferId source;
  Expr limit;
};

// Control flow among the kernels, as properly nested marks. branch: what follows, up to `otherwise`, runs where the predicate (bool, 0-d)
// holds, and what is between `otherwise` and `end` runs where it does not. images: what follows, up to `end`, runs `steps` times, on several
// workers at once if there are steps enough, each of which has a part of `scratch`; placements of kind row are the step's row of a buffer. loop: what follows,
// up to `end`, runs for step = 0, 1, ... below `steps` (null: without an end of its own); stop_unless, directly inside, ends it where the predicate does not
// hold.
struct ControlMark {
  enum class Kind : uint8_t { branch, otherwise, loop, images, stop_unless, end };
  Kind kind;
  BufferId predicate;  // branch, stop_unless
  SymbolId step;       // loop
  Expr steps;          // loop, images
  BufferId scratch;    // branch, loop, images: what holds the memory of the kernels inside
  Expr part_bytes;     // images: of it, what one worker needs that has an image of its own

  bool opens() const { return kind == Kind::branch || kind == Kind::loop || kind == Kind::images; }
};

// One of the ways in which a target can run a kernel: numbers that the target understands. All zero: as its own rules say.
struct Choice {
  std::array<int32_t, 4> values{};
  auto operator<=>(const Choice&) const = default;
};

// Which choice serves which sizes: the first row with key <= up_to; the last row's up_to is INT64_MAX. No rows: the target's own rules.
struct ChoiceTable {
  struct Row {
    int64_t up_to = INT64_MAX;
    Choice choice;
    std::string text;  // for readers: "winograd"
    bool operator==(const Row&) const = default;
  };
  Expr key;
  std::vector<Row> rows;
};

struct Kernel {
  std::string name;  // from the ops: "add_layer_norm"
  std::variant<LoopKernel, TemplateKernel, SortKernel, LibraryKernel, UserCallKernel, CopyKernel, ReadKernel, ControlMark> def;
  std::vector<std::string> ops;  // of the loops it computes
  std::vector<Origin> origins;
  std::string assertion;  // not empty: what to say when its checked index fails
  ChoiceTable choices;
  bool beside = false;  // may run at the same time as the kernel before it, and as those that that one runs beside
  bool joins = false;   // a product that may share a launch with the kernel before it: that one's product of the same rows, or what computes these
};

// A constant of the package. The bytes of packed ones are made when the package is written.
struct PlanConstant {
  BufferId buffer;
  Packing packing;
  int64_t k = 0, n = 0, groups = 1;  // of a product: [batch][k, n] from the linear strides below; of a convolution: what its OIHW sizes do not say
  int64_t batch = 1, batch_stride = 0, row_stride = 0, col_stride = 0;
  int64_t first = 0;               // of a product: elements before the slice that is read
  std::vector<int8_t> codes;       // of a product: the numbers that it has, in order, where it may lie as their places in this list
  uint64_t offset = 0, bytes = 0;  // in the blob
};

// Why two neighbours do not share a kernel.
struct FusionNote {
  std::string producer, consumer, reason;
};

// Memory for buffers whose sizes have no bound before data is read: asked of the host once `after` has its value.
struct LateMemory {
  SymbolId after;
  Expr bytes;
};

struct StateLayout;  // shared_states.h

// The size of the machine that a plan is for, in a target's own terms: TargetTraits give it and the target's generator reads it. All 0: the target's usual one.
struct PlanMachine {
  int64_t units = 0;                        // threads that run at once
  int64_t own_cache = 0, shared_cache = 0;  // bytes near one unit and near all of them; 0: nothing asks for them
  int64_t launch_bytes = 0;                 // that the memory moves while a kernel is launched; 0: nothing asks for it
  bool operator==(const PlanMachine&) const = default;
};

struct KernelPlan {
  std::shared_ptr<ExprPool> pool;
  std::vector<PlanBuffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<PlanConstant> constants;
  std::vector<LoopInput> inputs;
  std::vector<LoopOutput> outputs;
  std::vector<int> none_results;  // places among all flattened results where the program gives None
  std::vector<SizeCheck> checks;  // what the sizes must satisfy besides the inputs' shapes
  std::vector<FusionNote> not_fused;
  Expr arena_bytes;  // over the symbols and `workers`
  std::vector<LateMemory> late_memory;
  SymbolId workers;  // the number of workers, as a symbol
  // How the target's templates compute where that is not their default: a name that the target gives (TargetTraits) and its templates read, as that
  // of a packing; empty: there is nothing to say.
  std::string arithmetic;
  PlanMachine machine;
  uint64_t state_bytes = 0;
  uint64_t state_stored = 0;  // of them: what lies in front, and is not all zero when the program begins
  uint64_t constants_bytes = 0;
  uint64_t state_offset = 0;    // of the initial state in the constants blob
  uint64_t constants_base = 0;  // in front of it in the blob: what earlier programs of the package have
  uint64_t shared_bytes = 0;    // of those: what this program reads too
  uint64_t again_bytes = 0;     // of the constants: weights that are there in another form too, such as the table of a lookup and a product's panels
  std::shared_ptr<const StateLayout> states;  // those of the package's programs; null: the program has its own to itself

  const PlanBuffer& buffer(BufferId id) const { return buffers[static_cast<size_t>(id.index)]; }
  PlanBuffer& buffer(BufferId id) { return buffers[static_cast<size_t>(id.index)]; }
};

// The symbol from data in these sizes that is read last; invalid: there is none.
SymbolId last_data_symbol(const KernelPlan& plan, const std::vector<Expr>& exprs);

std::string to_string(const KernelPlan& plan);

}  // namespace coil
