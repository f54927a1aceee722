// The ways to hand a loop kernel out to the threads of a CUDA device: a thread a few points, tiles through shared memory, or rows and columns of
// threads; and how many threads and points.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/choice.h"
#include "codegen/cuda/cuda_kernels.h"

namespace coil::cuda {

// Values of LoopWay::kind. Records hold them: new ones go to the end.
enum LoopWayKind : int32_t {
  kOwnWay,
  kPointsWay,  // threads of a block, points of a thread
  kTilesWay,   // points: a side of the tiles
  kRowWay,     // threads of a row
  kColumnWay,  // threads of a column; points: columns of a thread, 0 for one
  kThreadWay,  // threads of a block; each reduces by itself; points: of a thread, 0 for one
  kScanWay     // threads of a row, at most
};
struct LoopWay {
  int32_t kind = kOwnWay, threads = 0, points = 0, none = 0;
  static constexpr ChoiceNames kNames = {"way", "threads", "points", ""};
  bool operator==(const LoopWay&) const = default;
};

// A loop kernel's text as the own rules want it.
KernelText loop_text(const KernelPlan& plan, const LoopKernel& kernel);
// Null: the kernel cannot be computed so.
std::optional<KernelText> loop_text(const KernelPlan& plan, const LoopKernel& kernel, const LoopWay& way);

// Other ways that make sense at these sizes, those first that are more likely to pay; at most a few.
std::vector<Choice> loop_choices(const KernelPlan& plan, const LoopKernel& kernel, const std::function<int64_t(SymbolId)>& sizes);
// For readers: "rows of 256 threads".
std::string way_text(const LoopWay& way);

}  // namespace coil::cuda
