// What the model of wgmma's kernels (cuda_gemm_model.cc) was fitted to: nanoseconds on an H200, and bytes a nanosecond. On other machines they are a guess, of
// which only ratios matter. bench/fit_gemm.cc says how well they choose among measured times (tests/gpu/test_gemm.py --bench --times FILE), and fits them.
#pragma once

namespace coil::templates {

// X(name, value, where it is from)
#define COIL_WGMMA_TIMES(X)                                                                                                                         \
  X(launch, 1250, "a kernel that does nothing, and what it begins with")                                                                            \
  X(element, 0.018, "a step's products of 64 x an element of a tile: 128 bytes along k")                                                            \
  X(element_hot, 0.0197, "the same where the whole chip computes for long, and its clock sinks")                                                    \
  X(tall_192, 1.03, "192 x 192 by three warpgroups; with tall: 42 products of training steps (commit 9668bed2)")                                    \
  X(tall, 1.07, "other tiles of 192 rows")                                                                                                          \
  X(wide, 1.06, "tiles of 192 columns")                                                                                                             \
  X(taken_in, 127, "bytes that a multiprocessor takes in by TMA")                                                                                   \
  X(copied_in, 37, "the same by threads that copy")                                                                                                 \
  X(from_cache, 11800, "bytes that the L2 cache gives; odd rows: fitted to 1500 times (commit 4c24c6a8), as all below that are of odd rows")        \
  X(from_cache_odd, 13400, "the same for odd rows in tiles up to 64 x 160")                                                                         \
  X(from_cache_turns, 17500, "the same where two warpgroups take turns")                                                                            \
  X(neighbours, 0.88, "192 x 96 of contiguous columns, 128 of which are loaded: half of the rest is a neighbour's too")                             \
  X(odd_halves, 1.6, "lines of the cache for a's rows that begin between multiples of 32 bytes and are odd by halves of words")                     \
  X(odd_words, 1.05, "the same for whole words")                                                                                                    \
  X(turn, 133, "a step of odd rows through registers, in turns")                                                                                    \
  X(turn_element, 0.0066, "of an element of the tile")                                                                                              \
  X(turn_halves, 58, "more where rows are odd by halves of words")                                                                                  \
  X(through, 165, "a step of odd rows through registers, tiles of 64 rows")                                                                         \
  X(through_tall, 206, "the same of more rows")                                                                                                     \
  X(through_element, 0.009, "of an element of the tile")                                                                                            \
  X(share_odd, 1.05, "blocks that share loads of odd rows")                                                                                         \
  X(share_down, 0.99, "blocks one below the other that share loads")                                                                                \
  X(crowd, 1.3, "64 x 96 in turns on nine tenths of the chip: 126 blocks at 1280 columns and k = 3420 took 17.3 us, 112 took 13.4 (not explained)") \
  X(finish, 170, "a tile on its way to memory, beside its elements")                                                                                \
  X(finish_element, 9.1 / 128, "of an element of the tile")                                                                                         \
  X(finish_turns, 1630, "the same in turns: the sums of one warpgroup are added to the other's")                                                    \
  X(finish_turns_element, 22.7 / 128, "of an element of the tile")                                                                                  \
  X(finish_narrow, 4, "times as long for rows that wide stores do not fill (2048 x 10001 x 768 with a bias: 84 us)")                                \
  X(split, 2200, "parts of k that a cluster adds up")                                                                                               \
  X(split_odd, 2800, "the same for odd rows")                                                                                                       \
  X(split_element, 0.085, "of an element of the tile, each time that parts are halved")                                                             \
  X(split_turns, 1000, "in turns")                                                                                                                  \
  X(split_turns_element, 0.015, "of an element of the tile, each time that parts are halved")                                                       \
  X(drawn, 40, "bytes that a multiprocessor draws from memory")                                                                                     \
  X(beside_memory, 0.15, "of the products that memory does not hide")                                                                               \
  X(few_steps, 1.9, "many tiles of a step or two: what is around them is all that there is")

struct WgmmaTimes {
#define X(name, value, source) double name = value;
  COIL_WGMMA_TIMES(X)
#undef X
};
inline constexpr WgmmaTimes kWgmmaTimes;

}  // namespace coil::templates
