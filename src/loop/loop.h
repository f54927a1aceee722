// The loop IR: what a program computes, as loop nests with recorded bodies, templates and a few whole-tensor algorithms.
//
// Semantics. A LoopProgram is a list of buffers and a list of definitions in topological order; each computed buffer is defined
// once. A body is an expression over variables: 0..rank-1 are the coordinates of the defined buffer's element, the following ones
// are those of the reduced domain. Bodies read other buffers by `load(buffer, coordinates)`; coordinates are in range for every
// point of the domain, except under `masked`. A body's type is compute_type of the buffer's dtype; storing rounds. Order of
// reduction is free for integers, bool, max and min; sums of floats may be reassociated into a fixed tree that depends on sizes
// only. Nothing here knows a target: strides of computed buffers are chosen later unless the program's interface fixes them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/origin.h"
#include "base/result.h"
#include "expr/condition.h"
#include "expr/expr.h"
#include "loop/templates/attention.h"
#include "loop/templates/conv2d.h"
#include "loop/templates/grouped_gemm.h"
#include "ops/tensor_data.h"
#include "ops/user_kernel.h"

namespace coil {

struct BufferInfo {
  enum class Kind : uint8_t { input, constant, state, computed };
  Kind kind = Kind::computed;
  std::string name;            // "x", "encoder.layer.0.weight", "relu_3": unique, readable
  DType dtype = DType::f32;    // never complex, a float8 or a wide unsigned
  bool pairs = false;          // the last axis (size 2, stride 1 at the interface) is the two parts of complex numbers
  std::optional<DType> meant;  // the elements' bits are numbers of this type: a float8 (u8) or a wide unsigned (signed of its size)
  std::vector<Expr> sizes;
  std::vector<Expr> strides;  // elements; empty: not chosen yet (computed only)
  std::vector<Expr> shown;    // a result of other sizes than the caller's, of the same elements row by row: the caller's; else empty
  int input = -1;             // input: its position among the tensor inputs
  TensorData data;            // constant and state: contents (state: initial contents, dense by `strides`)
  std::string why;            // computed: what decided that it is a copy, or has other strides than dense rows; else empty. For who looks (`coil report`)
};

// A buffer of the interface as its caller sees it: one of pairs is a tensor of complex dtype without the last axis, one of bits may be
// of a float8 or unsigned type, and a result may have other sizes.
struct TensorFace {
  DType dtype;
  std::vector<Expr> sizes, strides;  // strides in elements of dtype
};
TensorFace face(const BufferInfo& buffer);

// log_sum: log(exp(a) + exp(b)), of scans alone.
enum class ReduceOp : uint8_t { sum, prod, max, min, any, all, argmax, argmin, log_sum };

struct Pointwise {
  Expr body;
};

// One result per element of the buffer. argmax and argmin give the row-major number of the first extreme element within the
// reduced domain (i64); NaN counts as the extreme. An empty domain gives the operation's identity.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  std::vector<Expr> domain;
  Expr body;
};

enum class ScanOp : uint8_t { sum, prod, max, min, log_sum };
ReduceOp step_of(ScanOp op);
// Inclusive scan of the body along dimension `dim` of the buffer. log_sum: of floats.
struct Scan {
  ScanOp op = ScanOp::sum;
  int dim = 0;
  Expr body;
};

// Along dimension `dim`, piece k fills [begin_k, begin_k + size_k); its body sees coordinates relative to begin_k.
struct Concat {
  struct Piece {
    Expr begin, size, body;
  };
  int dim = 0;
  std::vector<Piece> pieces;
};

// Sorts `body` along `dim` (size `length` there) and keeps the first buffer-size elements. Stable; NaN sorts as the largest.
// Defines two buffers: values (the definition's first) and i64 indices.
struct Sort {
  int dim = 0;
  Expr length;
  bool descending = false;
  Expr body;
  int64_t below = 0;  // more than 0: the elements are integers in [0, below)
};

