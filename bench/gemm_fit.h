// How far constants of the model of CUDA products (src/templates/cuda_gemm_times.h) are from measured times, and better ones.
#pragma once

#include "gemm_times.h"

namespace coil::templates::measured {

using Products = std::vector<const Product*>;

struct Constant {
  const char *name, *unit, *source;
  double WgmmaTimes::* value;
};
inline constexpr Constant kConstants[] = {
#define X(name, value, unit, source) {#name, unit, source, &WgmmaTimes::name},
    COIL_WGMMA_TIMES(X)
#undef X
};

// The launch is the same for all tiles; what few_steps and copied_in are of lies beyond these products.
inline bool is_kept(const Constant& c) { return c.value == &WgmmaTimes::launch || c.value == &WgmmaTimes::few_steps || c.value == &WgmmaTimes::copied_in; }

inline const Time& taken(const Product& p, const WgmmaTimes& times) {
  return *std::min_element(p.times.begin(), p.times.end(),
                           [&](const Time& a, const Time& b) { return time_of(*p.problem, a.choice, times) < time_of(*p.problem, b.choice, times); });
}

struct Loss {
  double choice = 0;  // the mean of the logarithms of taken over best, where tiles of nearly the same predicted time are taken alike
  double within = 0;  // how far predicted times are from measured ones within a product: what is the same for all its tiles does not matter to a choice
  double total = 0;   // the same where half of that matters too, so that constants stay what they say

  double sum() const { return total + 4 * choice; }
};

// Tiles that take twice the best one's time do not matter.
inline Loss loss_of(const Products& all, const WgmmaTimes& times) {
  constexpr double kAlike = 0.03, kCommon = 0.5;
  Loss loss;
  double count = 0;
  for (const Product* p : all) {
    double sum = 0, squares = 0, n = 0, least = INFINITY, weights = 0, lost = 0;
    std::vector<double> predicted;
    for (const Time& t : p->times) predicted.push_back(std::log(time_of(*p->problem, t.choice, times))), least = std::min(least, predicted.back());
    for (size_t i = 0; i < predicted.size(); ++i) {
      const double us = p->times[i].us, weight = std::exp((least - predicted[i]) / kAlike), off = predicted[i] - std::log(1000 * us);
      weights += weight, lost += weight * std::log(us / p->best);
      if (us <= 2 * p->best) sum += off, squares += off * off, ++n;
    }
    loss.choice += lost / weights / static_cast<double>(all.size());
    loss.within += squares - sum * sum / n, loss.total += squares - sum * sum / n * (1 - kCommon * kCommon);
    count += n;
  }
  loss.within = std::sqrt(loss.within / count), loss.total = std::sqrt(loss.total / count);
  return loss;
}

// Constants are moved by less and less, each where that makes the sum of both losses smaller.
inline WgmmaTimes fitted(const Products& all, WgmmaTimes times) {
  const auto sum = [&](const WgmmaTimes& t) { return loss_of(all, t).sum(); };
  double least = sum(times);
  for (double step = 0.25; step > 0.01; step /= 2) {
    bool moved = true;
    for (int round = 0; moved && round < 10; ++round) {
      moved = false;
      for (const Constant& c : kConstants) {
        if (is_kept(c)) continue;
        for (const double factor : {1 + step, 1 / (1 + step)}) {
          WgmmaTimes other = times;
          other.*c.value *= factor;
          if (const double now = sum(other); now < least - 1e-6) {
            times = other, least = now, moved = true;
            break;
          }
        }
      }
    }
  }
  return times;
}

}  // namespace coil::templates::measured
