// The ways to write a loop kernel for the CPU: which axis lanes run along, how many vectors an inner loop has under way, tiles that are turned
// in registers, stores past the caches.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil::cpu {

inline constexpr int64_t kMaxLanes = 16;
inline constexpr int64_t kReductionBlock = 64;  // lanes of an item whose inner loops run across memory: a few cache lines a row
inline constexpr int64_t kColumnBlock = 1024;   // ... whose accumulators lie in memory: rows are read as a core reads ahead, a page at a time
inline constexpr int kColumnRows = 4;           // rows between two visits of such an accumulator
inline constexpr int kLongBody = 16;            // cost of statements above which repeating them in the text saves nothing

// Values of LoopChoice::form (choice_types.h); what its size counts. Records hold them: new ones go to the end.
enum LoopFormKind : int32_t {
  kOwnForm,
  kVectors,  // size: so many vectors at once, each with accumulators of its own
  kLanes,    // size: lanes along this axis, from 1
  kTiles,    // what lies across the lanes is read or written in tiles; size 2: it is not
  kStreams,  // results do not go through the caches; size 2: they do
};
inline constexpr int32_t kWithoutTiles = 2, kWithoutStreams = 2;

struct LoopForm {
  int lanes = -1;  // the axis; -1: no vectors
  int vectors = 1;
  int long_vectors = 1;     // in a loop over inner points whose body is long
  int64_t columns = 0;      // lanes of an item whose accumulators lie in memory, visited once for several rows; 0: registers hold them
  int across = -1;          // the other axis of tiles; -1: none
  std::vector<Expr> tiled;  // loads that are contiguous along `across`
  bool turned = false;      // what is contiguous along `across` are the stores
  bool streams = false;     // whole vectors of results are stored past the caches
};

LoopForm own_form(const KernelPlan& plan, const LoopKernel& kernel);
// Of a LoopChoice's form and size. Null: the kernel cannot be written so.
std::optional<LoopForm> chosen_form(const KernelPlan& plan, const LoopKernel& kernel, const Choice& choice);
// All choices of other forms that make sense, those first that are more likely to pay; `sizes` decide what is large.
std::vector<Choice> form_choices(const KernelPlan& plan, const LoopKernel& kernel, const std::function<int64_t(SymbolId)>& sizes);

// For readers: "4 vectors at once", "lanes along i1".
std::string form_text(const LoopKernel& kernel, const Choice& choice);

}  // namespace coil::cpu
