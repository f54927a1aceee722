// A matrix product as the choice of its CUDA kernel sees it: sizes at a point, what the operands' addresses allow, the tiles that there
// are, and a model of their time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "templates/cuda_gemm_times.h"
#include "templates/cuda_variants.h"

namespace coil::templates {

using Sizes = std::function<int64_t(Expr)>;

struct GemmProblem {
  const CudaGemmFacts& facts;
  CudaMachine machine;
  int64_t batch, m, n, k;
  bool a_k, b_k;      // walk k (contiguous, or nothing is)
  bool fixed;         // all sizes are constants
  int64_t guess = 0;  // what dynamic sizes were taken to be

  GemmProblem(const CudaGemmFacts& facts, const CudaMachine& machine, const Sizes& sizes);
  // Dynamic sizes near `guess`, within their ranges.
  GemmProblem(const CudaGemmFacts& facts, const CudaMachine& machine, int64_t guess);

  bool half() const { return facts.dtype == DType::bf16 || facts.dtype == DType::f16; }
  bool tensor() const { return half() || facts.tf32; }  // on tensor cores
  std::string_view type() const { return info(facts.dtype).c_name; }
  std::string_view tensor_type() const { return facts.tf32 ? "cd::tf32" : type(); }
  int size() const { return byte_size(facts.dtype); }  // of an element
  int step() const { return 128 / size(); }            // of wgmma's kernels along k
  std::string_view a_line() const { return a_k ? "t.a_row" : "t.a_col"; }
  std::string_view b_line() const { return b_k ? "t.b_col" : "t.b_row"; }
};

inline int64_t tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// Whether TMA can read both operands.
enum class Fit : uint8_t { never, at_run_time, always };
Fit tma_fit(const GemmProblem& p);
std::string tma_condition(const GemmProblem& p);  // for at_run_time
// 2, 4 or 8: a's rows are multiples of 32 bytes apart only every so many (8: of 16 at least), and TMA reads them class by class (device/cuda/wgmma_rows.h);
// else 1.
int a_classes(const GemmProblem& p);

struct TileChoice;
// The statements that fill the maps; boxes are what one of the blocks that share loads reads of a tile.
std::string map_setup(const GemmProblem& p, int bm, int bn, const TileChoice& c);

// mma_short: for products of a few steps, which no pipeline makes faster.
enum class TileKind : uint8_t { simt, mma, mma_short, wgmma, wgmma_split, wgmma_copy };
constexpr bool is_mma(TileKind kind) { return kind == TileKind::mma || kind == TileKind::mma_short; }

struct GemmTile {
  TileKind kind;
  int bm, bn, bk, wm, wn, stages, slices;  // wm x wn: the part of a warp, or of a thread (CUDA cores)
  int min_blocks;
  double rate;  // multiply-adds a clock of a multiprocessor that is busy with such blocks
  // On CUDA cores in float32: the share of that rate that one block alone reaches, and clocks of an element from a tile's sums to memory, with its start.
  double alone = 1, finish = 0;
};

int threads_of(const GemmTile& t, int turns = 1);  // of a block; turns: warpgroups that take the steps along k in turns

struct TileChoice {
  const GemmTile* tile = nullptr;
  int split = 1;             // parts of k
  int down = 1, across = 1;  // neighbouring tiles whose blocks share loads (wgmma with TMA)
  bool operator==(const TileChoice&) const = default;
};

int classes_of(const GemmProblem& p, const GemmTile& t);  // a_classes where TMA reads them, else 1
int stages_of(const GemmProblem& p, const GemmTile& t);
int turns_of(const GemmProblem& p, const GemmTile& t);  // warpgroups that take a tile's steps along k in turns
int64_t shared_bytes(const GemmProblem& p, const TileChoice& c);
double time_of(const GemmProblem& p, const TileChoice& c, const WgmmaTimes& times = kWgmmaTimes);  // nanoseconds

// How many neighbouring tiles' blocks may share loads: down, across.
std::span<const std::pair<int, int>> shares_of(const GemmTile& t);
// Whether the machine and the kernel have clusters of that many parts and sharers.
bool can_split(const GemmProblem& p, const TileChoice& c);

// Those that can compute the problem and do not leave most of their work idle, with TMA or without.
std::vector<TileChoice> tile_choices(const GemmProblem& p, bool tma);
// Every tile that can compute it, whatever the sizes.
std::vector<const GemmTile*> possible_tiles(const GemmProblem& p, bool tma);

}  // namespace coil::templates
