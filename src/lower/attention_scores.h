// What programs write between the two products of attention, followed from the weights back to the product that makes the scores.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "loop/loop.h"
#include "lower/attention_mask.h"

namespace coil {

// Everything is an expression at one point of the scores: variables batch, head, row and column. What is read may have other dimensions: each read is
// replaced by what defines it, at the coordinates of the read, until a product is met.
class AttentionScores {
 public:
  // definitions: the loop that defines a buffer. masks: of the same program.
  AttentionScores(const LoopProgram& program, const std::map<BufferId, size_t>& definitions, const AttentionMasks& masks)
      : program_(program), pool_(*program.pool), definitions_(definitions), masks_(masks) {}

  // softmax(scores) of a row, as the weights of a product.
  struct Weights {
    Expr scores;             // a load
    bool zero_rows = false;  // rows without anything to attend to are 0
  };
  // product * scale + mask.
  struct Scores {
    const Gemm* product = nullptr;
    std::vector<Expr> at;  // its batches, row and column
    double scale = 1;
    Expr mask;                           // null: none
    std::optional<double> highest_fill;  // Attention's
    bool adds = false;                   // some of the mask is added to scores
  };

  // `weights`: a load. sizes: of the four variables.
  std::optional<Weights> weights(Expr weights, const std::vector<Expr>& sizes);
  std::optional<Scores> scores(Expr scores);
  // The buffers between the products that were met since weights() was asked.
  const std::set<BufferId>& met() const { return met_; }

  template <class Def>
  const Def* defined_as(BufferId id) const {
    auto it = definitions_.find(id);
    return it == definitions_.end() ? nullptr : std::get_if<Def>(&program_.loops[it->second].def);
  }
  static Expr without_cast(Expr e) { return e->is_op(ScalarOp::cast) ? e->args[0] : e; }

 private:
  Expr at_point(Expr e) const;
  Expr inlined(Expr load);
  Expr followed(Expr e);
  Expr row_reduction(Expr load, ReduceOp op);
  bool is_of_row(Expr e) const;
  Expr top_of(Expr e) const;
  Expr softmax_source(Expr e);
  bool is_exponential(Expr e, Expr scores, Expr top) const;
  bool is_empty_row(Expr e, Expr scores, Expr quotient);
  std::optional<Scores> sum(Expr e);
  std::optional<Scores> scaled(Expr e);
  std::optional<Scores> filled(Expr e);

  const LoopProgram& program_;
  ExprPool& pool_;
  const std::map<BufferId, size_t>& definitions_;
  const AttentionMasks& masks_;
  std::vector<Expr> sizes_;
  std::set<BufferId> met_;
};

}  // namespace coil
