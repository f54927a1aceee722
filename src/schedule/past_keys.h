// Attention over a concatenation of keys (a cache and what a call adds to it) reads the cache where it lies, so that memory moves it once.
#pragma once

#include <map>
#include <set>

#include "schedule/schedule.h"

namespace coil {

struct PastKeysPlan {
  // An attention's keys and values: of the past, and behind it.
  struct Join {
    Expr rows;
    Operand past_k, past_v, k, v;
    bool keep_k = false, keep_v = false;
  };
  std::map<int, Join> attentions;             // by rows of LoopProgram::loops
  std::set<std::pair<int, size_t>> left_out;  // a concatenation's pieces that no kernel writes: its row, the piece
};

PastKeysPlan find_past_keys(const FusionResult& fused, const TargetTraits& target);

}  // namespace coil
