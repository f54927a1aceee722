#include "lower/dequantised.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "loop/simplify_body.h"

namespace coil {

BufferId add_buffer(LoopProgram& program, std::string name, DType dtype, std::vector<Expr> sizes) {
  BufferInfo info;
  info.name = std::move(name) + "_" + std::to_string(program.buffers.size());
  info.dtype = dtype;
  info.sizes = std::move(sizes);
  program.buffers.push_back(std::move(info));
  return BufferId(program.buffers.size() - 1);
}

DequantisedFinder::DequantisedFinder(const LoopProgram& program, bool through_rounding)
    : program_(program), through_rounding_(through_rounding), pool_(*program.pool) {
  for (size_t l = 0; l < program.loops.size(); ++l) {
    for (BufferId id : program.loops[l].outputs) definition_[id] = l;
  }
}

const Pointwise* DequantisedFinder::pointwise(BufferId id) const {
  auto it = definition_.find(id);
  return it == definition_.end() ? nullptr : std::get_if<Pointwise>(&program_.loops[it->second].def);
}

// What rounding to 2 bytes leaves as it is, or may leave so.
bool DequantisedFinder::keeps_value(Expr body, DType stored) const {
  if (body->kind == ExprKind::load && program_.buffer(BufferId(body->id)).dtype == stored) return true;
  if (body->is_op(ScalarOp::cast) && is_quantised(body->args[0])) return true;
  if (!through_rounding_) return false;
  const Expr value = head(body);  // a conversion of what was computed elsewhere is rounding too
  return (value->is_op(ScalarOp::mul) || value->is_op(ScalarOp::sub)) && dequantised(value).has_value();
}

// e with what it loads from elementwise results in its place, unless storing them changed the value.
Expr DequantisedFinder::head(Expr e) const {
  while (e->kind == ExprKind::load) {
    const DType stored = program_.buffer(BufferId(e->id)).dtype;
    const Pointwise* def = is_byte(stored) ? nullptr : pointwise(BufferId(e->id));
    if (!def) break;
    if (byte_size(stored) == 2 && !keeps_value(def->body, stored)) break;
    e = substitute_vars(def->body, e->args);
  }
  return e;
}

Expr DequantisedFinder::number(Expr e) const {
  e = head(e);
  while (e->is_op(ScalarOp::cast) && !is_byte(e->dtype) && !is_bool(e->dtype)) e = head(e->args[0]);
  return is_quantised(e) ? e : Expr();
}

std::optional<Dequantised> DequantisedFinder::difference(Expr e) const {
  if (Expr q = number(e)) return Dequantised{{BufferId(q->id), {q->args.begin(), q->args.end()}}, Expr(), Expr()};
  e = head(e);
  if (e->is_op(ScalarOp::cast) && is_float(e->dtype)) e = head(e->args[0]);
  if (!e->is_op(ScalarOp::sub)) return std::nullopt;
  const Expr q = number(e->args[0]);
  if (!q) return std::nullopt;
  return Dequantised{{BufferId(q->id), {q->args.begin(), q->args.end()}}, e->args[1], Expr()};
}

std::optional<Dequantised> DequantisedFinder::dequantised(const Operand& o, const std::vector<Expr>& sizes) const {
  std::optional<Dequantised> d = dequantised(head(pool_.load(o.buffer, program_.buffer(o.buffer).dtype, o.coordinates)));
  if (!d) return d;
  for (Expr& c : d->q.coordinates) c = simplify_index(c, {sizes});
  for (Expr* e : {&d->zero, &d->scale}) {
    if (*e) *e = simplify_body(*e, sizes);
  }
  return d;
}

std::optional<Dequantised> DequantisedFinder::dequantised(Expr e) const {
  if (std::optional<Dequantised> d = difference(e)) return d;
  if (!e->is_op(ScalarOp::mul) || e->dtype != DType::f32) return std::nullopt;
  for (size_t side : {0u, 1u}) {
    std::optional<Dequantised> d = difference(e->args[side]);
    if (!d) continue;
    d->scale = e->args[1 - side];
    return d;
  }
  return std::nullopt;
}

bool DequantisedFinder::is_fixed(Expr e) const {
  return !any_of(e, [&](Expr n) {
    if (n->kind == ExprKind::symbol) return true;
    if (n->kind != ExprKind::load) return false;
    const BufferId id(n->id);
    const Pointwise* def = pointwise(id);
    return def ? !is_fixed(def->body) : program_.buffer(id).kind != BufferInfo::Kind::constant;
  });
}

// e without conversions.
Expr DequantisedFinder::plain(Expr e) const {
  e = head(e);
  while (e->is_op(ScalarOp::cast)) e = head(e->args[0]);
  return e;
}

bool DequantisedFinder::is_zero(Expr e) const {
  e = plain(e);
  if (e->is_constant()) return is_float(e->dtype) ? e->as_double() == 0 : e->as_int() == 0;
  if (e->kind != ExprKind::load || program_.buffer(BufferId(e->id)).kind != BufferInfo::Kind::constant) return false;
  const TensorData& d = program_.buffer(BufferId(e->id)).data;
  return is_all_zeros(d.bytes);
}

std::optional<int64_t> DequantisedFinder::fixed_integer(Expr e) const {
  e = plain(e);
  if (e->is_constant()) {
    if (!is_float(e->dtype)) return e->as_int();
    const double v = e->as_double();
    return v == std::floor(v) && std::abs(v) < 1e9 ? std::optional(static_cast<int64_t>(v)) : std::nullopt;
  }
  if (e->kind != ExprKind::load || program_.buffer(BufferId(e->id)).kind != BufferInfo::Kind::constant) return std::nullopt;
  const TensorData& d = program_.buffer(BufferId(e->id)).data;
  if (std::any_of(d.sizes.begin(), d.sizes.end(), [](int64_t n) { return n != 1; })) return std::nullopt;
  const uint8_t* from = d.bytes.data() + d.offset * byte_size(d.dtype);
  if (d.dtype == DType::i64) {
    int64_t v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  if (d.dtype == DType::i32) {
    int32_t v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  return std::nullopt;
}

}  // namespace coil