// Templates, definitions by kernels that are written by hand, have headers of their own: Gemm, GroupedGemm, Conv2d and Attention (loop/templates).

// A routine of the device library over whole buffers, all dense and row-major; what it does with them its head comment in
// device/library says. It may define several buffers, and it may fail the call with a message of its own.
struct Library {
  std::string routine;       // "fft_c2c": coil_library_fft_c2c
  std::string subject;       // what its messages begin with: "linalg.cholesky"
  DType dtype = DType::f32;  // of the elements; may be complex
  std::vector<BufferId> inputs;
  std::vector<Expr> sizes;
  std::vector<int64_t> options;
  Expr scratch, worker_scratch;  // bytes, for the call and for each worker; null: none
};

// Defines a one-dimensional buffer: for block b < blocks (variable 0) and j < length (variable 1), in order, `value` goes to element
// start(b) + the number of kept ones before j in the block, where `keep` (bool) holds. `start`, `value` and the buffer are i64. Each element is written once.
struct Compact {
  Expr blocks, length, keep, start, value;
};

// Gives a symbol of kind from_data its value: that of `source`, a 0-d i64 buffer. Outside of the symbol's range or above `limit` (over
// other symbols; null: none) the call fails. What mentions the symbol runs later: it `reads` the 0-d buffer that this defines.
struct ReadSize {
  SymbolId symbol;
  BufferId source;
  Expr limit;
};

// A kernel that a user wrote. Its tensors are operands over variables of their own sizes (empty `sizes`: none of them, and no buffer, for a
// tensor that is not there); it defines a buffer for each new tensor, and one for each tensor that it writes to, which holds that
// operand's elements when the kernel begins. What it defines is dense and row-major, and so is what it reads if the kernel wants that.
struct UserCall {
  struct Tensor {
    Operand operand;  // buffer invalid: None
    std::vector<Expr> sizes;
  };
  // In the signature's order: a tensor, an integer, a float, a bool, integers.
  using Argument = std::variant<Tensor, Expr, double, bool, std::vector<Expr>>;
  // How a configuration is launched: items and their cost (CPU), blocks, their threads and shared memory (CUDA); null where there is no source.
  struct Launch {
    Expr range, work;
    std::array<Expr, 3> grid;
    int64_t block = 0, shared = 0;
  };
  std::shared_ptr<const UserKernel> kernel;
  std::vector<Argument> args;
  std::vector<Launch> launches;  // one for each configuration
  Expr key;                      // null: the first launch's range
};

struct LoopProgram;

// A program of its own inside a Region. It shares the pool; symbols from data that the programs around it read are known to it. Its
// buffers of kind input, dense and row-major, are `captures` of the buffers around it; its user outputs, dense and row-major, are what the
// region says. It has no writes; its checks count where and when it runs.
struct RegionPart {
  std::shared_ptr<const LoopProgram> program;
  std::vector<std::pair<BufferId, BufferId>> captures;  // its own buffer, that of the program around it
};

// Control flow over whole buffers, all dense and row-major.
// branch: parts[0] gives the results where `predicate` (bool, 0-d) holds, otherwise parts[1] does; the other part does not run.
// loop: parts[0] is a step, parts[1], if there, a condition of one bool that is asked before each step. The first initial.size() results
// are carried: they begin as `initial`, the parts may capture them, and each step replaces them by its first results. The other results
// have one more dimension, of size `steps`, at the front: step number `step` gives its row. `steps` is null where only the condition ends it.
struct Region {
  enum class Kind : uint8_t { branch, loop };
  Kind kind = Kind::branch;
  BufferId predicate;
  std::vector<BufferId> initial;
  SymbolId step;
  Expr steps;
  std::vector<RegionPart> parts;
};

using LoopDef = std::variant<Pointwise, Reduction, Scan, Concat, Sort, Library, Gemm, GroupedGemm, Conv2d, Attention, Compact, ReadSize, Region, UserCall>;

