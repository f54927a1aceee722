// Which CUDA kernels serve a grouped product: device/cuda/grouped_gemm.h with the tiles of matrix products. How long the groups are only data says: the
// model sees as many products as there are groups, of an average one's size.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "templates/cuda_gemm_model.h"

namespace coil::templates {
namespace {

constexpr int64_t kShortGroup = 64, kOfShort = 32, kOfLong = 512;  // rows: up to which a group is short, and what the model takes one of each kind to have
constexpr int kBeforeWgmma = 89;                                   // the last architecture whose products have no tiles by wgmma
constexpr int64_t kGuess = 512;                                    // of other dynamic sizes

// As the last architecture without wgmma, with as many multiprocessors beside its usual ones as the chip has.
CudaMachine before_wgmma(const CudaMachine& chip) {
  if (chip.sm <= kBeforeWgmma) return chip;
  const CudaMachine earlier = cuda_machine(kBeforeWgmma);
  const int64_t usual = cuda_machine(chip.sm).multiprocessors;
  return with_multiprocessors(earlier, std::max(1, static_cast<int>((int64_t{earlier.multiprocessors} * chip.multiprocessors + usual / 2) / usual)));
}

// The product of one group after the other, each with `size` rows (terms).
CudaGemmFacts of_size(const CudaGroupedFacts& facts, int64_t size) {
  CudaGemmFacts f = facts.product;
  (facts.by_depth ? f.k : f.m) = f.m->pool->index(size);
  return f;
}

// The fastest tile, by the model, of those that a block computes alone.
TileChoice best_tile(const CudaGroupedFacts& facts, const CudaMachine& machine, bool tma, int64_t size) {
  const CudaGemmFacts f = of_size(facts, size);
  const GemmProblem p(f, machine, kGuess);
  TileChoice best;
  for (const GemmTile* t : possible_tiles(p, tma)) {
    const TileChoice c{t};
    if (t->kind != TileKind::wgmma && (!best.tile || time_of(p, c) < time_of(p, best))) best = c;
  }
  CHECK(best.tile != nullptr, "a grouped product without a tile");
  return best;
}

CudaVariant variant_of(const CudaGroupedFacts& facts, const GemmProblem& p, const TileChoice& c) {
  const GemmTile& t = *c.tile;
  const bool copies = t.kind == TileKind::wgmma_copy;
  CudaVariant v;
  v.header = "cuda/grouped_gemm.h";
  v.threads = threads_of(t);
  v.min_blocks = t.min_blocks;
  v.shared_bytes = shared_bytes(p, c);
  const std::string layout = fmt::format("{}, {}", p.a_k, p.b_k), ends = fmt::format("{}>(t, a.flag, a.kernel, epilogue);", facts.by_depth);
  if (t.kind == TileKind::simt) {
    v.name = fmt::format("simt_{}x{}x{}", t.bm, t.bn, t.bk);
    v.call = fmt::format("cd::grouped_simt<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}", p.type(), t.bm, t.bn, t.bk, t.wm, t.wn, t.stages, t.slices, layout, ends);
  } else if (is_mma(t.kind)) {
    v.name = fmt::format("mma_{}x{}x{}", t.bm, t.bn, t.bk);
    v.call = fmt::format("cd::grouped_mma<{}, {}, {}, {}, {}, {}, {}, {}, {}", p.tensor_type(), t.bm, t.bn, t.bk, t.wm, t.wn, t.stages, layout, ends);
  } else {
    v.name = fmt::format("wgmma{}_{}x{}", copies ? "_copy" : "", t.bm, t.bn);
    v.call = fmt::format("cd::grouped_wgmma<{}, {}, {}, {}, {}, {}, {}", p.tensor_type(), t.bm, t.bn, t.stages, layout, copies, ends);
    v.hopper = true;
    if (!copies) v.setup = map_setup(p, t.bm, t.bn, c);
  }
  if (p.facts.tf32 && t.kind != TileKind::simt) v.name = "tf32_" + v.name;
  const std::string tiles_n = fmt::format("((t.n + {}) / {})", t.bn - 1, t.bn);
  v.grid_x =
      facts.by_depth ? fmt::format("{} * ((t.m + {}) / {}) * t.batch", tiles_n, t.bm - 1, t.bm) : fmt::format("{} * (t.m / {} + t.batch + 1)", tiles_n, t.bm);
  return v;
}

}  // namespace

std::vector<CudaVariant> cuda_grouped_variants(const CudaGroupedFacts& facts, const CudaMachine& chip, GroupedTiles taken) {
  const CudaMachine machine = taken == GroupedTiles::all ? chip : before_wgmma(chip);
  const GemmProblem p(facts.product, machine, kGuess);
  const std::optional<int64_t> groups = known(facts.product.batch), size = known(facts.by_depth ? facts.product.k : facts.product.m);
  std::vector<CudaVariant> variants;
  // Kernels for short and for long groups, or one for those that the sizes say.
  const auto add = [&](bool tma, const std::string& condition) {
    const auto add_one = [&](int64_t of, const std::string& wanted) {
      CudaVariant v = variant_of(facts, p, best_tile(facts, machine, tma, of));
      v.condition = condition.empty() || wanted.empty() ? condition + wanted : wanted + " && " + condition;
      variants.push_back(std::move(v));
    };
    if (groups && size) return add_one(std::max<int64_t>(tiles(*size, std::max<int64_t>(*groups, 1)), 1), "");
    if (!facts.by_depth) add_one(kOfShort, fmt::format("t.m <= {} * t.batch", kShortGroup));
    add_one(kOfLong, "");
  };
  const Fit fit = machine.sm <= kBeforeWgmma || facts.by_depth || !p.a_k || a_classes(p) > 1 ? Fit::never : tma_fit(p);
  if (fit != Fit::never) add(true, fit == Fit::always ? "" : tma_condition(p));
  if (fit != Fit::always) add(false, "");
  return variants;
}

}  // namespace coil::templates
