// The rules for choosing tokens: shares beside exp(), what top-k, top-p and min-p leave beside a plain reference, and how often each token comes.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "device/cuda/sample_rules.h"

namespace coil::runtime {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Sampler, SharesAreExponentials) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float largest = std::uniform_real_distribution<float>(-20, 20)(random), gap = std::exponential_distribution<float>(0.2f)(random);
    const float temperature = i % 2 ? 1.0f : 0.37f, logit = largest - gap;
    const double exact = std::exp(static_cast<double>((largest - logit) / temperature) * -1) * static_cast<double>(cd::kSampleOne);
    const auto share = static_cast<double>(cd::sample_share(logit, largest, temperature));
    ASSERT_NEAR(share, exact, 1.5 + exact * 3e-7) << logit << " below " << largest;
    ASSERT_LE(share, static_cast<double>(cd::kSampleOne));
  }
  EXPECT_EQ(cd::sample_share(2, 2, 0.1f), cd::kSampleOne);
  EXPECT_EQ(cd::sample_share(kInfinity, kInfinity, 1), cd::kSampleOne);
  EXPECT_EQ(cd::sample_share(1, kInfinity, 1), 0u);
  EXPECT_EQ(cd::sample_share(-1e30f, 1e30f, 1e-40f), 0u);
  EXPECT_EQ(cd::sample_share(0.5f, 1, 1e30f), cd::kSampleOne);
}

TEST(Sampler, OrdersAreThoseOfFloats) {
  const float rising[] = {-kInfinity, -1e30f, -1, -1e-40f, 0, 1e-40f, 0.5f, 1, 1e30f, kInfinity};
  for (size_t i = 1; i < std::size(rising); ++i) {
    const uint32_t below = cd::sample_order(std::bit_cast<uint32_t>(rising[i - 1])), order = cd::sample_order(std::bit_cast<uint32_t>(rising[i]));
    EXPECT_LT(below, order);
    EXPECT_EQ(cd::sample_bits(order), std::bit_cast<uint32_t>(rising[i]));
  }
  EXPECT_EQ(cd::sample_order(std::bit_cast<uint32_t>(-0.0f)), cd::sample_order(0));
  EXPECT_EQ(cd::sample_order(std::bit_cast<uint32_t>(-kInfinity)), cd::kSampleNever);
}

TEST(Sampler, ProductsAreTheUpperHalves) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t a = random() >> random() % 64, b = random() >> random() % 64;
    __extension__ using Wide = unsigned __int128;
    ASSERT_EQ(cd::sample_product(a, b), static_cast<uint64_t>(Wide{a} * b >> 64));
  }
}

TEST(Sampler, RandomNumbersArePhilox) {  // Random123's known answers for philox4x32-10, of which the key and half of the counter are ours
  const cd::SampleWords zero = cd::sample_philox(0, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
}

// The tokens that the rules leave, by sorting doubles.
std::vector<bool> left_of(const std::vector<float>& logits, const Sampling& s) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double largest = logits[order[0]];
  const auto share = [&](size_t t) { return std::exp((logits[t] - largest) / s.temperature); };
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  double total = 0, kept = 0;
  for (const size_t t : order) total += share(t);
  std::vector<bool> left(logits.size());
  for (const size_t t : order) {
    if (s.top_p < 1 && kept >= s.top_p * total) break;
    kept += share(t);
    left[t] = share(t) >= s.min_p;
  }
  return left;
}

TEST(Sampler, ChoosesFromWhatTheRulesLeave) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(1 + random() % 40);
    for (float& x : logits) x = static_cast<float>(static_cast<int>(random() % 17)) / 2 - 4;  // with ties
    Sampling s;
    s.temperature = round % 3 ? 0.7f : 2.0f;
    if (random() % 2) s.top_k = 1 + static_cast<int64_t>(random() % 12);
    if (random() % 2) s.top_p = static_cast<float>(1 + random() % 97) / 100 + 0.0031f;
    if (random() % 3 == 0) s.min_p = 0.0517f;
    const std::vector<bool> left = left_of(logits, s);
    std::vector<int> counts(logits.size());
    for (s.seed = 0; s.seed < 400; ++s.seed) {
      std::vector<float> copy = logits;
      const auto token = sample(copy, {}, s);
      ASSERT_TRUE(token.ok());
      ASSERT_TRUE(left[static_cast<size_t>(token.value())]) << "round " << round;
      counts[static_cast<size_t>(token.value())]++;
    }
    for (size_t t = 0; t < logits.size(); ++t) {
      const float largest = *std::max_element(logits.begin(), logits.end());
      EXPECT_TRUE(counts[t] > 0 || !left[t] || logits[t] < largest) << "round " << round;
    }
  }
}

TEST(Sampler, TokensComeAsOftenAsTheirShares) {
  const std::vector<float> logits = {1, 2, -kInfinity, 0, 2};
  Sampling s;
  s.temperature = 1;
  double counts[5] = {};
  for (s.seed = 0; s.seed < 40000; ++s.seed) {
    std::vector<float> copy = logits;
    counts[sample(copy, {}, s).value()]++;
  }
  const double all = std::exp(1.0) + 2 * std::exp(2.0) + 1;
  for (size_t t = 0; t < 5; ++t) EXPECT_NEAR(counts[t] / 40000, std::exp(static_cast<double>(logits[t])) / all, 0.01);
  EXPECT_EQ(counts[2], 0);
}

TEST(Sampler, BiasesOfATokenCountTogether) {
  std::vector<float> logits = {0, 1, 2};
  Sampling s;
  s.bias = {{0, 1.5f}, {0, 1.5f}, {7, 100.0f}, {-1, 100.0f}};
  EXPECT_EQ(sample(logits, {}, s).value(), 0);
}

}  // namespace
}  // namespace coil::runtime
