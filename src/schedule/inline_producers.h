// The first half of fusion: epilogues of templates, and pointwise producers that are recomputed in their consumers.
#pragma once

#include <map>
#include <set>

#include "loop/simplify_body.h"
#include "schedule/schedule.h"

namespace coil {

// Rows of LoopProgram::loops of the pointwise loops that run in a template's epilogue, in order, by the template's row.
using Epilogues = std::map<int, std::vector<int>>;

// Which loops read a buffer and how.
struct BufferUse {
  std::set<int> loops;   // rows that read it in a body or as an operand
  bool operand = false;  // some template, scan or sort needs it stored
  bool program_output = false;
  int producer = -1;
};
std::vector<BufferUse> buffer_uses(const LoopProgram& program);

// Concatenations of few cheap pieces (TargetTraits::select_pieces) that only pointwise loops read become pointwise loops that choose the
// piece at each point. Rotary embeddings: cat(-x2, x1) * sin.
void select_concats(LoopProgram& program, const TargetTraits& target);

// Where `loop` (pointwise) is when the template computes the element of `source` at `point`: its variables, in the template's coordinates.
// Nothing where it reads that element at several points, or not at any.
std::optional<std::vector<Expr>> epilogue_point(const LoopProgram& program, const Loop& loop, BufferId source, const std::vector<Expr>& point);

Epilogues find_epilogues(const LoopProgram& program, const TargetTraits& target, std::vector<FusionNote>& notes);

// Substitutes cheap or single-use pointwise producers into their consumers' bodies; the emptied producers are dropped from
// `alive`.
void inline_pointwise(LoopProgram& program, const Epilogues& epilogues, const TargetTraits& target, std::vector<bool>& alive, std::vector<FusionNote>& notes);

}  // namespace coil
