// How well the cost model of CUDA products chooses among measured times, and what its constants (src/templates/cuda_gemm_times.h) would best be.
//
//   python3 tests/gpu/test_gemm.py --bench --times=FILE      on the GPU: times of the compiler's tiles of some eighty products
//   ninja -C build bench_fit_gemm && build/bench/bench_fit_gemm FILE [--fit] [--cross] [--with CONSTANT=VALUE]
//
// For each product: the time of the tile that the model takes over that of the best one that was measured. --fit: the constants moved one by one, as long as
// that brings predicted times and choices nearer to measured ones, as lines for the table. --cross: how constants choose that were fitted to other products
// alone: to a random half of them, and to all but those of a kind. --with outside=0: the model without a term.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "gemm_fit.h"

namespace coil::templates::measured {
namespace {

// Taken over best of some products: the geometric mean and the worst.
struct Judgement {
  double logs = 0, worst = 1;
  size_t count = 0;
  std::string of;

  void add(const Products& all, const WgmmaTimes& times) {
    for (const Product* p : all) {
      const double ratio = taken(*p, times).us / p->best;
      logs += std::log(ratio), ++count;
      if (ratio > worst) worst = ratio, of = p->name;
    }
  }
  std::string text() const {
    return fmt::format("taken over best x{:.4f}, at worst x{:.3f} ({}), of {} products", std::exp(logs / static_cast<double>(std::max<size_t>(count, 1))),
                       worst, of, count);
  }
};

std::string text(const TileChoice& c) {
  return fmt::format("{} {}x{} split {} shared {}x{}", kind_text(c.tile->kind), c.tile->bm, c.tile->bn, c.split, c.down, c.across);
}

void print(const Products& all, const WgmmaTimes& times) {
  Judgement j;
  for (const Product* p : all) {
    const Time &t = taken(*p, times), &best = *std::min_element(p->times.begin(), p->times.end(), [](const Time& a, const Time& b) { return a.us < b.us; });
    fmt::print("{:38} {:3} tiles  x{:.3f}  taken {:8.2f} us (predicted {:8.2f}) {:36} best {:8.2f} us {}\n", p->name, p->times.size(), t.us / p->best, t.us,
               time_of(*p->problem, t.choice, times) / 1000, text(t.choice), best.us, text(best.choice));
  }
  j.add(all, times);
  fmt::print("{}; predicted times are off by {:.1f} % within a product\n", j.text(), 100 * loss_of(all, times).within);
}

// The constants as they might have been guessed before any fit.
WgmmaTimes guessed(std::mt19937& random) {
  WgmmaTimes times;
  std::uniform_real_distribution<double> factor(-0.4, 0.4);
  for (const Constant& c : kConstants) {
    if (!is_kept(c)) times.*c.value *= std::exp(factor(random));
  }
  return times;
}

// From the table, and from several guesses: a fit ends where no single constant gains.
WgmmaTimes best_fit(const Products& all, const WgmmaTimes& times) {
  constexpr int kGuesses = 16;
  std::mt19937 random(1);
  WgmmaTimes best = fitted(all, times);
  for (int i = 0; i < kGuesses; ++i) {
    const WgmmaTimes other = fitted(all, guessed(random));
    if (loss_of(all, other).sum() < loss_of(all, best).sum()) best = other;
  }
  return best;
}

void cross(const Products& all) {
  Judgement now;
  now.add(all, {});
  fmt::print("the table: {}\n", now.text());
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937 random(seed);
    Products order = all;
    std::shuffle(order.begin(), order.end(), random);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
    const Products halves[] = {Products(order.begin(), middle), Products(middle, order.end())};
    Judgement other;
    for (const int half : {0, 1}) other.add(halves[1 - half], fitted(halves[half], guessed(random)));
    fmt::print("fitted to the other half, seed {}: {}\n", seed, other.text());
    std::fflush(stdout);
  }
  std::set<std::string> kinds;
  Judgement kept_out;
  for (const Product* p : all) kinds.insert(p->kind);
  for (const std::string& kind : kinds) {
    Products in, out;
    for (const Product* p : all) (p->kind == kind ? out : in).push_back(p);
    std::mt19937 random(1);
    const WgmmaTimes times = fitted(in, guessed(random));
    Judgement j, before;
    j.add(out, times), before.add(out, {}), kept_out.add(out, times);
    fmt::print("fitted to all but {}: {}; the table: {}\n", kind, j.text(), before.text());
    std::fflush(stdout);
  }
  fmt::print("fitted to all other kinds: {}\n", kept_out.text());
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
  bool fit = false, crossed = false;
  const char* path = nullptr;
  for (int i = 1; i < count; ++i) {
    if (!std::strcmp(words[i], "--fit")) fit = true;
    else if (!std::strcmp(words[i], "--cross")) crossed = true;
    else if (!std::strcmp(words[i], "--with") && i + 1 < count) {
      if (!set(times, words[++i])) return std::fprintf(stderr, "the table has no constant '%s' (CONSTANT=VALUE)\n", words[i]), 2;
    } else path = words[i];
  }
  ExprPool pool;
  const std::vector<Product> products = path ? read(pool, path) : std::vector<Product>();
  Products all;
  for (const Product& p : products) all.push_back(&p);
  if (all.empty())
    return std::fprintf(stderr,
                        "usage: bench_fit_gemm TIMES [--fit] [--cross] [--with CONSTANT=VALUE]; make TIMES with tests/gpu/test_gemm.py --bench --times=FILE\n"),
           2;
  print(all, times);
  if (crossed) cross(all);
  if (!fit) return 0;
  const WgmmaTimes better = best_fit(all, times);
  print(all, better);
  for (const Constant& c : kConstants)
    fmt::print("  X({}, {:.3g}, \"{}\", \"{}\")  // was {:.3g}\n", c.name, better.*c.value, c.unit, c.source, times.*c.value);
  return 0;
}

}  // namespace
}  // namespace coil::templates::measured

int main(int count, char** words) { return coil::templates::measured::run(count, words); }
