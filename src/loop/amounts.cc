#include "loop/amounts.h"

#include <fmt/format.h>

#include <cmath>

#include "loop/templates/template.h"

namespace coil {
namespace {

// 4 PiB, or as many points: no machine holds it, and no call would end. A thousand of them still fit an int64.
constexpr double kMost = 4503599627370496.0;

// The constant part of a size: of 1024*batch it is 1024.
double constant_part(Expr e) {
  if (e->is_constant()) return std::abs(static_cast<double>(e->as_int()));
  if (!e->is_op(ScalarOp::imul)) return 1;
  double part = 1;
  for (Expr a : e->args) part *= constant_part(a);
  return part;
}

double amount(const std::vector<Expr>& sizes) {
  double n = 1;
  for (Expr s : sizes) n *= constant_part(s);
  return n;
}

Error too_large(std::string what, const std::vector<Expr>& sizes, double n, std::string where) {
  std::string list;
  for (Expr s : sizes) list += (list.empty() ? "" : ", ") + to_string(s);
  return Error{ErrorCode::unsupported_feature, fmt::format("{} [{}], {:.3g} in all: more than any machine can hold or compute", what, list, n),
               std::move(where), "compile the model for smaller sizes"};
}

}  // namespace

Status check_amounts(const LoopProgram& program) {
  for (const Loop& loop : program.loops) {
    const std::string where = loop.origins.empty() ? "" : loop.origins[0].source;
    for (const BodyRef& ref : bodies(program, loop)) {
      const double n = amount(ref.domain);
      if (n > kMost) return too_large("'" + loop.op + "' runs over", ref.domain, n, where);
    }
    for (BufferId id : loop.outputs) {
      const BufferInfo& b = program.buffer(id);
      const double n = amount(b.sizes) * byte_size(b.dtype);
      if (n > kMost) return too_large("'" + b.name + "' has bytes for", b.sizes, n, where);
    }
    for (const std::vector<Expr>& side : parts_of(loop.def).sides) {
      if (amount(side) > kMost) return too_large("a side of '" + loop.op + "' is", side, amount(side), where);
    }
  }
  return ok_status();
}

}  // namespace coil
