// See sampler.h.
#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "device/cuda/sample_rules.h"

namespace coil::runtime {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void penalise(std::span<float> logits, std::span<const int64_t> tokens, float penalty) {
  std::vector<int64_t> seen(tokens.begin(), tokens.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int64_t t : seen) {
    if (t < 0 || t >= static_cast<int64_t>(logits.size())) continue;
    float& x = logits[static_cast<size_t>(t)];
    x = x > 0 ? x / penalty : x * penalty;
  }
}

// Logits of what the rules leave to choose from; the others are kNever.
void forbid(std::span<float> logits, std::span<const int64_t> tokens, const Sampling& s) {
  for (const auto& [token, bias] : biases_of(s, static_cast<int64_t>(logits.size()))) logits[static_cast<size_t>(token)] += bias;
  if (s.repetition_penalty != 1) penalise(logits, tokens, s.repetition_penalty);
  if (!s.allow) return;
  std::vector<uint8_t> allowed(logits.size(), 1);
  s.allow(tokens, allowed);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed[i]) logits[i] = kNever;
  }
}

// The largest logit, or NaN if one is. In lanes, which compilers turn into vectors: vocabularies have 100,000 words.
float largest_of(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float best[kLanes];
  std::fill(std::begin(best), std::end(best), kNever);
  bool nan[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float x = logits[i + l];
      nan[l] |= x != x;
      best[l] = x > best[l] ? x : best[l];
    }
  }
  for (; i < logits.size(); ++i) {
    nan[0] |= std::isnan(logits[i]);
    best[0] = std::max(best[0], logits[i]);
  }
  if (std::any_of(std::begin(nan), std::end(nan), [](bool b) { return b; })) return std::numeric_limits<float>::quiet_NaN();
  return *std::max_element(std::begin(best), std::end(best));
}

// Tokens that top-k and top-p leave: those whose logit is above the threshold, and the first ones of those at it.
struct Kept {
  uint32_t threshold = 0;
  uint64_t ties = 0;
};

Kept kept_by_rank(std::span<const float> logits, float largest, const Sampling& s) {
  std::vector<uint64_t> all;  // a token's order, and below it the complement of its number: most likely ones are largest, equal ones as in the vocabulary
  uint64_t total = 0;
  const auto share = [&](uint64_t key) { return cd::sample_share(logits[static_cast<uint32_t>(~key)], largest, s.temperature); };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kNever) continue;
    all.push_back(uint64_t{cd::sample_order(std::bit_cast<uint32_t>(logits[i]))} << 32 | static_cast<uint32_t>(~i));
    if (s.top_k == 0) total += share(all.back());
  }
  std::make_heap(all.begin(), all.end());
  std::vector<uint64_t> best;
  const auto take = [&] {
    std::pop_heap(all.begin(), all.end());
    best.push_back(all.back());
    all.pop_back();
  };
  for (int64_t k = 0; k < s.top_k && !all.empty(); ++k) take(), total += share(best.back());
  size_t count = best.size();
  if (s.top_p < 1) {
    count = 0;
    const uint64_t target = cd::sample_target(total, numbers_of(s).top_p);
    for (uint64_t kept = 0; kept < target; kept += share(best[count++])) {
      if (count == best.size()) take();  // all shares together reach the target
    }
  }
  const auto threshold = static_cast<uint32_t>(best[count - 1] >> 32);
  Kept kept{threshold, 0};
  for (; count > 0 && best[count - 1] >> 32 == threshold; --count) ++kept.ties;
  return kept;
}

// A token that is left to choose from, and its share.
struct Candidate {
  int64_t token;
  uint64_t share;
};

std::vector<Candidate> candidates(std::span<const float> logits, float largest, const Sampling& s) {
  Kept kept;
  if (s.top_k > 0 || s.top_p < 1) kept = kept_by_rank(logits, largest, s);
  const uint64_t least = numbers_of(s).min_share;
  std::vector<Candidate> left;
  uint64_t ties = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kNever) continue;
    const uint32_t order = cd::sample_order(std::bit_cast<uint32_t>(logits[i]));
    if (order < kept.threshold || (order == kept.threshold && ties++ >= kept.ties)) continue;
    const uint64_t share = cd::sample_share(logits[i], largest, s.temperature);
    if (share >= least) left.push_back({static_cast<int64_t>(i), share});
  }
  return left;
}

}  // namespace

