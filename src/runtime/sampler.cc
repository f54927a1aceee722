// See sampler.h.
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

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
  for (const auto& [token, bias] : s.bias) {
    if (token >= 0 && token < static_cast<int64_t>(logits.size())) logits[static_cast<size_t>(token)] += bias;
  }
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

// A token and its share, as a multiple of the most likely one's.
struct Candidate {
  int64_t token;
  float logit;
  double share;
};

// What the rules leave to choose from: all that may be, or the most likely ones in falling order (equal ones in that of the vocabulary).
std::vector<Candidate> candidates(std::span<const float> logits, float largest, const Sampling& s) {
  std::vector<Candidate> all;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kNever) continue;
    const double share = logits[i] == largest ? 1 : std::exp((static_cast<double>(logits[i]) - largest) / s.temperature);
    all.push_back({static_cast<int64_t>(i), logits[i], share});
    total += share;
  }
  if (s.top_k == 0 && s.top_p == 1) {
    std::erase_if(all, [&](const Candidate& c) { return c.share < s.min_p; });
    return all;
  }
  const auto less = [](const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit < b.logit : a.token > b.token; };
  std::make_heap(all.begin(), all.end(), less);
  std::vector<Candidate> best;
  const auto take = [&] {
    std::pop_heap(all.begin(), all.end(), less);
    best.push_back(all.back());
    all.pop_back();
  };
  if (s.top_k > 0) {
    total = 0;
    for (int64_t k = 0; k < s.top_k && !all.empty(); ++k) take(), total += best.back().share;
  }
  // Top-p of what top-k has left, of which there is at least one.
  size_t count = 0;
  for (double kept = 0; count == 0 || kept < s.top_p * total; kept += best[count++].share) {
    if (count == best.size() && (s.top_k > 0 || all.empty())) break;
    if (count == best.size()) take();
  }
  best.resize(count);
  while (best.size() > 1 && best.back().share < s.min_p) best.pop_back();
  return best;
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

Philox philox(uint64_t key, uint64_t counter) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b), static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1],
                              static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

Result<int64_t> sample(std::span<float> logits, std::span<const int64_t> tokens, const Sampling& s) {
  forbid(logits, tokens, s);
  const float largest = largest_of(logits);
  if (std::isnan(largest)) return Error{ErrorCode::input_value, "the model's logits are not numbers (NaN)", "", ""};
  if (largest == kNever) return Error{ErrorCode::input_value, "no token is allowed to come next", "", ""};
  if (s.temperature == 0) return std::find(logits.begin(), logits.end(), largest) - logits.begin();
  const std::vector<Candidate> left = candidates(logits, largest, s);
  double kept = 0;
  for (const Candidate& c : left) kept += c.share;
  const Philox random = philox(s.seed, tokens.size());
  double u = static_cast<double>((uint64_t{random.words[0]} << 21) ^ (random.words[1] >> 11)) * 0x1p-53 * kept;
  for (const Candidate& c : left) {
    u -= c.share;
    if (u < 0) return c.token;
  }
  return left.back().token;
}

TokenChances chances_of(std::span<const float> logits, int64_t chosen, int64_t best) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  const double all = largest + std::log(sum);
  const auto chance = [&](int64_t t) { return std::pair(t, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(t)]) - all)); };
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

}  // namespace coil::runtime