struct Loop {
  LoopDef def;
  std::vector<BufferId> outputs;  // one; two for Sort; any number for Library, Region and UserCall
  std::string op;                 // "relu", "layer_norm.mean": what a reader would call it; becomes part of kernel names
  std::vector<Origin> origins;
  std::string assertion;  // not empty: over one point, with a checked index that fails where this message is due
};

// `check`: the result is of no interest, but the loop that computes it asserts something. A failed check leaves state and inputs
// as they were.
struct LoopOutput {
  enum class Kind : uint8_t { user, state_write, input_write, check };
  Kind kind = Kind::user;
  BufferId source;  // computed; user outputs have the interface's strides and are pairwise distinct
  BufferId target;  // state_write: the state buffer, input_write: the input buffer; written after all else
  std::string name;
  std::string number;  // of user outputs: the kind of Python number that a 0-d result stands for ("int", "float", "bool"), or empty
};

// A tensor input in call order, for checks and messages.
struct LoopInput {
  BufferId buffer;  // invalid: a symbolic integer input (0-d i64 tensor) that binds `symint`
  Expr symint;
  std::string name;
  bool exact_strides = false;  // the program counts in its memory (as_strided): a copy that lies otherwise will not do
  bool whole_storage = false;  // it counts from the beginning of its storage, where the tensor has to begin
};

struct LoopProgram {
  std::shared_ptr<ExprPool> pool;
  std::vector<BufferInfo> buffers;
  std::vector<Loop> loops;
  std::vector<LoopInput> inputs;
  std::vector<LoopOutput> outputs;
  std::vector<int> none_results;                          // places among all flattened results (these and the user outputs) where the program gives None
  std::vector<SizeCheck> checks;                          // what the sizes must satisfy besides the inputs' shapes; of sizes from data: once they are read
  std::vector<std::pair<SymbolId, BufferId>> data_sizes;  // symbols that ReadSize defines, with its buffers
  std::vector<SymbolId> outer_sizes;                      // of a region's part: symbols from data that the programs around it read

  const BufferInfo& buffer(BufferId id) const { return buffers[static_cast<size_t>(id.index)]; }
  BufferInfo& buffer(BufferId id) { return buffers[static_cast<size_t>(id.index)]; }
};

// Routines, regions and user kernels: what computes whole dense row-major buffers, any number of them.
bool defines_whole(const LoopDef& def);
// "gemm", "conv2d", ...: what readers and tables call a template; null for other definitions.
const char* template_name(const LoopDef& def);
// The expressions that a user's call is made of, operands' coordinates included.
std::vector<Expr> expressions(const UserCall& call);

std::string to_string(const LoopProgram& program);
Status verify(const LoopProgram& program);

// Every expression that a definition evaluates, with the sizes of the variables it sees (buffer's coordinates, then reduced ones).
struct BodyRef {
  Expr body;
  std::vector<Expr> domain;
};
std::vector<BodyRef> bodies(const LoopProgram& program, const Loop& loop);
// The symbols from data that a definition, its results' sizes included, mentions, and that a region's parts do not read themselves.
std::vector<SymbolId> all_data_symbols(const LoopProgram& program, const Loop& loop);
// Buffers that a definition reads, each once, in order of first use; sizes from data count as reads of their ReadSize's buffer.
std::vector<BufferId> reads(const LoopProgram& program, const Loop& loop);

// Computed buffers that depend on constants alone become constants, by evaluation (interpret.cc). State is not constant. `bytes`: int8 and uint8 only.
enum class Fold : uint8_t { all, bytes };
Result<LoopProgram> fold_constants(LoopProgram program, Fold which = Fold::all);
// Of definitions that are equal, with results alike, the first one stays for all; results of the program keep theirs.
LoopProgram merge_equal(LoopProgram program);
// Drops definitions and buffers that no output needs.
LoopProgram dead_loops(LoopProgram program);

}  // namespace coil
