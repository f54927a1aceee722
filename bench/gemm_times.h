// Measured times of CUDA products' tiles (tests/gpu/test_gemm.py --bench --times=FILE) beside the compiler's choices.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "templates/cuda_gemm_model.h"

namespace coil::templates::measured {

constexpr CudaMachine kHopper = cuda_machine(90);
constexpr int64_t kLine = 64;     // elements: weights whose rows are no multiples of 16 bytes lie so far apart
constexpr int64_t kFewRows = 16;  // of a weight [n, k] in 16 bits, which tiles never serve

struct Time {
  TileChoice choice;
  double us;
};

struct Product {
  std::string name, kind;
  std::unique_ptr<CudaGemmFacts> facts;
  std::unique_ptr<GemmProblem> problem;
  std::vector<Time> times;
  double best = INFINITY;
};

struct Row {
  std::string dtype, kind;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int a_is_mk = 1, b_is_nk = 0, rows = 0, columns = 0, stages = 0, split = 0, down = 0, across = 0, threads = 0;
  double us = 0;

  std::string product() const {
    return fmt::format("{} {}{}x{}x{} {} {}", dtype, batch > 1 ? fmt::format("{}x ", batch) : "", m, n, k, a_is_mk ? "[m,k]" : "[k,m]",
                       b_is_nk ? "[n,k]" : "[k,n]");
  }
  // What it has in common with others, for fits that leave one kind out.
  std::string group() const {
    if (dtype != "bf16") return dtype;
    if (batch > 1) return "batches";
    if (m <= 128) return "few rows";
    if (!a_is_mk) return "gradients of weights";
    if (k % 16 != 0) return "odd k";
    if (n % 8 != 0) return "odd columns";
    if (!b_is_nk) return "columns contiguous";
    return m >= 2048 && n <= 512 ? "pixels" : "others";
  }
};

inline std::optional<Row> row_of(const std::string& line) {
  Row r;
  std::istringstream words(line);
  if (line.starts_with('#')) return std::nullopt;
  words >> r.dtype >> r.batch >> r.m >> r.n >> r.k >> r.a_is_mk >> r.b_is_nk >> r.kind >> r.rows >> r.columns >> r.stages >> r.split >> r.down >> r.across >>
      r.threads >> r.us;
  const bool served = r.dtype == "tf32" || (r.dtype == "bf16" && !(r.m <= kFewRows && r.b_is_nk));
  return words && r.us > 0 && served ? std::optional(r) : std::nullopt;
}

inline CudaGemmFacts facts_of(ExprPool& pool, const Row& r) {
  const auto size = [&](int64_t value) { return pool.index(value); };
  CudaGemmFacts f;
  f.tf32 = r.dtype == "tf32";
  f.dtype = f.tf32 ? DType::f32 : DType::bf16;
  const int64_t line = !f.tf32 && r.k % 8 != 0 && r.b_is_nk ? (r.k + kLine - 1) / kLine * kLine : r.k;
  f.batch = size(r.batch), f.m = size(r.m), f.n = size(r.n), f.k = size(r.k);
  f.a_batch = size(r.m * r.k), f.a_row = size(r.a_is_mk ? r.k : 1), f.a_col = size(r.a_is_mk ? 1 : r.m);
  f.b_batch = size(r.n * line), f.b_row = size(r.b_is_nk ? 1 : r.n), f.b_col = size(r.b_is_nk ? line : 1);
  f.a_alignment = f.b_alignment = 64;
  return f;
}

inline std::string kind_text(TileKind kind) {
  switch (kind) {
    case TileKind::simt: return "simt";
    case TileKind::mma:
    case TileKind::mma_short: return "mma";
    case TileKind::wgmma: return "wgmma";
    case TileKind::wgmma_split: return "wgmma_split";
    case TileKind::wgmma_copy: return "wgmma_copy";
  }
  return "";
}

// The choice whose kernel the row is of: with the stages and the threads that the compiler would give it.
inline std::optional<TileChoice> choice_of(const GemmProblem& p, const Row& r, const std::vector<TileChoice>& all) {
  for (const TileChoice& c : all) {
    const GemmTile& t = *c.tile;
    const bool same_tile = kind_text(t.kind) == r.kind && t.bm == r.rows && t.bn == r.columns;
    const bool same_share = c.split == r.split && c.down == r.down && c.across == r.across;
    const int threads = threads_of(t, turns_of(p, t));
    if (same_tile && same_share && threads == r.threads && (r.stages == 0 || r.stages == stages_of(p, t))) return c;
  }
  return std::nullopt;
}

inline std::vector<Product> read(ExprPool& pool, const char* path) {
  std::ifstream file(path);
  std::map<std::string, std::vector<Row>> rows;
  std::vector<std::string> order;
  for (std::string line; std::getline(file, line);) {
    const std::optional<Row> r = row_of(line);
    if (!r) continue;
    if (!rows.contains(r->product())) order.push_back(r->product());
    rows[r->product()].push_back(*r);
  }
  std::vector<Product> out;
  for (const std::string& name : order) {
    Product p;
    p.name = name, p.kind = rows[name][0].group();
    p.facts = std::make_unique<CudaGemmFacts>(facts_of(pool, rows[name][0]));
    p.problem = std::make_unique<GemmProblem>(*p.facts, kHopper, int64_t{512});
    const std::vector<TileChoice> all = tile_choices(*p.problem, tma_fit(*p.problem) != Fit::never);  // what TMA takes is not copied
    for (const Row& r : rows[name]) {
      if (const std::optional<TileChoice> c = choice_of(*p.problem, r, all)) p.times.push_back({*c, r.us}), p.best = std::min(p.best, r.us);
    }
    if (!p.times.empty()) out.push_back(std::move(p));
  }
  return out;
}

}  // namespace coil::templates::measured
