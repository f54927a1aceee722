// What the twelve kernels compute, in C++ for the emulated device (tests/cuda_emulation), with the parameters that Triton's machine code
// takes: constants of the kernel and numbers equal to 1 are not passed, and two addresses of scratch memory are, which are null. The first
// thread of a block does the block's work; what the launch must be is checked.
#include <cmath>

namespace twins {
inline void require(bool holds, const char* what) {
  if (!holds) emulation::fail(what);
}
// Threads of a block; true for the thread that works.
inline bool works(unsigned threads, const void* scratch, const void* profile) {
  require(blockDim.x == threads && blockDim.y == 1 && blockDim.z == 1, "another number of threads than Triton compiled for");
  require(!scratch && !profile, "scratch memory that is not there");
  return threadIdx.x == 0;
}
inline unsigned philox(unsigned seed, unsigned counter) {
  unsigned c[4] = {counter, 0, 0, 0}, k[2] = {seed, 0};
  for (int i = 0; i < 10; ++i) {
    const unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const unsigned n[4] = {(unsigned)(b >> 32) ^ c[1] ^ k[0], (unsigned)b, (unsigned)(a >> 32) ^ c[3] ^ k[1], (unsigned)a};
    for (int j = 0; j < 4; ++j) c[j] = n[j];
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return c[0];
}
}  // namespace twins
using half = _Float16;

COIL_KERNEL void softmax_rows(const float* x, float* y, int x_row, int y_row, int columns, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  const float* from = x + (long)blockIdx.x * x_row;
  float most = -INFINITY, sum = 0;
  for (int i = 0; i < columns; ++i) most = fmaxf(most, from[i]);
  for (int i = 0; i < columns; ++i) sum += std::exp(from[i] - most);
  for (int i = 0; i < columns; ++i) y[(long)blockIdx.x * y_row + i] = std::exp(from[i] - most) / sum;
}

COIL_KERNEL void layer_norm_rows(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd, int stride, int columns, float eps, void* scratch,
                                 void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  const float* from = x + (long)blockIdx.x * stride;
  double sum = 0, squares = 0;
  for (int i = 0; i < columns; ++i) sum += from[i];
  const double average = sum / columns;
  for (int i = 0; i < columns; ++i) squares += (from[i] - average) * (from[i] - average);
  mean[blockIdx.x] = (float)average;
  rstd[blockIdx.x] = (float)(1 / std::sqrt(squares / columns + eps));
  for (int i = 0; i < columns; ++i) y[(long)blockIdx.x * stride + i] = (float)(from[i] - average) * rstd[blockIdx.x] * weight[i] + bias[i];
}

COIL_KERNEL void matmul_groups(const half* a, const half* b, half* c, int m, int n, int k, int a_row, int b_column, int c_row, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  constexpr int M = 64, N = 64, GROUP = 8;
  const int number = (int)blockIdx.x, across = (n + N - 1) / N, down = (m + M - 1) / M;
  twins::require((int)gridDim.x == across * down, "another grid than the first configuration's");
  const int first = number / (GROUP * across) * GROUP, rows = down - first < GROUP ? down - first : GROUP;
  const int row = (first + number % (GROUP * across) % rows) * M, column = number % (GROUP * across) / rows * N;
  for (int i = row; i < row + M && i < m; ++i) {
    for (int j = column; j < column + N && j < n; ++j) {
      float sum = 0;
      for (int x = 0; x < k; ++x) sum += (float)a[(long)i * a_row + x] * (float)b[(long)j * b_column + x];
      c[(long)i * c_row + j] = (half)sum;
    }
  }
}

COIL_KERNEL void attention_forward(const half* q, const half* k, const half* v, half* o, float scale, int q_batch, int q_head, int q_row, int o_batch, int o_head, int o_row, int heads,
                                   int tokens, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  constexpr int ROWS = 64, DIM = 64;
  const long at = (long)(blockIdx.y / heads) * q_batch + (long)(blockIdx.y % heads) * q_head;
  half* to = o + (long)(blockIdx.y / heads) * o_batch + (long)(blockIdx.y % heads) * o_head;
  for (int row = (int)blockIdx.x * ROWS; row < (int)(blockIdx.x + 1) * ROWS && row < tokens; ++row) {
    float most = -INFINITY, total = 0, sums[DIM] = {};
    const auto score = [&](int key) {
      float s = 0;
      for (int d = 0; d < DIM; ++d) s += (float)q[at + (long)row * q_row + d] * (float)k[at + (long)key * q_row + d];
      return s * scale;
    };
    for (int key = 0; key <= row; ++key) most = fmaxf(most, score(key));
    for (int key = 0; key <= row; ++key) {
      const float weight = std::exp(score(key) - most);
      total += weight;
      for (int d = 0; d < DIM; ++d) sums[d] += weight * (float)v[at + (long)key * q_row + d];
    }
    for (int d = 0; d < DIM; ++d) to[(long)row * o_row + d] = (half)(sums[d] / total);
  }
}

COIL_KERNEL void dropout_elements(const float* x, float* y, int count, float p, int seed, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  for (int i = (int)blockIdx.x * 1024; i < (int)(blockIdx.x + 1) * 1024 && i < count; ++i) {
    const int word = (int)twins::philox((unsigned)seed, (unsigned)i);
    y[i] = (float)(word < 0 ? -word - 1 : word) * 4.6566127342e-10f >= p ? x[i] / (1 - p) : 0;
  }
}

COIL_KERNEL void cross_entropy_rows(const float* logits, const long* labels, float* loss, int stride, int classes, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  const float* from = logits + (long)blockIdx.x * stride;
  float most = -INFINITY, sum = 0;
  for (int i = 0; i < classes; ++i) most = fmaxf(most, from[i]);
  for (int i = 0; i < classes; ++i) sum += std::exp(from[i] - most);
  const long label = labels[blockIdx.x];
  loss[blockIdx.x] = label < 0 ? 0 : std::log(sum) + most - from[label];
}

COIL_KERNEL void rotate(float* x, const float* cosine, const float* sine, int tokens, void* scratch, void* profile) {
  if (!twins::works(32, scratch, profile)) return;
  constexpr int HEADS = 4, HALF = 32;
  const long row = blockIdx.x, token = row % tokens;
  for (int i = 0; i < HEADS * HALF; ++i) {
    float *a = x + (row * HEADS + i / HALF) * 2 * HALF + i % HALF, *b = a + HALF;
    const float c = cosine[token * HALF + i % HALF], s = sine[token * HALF + i % HALF], old = *a;
    *a = old * c - *b * s;
    *b = *b * c + old * s;
  }
}

COIL_KERNEL void int4_blocks(const half* x, const unsigned char* packed, const float* scales, half* y, int m, int n, int k, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  for (int i = (int)blockIdx.x * 32; i < (int)(blockIdx.x + 1) * 32 && i < m; ++i) {
    for (int j = (int)blockIdx.y * 64; j < (int)(blockIdx.y + 1) * 64 && j < n; ++j) {
      float sum = 0;
      for (int r = 0; r < k; ++r) {
        const int byte = packed[(long)(r / 2) * n + j];
        sum += (float)x[(long)i * k + r] * (float)((r % 2 ? byte >> 4 : byte & 15) - 8) * scales[(long)(r / 32) * n + j];
      }
      y[(long)i * n + j] = (half)sum;
    }
  }
}

COIL_KERNEL void top_k_rows(const float* x, float* values, long* indices, int columns, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  constexpr int K = 5;
  for (int i = 0; i < K; ++i) {
    int best = -1;
    for (int j = 0; j < columns; ++j) {
      bool taken = false;
      for (int t = 0; t < i; ++t) taken |= indices[blockIdx.x * K + t] == j;
      if (!taken && (best < 0 || x[(long)blockIdx.x * columns + j] > x[(long)blockIdx.x * columns + best])) best = j;
    }
    values[blockIdx.x * K + i] = x[(long)blockIdx.x * columns + best];
    indices[blockIdx.x * K + i] = best;
  }
}

COIL_KERNEL void scan_rows(const float* a, const float* b, float* h, int columns, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  float value = 0;
  for (int i = 0; i < columns; ++i) h[(long)blockIdx.x * columns + i] = value = a[(long)blockIdx.x * columns + i] * value + b[(long)blockIdx.x * columns + i];
}

COIL_KERNEL void sum_bags(const float* table, const long* ids, const long* offsets, float* y, int width, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  for (int j = (int)blockIdx.y * 64; j < (int)(blockIdx.y + 1) * 64 && j < width; ++j) {
    float sum = 0;
    for (long i = offsets[blockIdx.x]; i < offsets[blockIdx.x + 1]; ++i) sum += table[ids[i] * width + j];
    y[(long)blockIdx.x * width + j] = sum;
  }
}

COIL_KERNEL void swiglu_rows(const float* gate, const float* up, float* y, int stride, int width, void* scratch, void* profile) {
  if (!twins::works(128, scratch, profile)) return;
  for (int j = (int)blockIdx.y * 256; j < (int)(blockIdx.y + 1) * 256 && j < width; ++j) {
    const float g = gate[(long)blockIdx.x * stride + j], u = up[(long)blockIdx.x * stride + j];
    y[(long)blockIdx.x * width + j] = g / (1 + std::exp(-g)) * u;
  }
}
