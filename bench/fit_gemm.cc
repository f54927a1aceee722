// How well the cost model of CUDA products chooses among measured times, and what its constants (src/templates/cuda_gemm_times.h) would best be.
//
//   python3 tests/gpu/test_gemm.py --bench --times=FILE      on the GPU: times of every candidate of some forty products
//   ninja -C build bench_fit_gemm && build/bench/bench_fit_gemm FILE [--fit] [--without CONSTANT=VALUE]
//
// For each product: the time of the tile that the model takes over that of the best one that was measured. --fit: the constants moved one by one, as long as
// that brings predicted times nearer to measured ones without making the choices worse, as lines for the table. --without crowd=1: the model without a term.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "templates/cuda_gemm_model.h"

namespace coil::templates {
namespace {

constexpr int kHopper = 90;
constexpr int64_t kLine = 64;  // elements: weights whose rows are no multiples of 16 bytes lie so far apart

struct Measured {
  TileChoice choice;
  double us;
  bool trusted;  // among those that the model takes untimed
};

struct Product {
  std::string name;
  std::unique_ptr<CudaGemmFacts> facts;
  std::unique_ptr<GemmProblem> problem;
  std::vector<Measured> measured;
};

struct Row {
  std::string dtype, kind;
  int64_t m = 0, n = 0, k = 0;
  int b_is_nk = 0, rows = 0, columns = 0, stages = 0, split = 0, down = 0, across = 0, threads = 0;
  double us = 0;

