// Products of groups whose sizes are data (docs/design/grouped_products.md).
#pragma once

#include "loop/templates/gemm.h"

namespace coil {

// `ends` (i32 or i64, dense, [groups]) says where each group ends, and the next one begins; they must not decrease, nor leave
// [0, the size that is grouped]: else the call fails, and what was computed has no meaning. Variables of both operands: group,
// m, n, k. rows:  out[m, n] = sum over k of a(m, k) * b(group, k, n), group being that of row m; rows behind the last group are
// 0. depth: out[group, m, n] = sum over k of a(m, k) * b(k, n), over the k of the group. Of f32, bf16 and f16; accumulates in
// float32. With `quantised` (rows alone) as Gemm, the tables being [groups, k / group, n].
struct GroupedGemm {
  enum class Kind : uint8_t { rows, depth };
  Kind kind = Kind::rows;
  Expr groups, m, n, k;
  Operand a, b;
  BufferId ends;
  std::optional<Gemm::Quantised> quantised;

  static constexpr const char* kName = "grouped_gemm";
  static constexpr bool kTakesEpilogue = true;
  static constexpr bool kChecksData = true;
  static constexpr const char* kSummed = "k";
};

// A batched product with the same variables and operands: what lies where, and how much it would be if every group had all rows
// (all of k).
Gemm in_batches(const GroupedGemm& def);

TemplateParts parts(GroupedGemm& def);
std::string problem(const LoopProgram& program, const Loop& loop, const GroupedGemm& def);
std::string text(const LoopText& words, const GroupedGemm& def);
void read(LoopReader& words, GroupedGemm& def);  // what text() wrote
DimRange narrowable(const GroupedGemm& def, size_t dim, const DimRange& wanted, Expr size);
void narrow(GroupedGemm& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at);
TemplateTiles tiles(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>& results);
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>& results);
Expr operations(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>& results);
std::vector<Expr> work_sizes(const GroupedGemm& def, const std::vector<Expr>& results);
TemplateLimits limits(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>& results);

}  // namespace coil
