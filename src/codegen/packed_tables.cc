#include "codegen/packed_tables.h"

#include "device/cuda/shared_memory.h"
#include "device/kernels.h"
#include "loop/templates/gemm.h"

namespace coil {
namespace {

using namespace packings;

constexpr int64_t kColumns = COIL_PANEL;    // elements of 8 bytes have others
constexpr int64_t kQuad = 4;                // k that lie side by side there (gemm_b_quads)
constexpr int64_t kPiece = cd::kBytePiece;  // numbers of which a line has whole pieces; of 4 bits the first half of them are the lower ones of bytes

// Half a byte, the upper one where `half` is 1.
Expr half_of(Expr byte, Expr half) {
  ExprPool& pool = *byte->pool;
  const auto number = [&](int64_t v) { return pool.constant(static_cast<double>(v), DType::i32); };
  const Expr lower = pool.cast(byte, DType::i32), upper = pool.op(ScalarOp::shr, {lower, number(4)});
  return pool.op(ScalarOp::bit_and, {pool.op(ScalarOp::select, {pool.op(ScalarOp::eq, {half, pool.index(1)}), upper, lower}), number(15)});
}

// ... as a number with 8 added, or one in two's complement.
Expr number_of_4_bits(Expr byte, Expr half, bool complement) {
  ExprPool& pool = *byte->pool;
  const auto number = [&](int64_t v) { return pool.constant(static_cast<double>(v), DType::i32); };
  const Expr kept = half_of(byte, half);
  const Expr shifted = complement ? pool.op(ScalarOp::bit_xor, {kept, number(8)}) : kept;
  return pool.cast(pool.op(ScalarOp::sub, {shifted, number(8)}), byte->dtype);
}

// Which of the numbers half a byte names: by halves of the list.
Expr number_of_code(Expr code, std::span<const int8_t> codes, DType dtype) {
  ExprPool& pool = *code->pool;
  if (codes.size() == 1) return pool.constant(codes[0], dtype);
  const size_t half = codes.size() / 2;
  const Expr first = pool.op(ScalarOp::lt, {code, pool.constant(static_cast<double>(half), DType::i32)});
  const Expr behind = pool.op(ScalarOp::sub, {code, pool.constant(static_cast<double>(half), DType::i32)});
  return pool.op(ScalarOp::select, {first, number_of_code(code, codes.first(half), dtype), number_of_code(behind, codes.subspan(half), dtype)});
}

Expr in_lines(Expr load, BufferId lines, bool four) {
  ExprPool& pool = *load->pool;
  const Expr row = load->args[0], k = load->args[1], piece = pool.index(kPiece), half = pool.index(kPiece / 2);
  if (!four) return pool.load(lines, load->dtype, {row, k});
  const Expr byte = floor_div(k, piece) * half + floor_mod(k, half);
  return number_of_4_bits(pool.load(lines, load->dtype, {row, byte}), floor_div(floor_mod(k, piece), half), true);
}

Expr in_panels(Expr load, BufferId panels, bool quads, bool four, const std::vector<int8_t>& codes) {
  ExprPool& pool = *load->pool;
  const Expr row = load->args[0], k = load->args[1], columns = pool.index(kColumns), quad = pool.index(kQuad), half = pool.index(kColumns / 2);
  const Expr panel = floor_div(row, columns), within = floor_mod(row, columns), column = four ? floor_mod(within, half) : within;
  const std::vector<Expr> place = quads ? std::vector{panel, floor_div(k, quad), column, floor_mod(k, quad)} : std::vector{panel, k, column};
  const Expr found = pool.load(panels, load->dtype, place);
  if (!codes.empty()) return number_of_code(half_of(found, floor_div(within, half)), codes, load->dtype);
  return four ? number_of_4_bits(found, floor_div(within, half), false) : found;
}

}  // namespace

std::optional<PackedTable> table_in_panels(const BufferInfo& table, Packing packing, const std::vector<int8_t>& codes) {
  if (packing == gemm_b_integer) return std::nullopt;  // whose panels have room for sums between them
  ExprPool& pool = *table.sizes[0]->pool;
  const int64_t n = table.sizes[0]->as_int(), k = table.sizes[1]->as_int();
  const bool coded = has_codes(packing), four = coded || has_4_bits(packing);
  const bool quads = packing == gemm_b_quads || packing == gemm_b_quads_4bit || packing == gemm_b_quads_codes;
  const std::vector<int8_t> list = coded ? codes : std::vector<int8_t>{};
  const Expr panels = pool.index((n + kColumns - 1) / kColumns), columns = pool.index(four ? kColumns / 2 : kColumns);
  std::vector<Expr> sizes = {panels, table.sizes[1], columns};
  if (quads) sizes = {panels, pool.index((k + kQuad - 1) / kQuad), columns, pool.index(kQuad)};
  return PackedTable{packing, codes, std::move(sizes), [=](Expr load, BufferId packed) { return in_panels(load, packed, quads, four, list); }};
}

std::optional<PackedTable> table_in_lines(const BufferInfo& table) {
  if (!is_int(table.dtype)) return std::nullopt;
  const bool four = has_4_bits(table.data.bytes);
  const int64_t k = table.sizes[1]->as_int();
  if (!four && k % kPiece == 0) return std::nullopt;
  const Expr line = table.sizes[0]->pool->index((k + kPiece - 1) / kPiece * (four ? kPiece / 2 : kPiece));
  return PackedTable{
      four ? gemm_b_lines_4bit : gemm_b_lines, {}, {table.sizes[0], line}, [four](Expr load, BufferId packed) { return in_lines(load, packed, four); }};
}

}  // namespace coil
