// One place for each state of all programs of a package: what two programs name alike, with the same type and shape, is one state, so that a conversation
// which one program began goes on in another. A state begins with the values of the program that it is made for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loop/loop.h"

namespace coil {

struct SharedState {
  std::string name;
  TensorData data;  // what it begins with, in the layout's program if that has it
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct StateLayout {
  std::vector<SharedState> states;
  uint64_t bytes = 0;
  uint64_t stored = 0;  // of them: what lies in front, and is not all zero when the program begins

  const SharedState* find(const std::string& name) const;
};

bool begins_with_zeros(const TensorData& data);

// The layout for each program. Programs whose states disagree (one name, but another type or shape) have layouts of their own; null for programs without
// a state.
std::vector<std::shared_ptr<const StateLayout>> shared_states(std::span<const LoopProgram* const> programs);

}  // namespace coil
