#include "schedule/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "schedule/schedule.h"

namespace coil {

// A product's constant weight as its sizes and strides; nothing: these are not known, or it is another slice in each call.
std::optional<PlanConstant> WeightPacker::place_of(const TemplateKernel& k, const Gemm& g) {
  const Expr offset = k.operands[1].offset;
  const int n0 = static_cast<int>(g.batch.size() + g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto batch = merged_stride(offset, 0, g.batch), cols = merged_stride(offset, n0, g.n), rows = merged_stride(offset, k0, g.k);
  PlanConstant c;
  const auto fixed = [](Expr e, int64_t& out) { return e->is_constant() && (out = e->as_int(), true); };
  if (!batch || !cols || !rows || !fixed(*batch, c.batch_stride) || !fixed(*cols, c.col_stride) || !fixed(*rows, c.row_stride)) return std::nullopt;
  if (!fixed(product(pool(), g.n), c.n) || !fixed(product(pool(), g.k), c.k)) return std::nullopt;
  if (c.batch_stride != 0 && !fixed(product(pool(), g.batch), c.batch)) return std::nullopt;
  const Expr base = substitute_vars(offset, std::vector<Expr>(static_cast<size_t>(k0) + g.k.size(), pool().index(0)));
  if (g.batch.empty()) c.batch_stride = 0;
  if (!fixed(base, c.first)) return std::nullopt;  // packed at run time
  return c;
}

std::optional<Packing> WeightPacker::product_packing(const TemplateKernel& k, const Gemm& g, const PlanConstant& place) const {
  if (!target_.packings.product) return std::nullopt;
  const BufferId weight = k.operands[1].buffer;
  std::vector<Packing> present;
  for (const auto& [buffer, row] : packed_) {
    if (row.buffer == weight) present.push_back(row.packing);
  }
  return target_.packings.product({k, g, program_.buffer(weight), program_.buffer(k.operands[0].buffer).dtype, place, present});
}

// The operand then names the packed buffer.
bool WeightPacker::pack_gemm_weight(TemplateKernel& k, const Gemm& g) {
  if (program_.buffer(k.operands[1].buffer).kind != BufferInfo::Kind::constant) return false;
  std::optional<PlanConstant> c = place_of(k, g);
  const BufferInfo& weight = program_.buffer(k.operands[1].buffer);
  if (c && g.quantised && target_.packings.codes && !has_4_bits(weight.data.bytes)) c->codes = coded_numbers(weight.data.bytes);
  const std::optional<Packing> packing = c ? product_packing(k, g, *c) : std::nullopt;
  if (!packing) return pad_lines(k, g);
  c->packing = *packing;
  if (c->packing != kPlain) k.operands[1] = {packed_buffer(k.operands[1].buffer, *c), pool().index(0)};
  return true;
}

namespace {

// A type of floats: binary digits behind the point, and exponents.
struct Narrow {
  int digits, least, most;
};

// Whether a float32 is a number (or infinity) of the type.
bool fits(uint32_t value, const Narrow& type) {
  const uint32_t fraction = value & 0x7fffffu;
  const int exponent = static_cast<int>(value >> 23 & 0xff) - 127;
  if ((value & 0x7fffffffu) == 0 || (exponent == 128 && fraction == 0)) return true;
  const bool subnormal = exponent == -127;  // of float32
  if (exponent > type.most || (subnormal && type.least > -126)) return false;
  const int lost = subnormal ? 0 : std::max(type.least - exponent, 0);  // digits, below the least exponent
  return lost <= type.digits && (fraction & ((1u << (23 - type.digits + lost)) - 1)) == 0;
}

// Whether each does. Most do without being looked at one by one: with exponents that the type has, and no digits behind its last.
bool piece_fits(std::span<const uint8_t> bytes, const Narrow& type) {
  constexpr size_t kAtOnce = 16;
  const uint32_t behind = (1u << (23 - type.digits)) - 1, exponents = static_cast<uint32_t>(type.most - type.least);
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size();) {
    uint32_t values[kAtOnce], others = 0;
    const size_t count = std::min(kAtOnce, (bytes.size() - at) / sizeof(uint32_t));
    std::memcpy(values, bytes.data() + at, count * sizeof(uint32_t));
    at += count * sizeof(uint32_t);
    if (count == kAtOnce) {
      for (const uint32_t v : values) others |= (v & behind) | static_cast<uint32_t>((v >> 23 & 0xff) - static_cast<uint32_t>(type.least + 127) > exponents);
      if (others == 0) continue;
    }
    if (!std::all_of(values, values + count, [&](uint32_t v) { return fits(v, type); })) return false;
  }
  return true;
}

bool all_fit(const StoredBytes& bytes, const Narrow& type) {
  if (type.digits == 10 && bytes.source() && bytes.source()->in_halves()) return true;
  return bytes.told(fmt::format("{} digits", type.digits),
                    [&] { return bytes.each_piece([&](std::span<const uint8_t> piece) { return piece_fits(piece, type); }); });
}

}  // namespace

BufferId WeightPacker::packed_table(BufferId table) {
  if (target_.packings.scales == kPlain) return table;
  BufferInfo info = program_.buffer(table);
  PlanConstant c;
  c.packing = target_.packings.scales;
  const size_t rank = info.sizes.size();
  c.k = info.sizes[rank - 2]->as_int(), c.n = info.sizes[rank - 1]->as_int();
  c.row_stride = c.n, c.col_stride = 1;
  if (rank == 3) c.batch = info.sizes[0]->as_int(), c.batch_stride = c.k * c.n;
  const auto dense = contiguous_strides(pool(), info.sizes);
  BufferId source = table;
  if (info.data.offset == 0 && (info.strides.empty() || info.strides == dense)) {
    if (all_fit(info.data.bytes, {10, -14, 15})) source = narrow_buffer(table, DType::f16);
    else if (all_fit(info.data.bytes, {7, -126, 127})) source = narrow_buffer(table, DType::bf16);
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
  c.packing = kPaddedLines;
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
  const BufferInfo& w = program_.buffer(conv.weight);
  const PackingRules& rules = target_.packings;
  const bool constant = w.kind == BufferInfo::Kind::constant;
  std::vector<Packing> packings;
  if (constant && rules.convolution) packings = rules.convolution(conv, k.operands[0].offset, k.result_sizes, w);
  CHECK(!is_int(w.dtype) || !packings.empty(), "a quantised weight that cannot be packed");
  if (packings.empty()) {
    const std::vector<Expr> coordinates = {pool().var(0), pool().var(1), pool().var(2), pool().var(3)};
    k.operands.push_back({conv.weight, linear_offset(pool(), w, coordinates)});
    if (!constant && rules.call_winograd) k.call_winograd = rules.call_winograd(conv, k.operands[0].offset, k.result_sizes, w);
    return;
  }
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
  add_packed(id, c);
  return id;
}

void WeightPacker::add_packed(BufferId buffer, const PlanConstant& row) {
  packed_.emplace_back(buffer, row);
  plan_.buffer(buffer).placement = {Placement::Kind::constant, static_cast<int>(plan_.constants.size()), Expr()};
  plan_.constants.push_back(row);
}

}  // namespace coil
