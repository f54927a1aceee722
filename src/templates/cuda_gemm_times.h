// What the model of wgmma's kernels (cuda_gemm_model.cc) was fitted to: times of an H200. On other machines they are a guess, of which only ratios matter.
// bench/fit_gemm.cc says how well they choose among measured times (tests/gpu/test_gemm.py --bench --times=FILE), how well constants do that were fitted to
// other products, and fits them. "fitted": to all of bench/results/gemm_times_h200_2026-11-29.txt.
#pragma once

namespace coil::templates {

// X(name, value, unit, what it is and where it is from)
#define COIL_WGMMA_TIMES(X)                                                                                             \
  X(launch, 1250, "ns", "a kernel that does nothing, and what it begins with")                                          \
  X(element, 0.016, "ns", "a step's products of 64 x an element of a tile: 128 bytes along k; fitted")                  \
  X(element_hot, 0.0209, "ns", "the same where the whole chip computes for long, and its clock sinks; fitted")          \
  X(taken_in, 141, "bytes/ns", "of a multiprocessor by TMA; fitted")                                                    \
  X(outside, 1.9, "ns", "128 bytes of a box that lie outside of its tensor: TMA fills them in; fitted")                 \
  X(copied_in, 37, "bytes/ns", "of a multiprocessor by threads that copy (commit 1c87d7c5)")                            \
  X(from_cache, 14200, "bytes/ns", "that the L2 cache gives; fitted")                                                   \
  X(latency, 1010, "ns", "of a stage on its way from memory; fitted")                                                   \
  X(beside_memory, 0.678, "times", "of the products that memory does not hide; fitted")                                 \
  X(turn, 109, "ns", "a step of odd rows through registers, two warpgroups in turns; fitted")                           \
  X(turn_element, 0.00999, "ns", "of an element of the tile; fitted")                                                   \
  X(through, 188, "ns", "a step of odd rows through registers, elsewhere; fitted")                                      \
  X(through_element, 0.012, "ns", "of an element of the tile; fitted")                                                  \
  X(fill, 290, "ns", "until a block's first step is there; fitted")                                                     \
  X(cluster, 2300, "ns", "blocks of a cluster wait for each other, as they start and as they end; fitted")              \
  X(cluster_again, 1260, "ns", "the same of clusters that wait for others to end; fitted")                              \
  X(split, 688, "ns", "parts of k that a cluster adds up; fitted")                                                      \
  X(split_element, 0.00324, "ns", "of an element of the tile, each time that parts are halved; fitted")                 \
  X(finish_element, 0.137, "ns", "of a tile on its way to memory; fitted")                                              \
  X(finish_persistent, 0.482, "times", "the same of persistent blocks, which load the next tile meanwhile; fitted")     \
  X(finish_turns, 998, "ns", "a tile of which two warpgroups took the steps in turns: their sums are added up; fitted") \
  X(finish_turns_element, 0.0491, "ns", "of an element of that tile; fitted")                                           \
  X(finish_narrow, 0.542, "ns", "of an element of a tile in rows that wide stores do not fill, at least; fitted")       \
  X(to_memory, 5780, "bytes/ns", "of results that all blocks write; fitted")                                            \
  X(few_steps, 1.9, "times", "many tiles of a step or two: pixels of few channels, windows of few places (commit ffc7bbec)")

struct WgmmaTimes {
#define X(name, value, unit, source) double name = value;
  COIL_WGMMA_TIMES(X)
#undef X
};
inline constexpr WgmmaTimes kWgmmaTimes;

}  // namespace coil::templates
