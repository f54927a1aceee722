// See device_choice.h.
#include "runtime/device_choice.h"

#include <algorithm>
#include <cstring>

namespace coil::runtime {

ChoiceMemory::~ChoiceMemory() { free_numbers(); }

void ChoiceMemory::free_numbers() {
  if (!numbers_) return;
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  model_.cuda()->driver().synchronise();  // work that was given up may still write there
  model_.cuda()->driver().free_host(numbers_);
  numbers_ = nullptr, capacity_ = 0;
}

Status ChoiceMemory::reserve(int64_t vocabulary, int64_t rows, int64_t numbers) {
  CoilError error{};
  const cd::CudaDriver& driver = model_.cuda()->driver();
  const cd::CudaScope scope(&driver, model_.cuda()->context());
  const auto failed = [&](cd::CudaResult result, const char* what) {
    cd::cuda_fail(&driver, result, &error, what);
    return error_of(error);
  };
  if (rows > rows_) {
    rows_ = 0;
    row_bytes_ = cd::sample_scratch_bytes(vocabulary);
    if (!scratch_.reserve(rows * row_bytes_, &error)) return error_of(error);
    if (const auto result = driver.fill(reinterpret_cast<cd::CudaAddress>(scratch_.data()), 0, static_cast<size_t>(rows * row_bytes_), nullptr))
      return failed(result, "cannot clear the memory for the choice of tokens");
    rows_ = rows;
  }
  if (numbers <= capacity_) return ok_status();
  free_numbers();
  void* host = nullptr;
  cd::CudaAddress address = 0;
  cd::CudaResult result =
      driver.allocate_host(&host, static_cast<size_t>(numbers) * (sizeof(long long) + sizeof(cd::SampleChances)), cd::kCudaHostPortable | cd::kCudaHostMapped);
  if (result == cd::kCudaSuccess) {
    numbers_ = static_cast<long long*>(host);
    result = driver.host_address(&address, host, 0);
  }
  if (result != cd::kCudaSuccess) return failed(result, "no pinned memory for chosen tokens");
  device_numbers_ = reinterpret_cast<long long*>(address);
  capacity_ = numbers;
  return ok_status();
}

Status ChoiceRules::upload(Buffer* to, const void* from, int64_t bytes) {
  CoilError error{};
  if (!to->reserve(bytes, &error)) return error_of(error);
  return device_.copy(to->data(), from, bytes, nullptr, &error) ? Status(error_of(error)) : ok_status();
}

Status ChoiceRules::put_bias(const Sampling& sampling, int64_t vocabulary) {
  if (bias_known_) return ok_status();
  std::vector<float> dense(static_cast<size_t>(vocabulary));
  for (const auto& [token, bias] : biases_of(sampling, vocabulary)) dense[static_cast<size_t>(token)] = bias;
  TRY_STATUS(upload(&bias_, dense.data(), 4 * vocabulary));
  bias_known_ = true;
  return ok_status();
}

Status ChoiceRules::put_seen(std::span<const int64_t> tokens, int64_t vocabulary) {
  if (seen_tokens_ == static_cast<int64_t>(tokens.size())) return ok_status();
  seen_tokens_ = kUnknown;
  std::vector<uint32_t> bits(static_cast<size_t>((vocabulary + 31) / 32));
  for (const int64_t t : tokens) bits[static_cast<size_t>(t / 32)] |= uint32_t{1} << (t % 32);  // all are in the vocabulary
  TRY_STATUS(upload(&seen_, bits.data(), static_cast<int64_t>(4 * bits.size())));
  seen_tokens_ = static_cast<int64_t>(tokens.size());
  return ok_status();
}

Status ChoiceRules::put(const Sampling& sampling, std::span<const int64_t> tokens, std::span<const int64_t> stop, int64_t vocabulary, CudaSample* row) {
  *row = {};
  row->num_best = -1;
  row->penalty = sampling.repetition_penalty;
  row->temperature = sampling.temperature;
  row->seed = sampling.seed;
  row->place = tokens.size();
  row->top_k = static_cast<unsigned long long>(sampling.top_k);
  row->top_p = numbers_of(sampling).top_p;
  row->min_share = numbers_of(sampling).min_share;
  if (!sampling.bias.empty()) {
    TRY_STATUS(put_bias(sampling, vocabulary));
    row->bias = reinterpret_cast<const float*>(bias_.data());
  }
  if (sampling.repetition_penalty != 1) {
    TRY_STATUS(put_seen(tokens, vocabulary));
    row->seen = reinterpret_cast<unsigned*>(seen_.data());
  }
  if (sampling.allow) {
    std::vector<uint8_t> allowed(static_cast<size_t>(vocabulary), 1);
    sampling.allow(tokens, allowed);
    TRY_STATUS(upload(&allowed_, allowed.data(), vocabulary));
    row->allowed = allowed_.data();
  }
  if (!stop.empty()) {
    if (!std::equal(stop.begin(), stop.end(), stop_tokens_.begin(), stop_tokens_.end())) {
      stop_tokens_.clear();
      TRY_STATUS(upload(&stop_, stop.data(), static_cast<int64_t>(stop.size_bytes())));
      stop_tokens_.assign(stop.begin(), stop.end());
    }
    row->stop = reinterpret_cast<const long long*>(stop_.data());
    row->num_stop = static_cast<int>(stop.size());
  }
  return ok_status();
}

Status choice_error(int64_t number) {
  if (number >= 0) return ok_status();
  if (number == cd::kSampleNaN) return logits_are_nan();
  if (number == cd::kSampleNothing) return nothing_is_allowed();
  return Error{ErrorCode::internal, "the device has chosen no token: " + std::to_string(number), "", ""};
}

}  // namespace coil::runtime
