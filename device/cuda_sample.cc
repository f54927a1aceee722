// See cuda_sample.h.
#include "cuda_sample.h"

#include <string.h>

namespace cd {
namespace {

int32_t launch(const CudaCall& call, int32_t kernel, const CudaSampleRows& rows, int32_t num_rows, int64_t vocabulary, SamplePass pass, CoilError* error) {
  const CudaParam params[] = {{&rows, sizeof rows}, {&vocabulary, sizeof vocabulary}, {&pass, sizeof pass}};
  return cuda_launch(&call, kernel, sample_blocks(vocabulary), num_rows, 1, params, 3, error);
}

int32_t sample_some(const CudaCall& call, int32_t kernel, int64_t vocabulary, const CudaSampleRows& rows, int32_t num_rows, CoilError* error) {
  bool wanted[2] = {}, random = false, chances = false;
  for (int32_t r = 0; r < num_rows; r++) {
    random |= rows.row[r].temperature != 0;
    chances |= rows.row[r].chances != nullptr;
    wanted[0] |= rows.row[r].temperature != 0 && rows.row[r].top_k;
    wanted[1] |= rows.row[r].temperature != 0 && rows.row[r].top_p;
  }
  if (const int32_t failed = launch(call, kernel + kSampleBegin, rows, num_rows, vocabulary, {}, error)) return failed;
  for (int32_t by_share = 0; by_share < 2; by_share++) {
    for (int32_t pass = 0; wanted[by_share] && pass < kSamplePasses; pass++) {
      if (const int32_t failed = launch(call, kernel + kSampleSelect, rows, num_rows, vocabulary, {by_share, pass}, error)) return failed;
    }
  }
  if (random) {
    if (const int32_t failed = launch(call, kernel + kSampleChoose, rows, num_rows, vocabulary, {}, error)) return failed;
  }
  for (int32_t k = kSampleTop; chances && k <= kSampleShares; k++) {
    if (const int32_t failed = launch(call, kernel + k, rows, num_rows, vocabulary, {}, error)) return failed;
  }
  return 0;
}

}  // namespace

int32_t cuda_sample(const CoilCall* call, int32_t kernel, int64_t vocabulary, const CudaSample* rows, int32_t num_rows, CoilError* error) {
  const CudaCall plain = {{*call, nullptr}, nullptr};
  for (int32_t first = 0; first < num_rows; first += kSampleRows) {
    CudaSampleRows some;
    const int32_t count = num_rows - first < kSampleRows ? num_rows - first : kSampleRows;
    memcpy(some.row, rows + first, sizeof(CudaSample) * static_cast<size_t>(count));
    memset(some.row + count, 0, sizeof(CudaSample) * static_cast<size_t>(kSampleRows - count));
    if (const int32_t failed = sample_some(plain, kernel, vocabulary, some, count, error)) return failed;
  }
  return 0;
}

}  // namespace cd
