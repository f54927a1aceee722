// Expressions as C++ text for the CPU: the same functions (namespace cd) for scalars and for vectors of lanes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/kernel_text.h"

namespace coil::cpu {

// How the expressions of one place in the text are evaluated.
struct EmitContext {
  std::vector<std::string> vars;                      // C++ names of the loop variables
  std::vector<Expr> sizes;                            // their ranges, for choosing cheap divisions
  int lane_var = -1;                                  // the variable that lanes run along; its name is the first lane's value
  bool whole_steps = false;                           // vectors begin at multiples of their lanes
  std::string tail;                                   // count of active lanes; empty: all
  std::map<int, std::pair<std::string, bool>> temps;  // temp -> text, is it a vector
  std::map<int, std::string> scratch;                 // worker scratch row -> pointer name
  std::map<const ExprNode*, std::string> known;       // loads that have their vectors from elsewhere
  std::map<const ExprNode*, std::string> rows;        // checked indices that an item has looked up at its begin: names of C++ int64s
};

class ExprEmitter {
 public:
  // Statements are appended to `out`, each line after `indent`.
  ExprEmitter(KernelNames& names, const EmitContext& context, std::string& out, std::string indent, int& next_name)
      : names_(names), context_(context), out_(out), indent_(std::move(indent)), next_name_(next_name) {}

  struct Text {
    std::string text;
    bool vector = false;
  };
  Text value(Expr e);
  // As a vector if the context has lanes, broadcasting if needed.
  std::string vector_value(Expr e);
  // A C++ int64 expression; must not depend on the lane variable except through its first value.
  std::string index(Expr e);

  // Stores a value at a linear offset. `condition`: null, or what has to hold, for all lanes alike. streams: whole vectors go past the caches.
  void store(const std::string& pointer, Expr offset, Expr value, Expr condition = {}, bool streams = false);
  // A vector, all lanes of it, at a C++ address.
  void store_lanes(const std::string& address, Expr value);

 private:
  Text make(Expr e);
  Text load(Expr e);
  Text index_value(Expr e);
  Text masked(Expr e);
  Text masked_lanes(Expr e, const std::string& condition);
  bool of_lanes_alone(Expr condition) const;
  // As a condition on the first lane, if all lanes of a vector have it in common: comparisons of the lane variable with multiples of any vector's lanes.
  std::optional<std::string> of_whole_vector(Expr condition);
  std::string some_element(BufferId buffer, const std::string& pointer);
  std::string counted_lanes() const;  // of the lane mask: those before the tail's end
  // A vector of indices, of 64 bits or, where all of it fits, of 32.
  enum class Bits { i32, i64 };
  std::string lane_index(Expr e, Bits bits = Bits::i64);
  std::string checked_lanes(Expr e);
  std::string lane_division(Expr e, Bits bits);
  bool fits_32(Expr index) const;
  // An index, one as an i64 value, or a constant, as an index that fits 32 bits; null: it is none.
  Expr small_index(Expr value) const;
  std::optional<std::string> of_small_indices(Expr e);
  Text name(Text t, const char* prefix);
  std::string vec(const Text& t) const { return t.vector ? t.text : "cd::vec(" + t.text + ")"; }
  // Whether the value differs from lane to lane: through the lane variable, or through a temp that is a vector.
  bool lanes(Expr e) const { return (context_.lane_var >= 0 && depends_on_var(e, context_.lane_var)) || vector_temps(e); }
  bool vector_temps(Expr e) const;

  KernelNames& names_;
  const EmitContext& context_;
  std::string& out_;
  std::string indent_;
  int& next_name_;
  std::map<const ExprNode*, Text> memo_;
  std::string lane_mask_;    // inside a masked operand: only these lanes may load
  bool mixed_mask_ = false;  // which lanes these are depends on more than their number
};

}  // namespace coil::cpu
