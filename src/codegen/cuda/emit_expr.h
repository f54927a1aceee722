// Expressions as CUDA C++: a thread computes one point, or `width` consecutive points along one axis (the lane axis).
//
// Text goes to two places: `before` holds what is the same for all lanes and the wide loads, `body` stands inside the loop over the
// lanes ("v"). With width 1 there is no loop and both are the same string.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/lane_index.h"
#include "codegen/kernel_text.h"

namespace coil::cuda {

// What the texts of one kernel share.
struct KernelContext {
  const KernelPlan* plan = nullptr;
  KernelNames names;
  std::vector<std::string> vars;  // C++ names of the axes
  std::vector<Expr> sizes;        // their ranges
  bool wide_index = true;         // 64-bit index arithmetic
  Expr skew;                      // lanes start where this and the lane axis add up to a multiple of the width; invalid: at such
  bool half_results = false;      // all that is stored is bf16 or f16
  std::set<BufferId> read_only;   // never written by the kernel, nor sharing memory with what is
  // Runtime conditions of the wide path.
  std::map<int, int> aligned;       // buffer -> bytes that its address must be a multiple of
  std::set<std::string> divisible;  // host expressions that must be 0
  int next_name = 0;

  explicit KernelContext(const KernelPlan& p) : plan(&p), names(p) {}
  std::string index_type() const { return wide_index ? "cd::i64" : "cd::i32"; }
  // In front of what data or a size of the call gives, 64 bits.
  std::string index_of_data() const { return wide_index ? "(cd::i64)" : "cd::low_word"; }
};

// How an access moves with the lanes.
enum class AccessKind { same, wide, single };
// `alignments` and `conditions` of a wide one are noted in the context if `note` is set.
AccessKind access_kind(KernelContext& context, BufferId buffer, Expr offset, int lane_axis, int width, bool note);

struct TempText {
  std::string text;
  bool lanes = false;  // differs from lane to lane: the text uses v
};

// Wide loads that a template makes before it has the elements: copied by cp.async to `to` and read from `from`, the lane's place in shared memory.
struct ReadAhead {
  int most = 0;                   // bytes of a lane's columns
  std::vector<BufferId> written;  // by the epilogue: read when it is their turn
  int bytes = 0;                  // taken so far
  std::string copies;             // statements
  // Where the next so many bytes lie, or nothing: there is no room, or no such copy.
  std::optional<int> place(BufferId buffer, int size);
};

class Emitter {
 public:
  struct Place {
    std::string* before = nullptr;
    std::string* body = nullptr;
    std::string before_indent, body_indent;
    int lane_axis = -1;
    int width = 1;
    ReadAhead* ahead = nullptr;
  };
  Emitter(KernelContext& context, const Place& place, std::map<int, TempText>& temps) : c_(context), place_(place), temps_(temps) {}

  // Loads of this node (by identity) read the given text, in lanes.
  void know(Expr load, TempText text) {
    if (text.lanes) known_lanes_.insert(load.node());
    memo_[load.node()] = std::move(text);
  }

  TempText value(Expr e);
  // A value named in the body, whatever it is, so that it may be used as a lane's.
  std::string lane_value(Expr e) { return value(e).text; }
  std::string index(Expr e, bool first_lane = false);
  // A store; wide ones collect lanes in an array and are written after the loop: their text is added to `after`.
  // condition: null, or what has to hold for it to happen, and for what it reads to be there.
  void store(BufferId buffer, Expr offset, Expr value, Expr condition, std::string& after, const std::string& after_indent);

 private:
  TempText make(Expr e);
  TempText load(Expr e);
  // Where a wide load that place_.ahead takes is read, and its copies; empty: it is read in its turn. at: the place of its first element.
  std::string read_ahead(Expr load, const std::string& at);
  TempText masked(Expr e);
  void branch(Expr e, const std::string& result, std::string& out, std::string& indent);
  // The same for whole vectors, where the condition does not change within one: so that loads in it may be wide.
  bool same_for_lanes(Expr condition) const;
  bool can_mask_vectors(Expr e) const;
  std::string first_lane_condition(Expr e);
  TempText masked_vector(Expr e);
  void vector_branch(Expr e, const std::string& result, std::string& out, const std::string& indent);
  TempText named(const std::string& text, bool lanes, const char* prefix);
  bool lanes(Expr e) const;
  LaneQuotient lane_quotient(Expr e) const;
  void checked_store(const std::string& to, Expr offset, const std::string& value, const std::string& condition);
  std::string pointer(BufferId id) { return c_.names.pointer(id); }

  KernelContext& c_;
  Place place_;
  std::map<int, TempText>& temps_;
  std::map<const ExprNode*, TempText> memo_;
  std::set<const ExprNode*> known_lanes_;  // named in the body by others
  bool inside_mask_ = false;
};

// An index of the axes and the dynamic sizes, of one point.
std::string index_text(KernelContext& context, Expr e);

}  // namespace coil::cuda
