#include "schedule/weights.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "schedule/depthwise.h"
#include "schedule/schedule.h"

namespace coil {

PlanConstant::Packing product_packing(const Gemm& g, const BufferInfo& weight, DType a) {
  using Packing = PlanConstant::Packing;
  if (!g.quantised) return is_int(a) ? Packing::gemm_b_integer : Packing::gemm_b;
  const bool four = has_4_bits(weight.data.bytes);
  if (is_int(a)) return four ? Packing::gemm_b_quads_4bit : Packing::gemm_b_quads;
  return four ? Packing::gemm_b_4bit : Packing::gemm_b;
}

// Whether the kernel reads the constant in pairs of k. A table that is looked up in its panels stays as those are.
bool WeightPacker::is_paired(const TemplateKernel& k, const Gemm& g, const PlanConstant& c) const {
  const BufferId b = k.operands[1].buffer;
  const DType bf16 = DType::bf16;
  if (!std::holds_alternative<Gemm>(k.def) || g.quantised || program_.buffer(b).dtype != bf16 || program_.buffer(k.operands[0].buffer).dtype != bf16)
    return false;
  constexpr int64_t kFewestPieces = 4;  // of whole depths, beyond which zeros behind an odd one cost little memory
  const int64_t depth = target_.paired_depth;
  if (depth == 0 || c.k <= 0 || (c.k % depth != 0 && c.k < kFewestPieces * depth)) return false;
  const bool looked_up = std::any_of(packed_.begin(), packed_.end(),
                                     [&](const auto& row) { return row.second.buffer == b && row.second.packing == PlanConstant::Packing::gemm_b; });
  return !looked_up && lower_bound(product(*program_.pool, g.m)).value_or(1) >= target_.paired_rows;
}

// A constant B in panels; the operand then names the packed buffer.
bool WeightPacker::pack_gemm_weight(TemplateKernel& k, const Gemm& g) {
  const BufferInfo source = program_.buffer(k.operands[1].buffer);
  if (source.kind != BufferInfo::Kind::constant) return false;
  if (!target_.packs_constant_weights && !is_int(source.dtype)) return pad_lines(k, g);
  const Expr offset = k.operands[1].offset;
  const int n0 = static_cast<int>(g.batch.size() + g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto batch = merged_stride(offset, 0, g.batch), cols = merged_stride(offset, n0, g.n), rows = merged_stride(offset, k0, g.k);
  PlanConstant c;
  const auto fixed = [](Expr e, int64_t& out) { return e->is_constant() && (out = e->as_int(), true); };
  if (!batch || !cols || !rows || !fixed(*batch, c.batch_stride) || !fixed(*cols, c.col_stride) || !fixed(*rows, c.row_stride)) return false;
  if (!fixed(product(pool(), g.n), c.n) || !fixed(product(pool(), g.k), c.k)) return false;
  if (c.batch_stride != 0 && !fixed(product(pool(), g.batch), c.batch)) return false;
  const Expr base = substitute_vars(offset, std::vector<Expr>(static_cast<size_t>(k0) + g.k.size(), pool().index(0)));
  if (g.batch.empty()) c.batch_stride = 0;
  if (!fixed(base, c.first)) return false;  // another slice of the weight in each call: packed at run time
  if (!target_.packs_constant_weights) return pack_lines(k, c);
  c.packing = product_packing(g, source, program_.buffer(k.operands[0].buffer).dtype);
  if (c.packing == PlanConstant::Packing::gemm_b && is_paired(k, g, c)) c.packing = PlanConstant::Packing::gemm_b_pairs;
  k.operands[1] = {packed_buffer(k.operands[1].buffer, c), pool().index(0)};
  return true;
}

// Numbers of 8 or 4 bits, a line for each column; those that lie so already stay where they are, for lookups of a table too.
bool WeightPacker::pack_lines(TemplateKernel& k, PlanConstant c) {
  constexpr int64_t kPiece = 32;  // numbers of which a line has whole pieces
  using Packing = PlanConstant::Packing;
  const BufferInfo& source = program_.buffer(k.operands[1].buffer);
  c.packing = has_4_bits(source.data.bytes) ? Packing::gemm_b_lines_4bit : Packing::gemm_b_lines;
  const bool as_it_is = c.packing == Packing::gemm_b_lines && c.row_stride == 1 && c.col_stride == c.k && c.k % kPiece == 0 && c.first == 0;
  if (!as_it_is) k.operands[1] = {packed_buffer(k.operands[1].buffer, c), pool().index(0)};
  return true;
}

namespace {

// Whether each float32 is a number (or infinity) of the type with `digits` binary digits behind the point and exponents from `least` to `most`.
bool fits(std::span<const uint8_t> bytes, int digits, int least, int most) {
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size(); at += sizeof(uint32_t)) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    const uint32_t fraction = value & 0x7fffffu;
    const int exponent = static_cast<int>(value >> 23 & 0xff) - 127;
    if ((value & 0x7fffffffu) == 0 || (exponent == 128 && fraction == 0)) continue;
    const bool subnormal = exponent == -127;  // of float32
    if (exponent > most || (subnormal && least > -126)) return false;
    const int lost = subnormal ? 0 : std::max(least - exponent, 0);  // digits, below the least exponent
    if (lost > digits || fraction & ((1u << (23 - digits + lost)) - 1)) return false;
  }
  return true;
}

}  // namespace

