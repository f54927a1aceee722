// Choosing the next token from logits. The rules are those of transformers' logits processors, in their order: bias, repetition penalty, a mask of what
// is allowed, temperature, top-k, top-p, min-p. Random numbers are Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
// of the seed and the token's place in the conversation: the same seed gives the same text, however the steps were made. Probabilities are whole numbers
// (device/cuda/sample_rules.h): every machine, CPU or GPU, chooses the same tokens of the same logits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/cuda/sample_rules.h"

namespace coil::runtime {

struct Sampling {
  float temperature = 0;         // 0: the most likely token, always
  int64_t top_k = 0;             // of the most likely ones; 0: of all
  float top_p = 1;               // of the fewest most likely ones that have this share together
  float min_p = 0;               // of those with at least this share of the most likely one's probability
  float repetition_penalty = 1;  // positive logits of tokens that the conversation has are divided by it, negative ones multiplied
  uint64_t seed = 0;
  std::vector<std::pair<int64_t, float>> bias;  // added to the logits of these tokens
  // Sets to 0 what must not come next; all are 1 before. Empty: everything may.
  std::function<void(std::span<const int64_t> tokens, std::span<uint8_t> allowed)> allow;
};

// COIL-E402 for numbers that mean nothing (negative, NaN).
Status check(const Sampling& sampling);

// The biases of the vocabulary's tokens; several of one token count together.
std::map<int64_t, float> biases_of(const Sampling& sampling, int64_t vocabulary);

// Rules as whole numbers. top_p: times 2^64, 0: all; min_share: of cd::kSampleOne.
struct SamplingNumbers {
  uint64_t top_p, min_share;
};
SamplingNumbers numbers_of(const Sampling& sampling);

// Why no token can be chosen: COIL-E210.
Error logits_are_nan();
Error nothing_is_allowed();

// The token after `tokens`. logits: of all tokens, changed. COIL-E210 when no number is left to choose from: NaN, or nothing is allowed.
Result<int64_t> sample(std::span<float> logits, std::span<const int64_t> tokens, const Sampling& sampling);

// A token that was chosen, and the most likely ones, by falling probability; with the logarithms of their probabilities.
struct TokenChances {
  std::pair<int64_t, float> chosen;
  std::vector<std::pair<int64_t, float>> best;
};
TokenChances chances_of(std::span<const float> logits, int64_t chosen, int64_t best);
// The same of what a device has found.
TokenChances chances_of(const cd::SampleChances& found, int64_t chosen, int64_t best);

}  // namespace coil::runtime