Status check(const Sampling& s) {
  const auto wrong = [](const char* name, double value, const char* expected) {
    return Error{ErrorCode::bad_option, std::string(name) + " is " + std::to_string(value) + ", expected " + expected, "", ""};
  };
  if (!(s.temperature >= 0) || std::isinf(s.temperature)) return wrong("temperature", s.temperature, "0 (the most likely token) or more");
  if (s.top_k < 0) return wrong("top_k", static_cast<double>(s.top_k), "0 (all) or more");
  if (!(s.top_p > 0 && s.top_p <= 1)) return wrong("top_p", s.top_p, "more than 0 and at most 1");
  if (!(s.min_p >= 0 && s.min_p < 1)) return wrong("min_p", s.min_p, "0 or more and less than 1");
  if (!(s.repetition_penalty > 0) || std::isinf(s.repetition_penalty)) return wrong("repetition_penalty", s.repetition_penalty, "more than 0 (1: none)");
  for (const auto& [token, bias] : s.bias) {
    if (std::isnan(bias)) return wrong("the bias of a token", bias, "a number");
  }
  return ok_status();
}

std::map<int64_t, float> biases_of(const Sampling& s, int64_t vocabulary) {
  std::map<int64_t, float> sums;
  for (const auto& [token, bias] : s.bias) {
    if (token >= 0 && token < vocabulary) sums[token] += bias;
  }
  return sums;
}

SamplingNumbers numbers_of(const Sampling& s) {
  const uint64_t top_p = s.top_p < 1 ? std::max<uint64_t>(static_cast<uint64_t>(static_cast<double>(s.top_p) * 0x1p64), 1) : 0;
  return {top_p, static_cast<uint64_t>(static_cast<double>(s.min_p) * static_cast<double>(cd::kSampleOne))};
}

Error logits_are_nan() { return Error{ErrorCode::input_value, "the model's logits are not numbers (NaN)", "", ""}; }
Error nothing_is_allowed() { return Error{ErrorCode::input_value, "no token is allowed to come next", "", ""}; }

Result<int64_t> sample(std::span<float> logits, std::span<const int64_t> tokens, const Sampling& s) {
  forbid(logits, tokens, s);
  const float largest = largest_of(logits);
  if (std::isnan(largest)) return logits_are_nan();
  if (largest == kNever) return nothing_is_allowed();
  if (s.temperature == 0) return std::find(logits.begin(), logits.end(), largest) - logits.begin();
  const std::vector<Candidate> left = candidates(logits, largest, s);
  uint64_t kept = 0;
  for (const Candidate& c : left) kept += c.share;
  uint64_t at = cd::sample_place(s.seed, tokens.size(), kept);
  for (const Candidate& c : left) {
    if (at < c.share) return c.token;
    at -= c.share;
  }
  return left.back().token;
}

// The logarithm of the probability of a token, whose share of `total` is that of its logit at a temperature of 1.
static float chance_of(float logit, float largest, uint64_t total) {
  const double gap = logit == largest ? 0 : static_cast<double>(logit) - largest;
  return static_cast<float>(gap - std::log(static_cast<double>(total) / static_cast<double>(cd::kSampleOne)));
}

TokenChances chances_of(std::span<const float> logits, int64_t chosen, int64_t best) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  uint64_t total = 0;
  for (const float x : logits) total += cd::sample_share(x, largest, 1);
  const auto chance = [&](int64_t t) { return std::pair(t, chance_of(logits[static_cast<size_t>(t)], largest, total)); };
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min<size_t>(static_cast<size_t>(std::max<int64_t>(best, 0)), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  TokenChances made{chance(chosen), {}};
  for (size_t i = 0; i < count; ++i) made.best.push_back(chance(order[i]));
  return made;
}

TokenChances chances_of(const cd::SampleChances& found, int64_t chosen, int64_t best) {
  const auto logit = [](uint64_t rank) { return std::bit_cast<float>(cd::sample_bits(static_cast<uint32_t>(rank >> 32))); };
  const float largest = std::bit_cast<float>(found.largest);
  TokenChances made{{chosen, chance_of(std::bit_cast<float>(found.chosen), largest, found.total)}, {}};
  for (int64_t i = 0; i < std::min<int64_t>(best, cd::kSampleBest) && found.best[i] != 0; ++i)
    made.best.emplace_back(cd::sample_ranked_token(found.best[i]), chance_of(logit(found.best[i]), largest, found.total));
  return made;
}

}  // namespace coil::runtime
