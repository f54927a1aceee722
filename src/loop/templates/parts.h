// What every template tells of itself, in the words that stages use which are about no template in particular. A template is a
// struct in a header of its own (gemm.h, grouped_gemm.h, conv2d.h, attention.h), which also declares for it each function that
// template.h lists; its file defines them. A new one that lacks one of them does not compile. Its constants:
//   kName            what readers and dumps call it
//   kTakesEpilogue   its results pass through other loops, tile by tile, before they are stored
//   kChecksData      its kernels may find data at fault that they read (the ends of groups), and report it
//   kSummed          what its kernels may sum over in several parts, in a reader's words
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loop/operand.h"

namespace coil {

struct DimRange;
struct Loop;
struct LoopProgram;
class LoopReader;
class LoopText;
class Interpreter;

// What a template reads, and how large it is. The pointers lead into the template.
struct TemplateParts {
  struct Read {
    Operand* operand;
    std::vector<Expr> domain;  // the sizes of the variables that its coordinates are over
  };
  std::vector<Read> operands;            // in the order in which kernels take them
  std::vector<BufferId*> whole;          // buffers of which all is read; those that are not there are invalid
  std::vector<std::vector<Expr>> sides;  // all of its sizes; what kernels see as one size is one list
  std::vector<Expr> ranges;              // of the variables that mean the same in all operands
};

// The result as the tiles see it that an epilogue takes: of `sizes` batches, rows and columns. `coordinates` of an element of
// the result, over these three.
struct TemplateTiles {
  std::vector<Expr> sizes, coordinates;
};

// Numbers that kernels of all targets take, which have to fit in what they are taken in (codegen/interface/limits.h).
struct TemplateLimits {
  std::vector<Expr> amounts;                         // elements
  std::vector<std::pair<const char*, Expr>> counts;  // "the rows of", and how many
};

// Appends the coordinates, over `sizes`, of the element that `flat` counts in row-major order.
void append_unpacked(Expr flat, const std::vector<Expr>& sizes, std::vector<Expr>& coordinates);
// Coordinates over the variables as they were before a definition was narrowed: each becomes `at`.
void narrow_operand(Operand& operand, const std::vector<Expr>& at);

}  // namespace coil
