// What the scheduler asks of a target: preferences and limits, never names.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// A product's constant weight, for which a target chooses a packing.
struct WeightUse {
  const TemplateKernel& kernel;
  const Gemm& product;  // the kernel's, or what stands for it in a grouped product
  const BufferInfo& weight;
  DType other;                          // of the other factor's elements
  const PlanConstant& place;            // the weight's sizes and strides in the program; not packed yet
  const std::vector<Packing>& present;  // in which the package has this weight already
};

// A table in its packing: a buffer of these sizes whose elements a load of the table, [row, column], is made of.
struct PackedTable {
  Packing packing;
  std::vector<int8_t> codes;  // PlanConstant::codes
  std::vector<Expr> sizes;
  std::function<Expr(Expr load, BufferId packed)> element;
};

// How constant weights lie for a target's kernels. What is not set leaves them as the program has them.
struct PackingRules {
  // Of a product. Nothing: the kernels have no packing of their own for it; kPlain: they have, and it lies so already.
  std::function<std::optional<Packing>(const WeightUse& use)> product;
  // Whether a quantised weight of few numbers may lie as codes of 4 bits (PlanConstant::codes).
  bool codes = false;
  // Of the scales and zero points of a product's groups.
  Packing scales;
  // Of a convolution, by default, and for each other choice that it shall have; x_offset: linear, over x's variables. Empty: as the program has it.
  std::function<std::vector<Packing>(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight)> convolution;
  // The tile of Winograd's filtering for which each call transforms a convolution's weight that is no constant; 0: it does not.
  std::function<int32_t(const Conv2d& conv, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight)> call_winograd;
  // The packing in which a product reads the whole constant table [columns, k], if rows of it can be looked up there too.
  std::function<std::optional<PackedTable>(const Gemm& product, const BufferInfo& table, DType other)> lookups;
};

struct TargetTraits {
  bool convolution_channels_last = true;  // the layout that the convolution template reads and writes
  int recompute_cost = 12;                // an inner value dearer than this is kept between phases rather than recomputed
  int64_t max_kept_elements = INT64_MAX;  // of the longest row of which values are kept
  bool memory_per_worker = true;          // kept values and sorted rows have memory for each worker in the arena; false: kept values are the
                                          // generator's business, and a sort has memory for all rows
  int64_t sorted_in_place = 0;            // ... that are longer than this; others are sorted without
  int64_t sort_counts_bytes = 0;          // and that much for each sort
  int64_t sort_index_bytes = 8;           // of an element's index in that memory
  // A reduction that keeps less than half of parallel_points units busy, each with at least split_points points, is done in two steps.
  int64_t parallel_points = 0;  // 0: never
  int64_t split_points = 1 << 15;
  int64_t split_parts = 256;  // at most, for one result
  int64_t scan_part = 0;      // elements of a long row that a unit scans at once, where there are few rows; 0: never
  int64_t small_product = 0;  // a product is a loop where two of its three sizes have at most so many pairs; 0: never
  // Of parallel_points as many as the template for products keeps busy with so many results, and the shortest sum that it is worth a step of its own for;
  // a product that leaves more than half of the points idle is cut into parts of its sum, each at least that long. Null: never.
  struct ProductUnits {
    int64_t busy, shortest_part;
  };
  std::function<ProductUnits(int64_t batch, int64_t m, int64_t n)> product_units;
  bool narrows_reductions = false;  // of a reduction over a range that data says (loop/reduced_span.h) it visits that range alone
  int64_t columns_of_a_unit = 1;    // a unit has one result, or so many that lie side by side where what is reduced does not
  int inline_cost = 6;              // a pointwise producer this cheap is recomputed in each of its consumers
  int max_inlined_loads = 3;
  int most_loads = INT_MAX;         // values that a body reads by itself or through what it takes in: beyond so many no register holds the next one
  int most_beside = 1;              // so many neighbours that do not need each other may be one launch (Kernel::beside)
  bool joins_products = false;      // products of the same rows, and what computes these, may be one launch (Kernel::joins)
  int64_t kept_bytes = 0;           // kernels that move more than this run image by image, each worker with an image of its own; 0: never
  bool fuse_epilogues = true;       // what uses a template's result element by element runs with it
  bool joins_keys = false;          // attention reads keys and values where the pieces of their concatenation lie
  bool fuse_siblings = true;        // loops that do not need each other but read the same values share a kernel
  bool turns_in_tiles = false;      // a loop that stores along another axis than it reads along has a kernel of its own
  std::set<std::string> stored;     // results of loops, by their buffers' names, that no kernel may take in together with what reads them
  bool merges_loops = true;         // loops over the same points share a kernel
  bool writes_in_place = true;      // states and inputs that change element by element
  int select_pieces = 0;            // a concatenation of at most so many cheap pieces is computed by the pointwise loops that read it
  int narrow_pieces = 0;            // and one of at most so many, whoever reads it, if they have few elements along a contiguous dimension
  int64_t select_step = 1;          // ... if those along a contiguous dimension begin at multiples of this
  int64_t colliding_row_bytes = 0;  // rows of a product's left operand that are a multiple of so many bytes apart get a line between them; 0: no
  int64_t product_row_bytes = 0;    // rows of a product's computed 16-bit operand begin at multiples of so many bytes; 0: no
  std::string arithmetic;           // see KernelPlan
  PlanMachine machine;              // see KernelPlan
  PackingRules packings;
  int64_t constant_line_bytes = 1;        // lines of a constant matrix that is not packed shall begin at multiples of so many bytes,
  int64_t best_line_bytes = 1;            // and those of 2-byte elements at multiples of so many, as far as room of a 32nd gives
  bool packs_convolution_weights = true;  // a call packs a convolution's weight that is no constant; false: it reads [oc][kh][kw][ic / groups]
  // Bytes of scratch that a template needs, over the symbols and `workers`; invalid: none. All fields of the kernel but `scratch` and
  // the epilogue are set; the plan has its buffers, without places.
  std::function<Expr(const KernelPlan& plan, const TemplateKernel& kernel)> template_scratch;
  // Where the states lie that a package's programs have in common; null: the program has them to itself.
  std::shared_ptr<const StateLayout> states;
};

}  // namespace coil