BufferId WeightPacker::packed_table(BufferId table) {
  BufferInfo info = program_.buffer(table);
  PlanConstant c;
  c.packing = target_.packs_constant_weights ? PlanConstant::Packing::gemm_b : PlanConstant::Packing::gemm_b_lines;
  c.k = info.sizes[0]->as_int(), c.n = info.sizes[1]->as_int();
  c.row_stride = c.n, c.col_stride = 1;
  const auto dense = contiguous_strides(pool(), info.sizes);
  BufferId source = table;
  if (info.data.offset == 0 && (info.strides.empty() || info.strides == dense)) {
    if (fits(info.data.bytes, 10, -14, 15)) source = narrow_buffer(table, DType::f16);
    else if (fits(info.data.bytes, 7, -126, 127)) source = narrow_buffer(table, DType::bf16);
  }
  return packed_buffer(source, c);
}

// The same constant, stored in another type: its data stay as they are, for they may be a part of a file.
BufferId WeightPacker::narrow_buffer(BufferId table, DType type) {
  const auto found = narrow_.find(table);
  if (found != narrow_.end()) return found->second;
  BufferInfo info = program_.buffer(table);
  info.dtype = type;
  plan_.buffers.push_back({std::move(info), {}});
  return narrow_[table] = BufferId(plan_.buffers.size() - 1);
}

// A constant B of contiguous lines that begin where the target cannot read them well: with room between them.
bool WeightPacker::pad_lines(TemplateKernel& k, const Gemm& g) {
  const BufferInfo source = program_.buffer(k.operands[1].buffer);
  const Expr offset = k.operands[1].offset;
  const int n0 = static_cast<int>(g.batch.size() + g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto cols = merged_stride(offset, n0, g.n), rows = merged_stride(offset, k0, g.k);
  const Expr base = substitute_vars(offset, std::vector<Expr>(static_cast<size_t>(k0) + g.k.size(), pool().index(0)));
  const Expr n = product(pool(), g.n), depth = product(pool(), g.k), one = pool().index(1);
  if (!g.batch.empty() || !cols || !rows || !n->is_constant() || !depth->is_constant() || !(base == pool().index(0))) return false;
  const bool along_k = *rows == one && *cols == depth, along_n = *cols == one && *rows == n;
  if (along_k == along_n) return false;
  const int64_t item = byte_size(source.dtype), least = std::max<int64_t>(target_.constant_line_bytes / item, 1), length = (along_k ? depth : n)->as_int();
  int64_t unit = item == 2 ? std::max(target_.best_line_bytes / item, least) : least;
  while (unit > least && ((length + unit - 1) / unit * unit - length) * 32 > length) unit /= 2;
  if (length % unit == 0 || length < 4 * unit || n->as_int() < 2 || depth->as_int() < 2) return false;
  PlanConstant c;
  c.packing = PlanConstant::Packing::padded_lines;
  c.k = length, c.n = (along_k ? n : depth)->as_int();
  c.batch_stride = (c.k + unit - 1) / unit * unit;
  Expr padded = pool().index(0);
  const auto add = [&](const std::vector<Expr>& sizes, int first, int64_t stride) {
    for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]->as_int()) padded = padded + pool().var(first + static_cast<int>(i)) * stride;
  };
  add(g.n, n0, along_k ? c.batch_stride : 1);
  add(g.k, k0, along_k ? 1 : c.batch_stride);
  k.operands[1] = {packed_buffer(k.operands[1].buffer, c), padded};
  return true;
}

