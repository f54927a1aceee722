// Matrix products.
#pragma once

#include <optional>
#include <span>

#include "loop/templates/parts.h"
#include "ops/stored_bytes.h"

namespace coil {

// out[b..., m..., n...] = sum over k... of a(b, m, k) * b(b, n, k). Variables are numbered batch, m, n, k in this order for
// both operands and the result. Accumulates in float32 (float64 for f64), or exactly in int32: a of bytes (i8, u8), b i8, the
// result i32. With `quantised` b is a constant of i8 beside an a of floats and stands for (b - zero) * scale, in float32; or beside an a of i8, whose
// numbers count as they are: the result is f32 then, sums within a group are exact.
struct Gemm {
  std::vector<Expr> batch, m, n, k;
  Operand a, b;
  // `group` rows of k share a scale and a zero point of each column: f32 constants [k / group, n], invalid for 1 and 0.
  struct Quantised {
    int64_t group = 1;
    BufferId scale, zero;
  };
  std::optional<Quantised> quantised;

  static constexpr const char* kName = "gemm";
  static constexpr bool kTakesEpilogue = true;
  static constexpr bool kChecksData = false;
  static constexpr const char* kSummed = "k";
};

// " in groups of 32 with scale s zero z", or nothing.
std::string quantised_text(const LoopText& words, const std::optional<Gemm::Quantised>& quantised);
void read_quantised(LoopReader& words, std::optional<Gemm::Quantised>& quantised);

// Whether all of a weight's numbers (i8) are in [-8, 7].
bool has_4_bits(const StoredBytes& numbers);
// The numbers that a weight (i8) has, in order, if these are at most 16 and not all in [-8, 7]; more than those: none. Then 4 bits say which one it is.
std::vector<int8_t> coded_numbers(const StoredBytes& numbers);

TemplateParts parts(Gemm& def);
std::string problem(const LoopProgram& program, const Loop& loop, const Gemm& def);
std::string text(const LoopText& words, const Gemm& def);
void read(LoopReader& words, Gemm& def);  // what text() wrote
DimRange narrowable(const Gemm& def, size_t dim, const DimRange& wanted, Expr size);
void narrow(Gemm& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at);
TemplateTiles tiles(ExprPool& pool, const Gemm& def, const std::vector<Expr>& results);
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const Gemm& def, const std::vector<Expr>& results);
Expr operations(ExprPool& pool, const Gemm& def, const std::vector<Expr>& results);
std::vector<Expr> work_sizes(const Gemm& def, const std::vector<Expr>& results);
TemplateLimits limits(ExprPool& pool, const Gemm& def, const std::vector<Expr>& results);

}  // namespace coil
