// What the choice of tokens on a CUDA device (CoilModel::sample) needs in memory: that of the kernels, and that of a conversation's rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/cuda/sample_rules.h"
#include "runtime/buffer.h"
#include "runtime/model.h"
#include "runtime/sampler.h"

namespace coil::runtime {

// For one call at a time: what the kernels keep for each row, and the numbers and chances that they give, in memory of the host.
class ChoiceMemory {
 public:
  explicit ChoiceMemory(const Model& model) : model_(model), scratch_(model.device()) {}
  ~ChoiceMemory();
  ChoiceMemory(const ChoiceMemory&) = delete;
  ChoiceMemory& operator=(const ChoiceMemory&) = delete;

  // For so many rows and numbers. The numbers are written when the work that writes them is over.
  Status reserve(int64_t vocabulary, int64_t rows, int64_t numbers);
  void* scratch(int64_t row) const { return scratch_.data() + row * row_bytes_; }
  long long* device_number(int64_t i) const { return device_numbers_ + i; }
  int64_t number(int64_t i) const { return __atomic_load_n(numbers_ + i, __ATOMIC_ACQUIRE); }
  cd::SampleChances* device_chances(int64_t i) const { return reinterpret_cast<cd::SampleChances*>(device_numbers_ + capacity_) + i; }
  const cd::SampleChances& chances(int64_t i) const { return reinterpret_cast<const cd::SampleChances*>(numbers_ + capacity_)[i]; }

 private:
  void free_numbers();

  const Model& model_;
  Buffer scratch_;
  int64_t row_bytes_ = 0, rows_ = 0, capacity_ = 0;
  long long *numbers_ = nullptr, *device_numbers_ = nullptr;  // as the CPU and as the device see them; chances follow them
};

// A conversation's rules in the device's memory, kept from token to token.
class ChoiceRules {
 public:
  explicit ChoiceRules(const Device& device) : device_(device), bias_(device), seen_(device), allowed_(device), stop_(device) {}

  // Fills in what the rules are of the row's, for the token that comes after `tokens`; what the device does not have yet is copied there. Chances are not
  // asked for (num_best is -1).
  Status put(const Sampling& sampling, std::span<const int64_t> tokens, std::span<const int64_t> stop, int64_t vocabulary, CudaSample* row);
  // The device itself has added so many tokens to those that were there.
  void add(int64_t count) { seen_tokens_ += count; }
  // The sampling, or the tokens that were there, are others now.
  void forget() { bias_known_ = false, seen_tokens_ = kUnknown; }

 private:
  static constexpr int64_t kUnknown = INT64_MIN / 2;
  Status upload(Buffer* to, const void* from, int64_t bytes);
  Status put_bias(const Sampling& sampling, int64_t vocabulary);
  Status put_seen(std::span<const int64_t> tokens, int64_t vocabulary);

  const Device& device_;
  Buffer bias_, seen_, allowed_, stop_;
  bool bias_known_ = false;
  int64_t seen_tokens_ = kUnknown;  // how many tokens seen_ is of
  std::vector<int64_t> stop_tokens_;
};

// Why a row has no token; ok for tokens.
Status choice_error(int64_t number);

}  // namespace coil::runtime