// A constant weight in the layouts that the template reads; another one as it is, over its own coordinates.
void WeightPacker::add_conv_weight(TemplateKernel& k, const Conv2d& conv) {
  using Packing = PlanConstant::Packing;
  const BufferInfo& w = program_.buffer(conv.weight);
  CHECK(!is_int(w.dtype) || (w.kind == BufferInfo::Kind::constant && target_.packs_convolution_weights), "a quantised weight that cannot be packed");
  if (w.kind != BufferInfo::Kind::constant) {
    const std::vector<Expr> coordinates = {pool().var(0), pool().var(1), pool().var(2), pool().var(3)};
    k.operands.push_back({conv.weight, linear_offset(pool(), w, coordinates)});
    if (!target_.convolution_packings) return;
    const std::vector<Packing> wanted = target_.convolution_packings(conv, k.operands[0].offset, k.result_sizes, w);
    if (!wanted.empty()) k.call_winograd = static_cast<int32_t>(winograd_tile(wanted[0]));
    return;
  }
  std::vector<Packing> packings;
  if (!target_.packs_convolution_weights) {
    packings = {Packing::conv_ohwi};
  } else if (is_depthwise(conv, w.sizes)) {
    packings = {Packing::depthwise_weight};
  } else if (is_int(w.dtype)) {
    packings = {Packing::conv_weight_integer};
  } else if (target_.convolution_packings) {
    packings = target_.convolution_packings(conv, k.operands[0].offset, k.result_sizes, w);
  }
  if (packings.empty()) packings = {Packing::conv_weight};
  for (const Packing& packing : packings) {
    PlanConstant c;
    c.groups = conv.groups;
    c.packing = packing;
    const PlanOperand operand = {packed_buffer(conv.weight, c), pool().index(0)};
    (&packing == &packings[0] ? k.operands : k.weights).push_back(operand);
  }
}

// The same constant packed the same way is kept once.
BufferId WeightPacker::packed_buffer(BufferId source, PlanConstant c) {
  for (const auto& [packed, row] : packed_) {
    const PlanConstant& p = row;
    if (p.buffer == source && p.packing == c.packing && p.k == c.k && p.n == c.n && p.batch == c.batch && p.row_stride == c.row_stride &&
        p.col_stride == c.col_stride && p.batch_stride == c.batch_stride && p.first == c.first) {
      return packed;
    }
  }
  BufferInfo b = plan_.buffer(source).info;
  b.name += ".packed";
  plan_.buffers.push_back({b, {}});
  const BufferId id(plan_.buffers.size() - 1);
  c.buffer = source;
  add_panels(id, c);
  return id;
}

void WeightPacker::add_panels(BufferId buffer, const PlanConstant& row) {
  packed_.emplace_back(buffer, row);
  plan_.buffer(buffer).placement = {Placement::Kind::constant, static_cast<int>(plan_.constants.size()), Expr()};
  plan_.constants.push_back(row);
}

}  // namespace coil
