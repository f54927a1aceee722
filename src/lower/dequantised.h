// Finds what is dequantised: (q - zero) * scale of int8 or uint8, however the program wrote it.
#pragma once

#include <map>
#include <optional>

#include "loop/loop.h"

namespace coil {

inline bool is_byte(DType d) { return d == DType::i8 || d == DType::u8; }

// What a dequantised operand is made of, over the variables of its user.
struct Dequantised {
  Operand q;
  Expr zero, scale;  // null: 0 and 1; zero is an integer or a float that is one
};

// A new buffer of the program, of a name that no other has.
BufferId add_buffer(LoopProgram& program, std::string name, DType dtype, std::vector<Expr> sizes);

// Looks through elementwise definitions of the program, which must not change its loops meanwhile; it may gain buffers.
class DequantisedFinder {
 public:
  // through_rounding: also where a program rounds (q - zero) or (q - zero) * scale to 2 bytes. For those who may compute it more exactly.
  explicit DequantisedFinder(const LoopProgram& program, bool through_rounding = false);

  // `sizes`: of the user's variables.
  std::optional<Dequantised> dequantised(const Operand& o, const std::vector<Expr>& sizes) const;
  // A quantised number behind conversions that keep its value, as its load; null: e is none.
  Expr number(Expr e) const;
  // Depends on constants alone.
  bool is_fixed(Expr e) const;
  // Known to be 0: a number, or data.
  bool is_zero(Expr e) const;
  // The value of an integer, or of a float that is one: a number, or data of one element.
  std::optional<int64_t> fixed_integer(Expr e) const;

 private:
  const Pointwise* pointwise(BufferId id) const;
  Expr head(Expr e) const;
  Expr plain(Expr e) const;
  bool is_quantised(Expr e) const { return e->kind == ExprKind::load && is_byte(program_.buffer(BufferId(e->id)).dtype); }
  std::optional<Dequantised> difference(Expr e) const;
  std::optional<Dequantised> dequantised(Expr e) const;

  bool keeps_value(Expr body, DType stored) const;

  const LoopProgram& program_;
  bool through_rounding_;
  ExprPool& pool_;
  std::map<BufferId, size_t> definition_;
};

}  // namespace coil