  std::string product() const { return dtype + " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (b_is_nk ? " [n,k]" : " [k,n]"); }
};

std::optional<Row> row_of(const std::string& line) {
  Row r;
  std::istringstream words(line);
  if (line.starts_with('#')) return std::nullopt;
  words >> r.dtype >> r.m >> r.n >> r.k >> r.b_is_nk >> r.kind >> r.rows >> r.columns >> r.stages >> r.split >> r.down >> r.across >> r.threads >> r.us;
  return words && r.us > 0 ? std::optional(r) : std::nullopt;
}

CudaGemmFacts facts_of(ExprPool& pool, const Row& r) {
  const auto size = [&](int64_t value) { return pool.index(value); };
  CudaGemmFacts f;
  f.tf32 = r.dtype == "tf32";
  f.dtype = r.dtype == "bf16" ? DType::bf16 : r.dtype == "f16" ? DType::f16 : r.dtype == "f64" ? DType::f64 : DType::f32;
  const int64_t line = byte_size(f.dtype) == 2 && r.k % 8 != 0 ? (r.k + kLine - 1) / kLine * kLine : r.k;
  f.batch = size(1), f.m = size(r.m), f.n = size(r.n), f.k = size(r.k);
  f.a_batch = size(r.m * r.k), f.a_row = size(r.k), f.a_col = size(1);
  f.b_batch = size(r.n * line), f.b_row = size(r.b_is_nk ? 1 : r.n), f.b_col = size(r.b_is_nk ? line : 1);
  f.a_alignment = f.b_alignment = 64;
  return f;
}

std::string kind_text(TileKind kind) {
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
std::optional<TileChoice> choice_of(const GemmProblem& p, const Row& r, const std::vector<TileChoice>& all) {
  for (const TileChoice& c : all) {
    const GemmTile& t = *c.tile;
    const bool same_tile = kind_text(t.kind) == r.kind && t.bm == r.rows && t.bn == r.columns;
    const bool same_share = c.split == r.split && c.down == r.down && c.across == r.across;
    const int threads = t.threads + (turns_of(p, t) - 1) * t.bm * 2;
    if (same_tile && same_share && threads == r.threads && (r.stages == 0 || r.stages == stages_of(p, t))) return c;
  }
  return std::nullopt;
}

std::vector<TileChoice> choices(const GemmProblem& p, bool trusted) {
  std::vector<TileChoice> all;
  for (const bool tma : {true, false}) {
    if (tma && tma_fit(p) == Fit::never) continue;
    for (const TileChoice& c : tile_choices(p, tma, trusted)) all.push_back(c);
    if (tma) break;  // what TMA takes is not copied
  }
  return all;
}

std::vector<Product> read(ExprPool& pool, const char* path) {
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
    p.name = name;
    p.facts = std::make_unique<CudaGemmFacts>(facts_of(pool, rows[name][0]));
    p.problem = std::make_unique<GemmProblem>(*p.facts, kHopper, int64_t{512});
    const std::vector<TileChoice> all = choices(*p.problem, false), trusted = choices(*p.problem, true);
    for (const Row& r : rows[name]) {
      const std::optional<TileChoice> c = choice_of(*p.problem, r, all);
      if (c) p.measured.push_back({*c, r.us, std::find(trusted.begin(), trusted.end(), *c) != trusted.end()});
    }
    if (!p.measured.empty()) out.push_back(std::move(p));
  }
  return out;
}

// Of the choices that were measured; trusted: of those that the model takes untimed.
const Measured* taken(const Product& p, const WgmmaTimes& times, bool trusted) {
  const Measured* best = nullptr;
  double least = INFINITY;
  for (const Measured& m : p.measured) {
    if (trusted && !m.trusted) continue;
    const double time = time_of(*p.problem, m.choice, times);
    if (time < least) best = &m, least = time;
  }
  return best;
}

double best_us(const Product& p) {
  double best = INFINITY;
  for (const Measured& m : p.measured) best = std::min(best, m.us);
  return best;
}

// The mean of the logarithms of taken over best.
double choice_loss(const std::vector<Product>& all, const WgmmaTimes& times, bool trusted) {
  double sum = 0;
  for (const Product& p : all) {
    const Measured* m = taken(p, times, trusted);
    if (m) sum += std::log(m->us / best_us(p));
  }
  return sum / static_cast<double>(std::max<size_t>(all.size(), 1));
}

// How far predicted times are from measured ones, within a product: what is the same for all its tiles does not matter to a choice. Tiles that take twice the
// best one's time do not either.
double time_loss(const std::vector<Product>& all, const WgmmaTimes& times) {
  double sum = 0;
  size_t count = 0;
  for (const Product& p : all) {
    const double most = 2 * best_us(p);
    std::vector<double> off;
    for (const Measured& m : p.measured) {
      if (m.us <= most) off.push_back(std::log(time_of(*p.problem, m.choice, times) / (1000 * m.us)));
    }
    double mean = 0;
    for (const double o : off) mean += o / static_cast<double>(off.size());
    for (const double o : off) sum += (o - mean) * (o - mean);
    count += off.size();
  }
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(count, 1)));
}

struct Constant {
  const char* name;
  double WgmmaTimes::* value;
  const char* source;
};
constexpr Constant kConstants[] = {
#define X(name, value, source) {#name, &WgmmaTimes::name, source},
    COIL_WGMMA_TIMES(X)
#undef X
};

void print(const std::vector<Product>& all, const WgmmaTimes& times) {
  for (const Product& p : all) {
    const Measured *free = taken(p, times, false), *m = taken(p, times, true);
    if (!m || !free) continue;
    std::printf("%-32s %4zu tiles  best %8.2f us  taken %8.2f  x%.3f   without `known_to_gain` %8.2f  x%.3f\n", p.name.c_str(), p.measured.size(), best_us(p),
                m->us, m->us / best_us(p), free->us, free->us / best_us(p));
  }
  std::printf("mean of taken over best: x%.4f, without `known_to_gain` x%.4f; predicted times are off by %.1f %% within a product\n",
              std::exp(choice_loss(all, times, true)), std::exp(choice_loss(all, times, false)), 100 * time_loss(all, times));
}

// Constants are moved by less and less, each where that makes the sum of both losses smaller.
WgmmaTimes fitted(const std::vector<Product>& all, WgmmaTimes times) {
  const auto loss = [&](const WgmmaTimes& t) { return time_loss(all, t) + choice_loss(all, t, false) + choice_loss(all, t, true); };
  double least = loss(times);
  for (double step = 0.2; step > 0.004; step /= 2) {
    bool moved = true;
    for (int round = 0; moved && round < 20; ++round) {
      moved = false;
      for (const Constant& c : kConstants) {
        for (const double factor : {1 + step, 1 / (1 + step)}) {
          WgmmaTimes other = times;
          other.*c.value *= factor;
          const double now = loss(other);
          if (now < least - 1e-7) times = other, least = now, moved = true;
        }
      }
    }
  }
  return times;
}

bool set(WgmmaTimes& times, const std::string& text) {
  const size_t at = text.find('=');
  for (const Constant& c : kConstants) {
    if (at != std::string::npos && text.substr(0, at) == c.name) return times.*c.value = std::atof(text.c_str() + at + 1), true;
  }
  return false;
}

int run(int count, char** words) {
  WgmmaTimes times;
  bool fit = false;
  const char* path = nullptr;
  for (int i = 1; i < count; ++i) {
    if (!std::strcmp(words[i], "--fit")) fit = true;
    else if (!std::strcmp(words[i], "--without") && i + 1 < count) {
      if (!set(times, words[++i])) return std::fprintf(stderr, "the table has no constant '%s' (CONSTANT=VALUE)\n", words[i]), 2;
    } else path = words[i];
  }
  ExprPool pool;
  const std::vector<Product> all = path ? read(pool, path) : std::vector<Product>();
  if (all.empty())
    return std::fprintf(stderr,
                        "usage: bench_fit_gemm TIMES [--fit] [--without CONSTANT=VALUE]; make TIMES with tests/gpu/test_gemm.py --bench --times=FILE\n"),
           2;
  print(all, times);
  if (!fit) return 0;
  const WgmmaTimes better = fitted(all, times);
  print(all, better);
  for (const Constant& c : kConstants)
    std::printf("  X(%s, %.5g, \"%s\")%s\n", c.name, better.*c.value, c.source, better.*c.value == times.*c.value ? "" : "  // changed");
  return 0;
}

}  // namespace
}  // namespace coil::templates

int main(int count, char** words) { return coil::templates::run(count, words); }
